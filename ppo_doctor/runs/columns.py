"""Map the columns of a log to metrics: by alias, by trainer, by name, or inferred from the other columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.readers.methods import PPO, method_of, of_family
from ppo_doctor.readers.table import RUN_KEYS
from ppo_doctor.runs.step_columns import is_size
from ppo_doctor.trainers import aliases, configuration, detection
from ppo_doctor.trainers.column_values import AT_FIRST, is_named_so
from ppo_doctor.trainers.guessing import inference, leftovers
from ppo_doctor.trainers.guessing.abbreviations import words_of
from ppo_doctor.trainers.guessing.column_names import parse_column_name
from ppo_doctor.trainers.guessing.value_forms import counts_up
from ppo_doctor.trainers.names import clocks, metric_of, of_language, parse
from ppo_doctor.trainers.phrases import PLANNED
from ppo_doctor.trainers.profiles import BOOKKEEPING, MetricProfile
from ppo_doctor.trainers.settings import SETTINGS

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray, Setting
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.runs.log import Log
    from ppo_doctor.trainers.profiles import Profile

#: Names that show only that a number is of the critic: its loss, or its output.
BARE_CRITICS = (("value",), ("v",), ("critic",))
#: Metrics of a critic, which GRPO does not have.
OF_A_CRITIC = ("value_loss", "explained_variance")
#: Metrics of an algorithm that compares answers with each other and with a reference.
OF_COMPARISONS = ("ref_kl", "frac_reward_zero_std")
#: Greek letter of a learning rate; in other logs it is a remaining time.
GREEK_RATES = ((("eta",),),)
#: Words for the return in some scripts, and for the speed of the machine in most.
PERFORMANCE = frozenset({"perf", "performance"})
#: Columns with unknown names that are examined.
MOST_FORMS = 64
#: Prefix of a training column's name in the column of an evaluation.
EVALUATED = "eval "
#: Metrics of optimizer steps, words of a count of updates, and records from which on a column counts as constant.
OF_STEPS = ("optimizer_steps_total", "optimizer_steps")
COUNT_OF_UPDATES = frozenset({"update", "count", "total", "executed", "policy"})
FEWEST = 3
#: No batch takes more optimizer steps.
MOST_STEPS = 10_000
#: In a log with these metrics of updates, "steps" that do not grow are optimizer steps up to this many.
STEPS, FEW_STEPS, OF_UPDATES = "steps", 100, frozenset({"approx_kl", "clip_fraction"})
#: Words in names of constraints of the task.
_COST = lazy_pattern(r"cost|constraint|violation", re.IGNORECASE)
#: Columns of trackers and readers that are no metrics.
_NEVER_ASKED = frozenset({*RUN_KEYS, *aliases.CLOCKS, *BOOKKEEPING})


def aliases_of(path: str, project: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the aliases for a log: those of the project, of a file next to the log, and of the command line.

    Raises:
        DoctorError: the file next to the log cannot be read or is invalid (exit code 2).
    """
    return {**project, **(aliases.beside(Path(path)) if path != "-" else {}), **own}


def profile_of(log: Log, *, framework: str | None = None, like: Profile | None = None) -> Profile:
    """Return the profile for the columns of a log; `like` is the profile of the other files of its run.

    Raises:
        DoctorError: no metric is known, or the log is none of the PPO family (exit code 3).
    """
    keys = log.keys
    found = detection.as_written(framework, keys) if framework else _detected(keys, like)
    if found is not None and not found.ppo_family and not framework:
        raise DoctorError(
            f"{log.name}: this is a run of {found.title}, not one of the PPO family",
            hint="ppo-doctor judges PPO, GRPO and their kin; --framework NAME overrules",
        )
    other = _other_algorithm(log.path)
    if found is not None and other is not None and not framework and not detection.speaks_of_ppo(found, keys):
        raise DoctorError(
            f"{log.name}: by its name it is a run of {other}, and no metric of it is one that only PPO logs",
            hint="ppo-doctor judges PPO, GRPO and their kin; --framework NAME overrules",
        )
    profile = _aliased(found or detection.profile(detection.CANONICAL), keys, log.named)
    if profile.name == detection.CANONICAL:
        profile = _with_constant_count(_by_company(profile, log), log)
        if _of_groups(log.path) and keys.isdisjoint(k for m in OF_A_CRITIC for k in _keys_of(profile, m)):
            profile = replace(profile, algorithm="grpo")
    own = found is None or (profile.name == detection.CANONICAL and not framework)
    if own and not any(keys.intersection(metric.keys) for metric in profile.metrics.values()):
        if not log.died_of_numbers:
            raise _nothing_known(log)
        return detection.as_written(detection.CANONICAL, keys)
    return profile


def _other_algorithm(path: str) -> str | None:
    """Return the method outside the PPO family that a file, or else its folder, is named after; None without one."""
    file = Path(path)
    found = filter(None, map(method_of, (file.stem, file.parent.name)))
    return next((None if method == PPO else method for method in found), None)


def _of_groups(path: str) -> bool:
    """Return whether a file, or else its folder, is named after GRPO and not after PPO."""
    file = Path(path)
    name = next((name.lower() for name in (file.stem, file.parent.name) if of_family(name)), "")
    return "grpo" in name and "ppo" not in name.replace("grpo", "")


def _keys_of(profile: Profile, metric: str) -> Iterable[str]:
    return profile.metrics[metric].keys if metric in profile.metrics else ()


def _detected(keys: frozenset[str], like: Profile | None) -> Profile | None:
    found = detection.detect(keys)
    if like is not None and (found is None or found.name == detection.CANONICAL):
        named = detection.as_written(like.name, keys)
        found = named if any(map(keys.intersection, (m.keys for m in named.metrics.values()))) else found
    return found


def death(log: Log) -> str:
    """Return how the run of a log without a metric died, as a clause; empty if the log does not show it."""
    end = next((note for note in reversed(log.notes) if note.died), None)
    return "" if end is None else f"; the run died before its first update: {end.message}"


def _nothing_known(log: Log) -> DoctorError:
    some = sorted(log.keys)[:6]
    asked = log.finite([key for key in _in_order(log) if key not in _NEVER_ASKED])
    example = next((key for key, values in asked.items() if not counts_up(values)), "NAME")
    records = f"{log.records} record{'s' if log.records != 1 else ''}"
    return DoctorError(
        f"{log.name}: {records}, but no metric that any rule knows{death(log)}",
        hint=f"its keys: {', '.join(some) or 'none'}; name them with --alias {example}=METRIC, for example"
        " episode_return, policy_loss, entropy; --framework NAME chooses a trainer",
    )


def _aliased(profile: Profile, keys: frozenset[str], named: Mapping[str, str]) -> Profile:
    """Return a profile with the aliases of the user for columns and settings, which replace its own."""
    columns = {raw: target for raw, target in named.items() if raw in keys}
    metrics = {raw: target for raw, target in columns.items() if target.removeprefix("-") in METRICS}
    replaced = {target.removeprefix("-") for target in metrics.values()}
    kept = {name: _left(metric, columns) for name, metric in profile.metrics.items() if name not in replaced}
    aliased = {
        target.removeprefix("-"): MetricProfile(
            name=target.removeprefix("-"), keys=(raw,), scale=-1.0 if target.startswith("-") else 1.0
        )
        for raw, target in metrics.items()
    }
    axis = {part: tuple(key for key in names if key not in columns) for part, names in profile.axis.items()}
    for raw, target in columns.items():
        if target in aliases.CLOCKS:
            axis[target] = (raw, *axis.get(target, ()))
    config = dict(profile.config)
    for raw, target in named.items():
        if target in SETTINGS:
            config[target] = (raw, *config.get(target, ()))
    return replace(
        profile,
        metrics={name: metric for name, metric in kept.items() if metric.keys} | aliased,
        axis=axis,
        config=config,
        fuzzy={raw: name for raw, name in profile.fuzzy.items() if raw not in columns and name not in replaced},
        named=frozenset(replaced),
    )


def _left(metric: MetricProfile, columns: Mapping[str, str]) -> MetricProfile:
    """Return a metric without the keys that are aliases of something else."""
    if columns.keys().isdisjoint(metric.keys):
        return metric
    return replace(metric, keys=tuple(key for key in metric.keys if key not in columns))


def _by_company(profile: Profile, log: Log) -> Profile:
    """Return a profile with the columns that follow from the other columns and from their numbers."""
    keys = log.keys
    bare = {raw for raw in profile.fuzzy if words_of(raw)[-1] in BARE_CRITICS and _is_bare(raw)}
    bare |= {raw for raw in profile.fuzzy if is_named_so(raw)}
    profile = _without(profile, bare)
    sizes = {key for key in clocks(keys) if is_size(log.by_record(key))}
    numbering = {*clocks(keys), *(key for names in profile.axis.values() for key in names), *_NEVER_ASKED} - sizes
    held = {name for name, metric in profile.metrics.items() if keys.intersection(metric.keys)}
    unknown = {*profile.unknown(keys), *(key for key in keys if _is_open(key))} - numbering
    trained = [key for key in _in_order(log) if not _of_evaluation(key)]
    unknown |= sizes
    open_keys = [k for k in trained if k in unknown and (k in bare or metric_of(k) not in held)]
    first = next((key for key in open_keys if is_named_so(key)), None)
    open_keys = [key for key in open_keys if key != first]
    if not open_keys:
        return profile
    columns = {key: log.by_record(key) for key in open_keys[:MOST_FORMS]}
    with np.errstate(all="ignore"):  # logs hold NaN, infinity and numbers whose squares are
        found = inference.infer_columns(columns, held, keys, language=of_language(keys))
    metrics = {
        reading.metric: MetricProfile(
            name=reading.metric, keys=(raw,), scale=reading.scale, offset=reading.offset, antilog=reading.antilog
        )
        for raw, reading in found.items()
    }
    inferred = {raw: reading.metric for raw, reading in found.items()}
    if first is not None and found:
        told = parse_column_name(first, (), language=False)
        metrics[AT_FIRST] = MetricProfile(name=AT_FIRST, keys=(first,), scale=1 / told.unit)
        inferred[first] = AT_FIRST
    profile = _of_answers(profile, {*held, *metrics})
    evaluations = {
        f"{EVALUATED}{raw}": reading.scale for raw, reading in found.items() if reading.metric in leftovers.EARNINGS
    }
    evaluated = next((key for key in evaluations if key in keys and "eval_return" not in held), None)
    if evaluated is not None:
        metrics["eval_return"] = MetricProfile(name="eval_return", keys=(evaluated,), scale=evaluations[evaluated])
    return replace(
        profile,
        metrics=dict(profile.metrics) | metrics,
        fuzzy=dict(profile.fuzzy) | inferred,
        inferred=inferred,
    )


def _of_answers(profile: Profile, metrics: Set[str]) -> Profile:
    """Return a profile in which a length is that of responses if the log is of an algorithm that compares groups."""
    length = profile.metrics.get("episode_length")
    grouped = not metrics.isdisjoint(OF_COMPARISONS) and metrics.isdisjoint(OF_A_CRITIC)
    if length is None or not grouped or "response_length" in metrics:
        return profile
    kept = {name: metric for name, metric in profile.metrics.items() if metric is not length}
    return replace(profile, metrics=kept | {"response_length": replace(length, name="response_length")})


def _with_constant_count(profile: Profile, log: Log) -> Profile:
    """Return a profile in which a constant count of updates, or a small one of steps, counts optimizer steps.

    A count that grows may be one of passes or rollouts; a constant 0 means that there were none of any.
    """
    keys = log.keys
    held = {name for name, metric in profile.metrics.items() if keys.intersection(metric.keys)}
    if not held.isdisjoint(OF_STEPS):
        return profile
    unknown = frozenset(profile.unknown(keys)) | set(clocks(keys))  # a constant column is no clock
    constant = (k for k in _in_order(log) if k in unknown and _counts_updates(k) and _is_constant(log.by_record(k)))
    small = (k for k in clocks(keys) if k.lower() == STEPS and held & OF_UPDATES and _stays_small(log.by_record(k)))
    key, name = next(constant, None), OF_STEPS[0]
    if key is None:
        key, name = next(small, None), OF_STEPS[1]
    if key is None:
        return profile
    metrics = dict(profile.metrics) | {name: MetricProfile(name=name, keys=(key,))}
    return replace(profile, metrics=metrics, fuzzy=dict(profile.fuzzy) | {key: name})


def _counts_updates(key: str) -> bool:
    """Return whether a key names a count of updates and nothing else."""
    name = parse(key)
    return not name.unknown and "update" in name.concepts and name.concepts <= COUNT_OF_UPDATES


def _is_constant(values: FloatArray) -> bool:
    known = values[np.isfinite(values)]
    if len(known) < FEWEST or known.min() != known.max():
        return False
    return float(known[0]) == 0 or bool(known[0] % 1 == 0 and 1 < known[0] <= MOST_STEPS)


def _stays_small(values: FloatArray) -> bool:
    """Return whether numbers are small counts that do not grow over the run, such as the steps of each batch."""
    known = values[np.isfinite(values)]
    whole = len(known) >= FEWEST and not (known % 1 != 0).any() and known.min() >= 1 and known.max() <= FEW_STEPS
    return bool(whole) and not (known[-1] > known[0] and (np.diff(known) >= 0).all())


def _is_open(key: str) -> bool:
    """Return whether a key that trainers use for the machine may be a metric in a script of one's own."""
    words = words_of(key)
    return words in GREEK_RATES or (len(words) == 1 and not PERFORMANCE.isdisjoint(words[0]))


def settings_shown(profile: Profile, log: Log) -> dict[str, float]:
    """Return the settings that columns of a log of no known trainer show."""
    if not profile.inferred:
        return {}
    metrics = {metric: raw for raw, metric in profile.inferred.items()}
    return leftovers.settings_shown(log.finite(log.keys), metrics)


def _of_evaluation(key: str) -> bool:
    """Return whether a key names a number of an evaluation."""
    name = parse(key)
    return "evaluation" in name.concepts | name.groups


def _is_bare(key: str) -> bool:
    """Return whether a key has a single known word."""
    name = parse(key)
    return len(name.concepts | name.groups) == 1


def _without(profile: Profile, keys: Set[str]) -> Profile:
    """Return a profile without the metrics of some keys."""
    if not keys:
        return profile
    kept = {name: metric for name, metric in profile.metrics.items() if keys.isdisjoint(metric.keys)}
    return replace(profile, metrics=kept, fuzzy={raw: name for raw, name in profile.fuzzy.items() if raw not in keys})


def not_understood(profile: Profile, log: Log) -> tuple[str, ...]:
    """Return the columns of a log of no known trainer that were not understood, in the order of the log.

    Of a known trainer they are only columns of costs, because other unknown columns are of the task.
    """
    if profile.name != detection.CANONICAL:
        costs = profile.unknown(log.keys)
        return tuple(key for key in _in_order(log) if key in costs and _COST.search(key))
    numbering = {*clocks(log.keys), *_NEVER_ASKED}
    unknown = {key for key in profile.unknown(log.keys) - numbering if metric_of(key) is None}
    unknown -= {f"{key} {PLANNED}" for key in log.keys}
    asked = log.finite([key for key in _in_order(log) if key in unknown])
    return tuple(key for key, values in asked.items() if not counts_up(values))


def _in_order(log: Log) -> Iterable[str]:
    """Return the columns of a log in its order."""
    return dict.fromkeys(key for table in log.tables for key in (*table.columns, *sorted(table.others)))


def missing_aliases(named: Mapping[str, str], keys: frozenset[str], settings: Mapping[str, ConfigValue]) -> list[Note]:
    """Return a note on each alias of the command line for a name that neither the log nor its settings contain."""
    held = {*keys, *settings}
    notes = []
    for raw, target in named.items():
        if raw not in held:
            near = get_close_matches(raw, sorted(held), n=2)
            hint = f"; near: {', '.join(near)}" if near else ""
            text = f"--alias {raw}={target}: no column and no setting has this name{hint}"
            notes.append(Note(text=text))
    return notes


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


#: Metrics that training increases.
_EARNED = frozenset({"episode_return", "reward_mean", "eval_return"})


def rescaled(profile: Profile, path: str) -> list[Note]:
    """Return a note on each cost that is read as a reward with the opposite sign, and each KL read in thousandths."""
    inferred = [(n, m) for n, m in sorted(profile.metrics.items()) if profile.inferred.keys() & set(m.keys)]
    return [
        Note(text=f"{', '.join(m.keys)} is read {how}", source=SourceRef(path=path))
        for name, m in inferred
        for how, holds in (
            ("as a cost: its sign is turned", name in _EARNED and m.scale < 0),
            ("in thousandths: as it stands it is larger than any update's KL", (name, m.scale) == ("approx_kl", 1e-3)),
        )
        if holds
    ]


def names_guessed(profile: Profile, path: str, settings: Mapping[str, Setting]) -> list[Note]:
    """Return a note on each metric and setting recognised by its name alone, and on further keys of a metric."""
    source = SourceRef(path=path)
    set_by_likeness = [
        Note(text=f"'{setting.key}' is read as {name}, by its name", source=setting.source, kind="renamed")
        for name, setting in sorted(settings.items())
        if configuration.is_guess(profile, name, setting)
    ]
    set_by_likeness += [
        Note(text=f"{profile.title} has no {setting.key}: it is {own} there", source=setting.source, kind="dropped")
        for name, setting in sorted(settings.items())
        if (own := configuration.own_name(profile, name, setting)) is not None
    ]
    several = [metric for metric in profile.metrics.values() if metric.columns]
    parts = {key for metric in several for key in metric.columns}
    guessed = [
        Note(text=f"'{raw}' is read as {name}, by its name", source=source, kind="renamed")
        for raw, name in sorted(profile.fuzzy.items())
        if raw not in parts and raw != name and raw not in profile.inferred
    ]
    guessed += [
        Note(text=f"{', '.join(m.columns)}: their {m.over} is read as {m.name}", source=source, kind="renamed")
        for m in several
    ]
    further = [
        Note(text=f"{name}: {listed(keys, 1)} may mean it too, not used", source=source)
        for name, keys in sorted(profile.further.items())
    ]
    return guessed + set_by_likeness + further
