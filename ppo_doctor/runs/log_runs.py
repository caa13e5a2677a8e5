"""Make `Run`s of a `Log`: divide it, map its columns to metrics, find its settings, and cut it to steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import beside
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import OBSERVED
from ppo_doctor.model.run import Fact, Note, Run, Series, SourceRef, in_memory
from ppo_doctor.readers.table import CELL, RUN_KEYS, Table
from ppo_doctor.runs import columns, configs_beside
from ppo_doctor.runs.columns import names_guessed, rescaled
from ppo_doctor.runs.log import Log
from ppo_doctor.runs.sections import parts_of
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.column_values import generations, settled
from ppo_doctor.trainers.configuration import Found
from ppo_doctor.trainers.updates import FUNCTIONS, configured_updates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Axis, IntArray, Setting
    from ppo_doctor.model.words import KeyUse
    from ppo_doctor.runs.configs_beside import Beside
    from ppo_doctor.trainers.profiles import PartialMean, Profile

_OF_A_CRASH = "nothing was trained: mend what the last frame shows, and run it again"
#: First lines of runs that a note names.
MOST_BEGINS = 8
#: Cells of which a share f is 1 and the others 0 have the variance f(1 - f). Ratios vary by less than this part of it.
MOSTLY_EMPTY = 0.9
#: Means of ratios below this, with such a variance, are means over cells of which some are empty.
FAR_BELOW_ONE = 0.75
#: Characters of a cell that a note quotes.
QUOTED = 20
#: The fact that a run is the later part of a longer one.
CONTINUES = "continues"
#: First and last step to keep; None is open.
Steps = tuple[int | None, int | None]


def runs_in(log: Log, request: Request, *, like: Profile | None = None) -> list[Run]:
    """Return every run in a log, each with its configuration.

    `like` is the profile of the other files of the run, for a file whose keys show no trainer.

    Raises:
        DoctorError: no record, no metric that we know, or not a run of the PPO family (exit code 3).
    """
    if not log.records and not log.died_of_numbers:
        raise nothing_in(log)
    profile = columns.profile_of(log, framework=request.framework, like=like)
    beside = _beside(log, request, profile)
    log.turn_forward(profile)
    parts = parts_of(log, profile)
    if len(parts) == 1:
        return [_run(log, request, profile, beside)]
    return _runs([_part(log, tables, number) for number, tables in enumerate(parts, start=1)], request, profile, beside)


def nothing_in(log: Log) -> DoctorError:
    """Return the error on a log without records: how the run died, or else its first note."""
    if death := columns.death(log):
        return DoctorError(f"{log.name}: no record{death}", hint=_OF_A_CRASH)
    hint = str(log.notes[0]) if log.notes else "did the run crash before its first update?"
    what = "settings, but no record of a metric," if log.embedded else "no record"
    return DoctorError(f"{log.name}: {what} in this {log.container}", hint=hint)


def _runs(parts: Sequence[Log], request: Request, profile: Profile, beside: Sequence[Beside]) -> list[Run]:
    """Return the run of each part; a part with nothing to judge is a note on the first run.

    Raises:
        DoctorError: the error on the first part, if no part can be judged.
    """
    runs: list[Run] = []
    failed: list[DoctorError] = []
    for part in parts:
        try:
            runs.append(_run(part, request, profile, beside))
        except DoctorError as error:
            if error.code != ExitCode.NOTHING_TO_JUDGE:
                raise
            failed.append(error)
    if not runs:
        raise failed[0]
    unjudged = tuple(Note(text=f"not judged: {error.message}") for error in failed)
    begins = [str(min(int(table.lines[0]) for table in part.tables)) for part in parts]
    place = "rows" if in_memory(parts[0].path) else "lines"
    several = f"it holds {len(parts)} runs, which begin at {place} {', '.join(begins[:MOST_BEGINS])}"
    more = f" and {len(begins) - MOST_BEGINS} more" * (len(begins) > MOST_BEGINS) + "; each is judged by itself"
    note = Note(text=several + more, source=SourceRef(path=parts[0].path), kind="said", event="several_runs")
    runs = [replace(run, notes=(note, *run.notes)) for run in runs]
    return [replace(runs[0], notes=(*runs[0].notes, *unjudged)), *runs[1:]]


def _part(log: Log, tables: list[Table], number: int) -> Log:
    """Return one run of a log, with its notes and the last configuration above or within it."""
    last = max(int(table.lines[-1]) for table in tables)
    notes = [note for note in log.notes if note.source is None or (note.source.line or 0) <= last]
    above = [found for found in log.embedded if (found.source.line or 0) <= last and CELL not in found.values]
    return replace(log, tables=tables, notes=notes, embedded=above[-1:], suffix=f"#{number}")


def _run(log: Log, request: Request, profile: Profile, near: Sequence[Beside]) -> Run:
    path, summary = log.path, log.summary
    embedded = [found for found in log.embedded if CELL not in found.values]
    given = given_settings(request)
    if shown := columns.settings_shown(profile, log):
        embedded = [*embedded, Found(values=shown, source=SourceRef(path=path))]
    beside, config_notes = configs_beside.configs_of_run(profile, log, embedded, near, given)
    found = [*given, *embedded, *beside]
    settings = configuration.canonical_settings(profile, found)
    configuration.check_given(request.settings, profile)
    profile = _without_constants(profile, settings, log)
    whole, restored = whole_means(profile, settings, log.series(profile), path)
    # no profile defines what the approx_kl of an unknown trainer compares, and in which unit it is
    unsaid = ("approx_kl", "clip_fraction") if profile.name == detection.CANONICAL else ()
    open_names = {*profile.fuzzy.values(), *unsaid}
    groups = profile.algorithm == "grpo"
    whole, decided = settled(whole, open_names, path, named=profile.named, groups=groups)
    held = {one.raw: name for name, one in whole.items()}
    kept = {raw: name for raw, name in profile.fuzzy.items() if held.get(raw, name) == name}  # else numbers decided
    notes = columns.missing_aliases(request.aliases, log.keys, configuration.as_written(found))
    guesses = names_guessed(replace(profile, fuzzy=kept), path, settings)
    series = cut(whole, request.steps)
    cells = text_cells(log.tables)
    unread = notes_on(cells, log.keys, profile)
    some = request.steps != (None, None)
    if not any(len(s) for s in series.values()) and (some or not log.died_of_numbers):
        what = "no record within the steps asked for" if some else "no metric that any rule knows"
        raise DoctorError(f"{log.name}: {what}", hint="; ".join(note.text for note in decided[:3]))
    return Run(
        id=log.name,
        framework=profile.name,
        algorithm=configuration.algorithm_of(profile, settings),
        sources=log.joined or (replace(summary, records=log.measured(profile) + summary.skipped),),
        series=series,
        facts=_facts(profile, settings, log) | generations(series, _undeclared(profile), path),
        config=settings,
        misspelt=configuration.misspelt_settings(profile, found, embedded),
        config_raw=configuration.as_written(found),
        configs=configuration.files_of([*given, *beside]),
        notes=(*notes, *rescaled(profile, path), *log.notes, *unread, *config_notes, *restored, *decided, *guesses),
        keys=uses(profile, log.keys, tuple(cells)),
        inferred={raw: held[raw] for raw in profile.inferred if raw in held},
        not_understood=columns.not_understood(profile, log),
        places=log.places,
    )


def _undeclared(profile: Profile) -> set[str]:
    """Return the metrics that no profile of a trainer defines beyond their names."""
    return {*profile.fuzzy.values(), *(profile.metrics if profile.name == detection.CANONICAL else ())}


def constants(profile: Profile, settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the metrics that are constant under these settings, each with the reason."""
    return {
        name: f"{key} is {settings[key].value}"
        for name, metric in profile.metrics.items()
        for key, value in metric.constant_when.items()
        if key in settings and settings[key].value == value
    }


def _without_constants(profile: Profile, settings: Mapping[str, Setting], log: Log) -> Profile:
    """Return the profile without metrics that are constant under these settings; each in the log becomes a note."""
    dropped = constants(profile, settings)
    held = {name: why for name, why in dropped.items() if set(profile.metrics[name].keys) & log.keys}
    source = SourceRef(path=log.path)
    log.notes.extend(
        Note(text=f"{name} is a constant when {why}, and is not used", source=source) for name, why in held.items()
    )
    kept = {name: metric for name, metric in profile.metrics.items() if name not in dropped}
    return replace(profile, metrics=kept) if dropped else profile


def given_settings(request: Request) -> list[Found]:
    """Return the settings of the request: those of --set, then those of --config."""
    from ppo_doctor.trainers import config_files

    redacted = {key: configuration.redact(key, value) for key, value in (request.settings or {}).items()}
    given = [Found(values=redacted, source=SourceRef(path="--set"))] if redacted else []
    return given + [config_files.read_config(path) for path in request.configs]


def _beside(log: Log, request: Request, profile: Profile) -> list[Beside]:
    """Return the configurations near the log; none if the request names one, or if the script itself was observed."""
    if log.path == "-" or in_memory(log.path) or request.configs or not OBSERVED.isdisjoint(log.keys):
        return []
    found, notes = configs_beside.beside(Path(log.path), profile, log.folders)
    log.notes.extend(notes)
    return found


def _facts(profile: Profile, settings: Mapping[str, Setting], log: Log) -> dict[str, Fact]:
    source = SourceRef(path=log.path)
    facts = {name: Fact(name=name, value=value, how="default", source=source) for name, value in profile.facts.items()}
    if log.numbered:  # the steps are record numbers, and count no environment steps
        facts.pop("steps_are_env_steps", None)
        facts["steps_numbered"] = Fact(name="steps_numbered", value=True, how="computed", source=source)
    configured = configured_updates(profile, settings)
    return facts | ({configured.name: configured} if configured else {})


def whole_means(
    profile: Profile, settings: Mapping[str, Setting], series: Mapping[str, Series], path: str
) -> tuple[dict[str, Series], list[Note]]:
    """Return the series with means over partly empty cells corrected, and notes on what was done.

    The share of filled cells follows from settings. Without them, series are left out if the mean ratio shows empty
    cells: it is far below 1 and varies as cells of 0 and 1 do. Otherwise the defaults of the trainer apply.
    """
    partial = profile.partial_mean
    held = [name for name in (*partial.metrics, *partial.dropped) if name in series] if partial else []
    if partial is None or not held:
        return dict(series), []
    share, usual = _share(partial, settings), _share(partial, settings, defaults=True)
    source = SourceRef(path=path)
    if share is None and _looks_partial(series):
        asked = ", ".join(f"--set {name}=…" for name in partial.arguments.values())
        text = f"{', '.join(held)}: means over cells of which many are empty, and are not used; {asked} would tell"
        return {name: s for name, s in series.items() if name not in held}, [Note(text=text, source=source)]
    factor, by_default = (usual or 1, " by default") if share is None else (share, "")
    if factor == 1:
        return dict(series), []
    restored = {
        name: _divided(s, factor) if name in partial.metrics else s
        for name, s in series.items()
        if name not in partial.dropped
    }
    text = f"{', '.join(n for n in held if n in restored)}: divided by {factor:g}, {partial.why}{by_default}"
    lost = [name for name in held if name in partial.dropped]
    unused = [Note(text=f"{', '.join(lost)}: counts empty cells, and is not used", source=source)] if lost else []
    return restored, [Note(text=text, source=source), *unused]


def _share(partial: PartialMean, settings: Mapping[str, Setting], *, defaults: bool = False) -> float | None:
    if any((setting := settings.get(name)) is not None and setting.value for name in partial.unless):
        return None
    found = {argument: settings.get(name) for argument, name in partial.arguments.items()}
    numbers = {
        argument: float(setting.value)
        for argument, setting in found.items()
        if setting is not None
        and (defaults or setting.how != "default")
        and isinstance(setting.value, int | float)
        and setting.value > 0
    }
    return FUNCTIONS[partial.function](**numbers) if len(numbers) == len(found) else None


def _looks_partial(series: Mapping[str, Series]) -> bool:
    ratio = series.get("ratio_mean")
    spread = beside(ratio, series.get("ratio_batch_var"))
    if ratio is None or spread is None:
        return False
    known = np.isfinite(ratio.values) & np.isfinite(spread.values)
    share, variance = ratio.values[known], spread.values[known]
    with np.errstate(over="ignore"):  # a number near the largest is no share, whatever its square would be
        empty = (share < FAR_BELOW_ONE) & (variance > MOSTLY_EMPTY * share * (1 - share))
    return bool(len(empty) and empty.mean() > 0.5)


def _divided(series: Series, share: float) -> Series:
    return replace(series, values=series.values / share, resolution=series.resolution.scaled(1 / share))


@frozen
class TextCells:
    """The text cells of one key: how many, and the first of them with its place."""

    count: int
    first: str
    source: SourceRef


def text_cells(tables: Iterable[Table]) -> dict[str, TextCells]:
    """Return the text cells of each key, without keys that name runs."""
    found: dict[str, TextCells] = {}
    for table in tables:
        for key, cells in table.texts.items():
            if not cells or key in RUN_KEYS:
                continue
            count = len(cells) + table.texts_left.get(key, 0)
            source = SourceRef(path=table.path, line=_line_of_cell(table, cells[0][0]), key=key)
            held = found.get(key)
            earlier = held is not None and (held.source.line or 0) <= (source.line or 0)
            total = count + (held.count if held is not None else 0)
            if held is not None and earlier:
                found[key] = replace(held, count=total)
            else:
                found[key] = TextCells(count=total, first=cells[0][1], source=source)
    return found


def _line_of_cell(table: Table, record: int) -> int | None:
    row = int(table.records.searchsorted(record))
    return int(table.lines[row]) or None if row < len(table.lines) else None


def notes_on(cells: dict[str, TextCells], keys: frozenset[str], profile: Profile) -> list[Note]:
    """Return a note on each column of numbers that also holds text, and on each metric that holds only text.

    `keys` are the columns with numbers. Notes on metrics have the kind "lost": lost cells may hide a fault.
    """
    if not cells:
        return []
    metrics = _metrics(detection.as_written(profile.name, keys.union(cells)))
    return [
        Note(
            text=f"{held.count} cells of {key} hold text, from “{_quoted(held.first)}” on, and no number; not read",
            source=held.source,
            count=held.count,
            kind="lost" if key in metrics else "dropped",
        )
        for key, held in sorted(cells.items())
        if key in keys or key in metrics
    ]


def _quoted(cell: str) -> str:
    return configuration.redact_text(cell)[:QUOTED]


def _metrics(profile: Profile) -> frozenset[str]:
    named = (key for metric in profile.metrics.values() for key in (*metric.keys, *metric.columns))
    return frozenset([*named, *profile.fuzzy])


def uses(profile: Profile, keys: frozenset[str], cells: Sequence[str]) -> dict[str, KeyUse]:
    """Return the use of each key of a log, in alphabetical order; `cells` are keys that hold text."""
    found: dict[str, KeyUse] = dict.fromkeys(cells, "text")
    return dict(sorted((found | profile.uses(keys)).items()))


def cut(series: Mapping[str, Series], steps: Steps) -> dict[str, Series]:
    """Return the records of each series within some steps; a series without any is left out.

    Series that share an axis share one afterwards, which shows that they are of the same records.
    """
    if steps == (None, None):
        return dict(series)
    axes = {id(s.axis): s.axis for s in series.values()}
    parts = {key: _axis_within(axis, steps) for key, axis in axes.items()}
    cut_off = {name: _records_at(s, *parts[id(s.axis)]) for name, s in series.items()}
    return {name: kept for name, kept in cut_off.items() if len(kept)}


def since(run: Run, step: int) -> Run:
    """Return the run from a step on, with its facts and configuration.

    The added fact `continues` marks that records came before, which still influence moving averages.
    """
    before = Fact(name=CONTINUES, value=True, how="computed", says=f"the part from step {step} on")
    return replace(run, series=cut(run.series, (step, None)), facts={**run.facts, CONTINUES: before})


def within(series: Series, steps: Steps) -> Series:
    """Return the records of one series within some steps."""
    return _records_at(series, *_axis_within(series.axis, steps))


def _axis_within(axis: Axis, steps: Steps) -> tuple[Axis, IntArray]:
    """Return the part of an axis within some steps, and the indices of its records."""
    low, high = steps
    held = axis.steps
    after = held >= (low if low is not None else held.min(initial=0))
    keep = np.flatnonzero(after & (held <= (high if high is not None else held.max(initial=0))))
    return axis.take(keep), keep


def _records_at(series: Series, axis: Axis, keep: IntArray) -> Series:
    return replace(series, axis=axis, values=series.values[keep])
