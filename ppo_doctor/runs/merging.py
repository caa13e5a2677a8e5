"""Read the files of a source into runs: group them by run, and merge the files of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import distinct
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.metrics import OBSERVED
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Note, Run, Series, SourceRef
from ppo_doctor.runs.agreement import Agreement, averages, compared, of_minibatches, overlap
from ppo_doctor.runs.columns import listed
from ppo_doctor.runs.joining import logs_of
from ppo_doctor.runs.layouts import role_of
from ppo_doctor.runs.log_runs import nothing_in, runs_in
from ppo_doctor.runs.reading import NOTEBOOK, read_file
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.model.run import IntArray
    from ppo_doctor.runs.joining import ReadFile
    from ppo_doctor.runs.layouts import RunSource
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.profiles import Profile

#: Weight of a finite value, by container and by name, in the choice of the main file of a run. A console prints few
#: digits. Ray's progress.csv keeps the header of the first result, so that columns may be wrong after a restart.
WORTH = {"console": 0.5, "notebook": 0.5, "tfevents": 0.98, "wandb": 0.99, "csv": 1.0, "json": 1.01, "jsonl": 1.01}
FIRST_NAMES = {"result.json": 2.0, "trainer_state.json": 2.0}
#: A container of settings without records: named alone, it is judged as a configuration. Any other container without
#: records is the log of a run that ended before its first record.
SAVED_MODEL = "sb3-zip"
#: Shares of agreeing values that make two files one run: less is needed if their names already show it.
NAMED_ALIKE, FOUND_ALIKE = 0.5, 0.9
#: A file without a common metric belongs to a run if their steps overlap by at least this share.
COVERED = 0.5
#: Facts about the steps of one file; another file may count its steps otherwise.
OF_STEPS = frozenset({"steps_numbered", "steps_are_env_steps"})
#: Metrics of supervised fine-tuning. Reinforcement learning logs further ones.
SUPERVISED = frozenset({"loss", "learning_rate", "grad_norm", "iteration"})
#: Files left out that are named one by one.
MOST_NAMED = 5

#: A file with more runs than this is not searched for a run that it shows twice.
MANY_RUNS = 40


@frozen(kw_only=False)
class SourceRuns:
    """The runs of a source, and errors on further runs that could not be read."""

    runs: list[Run]
    broken: list[DoctorError]


@frozen(eq=False)
class _Reading:
    """A run as one file, or one chain of files, shows it."""

    run: Run
    log: Log
    #: whether the file was named, or has the name of a log
    named: bool
    #: its place among the readings of the source
    place: int
    #: marks that no two logs of one run share
    marks: frozenset[object]
    #: how far it agrees with the main reading of its run
    agreement: Agreement = Agreement(metrics=0)


def read_source(source: RunSource, request: Request, read: ReadFile = read_file) -> SourceRuns:
    """Read the files of a source, each with `read`, and return its runs; what was fetched is named by its URL.

    Raises:
        DoctorError: nothing in it can be judged (exit code 3), or a setting means nothing (exit code 2).
    """
    if not source.fetched:
        return _read(source, request, read)
    from ppo_doctor.runs.fetched import error_from_afar, from_afar

    try:
        found = _read(source, request, read)
    except DoctorError as error:
        raise error_from_afar(error, source.named) from error
    return SourceRuns(
        [from_afar(run, source.named) for run in found.runs],
        [error_from_afar(error, source.named) for error in found.broken],
    )


def _read(source: RunSource, request: Request, read: ReadFile) -> SourceRuns:
    if not (source.logs or source.perhaps):
        return SourceRuns([_run_without_log(source, request)], [])
    logs, failed = logs_of(source, request, read)
    readings = _readings(source, logs, request, failed)
    if not readings:
        if not source.logs or {log.container for log in logs} != {SAVED_MODEL}:
            raise _nothing(source, failed)
        from ppo_doctor.runs.config_runs import run_of_settings

        lent = [found for log in logs for found in log.embedded]
        return SourceRuns([run_of_settings(Path(source.log), request, lent)], [])
    readings, supervised = _without_supervised(readings)
    groups = _groups(source, sorted(readings, key=_worth, reverse=True))
    groups.sort(key=lambda group: min(reading.place for reading in group))
    runs = [_merged(group, request) for group in groups]
    broken = _broken(source, failed)
    left_out = [error for path, error in failed.items() if error not in broken and _meant(source, path)]
    runs[0] = replace(runs[0], notes=(*runs[0].notes, *_notes(source, left_out), *supervised))
    if source.tensors:
        from ppo_doctor.runs.tensor_runs import with_tensors

        runs[0] = with_tensors(runs[0], source.tensors, request)
    return SourceRuns(runs, broken)


def _run_without_log(source: RunSource, request: Request) -> Run:
    """Return the run of dumps and checkpoints, or of a configuration."""
    if source.tensors:
        from ppo_doctor.runs.tensor_runs import run_of_tensors

        return run_of_tensors(source.tensors, request)
    from ppo_doctor.runs.config_runs import run_of_settings

    return run_of_settings(source.config[0], request)


def _readings(
    source: RunSource, logs: Sequence[Log], request: Request, failed: dict[str, DoctorError]
) -> list[_Reading]:
    """Return the runs of each log; a log without a run is added to `failed`.

    The settings of a log without records are used for the other logs, if these are of one run.
    """
    held = [log for log in logs if log.records] or [log for log in logs if log.died_of_numbers]
    bare = [log for log in logs if not log.records]
    settings = [found for log in bare for found in log.embedded]
    silent = [log for log in bare if log not in held]
    ends = [note for log in silent for note in log.notes if note.about_the_run]
    all_marks = [mark for log in held for mark in _marks(log)]
    if len(all_marks) == len(set(all_marks)):  # else there are several runs, and the settings may be of any
        for log in held:
            log.embedded += settings
            log.notes += ends
    failed |= {log.name: nothing_in(log) for log in silent if not (held and log.embedded)}
    like = _like(held) if len(held) > 1 else None
    readings: list[_Reading] = []
    for log in held:
        try:
            runs = runs_in(log, request, like=like)
        except DoctorError as error:
            if len(held) == 1:
                raise
            failed[log.name] = error
            continue
        named, marks = log.path in source.logs, _marks(log)
        for run in runs:
            readings.append(_Reading(run=run, log=log, named=named, place=len(readings), marks=marks))
    return readings


def _without_supervised(readings: list[_Reading]) -> tuple[list[_Reading], list[Note]]:
    """Return readings without those of supervised fine-tuning in files that also hold reinforcement learning.

    Notebooks often fine-tune a model on answers first, and then train it on rewards. Each reading left out is a note.
    """
    rewarded = {reading.log.path for reading in readings if not reading.run.series.keys() <= SUPERVISED}
    left_out = [r for r in readings if r.run.series.keys() <= SUPERVISED and r.log.path in rewarded]
    notes = [
        Note(
            text=f"not judged: {len(r.run.series['loss'])} records from here on hold a loss, no reward (fine-tuning)",
            source=r.run.series["loss"].source(0),
        )
        for r in left_out
        if "loss" in r.run.series
    ]
    return [reading for reading in readings if reading not in left_out], notes


def _like(logs: Sequence[Log]) -> Profile | None:
    """Return the trainer of the log with the most keys among those whose keys show a trainer."""
    for log in sorted(logs, key=lambda log: -len(log.keys)):
        profile = detection.detect(log.keys)
        if profile is not None and profile.ppo_family and profile.name != detection.CANONICAL:
            return profile
    return None


def _worth(reading: _Reading) -> float:
    if _is_observed(reading.run):  # a log beside it adds what was not observed, however long it is
        return math.inf
    source = reading.run.sources[0]
    points = sum(map(_points, reading.run.series.values()))
    return points * WORTH.get(source.container, 1.0) * FIRST_NAMES.get(Path(source.path).name, 1.0)


def _is_observed(run: Run) -> bool:
    """Return whether a run was observed in its running script, by steps of its optimizer."""
    return not OBSERVED.isdisjoint(run.series)


def _points(series: Series) -> int:
    """Return the number of values of a metric; the minibatches of one update count once."""
    known = np.isfinite(series.values)
    if series.axis.minibatch is None or series.axis.update is None:
        return int(known.sum())
    return len(distinct(series.axis.update[known]))


def _groups(source: RunSource, readings: Sequence[_Reading]) -> list[list[_Reading]]:
    """Return the readings of each run, the main one first: the first of those given."""
    groups: list[list[_Reading]] = []
    for reading in readings:
        for group in groups:
            main = group[0]
            of_one_file = not source.together and any(reading.marks & other.marks for other in group)
            if of_one_file and len(readings) > MANY_RUNS:
                continue
            agreement = compared(main.run, reading.run)
            if of_one_file and not _shown_again(main, reading, agreement):
                continue
            pair = (main.run, reading.run)
            printed = _prints(main, reading) and averages(*pair)
            if printed or of_minibatches(*pair) or of_minibatches(*reversed(pair)):
                agreement = replace(agreement, share=1.0, differences=())
            if _is_observed(main.run):  # a log counts its steps otherwise
                agreement = replace(agreement, differences=())
            if source.together or _same_run(main, reading, agreement):
                group.append(replace(reading, agreement=agreement))
                break
        else:
            groups.append([reading])
    return groups


def _same_run(main: _Reading, reading: _Reading, agreement: Agreement) -> bool:
    """Return whether two readings are of one run, by their places and their values."""
    named = reading.named and main.named
    if agreement.share is not None:
        return agreement.share >= (NAMED_ALIKE if named else FOUND_ALIKE)
    if agreement.metrics or (named and _prints(main, reading)):
        return named
    return overlap(main.run, reading.run) >= COVERED


def _shown_again(main: _Reading, reading: _Reading, agreement: Agreement) -> bool:
    """Return whether a notebook shows the same run twice: a table during training, and a longer one later."""
    one = main.log.container == NOTEBOOK and main.log.path == reading.log.path
    return one and agreement.share is not None and agreement.share >= FOUND_ALIKE


def _prints(main: _Reading, reading: _Reading) -> bool:
    """Return whether one is console text and the other a log in its folder or below."""
    printed = [each for each in (main, reading) if each.log.container == "console"]
    logged = [each for each in (main, reading) if each not in printed]
    if len(printed) != 1:
        return False
    place, path = Path(printed[0].log.path).parent, Path(logged[0].log.path)
    return place in path.parents


def _marks(log: Log) -> frozenset[object]:
    """Return marks that no two logs of one run share.

    Several runs of one file are different runs, and so are event files of one folder that were not chained, and runs
    in two notebooks.
    """
    chained = log.container in ("tfevents", "wandb")
    folder: set[object] = {(log.container, Path(log.path).parent)} if chained else set()
    return frozenset({log.path, *folder, *({NOTEBOOK} if log.container == NOTEBOOK else ())})


def _merged(group: Sequence[_Reading], request: Request) -> Run:
    main = _configured(group, request)
    if len(group) == 1:
        return main
    series, notes = dict(main.series), list(main.notes)
    for reading in group[1:]:
        agreement = reading.agreement
        added, unused = _added(main, series, reading.run, agreement)
        series |= added
        notes += [*_differences(main, reading, agreement), _added_note(main, reading.run, added, unused, agreement)]
        notes += [note for note in reading.run.notes if note.about_the_run and note not in main.notes]
    others = [reading.run for reading in group[1:]]
    ours = {source.path for source in main.sources}
    again = tuple(replace(each, again=True) for run in others for each in run.sources if each.path not in ours)
    lent = {name: fact for run in reversed(others) for name, fact in run.facts.items() if name not in OF_STEPS}
    places = {metric: place for run in reversed(others) for metric, place in run.places.items()} | dict(main.places)
    return replace(
        main,
        series=series,
        notes=tuple(notes),
        sources=(*main.sources, *again),
        facts=lent | dict(main.facts),
        places=places,
    )


def _configured(group: Sequence[_Reading], request: Request) -> Run:
    """Return the run of the main reading, read again with the settings found in the other files."""
    main, *others = group
    fresh = [found for other in others for found in other.log.embedded if found not in main.log.embedded]
    if not fresh or any(other.log is main.log for other in others):
        return main.run
    log = main.log.copy()
    log.embedded += fresh
    runs = runs_in(log, request, like=detection.profile(main.run.framework))
    return next((run for run in runs if run.id == main.run.id), main.run)


def _added(main: Run, held: dict[str, Series], other: Run, agreement: Agreement) -> tuple[dict[str, Series], list[str]]:
    """Return the metrics that another reading adds, on the steps of `main`, and the names of those left out."""
    lacking = {name: series for name, series in other.series.items() if name not in held}
    if agreement.clock is not None:
        moved = {name: _on_clock(series, *agreement.clock) for name, series in lacking.items()}
        return {name: series for name, series in moved.items() if series}, [n for n, s in moved.items() if not s]
    ours = "steps_numbered" in main.facts
    theirs = "steps_numbered" in other.facts
    if _is_observed(main):
        return lacking, []
    side_by_side = ours and theirs and main.steps == other.steps and not agreement.metrics
    if not side_by_side and (ours or theirs or overlap(main, other) < COVERED):
        return {}, list(lacking)
    return lacking, []


def _on_clock(series: Series, theirs: IntArray, ours: IntArray) -> Series | None:
    """Return the records of a series whose steps are in `theirs`, with the steps in `ours`; None if more than two lack.

    The first and the last record may be in one of two files only.
    """
    at = np.searchsorted(theirs, series.axis.steps)
    known = np.flatnonzero(theirs[np.minimum(at, len(theirs) - 1)] == series.axis.steps)
    if len(known) < len(at) - 2 or not len(known):
        return None
    axis = series.axis if len(known) == len(at) else series.axis.take(known)
    return replace(series, values=series.values[known], axis=replace(axis, steps=ours[at[known]]))


def _differences(main: Run, reading: _Reading, agreement: Agreement) -> list[Note]:
    ours, theirs = main.sources[0].path, reading.run.sources[0].path
    return [
        Note(
            text=f"{d.name}: {d.differing} of {d.shared} values differ from those in {ours}, first at step {d.step} "
            f"({d.theirs:.6g} here, {d.ours:.6g} there); the latter count",
            source=SourceRef(path=theirs),
        )
        for d in agreement.differences
    ]


def _added_note(main: Run, other: Run, added: dict[str, Series], unused: Sequence[str], agreement: Agreement) -> Note:
    adds = f"adds {listed(list(added))}" if added else "adds nothing"
    lost = f"; {listed(unused)} not used, for its steps are counted otherwise" if unused else ""
    if agreement.metrics and agreement.clock is None and main.steps and other.steps and _reaches_beyond(main, other):
        lost += f"; what it holds of the same metrics outside of steps {main.steps[0]} to {main.steps[1]} is not used"
    of = "is the log of the observed script" if _is_observed(main) else f"holds the run of {main.sources[0].path} too"
    text = f"{of} and {adds}{', by its own steps' if _is_observed(main) and added else ''}{lost}"
    return Note(text=text, source=SourceRef(path=other.sources[0].path))


def _reaches_beyond(main: Run, other: Run) -> bool:
    """Return whether a reading has more than one record before the first or after the last step of `main`."""
    held = [series.axis.steps for name, series in other.series.items() if name in main.series]
    low, high = main.steps or (0, 0)
    return any(((steps < low) | (steps > high)).sum() > 1 for steps in held)


def _broken(source: RunSource, failed: dict[str, DoctorError]) -> list[DoctorError]:
    """Return the errors on what would have been a run of its own: of a database, or of event files alone."""
    ours = {*source.logs, *source.perhaps}
    kinds = {_kind(log) for log in source.logs}
    alike = not source.together and not source.perhaps and len(kinds) == 1 and kinds != {"text"}
    return [error for name, error in failed.items() if name not in ours or (alike and name in source.logs)]


def _meant(source: RunSource, path: str) -> bool:
    """Return whether a note names a file if it cannot be read: it was named, or has the name of a log."""
    return path in source.logs or role_of(Path(path)) not in ("text", "page")


def _kind(path: str) -> str:
    return "tfevents" if "tfevents" in Path(path).name else "wandb" if path.endswith(".wandb") else "text"


def _notes(source: RunSource, failed: Sequence[DoctorError]) -> list[Note]:
    notes = [Note(text=f"left out: {error.message}") for error in failed[:MOST_NAMED]]
    if len(failed) > MOST_NAMED:
        notes.append(Note(text=f"left out: {len(failed) - MOST_NAMED} more files that hold nothing or cannot be read"))
    notes += [Note(text=text) for text in source.remarks]
    if source.dumps:
        count = len(source.dumps)
        what = f"{count} tensor dumps or checkpoints" if count > 1 else "a tensor dump or checkpoint"
        text = f"{what} beside the log: read only when named"
        notes.append(Note(text=text, source=SourceRef(path=str(source.dumps[0]))))
    return notes


def _nothing(source: RunSource, failed: dict[str, DoctorError]) -> DoctorError:
    """Return why nothing in a source can be judged: the error on its first file, and how many more failed."""
    order = [*source.logs, *source.perhaps]
    ranked = sorted(failed, key=lambda path: order.index(path) if path in order else len(order))
    if not ranked:
        return DoctorError(f"{source.log}: nothing in it that could be judged")
    first = failed[ranked[0]]
    more = f"{len(ranked) - 1} more files beside it hold nothing to judge" if len(ranked) > 1 else ""
    return DoctorError(first.message, hint="; ".join(filter(None, [first.hint, more])), code=first.code)
