"""The output of `inspect` as aligned text, with all text from the log escaped."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import number
from ppo_doctor.report.escape import plain
from ppo_doctor.trainers.names import parse

if TYPE_CHECKING:
    from ppo_doctor.diagnosis.inspection import Inspection
    from ppo_doctor.model.run import Fact
    from ppo_doctor.model.words import KeyUse

MOST_UNKNOWN = 20


def render(inspection: Inspection, *, everything: bool = False) -> str:
    """Return the whole inspection as text; `everything` lists every unknown key, default and note."""
    blocks = [
        _head(inspection),
        _metrics(inspection),
        _keys(inspection, everything),
        _unknown(inspection, everything),
        _settings(inspection, everything),
        _updates(inspection),
        _read_off(inspection),
        _time(inspection),
        _notes(inspection, everything),
        _judgement(inspection),
        _wanted(inspection),
    ]
    return "\n".join("\n".join(block) + "\n" for block in map(list, blocks) if block)


def _table(rows: Sequence[Sequence[str]], indent: str = "  ") -> Iterator[str]:
    safe = [[plain(cell) for cell in row] for row in rows]
    widths = [max((len(row[i]) for row in safe), default=0) for i in range(len(safe[0]))] if safe else []
    for row in safe:
        yield (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()


def _head(inspection: Inspection) -> Iterator[str]:
    run = inspection.run
    yield plain(run.id)
    span = f"steps {run.steps[0]} to {run.steps[1]}" if run.steps else "no steps"
    yield f"  framework {plain(run.framework)}, algorithm {plain(run.algorithm)}, {span}"
    for source in run.sources:
        used = source.records - source.skipped
        file = f"{plain(Path(source.path).name)}, " if len(run.sources) > 1 else ""
        again = ", the same run once more" if source.again else ""
        yield f"  {file}{plain(source.container)}: {used} records used, {source.skipped} skipped{again}"


def _metrics(inspection: Inspection) -> Iterator[str]:
    yield "Metrics  as written → as we call them"
    rows = [
        (
            m.raw,
            "→ " + m.name,
            f"{m.records} records" + (f", {m.not_finite} not finite" if m.not_finite else ""),
            f"{number(m.first)} … {number(m.last)}",
            m.semantics,
        )
        for m in inspection.mapped
    ]
    yield from _table(rows)


#: The use of a key → how the count of such keys is printed.
_USES: Mapping[KeyUse, str] = {
    "mapped": "mapped",
    "guessed": "guessed by their names or their company",
    "clock": "clocks",
    "again": "of a metric that another key gives",
    "machine": "of time or the machine",
    "not used": "known and not used",
    "text": "text in every record",
    "unknown": "unknown",
}


def _keys(inspection: Inspection, everything: bool) -> Iterator[str]:
    """Yield the counts of keys by use; `everything` lists those that are not mapped, with their parsed names."""
    keys = inspection.run.keys
    if not keys:
        return
    counts = Counter(keys.values())
    uses = ", ".join(f"{counts[use]} {words}" for use, words in _USES.items() if counts[use])
    yield f"Keys  {len(keys)} in the log: {uses}"
    if everything:
        yield from _table([(key, _USES[use], str(parse(key))) for key, use in keys.items() if use != "mapped"])


def _unknown(inspection: Inspection, everything: bool) -> Iterator[str]:
    if not inspection.unknown:
        return
    yield f"Unknown keys  {len(inspection.unknown)}"
    shown = inspection.unknown if everything else inspection.unknown[:MOST_UNKNOWN]
    yield from _table([(key, f"near: {', '.join(near)}" if near else "") for key, near in shown])
    if len(shown) < len(inspection.unknown):
        yield f"  … and {len(inspection.unknown) - len(shown)} more, --all"


def _settings(inspection: Inspection, everything: bool) -> Iterator[str]:
    settings = sorted(inspection.run.config.items())
    shown = [(name, setting) for name, setting in settings if everything or setting.how != "default"]
    if not settings:
        yield "Configuration  none found; name one with --config FILE or --set KEY=VALUE"
        return
    yield f"Configuration  {sum(s.how != 'default' for _, s in settings)} settings found"
    yield from _table(
        [(name, f"= {setting.value}", f"{setting.key}, {setting.source} ({setting.how})") for name, setting in shown]
    )
    defaults = len(settings) - len(shown)
    if defaults:
        yield f"  and {defaults} defaults of the framework, --all"


def _updates(inspection: Inspection) -> Iterator[str]:
    yield "K  optimizer steps per rollout batch"
    if not inspection.updates:
        yield "  unknown: neither the configuration nor the log tells"
    for fact in inspection.asked:
        yield f"  {plain(fact.says)}"
    words = {"updates_configured": "configured", "updates_observed": "observed", "epochs_share": "executed share"}
    for fact in inspection.updates:
        yield _fact(fact, words[fact.name], " (framework default)" if fact.how == "default" else "")


def _fact(fact: Fact, name: str, how: str = "") -> str:
    value = number(float(fact.value)) if isinstance(fact.value, int | float) else str(fact.value)
    return f"  {name} {value}{how}: {plain(fact.says)} ({plain(str(fact.source))})"


def _read_off(inspection: Inspection) -> Iterator[str]:
    if inspection.read_off:
        yield "Read off the metrics"
    words = {"kl_coef_implied": "KL coefficient", "schedule_end_step": "learning rate ends at step"}
    yield from (_fact(fact, words[fact.name]) for fact in inspection.read_off)


def _time(inspection: Inspection) -> Iterator[str]:
    if inspection.phases or inspection.holes:
        yield "Time"
    for phase in inspection.phases:
        yield f"  {phase.name}, steps {phase.first} to {phase.last}: {plain(phase.because)}"
    for before, after in inspection.holes[:5]:
        yield f"  no record between steps {before} and {after}"


def _notes(inspection: Inspection, everything: bool) -> Iterator[str]:
    notes = inspection.run.notes
    if notes:
        yield f"Notes  {len(notes)}"
    yield from (f"  {plain(str(note))}" for note in (notes if everything else notes[:10]))
    if not everything and len(notes) > 10:
        yield f"  … and {len(notes) - 10} more, --all"


def _judgement(inspection: Inspection) -> Iterator[str]:
    yield f"Can be judged from this log  {len(inspection.judged)} causes"
    # An id that is broken at a hyphen cannot be searched for or copied.
    words = ", ".join(inspection.judged)
    yield from textwrap.wrap(words, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    if inspection.not_judged:
        yield f"Cannot be judged  {len(inspection.not_judged)} causes"
        yield from _table([(cause, f"needs {', '.join(needs)}") for cause, needs in inspection.not_judged])


def _wanted(inspection: Inspection) -> Iterator[str]:
    if inspection.wanted:
        yield "Would settle most  metrics to log next, best first"
        yield from _table([(w.metric, f"for {', '.join(w.causes)}") for w in inspection.wanted])
