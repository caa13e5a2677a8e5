"""Merge the files of one run: the most complete one counts, the others add what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import distinct
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import Note, Run, Series, SourceRef
from ppo_doctor.runs.agreement import Agreement, averages, compared, of_minibatches, overlap
from ppo_doctor.runs.columns import listed
from ppo_doctor.runs.joining import logs_of
from ppo_doctor.runs.layouts import role_of
from ppo_doctor.runs.reading import NOTEBOOK, Request, nothing_in, read_file, runs_in
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from ppo_doctor.model.run import IntArray
    from ppo_doctor.runs.joining import ReadFile
    from ppo_doctor.runs.layouts import RunSource
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.profiles import Profile

#: How much a finite value counts in the search for the richest file: a console prints few digits, and Ray's
#: progress.csv keeps the header of the first result, so that columns may be missing or shifted after a restart.
WORTH = {"console": 0.5, "notebook": 0.5, "tfevents": 0.98, "wandb": 0.99, "csv": 1.0, "json": 1.01, "jsonl": 1.01}
FIRST_NAMES = {"result.json": 2.0, "trainer_state.json": 2.0}
#: A container that holds settings and never a record: one that is named by itself is a configuration. Any other without
#: a record is a log of a run that did not get there.
SAVED_MODEL = "sb3-zip"
#: Shares of agreeing values that make two readings one run's: names that say so need less.
NAMED_ALIKE, FOUND_ALIKE = 0.5, 0.9
#: A reading without a metric in common belongs to a run whose steps it covers by at least this share.
COVERED = 0.5
#: Facts about the steps of one reading, which another may count otherwise.
OF_STEPS = frozenset({"steps_numbered", "steps_are_env_steps"})
#: What fine-tuning on given answers logs, and reinforcement learning logs besides.
SUPERVISED = frozenset({"loss", "learning_rate", "grad_norm", "iteration"})
#: Files left out that are told one by one.
MOST_TOLD = 5

#: Runs of one file from which on none is looked at for being another one shown again.
MANY_RUNS = 40


@frozen(kw_only=False)
class Outcome:
    """What came of a source: its runs, and what was a run but could not be read."""

    runs: list[Run]
    broken: list[DoctorError]


@frozen(kw_only=False, eq=False)
class _Reading:
    """One run as one file, or one chain of files, shows it."""

    run: Run
    log: Log
    #: whether the file was named, or is a run's by its name
    named: bool


@dataclass(slots=True, repr=False, eq=False)
class _Pile:
    """Readings of the same run; the first is the richest. `marks` are those of all of them."""

    readings: list[_Reading]
    marks: frozenset[object]
    agreements: list[Agreement] = field(default_factory=list)

    @property
    def main(self) -> _Reading:
        return self.readings[0]


def read_source(source: RunSource, request: Request, read: ReadFile = read_file) -> Outcome:
    """Read the files of a source, each with `read`, and tell its runs apart.

    Raises:
        DoctorError: nothing in it can be judged (exit code 3), or a setting means nothing (exit code 2).
    """
    if source.tensors and not (source.logs or source.perhaps):
        from ppo_doctor.runs.tensor_runs import run_of_tensors

        return Outcome([run_of_tensors(source.tensors, request)], [])
    if source.config and not (source.logs or source.perhaps):
        from ppo_doctor.runs.config_runs import run_of_settings

        return Outcome([run_of_settings(source.config[0], request)], [])
    logs, failed = logs_of(source, request, read)
    readings = _readings(source, logs, request, failed)
    if not readings:
        if not source.logs or {log.container for log in logs} != {SAVED_MODEL}:
            raise _nothing(source, failed)
        from ppo_doctor.runs.config_runs import run_of_settings

        lent = [found for log in logs for found in log.embedded]
        return Outcome([run_of_settings(Path(source.log), request, lent)], [])
    readings, supervised = _without_supervised(readings)
    piles = _piles(source, sorted(readings, key=_worth, reverse=True))
    places = {id(reading): place for place, reading in enumerate(readings)}
    piles.sort(key=lambda pile: min(places[id(reading)] for reading in pile.readings))
    runs = [_merged(pile, request) for pile in piles]
    broken = _broken(source, failed)
    told = [error for path, error in failed.items() if error not in broken and _meant(source, path)]
    runs[0] = replace(runs[0], notes=(*runs[0].notes, *_notes(source, told), *supervised))
    if source.tensors:
        from ppo_doctor.runs.tensor_runs import with_tensors

        runs[0] = with_tensors(runs[0], source.tensors, request)
    return Outcome(runs, broken)


def _readings(
    source: RunSource, logs: Sequence[Log], request: Request, failed: dict[str, DoctorError]
) -> list[_Reading]:
    """Return the runs of each log; one that holds none joins those that failed.

    A log without records only lends its settings to the others.
    """
    held = [log for log in logs if log.records] or [log for log in logs if log.died_of_numbers]
    bare = [log for log in logs if not log.records]
    settings = [found for log in bare for found in log.embedded]
    silent = [log for log in bare if log not in held]
    ends = [note for log in silent for note in log.notes if note.about_the_run]
    marks = [mark for log in held for mark in _marks(log)]
    if len(marks) == len(set(marks)):  # else there are several runs, and nobody knows whose the settings are
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
        readings += [_Reading(run, log, log.path in source.logs) for run in runs]
    return readings


def _without_supervised(readings: list[_Reading]) -> tuple[list[_Reading], list[Note]]:
    """Return readings without parts of a file that hold a loss alone beside one of reinforcement learning.

    Notebooks fine-tune a model on answers first, and then train it by their rewards.
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
    """Return the framework that the keys of the largest log show which show one."""
    for log in sorted(logs, key=lambda log: -len(log.keys)):
        profile = detection.detect(log.keys)
        if profile is not None and profile.ppo_family and profile.name != detection.CANONICAL:
            return profile
    return None


def _worth(reading: _Reading) -> float:
    source = reading.run.sources[0]
    points = sum(map(_points, reading.run.series.values()))
    return points * WORTH.get(source.container, 1.0) * FIRST_NAMES.get(Path(source.path).name, 1.0)


def _points(series: Series) -> int:
    """Return how many values a metric has, those of the minibatches of one update as one."""
    known = np.isfinite(series.values)
    if series.axis.minibatch is None or series.axis.update is None:
        return int(known.sum())
    return len(distinct(series.axis.update[known]))


def _piles(source: RunSource, readings: Sequence[_Reading]) -> list[_Pile]:
    piles: list[_Pile] = []
    for reading in readings:
        marks = _marks(reading.log)
        for pile in piles:
            of_one_file = not source.together and bool(marks & pile.marks)
            if of_one_file and len(readings) > MANY_RUNS:
                continue  # each would be compared with all before it
            agreement = compared(pile.main.run, reading.run)
            if of_one_file and not _shown_again(pile.main, reading, agreement):
                continue
            pair = (pile.main.run, reading.run)
            printed = _prints(pile.main, reading) and averages(*pair)
            if printed or of_minibatches(*pair) or of_minibatches(*reversed(pair)):
                agreement = replace(agreement, share=1.0, differences=())
            if source.together or _same_run(pile.main, reading, agreement):
                pile.readings.append(reading)
                pile.agreements.append(agreement)
                pile.marks |= marks
                break
        else:
            piles.append(_Pile([reading], marks))
    return piles


def _same_run(main: _Reading, reading: _Reading, agreement: Agreement) -> bool:
    """Tell whether a reading is of the same run as another, by where it lies and by what it says."""
    named = reading.named and main.named
    if agreement.share is not None:
        return agreement.share >= (NAMED_ALIKE if named else FOUND_ALIKE)
    if agreement.metrics or (named and _prints(main, reading)):
        return named
    return overlap(main.run, reading.run) >= COVERED


def _shown_again(main: _Reading, reading: _Reading, agreement: Agreement) -> bool:
    """Tell whether a notebook shows the records of a run twice: a table of its training, and later a longer one."""
    one = main.log.container == NOTEBOOK and main.log.path == reading.log.path
    return one and agreement.share is not None and agreement.share >= FOUND_ALIKE


def _prints(main: _Reading, reading: _Reading) -> bool:
    """Tell whether one is a console and the other a log of its folder or below: what a run prints and what it logs."""
    printed = [each for each in (main, reading) if each.log.container == "console"]
    logged = [each for each in (main, reading) if each not in printed]
    if len(printed) != 1:
        return False
    place, path = Path(printed[0].log.path).parent, Path(logged[0].log.path)
    return place in path.parents


def _marks(log: Log) -> frozenset[object]:
    """Return what logs of one run cannot share: runs of one file, and event files that start over, are several.

    So are the runs of two notebooks: nobody writes one run into both.
    """
    chained = log.container in ("tfevents", "wandb")
    folder: set[object] = {(log.container, Path(log.path).parent)} if chained else set()
    return frozenset({log.path, *folder, *({NOTEBOOK} if log.container == NOTEBOOK else ())})


def _merged(pile: _Pile, request: Request) -> Run:
    main = _configured(pile, request)
    if len(pile.readings) == 1:
        return main
    series, notes = dict(main.series), list(main.notes)
    for reading, agreement in zip(pile.readings[1:], pile.agreements, strict=True):
        added, unused = _added(main, series, reading.run, agreement)
        series |= added
        notes += [*_differences(main, reading, agreement), _says(main, reading.run, added, unused, agreement)]
        notes += [note for note in reading.run.notes if note.about_the_run and note not in main.notes]
    others = [reading.run for reading in pile.readings[1:]]
    ours = {source.path for source in main.sources}
    again = tuple(replace(each, again=True) for run in others for each in run.sources if each.path not in ours)
    lent = {name: fact for run in reversed(others) for name, fact in run.facts.items() if name not in OF_STEPS}
    return replace(
        main, series=series, notes=tuple(notes), sources=(*main.sources, *again), facts=lent | dict(main.facts)
    )


def _configured(pile: _Pile, request: Request) -> Run:
    """Return the richest reading with the settings that stand in the run's other files, too."""
    main = pile.main
    further = [found for reading in pile.readings[1:] for found in reading.log.embedded]
    fresh = [found for found in further if found not in main.log.embedded]
    if not fresh or any(reading.log is main.log for reading in pile.readings[1:]):
        return main.run
    log = main.log.copy()
    log.embedded += fresh
    runs = runs_in(log, request, like=detection.profile(main.run.framework))
    return next((run for run in runs if run.id == main.run.id), main.run)


def _added(main: Run, held: dict[str, Series], other: Run, agreement: Agreement) -> tuple[dict[str, Series], list[str]]:
    """Return the metrics that another reading adds, on our steps, and those that cannot be placed on them."""
    lacking = {name: series for name, series in other.series.items() if name not in held}
    if agreement.clock is not None:
        moved = {name: _on_clock(series, *agreement.clock) for name, series in lacking.items()}
        return {name: series for name, series in moved.items() if series}, [n for n, s in moved.items() if not s]
    ours = "steps_numbered" in main.facts
    theirs = "steps_numbered" in other.facts
    side_by_side = ours and theirs and main.steps == other.steps and not agreement.metrics
    if not side_by_side and (ours or theirs or overlap(main, other) < COVERED):
        return {}, list(lacking)
    return lacking, []


def _on_clock(series: Series, theirs: IntArray, ours: IntArray) -> Series | None:
    """Return the records of a series whose steps are in both files, counted as the main one counts; None without any.

    A record at either end may be in one of them only.
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


def _says(main: Run, other: Run, added: dict[str, Series], unused: Sequence[str], agreement: Agreement) -> Note:
    adds = f"adds {listed(list(added))}" if added else "adds nothing"
    lost = f"; {listed(unused)} not used, for its steps are counted otherwise" if unused else ""
    if agreement.metrics and agreement.clock is None and main.steps and other.steps and _reaches_beyond(main, other):
        lost += f"; what it holds of the same metrics outside of steps {main.steps[0]} to {main.steps[1]} is not used"
    text = f"holds the run of {main.sources[0].path} too and {adds}{lost}"
    return Note(text=text, source=SourceRef(path=other.sources[0].path))


def _reaches_beyond(main: Run, other: Run) -> bool:
    """Tell whether a reading goes on for more than a record before or after the main one."""
    held = [series.axis.steps for name, series in other.series.items() if name in main.series]
    low, high = main.steps or (0, 0)
    return any(((steps < low) | (steps > high)).sum() > 1 for steps in held)


def _broken(source: RunSource, failed: dict[str, DoctorError]) -> list[DoctorError]:
    """Return what would have been a run of its own: one of a database's, or of event files that are all there is."""
    ours = {*source.logs, *source.perhaps}
    kinds = {_kind(log) for log in source.logs}
    alike = not source.together and not source.perhaps and len(kinds) == 1 and kinds != {"text"}
    return [error for name, error in failed.items() if name not in ours or (alike and name in source.logs)]


def _meant(source: RunSource, path: str) -> bool:
    """Tell whether a file was meant to be read, so that it is missed when it cannot be."""
    return path in source.logs or role_of(Path(path)) not in ("text", "page")


def _kind(path: str) -> str:
    return "tfevents" if "tfevents" in Path(path).name else "wandb" if path.endswith(".wandb") else "text"


def _notes(source: RunSource, failed: Sequence[DoctorError]) -> list[Note]:
    notes = [Note(text=f"left out: {error.message}") for error in failed[:MOST_TOLD]]
    if len(failed) > MOST_TOLD:
        notes.append(Note(text=f"left out: {len(failed) - MOST_TOLD} more files that hold nothing or cannot be read"))
    notes += [Note(text=text) for text in source.told]
    if source.dumps:
        count = len(source.dumps)
        what = f"{count} tensor dumps or checkpoints" if count > 1 else "a tensor dump or checkpoint"
        text = f"{what} beside the log: read only when named"
        notes.append(Note(text=text, source=SourceRef(path=str(source.dumps[0]))))
    return notes


def _nothing(source: RunSource, failed: dict[str, DoctorError]) -> DoctorError:
    """Return why nothing in a source can be judged: the reason of its most telling file, and how many more failed."""
    order = [*source.logs, *source.perhaps]
    ranked = sorted(failed, key=lambda path: order.index(path) if path in order else len(order))
    if not ranked:
        return DoctorError(f"{source.log}: nothing in it that could be judged")
    first = failed[ranked[0]]
    more = f"{len(ranked) - 1} more files beside it hold nothing to judge" if len(ranked) > 1 else ""
    return DoctorError(first.message, hint="; ".join(filter(None, [first.hint, more])), code=first.code)
