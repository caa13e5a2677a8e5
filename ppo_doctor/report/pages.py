"""Manual pages of rules, causes and metrics, in Markdown: for `docs/`, and through `manpage` for a terminal.

The subset of Markdown is small on purpose: headings, paragraphs, lists, tables and inline code.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from ppo_doctor.evidence import number
from ppo_doctor.report.escape import prose
from ppo_doctor.report.key_steps import USUAL
from ppo_doctor.report.sparkline import sparkline

#: Characters of a drawn example: with its neighbours it fits 80 columns.
DRAWN = 20

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ppo_doctor.model import Cause, Complaint, Measurement, Remedy, Rule, Weight

    class Pack(Protocol):
        """What a page needs of a rule pack: everything that its names may refer to."""

        @property
        def rules(self) -> tuple[Rule, ...]:
            """Every rule."""

        @property
        def causes(self) -> tuple[Cause, ...]:
            """Every cause."""

        @property
        def complaints(self) -> tuple[Complaint, ...]:
            """Every complaint."""

        @property
        def sound(self) -> Mapping[str, tuple[int, ...]]:
            """How many sound runs answer each check with yes, of how many."""

    class Metric(Protocol):
        """A metric of the vocabulary."""

        @property
        def name(self) -> str:
            """The canonical name."""

        @property
        def unit(self) -> str:
            """The unit; empty for a pure number."""

        @property
        def meaning(self) -> str:
            """What it measures."""

        @property
        def finite(self) -> bool:
            """Whether it must always be finite."""


Toml = dict[str, Any]


def rule_page(rule: Rule, toml: Toml, pack: Pack) -> str:
    """Return the page of a rule; `toml` is its file, parsed, with `doc` and `case`."""
    doc = toml.get("doc", {})
    meta = f"`{rule.code}` · {rule.severity.value} · link: {rule.link} · {rule.status}"
    return _page(
        rule.name,
        _sentence(rule.title),
        meta,
        _section("What it finds", _paragraph(doc.get("what"))),
        _section("Why it matters", _paragraph(doc.get("why"))),
        _section("Look-alikes", _list(doc.get("look_alikes"))),
        _section("Blind spots", _list(doc.get("blind_spots"))),
        _section("What to try", _numbered(doc.get("next_steps"))),
        _section("Parameters", _parameters(rule)),
        _section("Sound runs", _sound(pack.sound.get(rule.name, ()))),
        _section("Examples", _examples(toml.get("case", ()))),
        _section("References", _list(doc.get("references"))),
    )


def cause_page(cause: Cause, toml: Toml, pack: Pack) -> str:
    """Return the page of a cause; `toml` is its file, parsed; names that the page explains are looked up in `pack`."""
    kind = "a harmless explanation" if cause.benign else f"severity {cause.severity.value}"
    weights = sorted(cause.weights, key=lambda w: -max(abs(w.fired), abs(w.clear)))
    rules = {rule.name: _sentence(rule.title) for rule in pack.rules}
    told = {w.finding: _weighed(w, rules.get(w.finding, ""), pack.sound.get(w.finding, ())) for w in weights}
    rows = [(_db(w.fired), _db(w.clear), told[w.finding]) for w in weights]
    evidence = _table(("fired, dB", "clear, dB", "finding, and where the weights come from"), rows)
    return _page(
        cause.id,
        _sentence(cause.title),
        f"{kind} · link: {cause.link} · family: {cause.family}",
        _section("What it means", _paragraph(cause.says)),
        _section("How common", _prior(cause, toml)),
        _section("Evidence for and against", evidence or "No finding weighs for or against it."),
        _section("Told apart from", _rivals(cause, pack)),
        _section("What to do", _remedies(cause.remedies)),
        _section("What would settle it", _measures(cause)),
    )


def metric_page(metric: Metric, natives: Sequence[tuple[str, str, str]] = ()) -> str:
    """Return the page of a metric; `natives` are (framework, key as logged, qualifiers)."""
    unit = f"Unit: {metric.unit}." if metric.unit else "It has no unit."
    finite = "It must be finite in every record." if metric.finite else "It may be NaN without anything being wrong."
    usual = USUAL.get(metric.name)
    lies = "" if usual is None else f" It is usually {usual} ({_safe(usual.source)})."
    kinds: dict[tuple[str, str], list[str]] = {}
    for framework, key, qualifiers in natives:
        kinds.setdefault((framework, qualifiers), []).append(f"`{key}`")
    rows = [(name, ", ".join(keys) + (f" ({kind})" if kind else "")) for (name, kind), keys in kinds.items()]
    return _page(
        metric.name,
        _sentence(metric.meaning),
        _section("How to read it", f"{unit} {finite}{lies}"),
        _section(
            "What frameworks call it",
            _table(("framework", "key, and what kind of estimate it is"), rows) or "No framework logs it.",
        ),
    )


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {_cell(title)}", *(part for part in parts if part)]) + "\n"


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else f"## {title}\n\nNothing noted."


def _paragraph(text: str | None) -> str:
    return _sentence(text) if text else ""


def _sentence(text: str) -> str:
    safe = _safe(text)
    return safe if safe.endswith((".", "?", ":")) else f"{safe}."


def _safe(text: object) -> str:
    """Return text of a pack on one line, safe for a terminal and without HTML."""
    return prose(str(text)).replace("<", "&lt;")


def _cell(text: object) -> str:
    return _safe(text).replace("|", "\\|")


def _list(items: Iterable[str] | None) -> str:
    return "\n".join(f"- {_safe(item)}" for item in items or ())


def _numbered(items: Iterable[str] | None) -> str:
    return "\n".join(f"{place}. {_safe(item)}" for place, item in enumerate(items or (), start=1))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, or nothing without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parameters(rule: Rule) -> str:
    rows = [(f"`{p.name}`", number(p.value), p.unit, p.source) for p in rule.params]
    return _table(("name", "value", "unit", "source"), rows) or "None: the bounds are part of the definition."


def _weighed(weight: Weight, title: str, sound: Sequence[int]) -> str:
    source = f" Source: {weight.source}." if weight.source else ""
    counts = " ".join(filter(None, (source, _sound(sound))))
    return f"`{weight.finding}`: {title}{counts and ' ' * (not source)}{counts}"


def _sound(counts: Sequence[int]) -> str:
    """Return how many sound runs answer yes: of the lab's trainers, and of those that people published."""
    pairs = list(zip(counts[::2], counts[1::2], strict=True))
    told = [
        f"{yes} of {of} {whose}" for (yes, of), whose in zip(pairs, ("of the lab", "published"), strict=False) if of
    ]
    return f"Sound runs that answer yes: {', '.join(told)}." if told else ""


def _examples(cases: Iterable[Mapping[str, Any]]) -> str:
    """Return every case as a row per series: the status that the rule must reach, a drawing, its range and name."""
    rows = [row for case in cases for row in _case_rows(case)]
    return _table(("expected", "drawn", "case"), rows)


def _case_rows(case: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    expect = case.get("expect", {})
    onset = f", onset {expect['onset']}" if expect.get("onset") is not None else ""
    settings = ", ".join(f"`{key}` = {value}" for key, value in case.get("config", {}).items())
    label = f"{case.get('name', '')} ({case.get('kind', '')})" + (f", with {settings}" if settings else "")
    drawn = [_drawn(name, text) for name, text in case.get("series", {}).items()] or [("", "")]
    first = (f"{expect.get('status', '')}{onset}", drawn[0][0], f"{label}: {drawn[0][1]}".removesuffix(": "))
    return [first, *(("", line, what) for line, what in drawn[1:])]


def _drawn(name: str, text: str) -> tuple[str, str]:
    """Return a series as a drawing, and its name with its range."""
    from ppo_doctor.testing import parse_series

    points = parse_series(text)
    finite = [point for point in points if point is not None and math.isfinite(point)]
    ends = list(dict.fromkeys(number(end) for end in (min(finite), max(finite)))) if finite else []
    return sparkline(points, DRAWN), " ".join([f"`{name}`", " to ".join(ends)]).strip()


def _prior(cause: Cause, toml: Toml) -> str:
    word = _safe(toml.get("prior", ""))
    named = f"{word[:1].upper()}{word[1:]}: a prior of" if word else "A prior of"
    never = " No log can prove it, so it stays suspected." if cause.never_proven else ""
    return f"{named} {_db(cause.prior)} dB against a healthy run.{never}"


def _rivals(cause: Cause, pack: Pack) -> str:
    causes = {other.id: other.title for other in pack.causes}
    twins = [f"- `{twin}`, a twin: no log separates them. {_sentence(causes.get(twin, twin))}" for twin in cause.twins]
    titles = {complaint.id: complaint.title for complaint in pack.complaints}
    blocks = ["\n".join(twins)] if twins else []
    for complaint in cause.complaints:
        rivals = [c for c in pack.causes if complaint in c.complaints and c.id not in (cause.id, *cause.twins)]
        if rivals:
            head = f"Rivals where the complaint is “{_safe(titles.get(complaint, complaint))}”:"
            blocks.append("\n".join([head, "", *(f"- `{c.id}`: {_safe(c.title)}" for c in rivals)]))
    return "\n\n".join(blocks)


def _remedies(remedies: Sequence[Remedy]) -> str:
    frameworks = dict.fromkeys(remedy.framework for remedy in remedies)
    ordered = sorted(frameworks, key=lambda name: (name is not None, name or ""))
    blocks = []
    for framework in ordered:
        ours = [_remedy(remedy) for remedy in remedies if remedy.framework == framework]
        blocks.append("\n".join([f"In {_safe(framework)}:" if framework else "In any framework:", "", *ours]))
    return "\n\n".join(blocks)


def _remedy(remedy: Remedy) -> str:
    about = remedy.key or " ".join(filter(None, (remedy.setting, remedy.to)))
    return f"- {_safe(remedy.do)}" + (f" (`{_safe(about)}`)" if about else "")


def _measures(cause: Cause) -> str:
    return "\n".join(f"- {_measure(measure)}" for measure in cause.measure)


def _measure(measure: Measurement) -> str:
    return f"Log {_safe(measure.log)} — {_safe(measure.because)}."


def _db(value: int) -> str:
    return "0" if value == 0 else f"+{value}" if value > 0 else f"−{-value}"
