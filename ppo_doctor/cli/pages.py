"""Write the Markdown pages of rules, causes, frameworks and metrics for `explain` and `rules docs`.

Examples are run while a page is written, so that it shows what this version answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.evidence import number, says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import PRIORS
from ppo_doctor.report.escape import prose
from ppo_doctor.report.layout import sparkline

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.metrics import Metric
    from ppo_doctor.model.rules import Cause, Remedy, Rule, Weight
    from ppo_doctor.trainers.profiles import MetricProfile, Profile

#: Folder of the site → the columns of its index.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "rules": ("rule", "code", "severity", "link", "finds"),
    "causes": ("cause", "kind", "link", "meaning"),
    "frameworks": ("name", "framework", "algorithm"),
    "metrics": ("metric", "unit", "meaning"),
}
#: The most findings whose cases the page of a cause shows, and the width of a drawing in characters.
MOST_FINDINGS, DRAWN = 3, 20
HOW_TO = "`docs/how-to-log.md` has the lines that log the five most useful numbers in each trainer."
_CODE_OR_TAG = re.compile(r"`[^`]*`|<")
_NAME = re.compile(r"`([^`\n]+)`")


@frozen(kw_only=False)
class Entry:
    """A page: its folder in the site, its name, further cells in the index, and the function that returns it."""

    folder: str
    name: str
    cells: tuple[str, ...]
    write: Callable[[], str]


def entries(pack: Pack) -> list[Entry]:
    """Return an entry for every rule, cause, framework and metric."""
    from ppo_doctor.model.metrics import METRICS
    from ppo_doctor.trainers.detection import profiles

    rules, causes = pack.rules, pack.causes
    return [
        *(Entry("rules", r.name, (r.code, r.severity, r.link, r.title), partial(rule_page, r, pack)) for r in rules),
        *(Entry("causes", c.id, (_kind(c), c.link, c.title), partial(cause_page, c, pack)) for c in causes),
        *(Entry("frameworks", p.name, (p.title, p.algorithm), partial(framework_page, p)) for p in profiles().values()),
        *(Entry("metrics", m.name, (m.unit, m.meaning), partial(metric_page, m)) for m in METRICS.values()),
    ]


def page(name: str) -> str:
    """Return the page of a rule (name or code), a cause, a framework, or a metric (canonical or native), in Markdown.

    Raises:
        DoctorError: no such name; the hint lists similar names (exit code 2).
    """
    from ppo_doctor.checks.rulepack import load_pack

    pack = load_pack()
    known = {entry.name: entry for entry in entries(pack)}
    found = known.get(name) or known.get(_canonical(name, pack))
    if found is None:
        near = get_close_matches(name, known, n=3)
        hint = f"near: {', '.join(near)}" if near else "ppo-doctor rules list shows all rules"
        raise DoctorError(f"nothing is called '{name}'", hint=hint, code=ExitCode.USAGE)
    return found.write()


def _canonical(name: str, pack: Pack) -> str:
    """Return the name of the rule with this code or of the metric with this native key, empty if there is none."""
    from ppo_doctor.trainers.detection import profiles

    rule = pack.rule(name)
    if rule is not None:
        return rule.name
    logged = (metric for profile in profiles().values() for metric in profile.metrics.values())
    return next((metric.name for metric in logged if name in metric.keys), "")


def site() -> dict[str, str]:
    """Return every page by its path, an index for each folder, and a start page; names of pages are relative links."""
    from ppo_doctor.checks.rulepack import load_pack

    every = entries(load_pack())
    paths = {entry.name: f"{entry.folder}/{entry.name}.md" for entry in every}
    pages = {paths[entry.name]: entry.write() for entry in every}
    for folder, columns in COLUMNS.items():
        rows = sorted((f"`{entry.name}`", *entry.cells) for entry in every if entry.folder == folder)
        pages[f"{folder}/README.md"] = _page(folder.capitalize(), _table(columns, rows))
    linked = {path: _linked(text, paths) for path, text in pages.items()}
    start = "\n".join(f"- [{folder}]({folder}/README.md)" for folder in COLUMNS)
    return {"README.md": _page("Reference of ppo-doctor", start)} | linked


def _linked(markdown: str, paths: Mapping[str, str]) -> str:
    """Return a page with a link at each name in code style that has a page."""
    return _NAME.sub(lambda code: f"[{code[0]}](../{paths[code[1]]})" if code[1] in paths else code[0], markdown)


def rule_page(rule: Rule, pack: Pack) -> str:
    """Return the page of a rule."""
    from ppo_doctor.checks.cases import read_cases
    from ppo_doctor.checks.rulepack import file_of

    doc = file_of(rule.path)["doc"]
    parameters = [(f"`{p.name}`", number(p.value), p.unit, p.source) for p in rule.params]
    return _page(
        rule.name,
        _sentence(rule.title),
        f"`{rule.code}` · {rule.severity} · link: {rule.link}",
        _section("What it finds", _sentence(doc.get("what", ""))),
        _section("Why it matters", _sentence(doc.get("why", ""))),
        _section("Look-alikes", _list(doc.get("look_alikes", ()))),
        _section("Blind spots", _list(doc.get("blind_spots", ()))),
        _section("What to try", _list(doc.get("next_steps", ()), "1.")),
        _section("Parameters", _table(("name", "value", "unit", "source"), parameters)),
        _section("Sound runs", _sound_runs(rule.name, pack)),
        _section("Examples", _list(_example(rule, case) for case in read_cases(rule))),
        _section("References", _list(doc.get("references", ()))),
    )


def _example(rule: Rule, case: Mapping[str, Any]) -> str:
    """Return a rule's answer to one of its cases, with the inputs of the case and the evidence."""
    from ppo_doctor.checks.cases import run_case

    finding = run_case(rule, case).finding
    # A case is not a file, so the places of its numbers mean nothing to a reader.
    placeless = tuple(replace(evidence, source=None) for evidence in finding.evidence)
    because = finding.reason if finding.status == "skipped" else says(replace(finding, evidence=placeless))
    inputs = "; ".join(_inputs(case))
    return f"{finding.status}: {case['name']}{inputs and f', with {inputs}'}. {because}"


def _inputs(case: Mapping[str, Any]) -> Iterator[str]:
    """Yield each series of a case as a drawing with its range, then each setting."""
    from ppo_doctor.checks.cases import parse_series

    for name, text in case["series"].items():
        points = parse_series(text)
        finite = [point for point in points if point is not None and math.isfinite(point)]
        ends = dict.fromkeys(number(end) for end in (min(finite), max(finite))) if finite else {}
        yield " ".join(filter(None, (f"`{name}`", sparkline(points, DRAWN), " to ".join(ends))))
    yield from (f"`{key}` = {value}" for key, value in case.get("config", {}).items())


def cause_page(cause: Cause, pack: Pack) -> str:
    """Return the page of a cause."""
    weights = sorted(cause.weights, key=lambda weight: -max(abs(weight.fired), abs(weight.clear)))
    evidence = [(_db(weight.fired), _db(weight.clear), _weighed(weight, pack)) for weight in weights]
    return _page(
        cause.id,
        _sentence(cause.title),
        f"{_kind(cause)} · link: {cause.link} · family: {cause.family}",
        _section("What it means", _sentence(cause.says)),
        _section("How common", _prior(cause)),
        _section("Evidence for and against", _table(("fired, dB", "clear, dB", "finding, and its source"), evidence)),
        _section("What it looks like", _sample(cause, pack), _cases(cause, pack)),
        _section("Told apart from", *_rivals(cause, pack)),
        _section("What to do", *_remedies(cause.remedies)),
        _section("What would settle it", _list(f"Log {item.log} — {item.because}." for item in cause.measure), HOW_TO),
    )


def _kind(cause: Cause) -> str:
    return "a harmless explanation" if cause.benign else f"severity {cause.severity}"


def _prior(cause: Cause) -> str:
    word = next((f"{word.capitalize()}: a" for word, prior in PRIORS.items() if prior == cause.prior), "A")
    never = " No log can prove it, so it stays suspected." if cause.never_proven else ""
    return f"{word} prior of {_db(cause.prior)} dB against a healthy run.{never}"


def _weighed(weight: Weight, pack: Pack) -> str:
    title = _sentence(pack.by_name[weight.finding].title)
    source = weight.source and f"Source: {weight.source}."
    return " ".join(filter(None, (f"`{weight.finding}`:", title, source, _sound_runs(weight.finding, pack))))


def _sound_runs(rule: str, pack: Pack) -> str:
    """Return how many sound runs a check fires on: of the lab's trainers, and of published runs."""
    counts = pack.sound.get(rule, ())
    pairs = zip(counts[::2], counts[1::2], ("of the lab", "published"), strict=False)
    parts = [f"{yes} of {runs} {origin}" for yes, runs, origin in pairs if runs]
    return f"Sound runs that answer yes: {', '.join(parts)}." if parts else ""


def _sample(cause: Cause, pack: Pack) -> str:
    """Return the report of a sample log with this fault, empty if none is installed or has it."""
    from ppo_doctor.checks.rulepack import builtin_rules
    from ppo_doctor.diagnosis.analyze import diagnose, load_run
    from ppo_doctor.model.toml_files import parse_toml
    from ppo_doctor.report import RenderOptions, render

    samples = builtin_rules().parent / "sample_logs"
    index = samples / "index.toml"
    logs = parse_toml(index)["log"] if index.is_file() else ()
    path = next((log["path"] for log in logs if log["cause"] == cause.id), None)
    if path is None:
        return ""
    run = load_run(samples / path)
    text = render(diagnose(run, pack), run, RenderOptions(width=76, color=False, ascii=False))
    report = text.replace(str(samples), samples.name)
    return f"`ppo-doctor analyze {samples.name}/{path}`, a run with this fault injected:\n\n```text\n{report}```"


def _cases(cause: Cause, pack: Pack) -> str:
    """Return the findings that weigh most for a cause, each with a case that fires and one that does not."""
    from ppo_doctor.checks.cases import read_cases

    weights = sorted((weight for weight in cause.weights if weight.fired > 0), key=lambda weight: -weight.fired)
    items = []
    for rule in (pack.by_name[weight.finding] for weight in weights[:MOST_FINDINGS]):
        first = {case["status"]: case for case in reversed(read_cases(rule))}
        answers = (status for status in ("fired", "clear") if status in first)
        items += [f"`{rule.name}` {_example(rule, first[status])}" for status in answers]
    return f"The findings that speak for it most, on cases of their own:\n\n{_list(items)}" if items else ""


def _rivals(cause: Cause, pack: Pack) -> Iterator[str]:
    """Yield the causes that no log distinguishes from this one, then those that share a complaint with it."""
    titles = {other.id: other.title for other in pack.causes}
    yield _list(f"`{twin}`, a twin: no log separates them. {titles[twin]}." for twin in cause.twins)
    complaints = {complaint.id: complaint.title for complaint in pack.complaints}
    for complaint in cause.complaints:
        rivals = [c for c in pack.causes if complaint in c.complaints and c.id not in (cause.id, *cause.twins)]
        if rivals:
            yield f"Rivals where the complaint is “{complaints[complaint]}”:"
            yield _list(f"`{rival.id}`: {rival.title}" for rival in rivals)


def _remedies(remedies: Sequence[Remedy]) -> Iterator[str]:
    for framework in sorted({remedy.framework or "" for remedy in remedies}):
        yield f"In {framework}:" if framework else "In any framework:"
        yield _list(_remedy(remedy) for remedy in remedies if (remedy.framework or "") == framework)


def _remedy(remedy: Remedy) -> str:
    about = remedy.key or " ".join(filter(None, (remedy.setting, remedy.to)))
    return f"{remedy.do} (`{about}`)" if about else remedy.do


def framework_page(profile: Profile) -> str:
    """Return the page of a framework: how its logs are recognised, and what its names mean."""
    groups = "; or ".join(" and ".join(f"`{key}`" for key in group) for group in profile.fingerprint.any_of)
    metrics = [(_keys(metric.keys), f"`{name}`", _meaning(metric)) for name, metric in sorted(profile.metrics.items())]
    defaults = dict.fromkeys(profile.unset, "not set") | {k: f"`{v}`" for k, v in profile.defaults.items()}
    names = sorted({*profile.config, *defaults})
    settings = [(f"`{name}`", _keys(profile.config.get(name, ())), defaults.get(name, "")) for name in names]
    formulas = [
        f"K = `{formula.function}`(" + ", ".join(f"{name} = `{key}`" for name, key in formula.arguments.items()) + ")."
        for formula in profile.updates
    ]
    return _page(
        profile.title,
        f"Name for `--framework`: `{profile.name}`. Algorithm: {profile.algorithm}.",
        "" if profile.ppo_family else "Not of the PPO family: such a log is recognised and not judged (exit code 3).",
        groups and f"Recognised by: {groups}.",
        _section("Metrics", _table(("written as", "read as", "what it is"), metrics)),
        _section("Configuration", _table(("setting", "written as", "default"), settings), *formulas),
        _section("Mind", _list(profile.traps)),
    )


def _keys(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _meaning(metric: MetricProfile) -> str:
    parts = (
        metric.estimator,
        metric.aggregation,
        metric.reference and f"against the {metric.reference}",
        f"times {metric.scale:g}" if metric.scale != 1.0 else None,
        "diluted by padding" if metric.diluted else None,
        f"rounded to {metric.decimals} decimals in some versions" if metric.decimals is not None else None,
        metric.note,
    )
    return "; ".join(filter(None, parts))


def metric_page(metric: Metric) -> str:
    """Return the page of a canonical metric, with the keys under which each framework logs it."""
    from ppo_doctor.report.key_steps import USUAL
    from ppo_doctor.trainers.detection import profiles

    unit = f"Unit: {metric.unit}." if metric.unit else "It has no unit."
    finite = "It must be finite in every record." if metric.finite else "It may be NaN without anything being wrong."
    usual = f" It is usually {known} ({known.source})." if (known := USUAL.get(metric.name)) else ""
    logged = [(p.name, p.metrics[metric.name]) for p in profiles().values() if metric.name in p.metrics]
    rows = [(f"`{name}`", _keys(written.keys), _meaning(written)) for name, written in logged]
    return _page(
        metric.name,
        _sentence(metric.meaning),
        _section("How to read it", f"{unit} {finite}{usual}"),
        _section("What frameworks call it", _table(("framework", "written as", "what it is"), rows)),
    )


def _page(title: str, *blocks: str) -> str:
    """Return a page; a `<` outside code is escaped, because Markdown would read a tag."""
    text = "\n\n".join(filter(None, (f"# {title}", *blocks)))
    return _CODE_OR_TAG.sub(lambda found: "&lt;" if found[0] == "<" else found[0], text) + "\n"


def _section(title: str, *blocks: str) -> str:
    """Return blocks under a heading, empty without blocks."""
    body = list(filter(None, blocks))
    return "\n\n".join([f"## {title}", *body]) if body else ""


def _sentence(text: str) -> str:
    """Return text on one line that ends with a full stop."""
    line = prose(text)
    return line if line.endswith((".", "?", ":")) or not line else f"{line}."


def _list(items: Iterable[str], mark: str = "-") -> str:
    return "\n".join(f"{mark} {prose(item)}" for item in items)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, empty without rows; bars inside cells are escaped."""
    lines = [columns, ["---"] * len(columns), *rows] if rows else []
    escaped = [[prose(cell).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _db(value: int) -> str:
    return f"{value:+d}".replace("-", "−") if value else "0"
