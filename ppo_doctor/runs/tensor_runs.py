"""Read dumps and checkpoints as a run of computed series, by themselves or compared with the log of their run.

`dumps.dump_run` lists the metrics of dumps, and the functions that compute them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import arrays
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.metrics import loggable, unit
from ppo_doctor.model.run import EXACT, Axis, Fact, Note, Resolution, Run, Series, SourceRef, SourceSummary
from ppo_doctor.readers.tensors import archives_in, read_archive
from ppo_doctor.readers.tensors.naming import parse_overrides, roles_of, without_row
from ppo_doctor.runs.dumps import checkpoints, dump_run
from ppo_doctor.runs.dumps.batches import updates_of
from ppo_doctor.runs.dumps.contents import with_roles
from ppo_doctor.runs.log_runs import given_settings
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.updates import configured_updates

if TYPE_CHECKING:
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import IntArray, Setting
    from ppo_doctor.readers.tensors.tensor import Archive
    from ppo_doctor.runs.dumps.dump_run import Measured

#: Metric → its estimator as the modules in `dumps` compute it.
ESTIMATORS = {
    "approx_kl": "k3",
    "approx_kl_k1": "k1",
    "approx_kl_k2": "k2",
    "ref_kl": "k3",
    "rollout_kl": "k3",
    "clip_fraction": "both sides",
}
SCOPE = "only tensors were given: what they show is judged; whether training as a whole is sound takes the run's log"

#: Metrics that a script may log and that a checkpoint shows as well.
MEMORY = ("old_policy_shared", "reference_shared")
#: Rules that need several records of a log accept a single dump.
FROM_TENSORS = Fact(name="from_tensors", value=True, how="computed", says="no log was given")

#: Words in names of tensors that only dumps of language models hold.
_OF_COMPLETIONS = re.compile(r"response|completion|prompt|token", re.I)


def run_of_tensors(paths: Sequence[Path], request: Request) -> Run:
    """Return the run that dumps and checkpoints make without any log, in the order of their steps.

    Raises:
        DoctorError: a file cannot be read, or there is nothing in them that can be judged (exit code 3); `names` of the
            request are none (exit code 2).
    """
    profile = detection.profile(request.framework or detection.CANONICAL)
    given = given_settings(request)
    settings = configuration.canonical_settings(profile, given)
    configured = configured_updates(profile, settings)
    archives, records = _read(paths, request, settings, configured)
    notes = [Note(text=SCOPE), *_names(archives, request), *(note for record in records for note in record.notes)]
    return Run(
        id=str(paths[0]),
        framework=profile.name,
        algorithm=profile.algorithm,
        sources=tuple(SourceSummary(path=a.path, container=a.container, records=1) for a in archives),
        series=_series(records),
        facts={fact.name: fact for fact in (FROM_TENSORS, configured, _completions(archives)) if fact},
        config=settings,
        config_raw={key: value for found in reversed(given) for key, value in found.values.items()},
        notes=tuple(notes),
    )


def _completions(archives: Sequence[Archive]) -> Fact | None:
    """Return that samples are completions of a language model, if tensors of a dump are named for what these have."""
    for archive in archives:
        for name in archive.tensors if dump_run.is_dump(archive) else ():
            if archive.roles[name] is not None and _OF_COMPLETIONS.search(name.rpartition(".")[2]):
                says = f"{name} is there: samples are completions"
                return Fact(
                    name="completions", value=1.0, how="computed", source=SourceRef(path=archive.path), says=says
                )
    return None


def with_tensors(run: Run, paths: Sequence[Path], request: Request) -> Run:
    """Return a run with what only tensors show, from dumps and checkpoints that were named with its log.

    What a log holds as well is compared where a dump holds all that a record of the log is a mean of; where the two
    differ, the dumps' values are used. A note names files that cannot be read or show nothing.
    """
    try:
        archives, records = _read(paths, request, run.config, run.facts.get("updates_configured"))
    except DoctorError as error:
        return replace(run, notes=(*run.notes, Note(text=f"left out: {error.message}")))
    found = _series(records)
    extra = {name: series for name, series in found.items() if not loggable(name) or name in MEMORY}
    added = {name: series for name, series in extra.items() if name not in run.series}
    again = tuple(SourceSummary(path=a.path, container=a.container, records=1, again=True) for a in archives)
    whole = replace(
        run,
        series={**run.series, **added},
        notes=(*run.notes, *(note for record in records for note in record.notes)),
        sources=(*run.sources, *again),
    )
    return with_agreement(whole, compared(run, replace(run, series=found), _whole(records, run)))


def _read(
    paths: Sequence[Path], request: Request, settings: Mapping[str, Setting], updates: Fact | None
) -> tuple[list[Archive], list[Measured]]:
    """Return the files of tensors and a record for each dump and each checkpoint.

    Raises:
        DoctorError: a file cannot be read, or nothing in them can be judged.
    """
    archives = with_roles(map(read_archive, _files(paths)), parse_overrides(request.names))
    records = _measured(archives, settings, updates)
    if not any(record.values for record in records):
        raise _nothing(archives)
    return archives, records


def _whole(records: Sequence[Measured], run: Run) -> list[int]:
    """Return the steps of dumps that hold every minibatch of an update: as many as are configured, or several."""
    fact = run.facts.get("updates_configured")
    wanted = fact.value if fact is not None and fact.how != "default" else None
    return [
        record.step
        for record in records
        if record.step is not None
        and (len(record.sums) == wanted if isinstance(wanted, int | float) else len(record.sums) > 1)
    ]


def _files(paths: Sequence[Path]) -> list[Path]:
    return [file for path in paths for file in (archives_in(path) if path.is_dir() else (path,))]


def _measured(archives: Sequence[Archive], settings: Mapping[str, Setting], updates: Fact | None) -> list[Measured]:
    dumps = [archive for archive in archives if dump_run.is_dump(archive)]
    weights = [archive for archive in archives if archive not in dumps]
    parts = [part for archive in dumps for part in updates_of(archive)]
    found = [dump_run.measure(part, _known(settings, updates)) for part in parts]
    return dump_run.with_update_metrics(found) + checkpoints.measure(weights, _number(settings, "learning_rate"))


def _known(settings: Mapping[str, Setting], updates: Fact | None) -> dump_run.Known:
    low, high = _number(settings, "clip_range"), _number(settings, "clip_range_high")
    return dump_run.Known(
        clip=None if low is None else (low, high if high is not None else low),
        dual_clip=_number(settings, "clip_range_dual"),
        gamma=_number(settings, "gamma"),
        gae_lambda=_number(settings, "gae_lambda"),
        single_update=updates is not None and updates.how != "default" and updates.value == 1.0,
    )


def _number(settings: Mapping[str, Setting], name: str) -> float | None:
    """Return a setting that was found; a framework's default does not say what a dump was made with."""
    setting = settings.get(name)
    if setting is None or setting.how == "default" or not isinstance(setting.value, int | float):
        return None
    return float(setting.value)


def _nothing(archives: Sequence[Archive]) -> DoctorError:
    names = [without_row(name) for archive in archives for name in archive.tensors]
    what = f"its tensors: {_listed(names)}" if names else "it holds no tensor"
    return DoctorError(
        f"{archives[0].path if archives else 'these files'}: neither log-probs nor weights that can be judged",
        hint=f"{what}; --map old_log_prob=NAME names one, docs/dumps.md tells the names that are read",
    )


def _names(archives: Sequence[Archive], request: Request) -> list[Note]:
    """Return notes of the arrays of dumps that their numbers tell, and of those that are not understood."""
    given = parse_overrides(request.names)
    dumps = [archive for archive in archives if dump_run.is_dump(archive)]
    told, unread = [], []
    for archive in dumps:
        by_name = roles_of(archive.roles, given)
        told += [f"{n} is {known}" for n, known in archive.roles.items() if known not in (None, by_name[n])]
        unread += [without_row(name) for name in archive.tensors if archive.roles[name] is None]
    texts = {"by their numbers": told, "not understood": unread}
    return [Note(text=f"{what}: {_listed(held)}; --map ROLE=NAME names one") for what, held in texts.items() if held]


#: Names of tensors that are listed at most; the rest are counted.
MOST_LISTED = 20


def _listed(names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - MOST_LISTED} more" if len(different) > MOST_LISTED else ""
    return ", ".join(different[:MOST_LISTED]) + more


def _series(records: Sequence[Measured]) -> dict[str, Series]:
    """Return one series for each metric; metrics of the same records share an axis."""
    steps = _steps(records)
    ordered = sorted(range(len(records)), key=lambda at: (steps[at], *_place(records[at])))
    axes: dict[tuple[int, ...], Axis] = {}
    series: dict[str, Series] = {}
    for name in dict.fromkeys(name for record in records for name in record.values):
        held = tuple(at for at in ordered if name in records[at].values)
        axis = axes.setdefault(held, _axis(held, records, steps))
        values = np.array([records[at].values[name] for at in held], dtype=np.float64)
        estimator = ESTIMATORS.get(name)
        series[name] = Series(
            name=name,
            raw=records[held[0]].raw[name],
            axis=axis,
            values=values,
            unit=unit(name),
            # Statistics are taken in float64 of log-probs that were computed in float32.
            resolution=Resolution(rounding=arrays.rounding_of(name, estimator, None, values)),
            estimator=estimator,
            how="computed",
        )
    return series


def _place(record: Measured) -> tuple[int, int]:
    """Return the epoch and minibatch of a record; one that is a whole update comes first."""
    return (-1 if record.epoch is None else record.epoch), (-1 if record.minibatch is None else record.minibatch)


def _steps(records: Sequence[Measured]) -> list[int]:
    """Return a step for each record: as its file says, or counted where some file does not say, or two say the same.

    Minibatches of one update have its step.
    """
    known = [record.step for record in records if record.step is not None]
    cells = {(record.step, *_place(record)) for record in records}
    return known if len(known) == len(cells) == len(records) else list(range(1, len(records) + 1))


def _axis(places: Sequence[int], records: Sequence[Measured], steps: Sequence[int]) -> Axis:
    """Return the axis of the records at some places."""
    held = [records[at] for at in places]
    files = tuple(dict.fromkeys(record.path for record in held))
    return Axis(
        path=held[0].path,
        steps=np.array([steps[at] for at in places], dtype=np.int64),
        lines=np.zeros(len(held), dtype=np.int64),
        epoch=_ids([record.epoch for record in held]),
        minibatch=_ids([record.minibatch for record in held]),
        files=files if len(files) > 1 else (),
        file=np.array([files.index(record.path) for record in held]) if len(files) > 1 else None,
        records=np.array(places, dtype=np.int64),
    )


def _ids(found: Sequence[int | None]) -> IntArray | None:
    known = [value for value in found if value is not None]
    return np.array(known, dtype=np.int64) if len(known) == len(found) else None


#: Metric → what is too small to differ by: a gap is measured against the larger of the two values and of this. Only
#: metrics with one meaning: trainers log rewards, KL to the reference and token counts of many kinds under one name.
COMPARED: Mapping[str, float] = {
    "approx_kl": 1e-4,
    "clip_fraction": 0.01,
    "clip_fraction_low": 0.01,
    "clip_fraction_high": 0.01,
    "ratio_std": 1e-3,
    "effective_sample_size": 0.1,
}
#: Tokens weigh alike in a dump and minibatches in a log, which makes a tenth; a factor of two is no matter of weights.
FACTOR = 0.5
#: Where a log does not say over which minibatches it averages, it may be the last ones, which are several times larger.
LOOSE = 5.0
WINDOWS = (None, "all minibatches", "last epoch", "last minibatch")
GAP = "log_dump_gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One metric at the records that log and dumps have in common: arrays of one shape, gaps as fractions."""

    name: str
    logged: Series
    computed: Series
    places: tuple[tuple[int, int], ...]
    gaps: tuple[float, ...]

    @property
    def differs(self) -> bool:
        """Tell whether the two differ in most of their common records."""
        return float(np.median(self.gaps)) > FACTOR


def compared(log: Run, dumps: Run, comparable: Sequence[int]) -> tuple[Compared, ...]:
    """Return the metrics that a log and the dumps of its updates have in common, at the steps that are comparable.

    `comparable` are the steps of dumps that hold all that a record of the log is a mean of. Metrics that are other
    estimates, as k1 beside k3, are left out.
    """
    found = (_one(name, log.series[name], dumps.series[name], set(comparable)) for name in _common(log, dumps))
    return tuple(one for one in found if one is not None)


def _common(log: Run, dumps: Run) -> Iterator[str]:
    for name in COMPARED:
        if name in log.series and name in dumps.series:
            one, other = log.series[name], dumps.series[name]
            if one.estimator == other.estimator and one.aggregation in WINDOWS:
                yield name


def _one(name: str, logged: Series, dumped: Series, steps: set[int]) -> Compared | None:
    at = {int(step): place for place, step in enumerate(_numbers(logged, steps))}
    places, gaps = [], []
    for place, step in enumerate(dumped.axis.steps.tolist()):
        if step in steps and step in at:
            gap = _gap(name, logged, at[step], float(dumped.values[place]))
            if not math.isnan(gap):
                places.append((at[step], place))
                gaps.append(gap)
    if not places:
        return None
    return Compared(name=name, logged=logged, computed=dumped, places=tuple(places), gaps=tuple(gaps))


def _numbers(series: Series, steps: set[int]) -> list[int]:
    """Return what numbers the log's records: its steps, or its updates where only they are the dumps' numbers."""
    own: list[int] = series.axis.steps.tolist()
    if series.axis.update is not None and not steps & set(own):
        own = series.axis.update.tolist()
    return own


def _gap(name: str, logged: Series, place: int, computed: float) -> float:
    """Return by which share of the larger two values differ, beyond what was printed; nan where one is not finite."""
    value = float(logged.values[place])
    if not (math.isfinite(value) and math.isfinite(computed)):
        return math.nan
    off = max(0.0, abs(value - computed) - logged.resolution.absolute) / max(abs(value), abs(computed), COMPARED[name])
    loose = LOOSE if logged.aggregation != "all minibatches" else 1.0
    return off if off >= 1 else max(0.0, 1 - loose * (1 - off))


def with_agreement(run: Run, found: Sequence[Compared]) -> Run:
    """Return a run in which computed values stand for logged ones that they contradict, and the largest gap is told."""
    if not found:
        return run
    wrong = [one for one in found if one.differs]
    worst = max(found, key=lambda one: float(np.median(one.gaps)))
    series = {**run.series, GAP: _gap_series(worst)} | {one.name: one.computed for one in wrong}
    return replace(run, series=series, notes=(*run.notes, *map(_told, wrong)))


def _gap_series(one: Compared) -> Series:
    places = np.array([place for place, _ in one.places], dtype=np.int64)
    order = np.argsort(places, kind="stable")
    return Series(
        name=GAP,
        raw=one.logged.raw,
        axis=one.logged.axis.take(places[order]),
        values=np.array(one.gaps, dtype=np.float64)[order],
        unit="fraction",
        resolution=EXACT,
        how="computed",
    )


def _told(one: Compared) -> Note:
    at, place = one.places[int(np.argmax(one.gaps))]
    said, shown = float(one.logged.values[at]), float(one.computed.values[place])
    text = f"{one.name}: {said:.4g} in the log, {shown:.4g} in {one.computed.source(place).path}, which is used"
    return Note(text=text, source=one.logged.source(at))
