"""Make a run of dumps and checkpoints, or add their metrics to the run of a log and compare them with it.

`dumps.dump_run` lists the metrics of dumps and the functions that compute them.
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

#: Metric → estimator with which the modules in `dumps` compute it.
ESTIMATORS = {
    "approx_kl": "k3",
    "approx_kl_k1": "k1",
    "approx_kl_k2": "k2",
    "ref_kl": "k3",
    "rollout_kl": "k3",
    "clip_fraction": "both sides",
}
SCOPE = "only tensors were given: what they show is judged; whether training as a whole is sound takes the run's log"

#: Metrics that a script may log and that checkpoints show too.
MEMORY = ("old_policy_shared", "reference_shared")
#: Rules that need several records of a log accept a single dump.
FROM_TENSORS = Fact(name="from_tensors", value=True, how="computed", says="no log was given")

#: Words in names of tensors that only dumps of language models contain.
_COMPLETION_WORDS = re.compile(r"response|completion|prompt|token", re.I)


def run_of_tensors(paths: Sequence[Path], request: Request) -> Run:
    """Return the run of dumps and checkpoints without a log, in the order of their steps.

    Raises:
        DoctorError: a file cannot be read, or none holds anything that can be judged (exit code 3); `names` of the
            request are invalid (exit code 2).
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
        config_raw={key: value for origin in reversed(given) for key, value in origin.values.items()},
        configs=configuration.files_of(given),
        notes=tuple(notes),
    )


def _completions(archives: Sequence[Archive]) -> Fact | None:
    """Return the fact that samples are completions of a language model if names of tensors in a dump say so."""
    for archive in archives:
        for name in archive.tensors if dump_run.is_dump(archive) else ():
            if archive.roles[name] is not None and _COMPLETION_WORDS.search(name.rpartition(".")[2]):
                source = SourceRef(path=archive.path)
                says = f"{name} is there: samples are completions"
                return Fact(name="completions", value=1.0, how="computed", source=source, says=says)
    return None


def with_tensors(run: Run, paths: Sequence[Path], request: Request) -> Run:
    """Return the run of a log with the metrics of dumps and checkpoints that only tensors show.

    Metrics of both are compared if a dump holds every minibatch that a record of the log averages; where they differ,
    the values of the dumps replace the logged ones. A note says if the files cannot be read or judged.
    """
    try:
        archives, records = _read(paths, request, run.config, run.facts.get("updates_configured"))
    except DoctorError as error:
        return replace(run, notes=(*run.notes, Note(text=f"left out: {error.message}")))
    computed = _series(records)
    extra = {name: series for name, series in computed.items() if not loggable(name) or name in MEMORY}
    added = {name: series for name, series in extra.items() if name not in run.series}
    again = tuple(SourceSummary(path=a.path, container=a.container, records=1, again=True) for a in archives)
    whole = replace(
        run,
        series={**run.series, **added},
        notes=(*run.notes, *(note for record in records for note in record.notes)),
        sources=(*run.sources, *again),
    )
    return with_agreement(whole, compared(run, replace(run, series=computed), _whole(records, run)))


def _read(
    paths: Sequence[Path], request: Request, settings: Mapping[str, Setting], updates: Fact | None
) -> tuple[list[Archive], list[Measured]]:
    """Return the archives, and the records of updates in dumps and of policies in checkpoints.

    Raises:
        DoctorError: a file cannot be read, or none holds anything that can be judged.
    """
    archives = with_roles(map(read_archive, _files(paths)), parse_overrides(request.names))
    records = _measured(archives, settings, updates)
    if not any(record.values for record in records):
        raise _nothing(archives)
    return archives, records


def _whole(records: Sequence[Measured], run: Run) -> list[int]:
    """Return the steps of dumps with every minibatch of an update: as many as configured, or several if unknown."""
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
    records = [dump_run.measure(part, _known(settings, updates)) for part in parts]
    return dump_run.with_update_metrics(records) + checkpoints.measure(weights, _number(settings, "learning_rate"))


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
    """Return the value of a setting, None for a framework's default, which need not be what a dump was made with."""
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
    """Return notes on the arrays of dumps whose roles were inferred from their numbers, and on those without a role."""
    overrides = parse_overrides(request.names)
    dumps = [archive for archive in archives if dump_run.is_dump(archive)]
    inferred, unread = [], []
    for archive in dumps:
        by_name = roles_of(archive.roles, overrides)
        inferred += [f"{n} is {role}" for n, role in archive.roles.items() if role not in (None, by_name[n])]
        unread += [without_row(name) for name in archive.tensors if archive.roles[name] is None]
    texts = {"by their numbers": inferred, "not understood": unread}
    return [Note(text=f"{what}: {_listed(names)}; --map ROLE=NAME names one") for what, names in texts.items() if names]


#: Largest number of names of tensors that are listed; the rest are counted.
MOST_LISTED = 20


def _listed(names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    more = f" and {len(different) - MOST_LISTED} more" if len(different) > MOST_LISTED else ""
    return ", ".join(different[:MOST_LISTED]) + more


def _series(records: Sequence[Measured]) -> dict[str, Series]:
    """Return a series for each metric; metrics of the same records share an axis."""
    steps = _steps(records)
    ordered = sorted(range(len(records)), key=lambda at: (steps[at], *_place(records[at])))
    axes: dict[tuple[int, ...], Axis] = {}
    series: dict[str, Series] = {}
    for name in dict.fromkeys(name for record in records for name in record.values):
        places = tuple(at for at in ordered if name in records[at].values)
        axis = axes.setdefault(places, _axis(places, records, steps))
        values = np.array([records[at].values[name] for at in places], dtype=np.float64)
        estimator = ESTIMATORS.get(name)
        series[name] = Series(
            name=name,
            raw=records[places[0]].raw[name],
            axis=axis,
            values=values,
            unit=unit(name),
            # Computed in float64 from log-probs of float32.
            resolution=Resolution(rounding=arrays.rounding_of(name, estimator, None, values)),
            estimator=estimator,
            how="computed",
        )
    return series


def _place(record: Measured) -> tuple[int, int]:
    """Return epoch and minibatch of a record for sorting; a record of a whole update comes first."""
    return (-1 if record.epoch is None else record.epoch), (-1 if record.minibatch is None else record.minibatch)


def _steps(records: Sequence[Measured]) -> list[int]:
    """Return the step of each record, or its number if some file gives no step or two records have the same place.

    Minibatches of one update share its step.
    """
    known = [record.step for record in records if record.step is not None]
    cells = {(record.step, *_place(record)) for record in records}
    return known if len(known) == len(cells) == len(records) else list(range(1, len(records) + 1))


def _axis(places: Sequence[int], records: Sequence[Measured], steps: Sequence[int]) -> Axis:
    """Return the axis of the records at the given places."""
    chosen = [records[at] for at in places]
    files = tuple(dict.fromkeys(record.path for record in chosen))
    return Axis(
        path=chosen[0].path,
        steps=np.array([steps[at] for at in places], dtype=np.int64),
        lines=np.zeros(len(chosen), dtype=np.int64),
        epoch=_ids([record.epoch for record in chosen]),
        minibatch=_ids([record.minibatch for record in chosen]),
        files=files if len(files) > 1 else (),
        file=np.array([files.index(record.path) for record in chosen]) if len(files) > 1 else None,
        records=np.array(places, dtype=np.int64),
    )


def _ids(numbers: Sequence[int | None]) -> IntArray | None:
    known = [number for number in numbers if number is not None]
    return np.array(known, dtype=np.int64) if len(known) == len(numbers) else None


#: Metric → smallest value relative to which a gap is measured; larger values are their own measure. Only metrics with
#: one meaning are compared: rewards, KL to the reference and token counts differ between trainers.
COMPARED: Mapping[str, float] = {
    "approx_kl": 1e-4,
    "clip_fraction": 0.01,
    "clip_fraction_low": 0.01,
    "clip_fraction_high": 0.01,
    "ratio_std": 1e-3,
    "effective_sample_size": 0.1,
}
#: Dumps average over tokens and logs over minibatches, which differs by about 10 %; a factor of two has other causes.
FACTOR = 0.5
#: Factor allowed if a log may average over the last minibatches only, whose values are several times larger.
LOOSE = 5.0
WINDOWS = (None, "all minibatches", "last epoch", "last minibatch")
GAP = "log_dump_gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One metric at the records that log and dumps share; `places` are (logged, computed), gaps are fractions."""

    name: str
    logged: Series
    computed: Series
    places: tuple[tuple[int, int], ...]
    gaps: tuple[float, ...]

    @property
    def differs(self) -> bool:
        """Return whether log and dumps differ in most of their common records."""
        return float(np.median(self.gaps)) > FACTOR


def compared(log: Run, dumps: Run, comparable: Sequence[int]) -> tuple[Compared, ...]:
    """Return the metrics that a log and its dumps have in common, at the comparable steps.

    `comparable` are the steps of dumps that hold every minibatch that a record of the log averages. Metrics with
    different estimators, such as k1 and k3, are left out.
    """
    pairs = (_compared(name, log.series[name], dumps.series[name], set(comparable)) for name in _common(log, dumps))
    return tuple(one for one in pairs if one is not None)


def _common(log: Run, dumps: Run) -> Iterator[str]:
    for name in COMPARED:
        if name in log.series and name in dumps.series:
            one, other = log.series[name], dumps.series[name]
            if one.estimator == other.estimator and one.aggregation in WINDOWS:
                yield name


def _compared(name: str, logged: Series, dumped: Series, steps: set[int]) -> Compared | None:
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
    """Return the numbers of the log's records: its steps, or its updates if none of the dumps' steps is among them."""
    numbers: list[int] = series.axis.steps.tolist()
    if series.axis.update is not None and not steps & set(numbers):
        numbers = series.axis.update.tolist()
    return numbers


def _gap(name: str, logged: Series, place: int, computed: float) -> float:
    """Return the gap of two values beyond the printed resolution, relative to the larger; NaN if one is not finite."""
    value = float(logged.values[place])
    if not (math.isfinite(value) and math.isfinite(computed)):
        return math.nan
    off = max(0.0, abs(value - computed) - logged.resolution.absolute) / max(abs(value), abs(computed), COMPARED[name])
    loose = LOOSE if logged.aggregation != "all minibatches" else 1.0
    return off if off >= 1 else max(0.0, 1 - loose * (1 - off))


def with_agreement(run: Run, comparisons: Sequence[Compared]) -> Run:
    """Return the run with the largest gap as a series, and with computed values in place of logged ones that differ."""
    if not comparisons:
        return run
    wrong = [one for one in comparisons if one.differs]
    worst = max(comparisons, key=lambda one: float(np.median(one.gaps)))
    series = {**run.series, GAP: _gap_series(worst)} | {one.name: one.computed for one in wrong}
    return replace(run, series=series, notes=(*run.notes, *map(_note, wrong)))


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


def _note(one: Compared) -> Note:
    at, place = one.places[int(np.argmax(one.gaps))]
    logged, computed = float(one.logged.values[at]), float(one.computed.values[place])
    text = f"{one.name}: {logged:.4g} in the log, {computed:.4g} in {one.computed.source(place).path}, which is used"
    return Note(text=text, source=one.logged.source(at))
