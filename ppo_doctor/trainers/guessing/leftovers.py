"""Name columns that inference leaves over: zeros, counters, the return, and settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.trainers.guessing.abbreviations import Reading, words_of
from ppo_doctor.trainers.guessing.column_names import PLAINLY, ColumnName, says
from ppo_doctor.trainers.guessing.relations import of_one_norm
from ppo_doctor.trainers.guessing.value_forms import LEAST
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.trainers.guessing.value_forms import Numbers

#: Metrics of what a training earns, and of how far its policy moved.
EARNINGS = frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total", "success_rate"})
MOVEMENTS = frozenset(
    {"approx_kl", "clip_fraction", "ratio_abs_dev", "ratio_mean", "approx_kl_k1", "probe_kl", "ref_kl"}
)
#: Metrics that make a picture.
ENOUGH = 5
#: What may be 0 throughout, the likeliest first.
_ZEROS = ("approx_kl", "clip_fraction", "policy_loss", "grad_norm")
#: What is 0 by a fault alone: the name has to mean it.
_NAMED_ZEROS = ("learning_rate", "advantages_std")
#: Optimizer steps of a batch, at most, that are told from a count of samples.
FEW_STEPS = 12
#: The same where samples are counted as well, and words of counters that count episodes then.
MOST_STEPS = 512
_OF_EPISODES = frozenset(
    (
        *("ep", "eps", "episode", "episodes", "epis", "game", "games", "traj", "trajs", "trajectories"),
        *("rollouts", "prompts", "batches"),
    )
)
#: Samples of a batch, at least, and the records of a counter that tell by how much it grows.
MANY_SAMPLES, SEVERAL = 32, 4
#: Words of a counter that is one of optimizer steps, whatever it grows by.
OF_OPTIMIZERS = frozenset(
    (
        *("opt", "opts", "nopt", "nopts", "optim", "optimizer", "optimiser", "optsteps", "sgd", "adam", "gradsteps"),
        *("gs", "backward", "backwards", "backprops", "nudge", "nudges", "push", "pushes", "shove", "shoves"),
        *("mb", "mbs", "minibatch", "minibatches"),
    )
)


def still(
    held: Mapping[str, Numbers],
    told: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
    open_ones: Collection[str],
) -> dict[str, Reading]:
    """Return what columns of zeros are: as their names hint, else by what is missing, if none of these is left over.

    A policy that stands still, or a ratio of one policy with itself, has a KL and a share of clipped samples of 0.
    Which column is which says nothing then.
    """
    taken = {reading.metric for reading in chosen.values()} | set(named)
    zeros = [key for key, found in held.items() if found.zero and key not in chosen]
    found: dict[str, Reading] = {}
    for metric in (m for m in (*_ZEROS, *_NAMED_ZEROS) if m not in taken):
        named_so = [
            key
            for key in zeros
            if key not in found
            and (_means(told[key], metric) if metric in _NAMED_ZEROS else says(told[key], metric))
            and not _is_some_loss(told[key], metric)
        ]
        if named_so:  # the name that can mean the least else
            key = min(named_so, key=lambda key: _hinted_less(told[key], metric))
            found[key] = told[key].meant.get(metric) or Reading(metric=metric, cost=0.0)
    taken |= {reading.metric for reading in found.values()}
    plain = [key for key in zeros if key not in found and not told[key].meant and told[key].allowed is None]
    missing = [metric for metric in _ZEROS if metric not in taken and metric not in open_ones]
    some = missing if len(plain) >= len(missing) else missing[:2]
    if some[:2] != list(_ZEROS[:2]):
        return found
    if len(plain) < len(some):
        return found
    return found | {key: Reading(metric=metric, cost=0.0) for key, metric in zip(plain, some, strict=False)}


def _is_some_loss(name: ColumnName, metric: str) -> bool:
    """Tell whether a name says of a loss of zeros only that it is a loss, or an error, of whatever."""
    losses = {"policy_loss", "value_loss"}
    return (
        metric in losses
        and metric not in name.meant
        and all(losses <= hint or not losses & hint for hint in name.hints)
    )


def _means(name: ColumnName, metric: str) -> bool:
    """Tell whether a name may mean a metric in all, or one of its words tells the metric from all others."""
    return metric in name.meant or metric in name.marks


def without_numbers(
    columns: Mapping[str, FloatArray],
    told: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
) -> dict[str, Reading]:
    """Return what the names of columns mean that never hold a finite number, as of a run that broke at once."""
    taken = {reading.metric for reading in chosen.values()} | set(named)
    found: dict[str, Reading] = {}
    for key, name in told.items():
        plain = min(name.meant.values(), key=lambda each: each.cost, default=None)
        if (
            plain is not None
            and plain.cost <= PLAINLY
            and plain.metric not in taken
            and not np.isfinite(columns[key]).any()
        ):
            found[key] = plain
            taken.add(plain.metric)
    return found


def _hinted_less(name: ColumnName, metric: str) -> tuple[bool, bool, bool, int]:
    """Return how little a name says for a metric: the name that can mean the least else comes first."""
    allowed = name.allowed or frozenset()
    return metric not in name.meant, metric not in allowed, not allowed, len(allowed)


def counted(
    columns: Mapping[str, FloatArray],
    told: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
) -> dict[str, Reading]:
    """Return the counts over the whole run: of optimizer steps, and of environment steps, which are many more.

    Each grows by one number in each record; one that no longer grows counted what is no longer done.
    """
    taken = {reading.metric for reading in chosen.values()} | set(named)
    counters = {key: each for key, values in columns.items() if key in told and (each := _each(values))}
    samples = max(counters.values(), default=0.0)
    found: dict[str, Reading] = {}
    for key, each in counters.items():
        if key in chosen:
            continue
        known = columns[key][np.isfinite(columns[key])]
        words = {word for part in words_of(key) for word in part}
        sure = not OF_OPTIMIZERS.isdisjoint(words)
        beside = samples >= MANY_SAMPLES and each <= min(MOST_STEPS, samples / 2) and _OF_EPISODES.isdisjoint(words)
        if sure or 2 <= each <= FEW_STEPS or (each >= 2 and beside):
            metric, others = "optimizer_steps_total", taken & {"optimizer_steps", "optimizer_steps_total"}
        elif each >= MANY_SAMPLES and known[0] == each and not _of_tokens(key):
            metric, others = "env_steps", taken & {"env_steps"}
        else:
            continue
        if not others:
            found[key] = Reading(metric=metric, cost=0.0)
            taken.add(metric)
    return found


def _each(values: FloatArray) -> float:
    """Return by what a counter grows in each record, 0 where a column is none."""
    known = values[np.isfinite(values)]
    change = np.diff(known)
    each = float(change[0]) if len(change) else 0.0
    return each if each >= 1 and not (known % 1 != 0).any() and _one_or_none(change, each) else 0.0


def _one_or_none(change: FloatArray, each: float) -> bool:
    """Tell whether a counter grows by one number, perhaps up to a record from which on it stands."""
    stands = np.flatnonzero(change != each)
    return not len(stands) or bool(stands[0] >= SEVERAL and (change[stands[0] :] == 0).all())


def _of_tokens(key: str) -> bool:
    return any(word.startswith("tok") for part in words_of(key) for word in part)


def left_for_the_return(
    held: Mapping[str, Numbers], told: Mapping[str, ColumnName], chosen: Mapping[str, Reading], named: Collection[str]
) -> dict[str, Reading]:
    """Return what a script prints first beside its clocks as its return, where nothing else was read as one.

    Nearly every script prints what it earns; here all that is left of a picture says which column it is.
    """
    metrics = {reading.metric for reading in chosen.values()} | set(named)
    if not EARNINGS.isdisjoint(metrics) or len(metrics) < ENOUGH or not metrics & MOVEMENTS:
        return {}
    for key, found in held.items():
        if key in chosen or told[key].allowed is not None or found.zero:
            continue
        change = np.diff(found.known)
        if len(change) and (change > 0).any() and (change < 0).any() and not _speaks_of_another(told[key]):
            return {key: Reading(metric="episode_return", cost=0.0)}
        if not (change >= 0).all():  # the first that is no clock is not what is looked for
            return {}
    return {}


def _speaks_of_another(name: ColumnName) -> bool:
    """Tell whether a name may mean a metric that is no return, at a cost that is not far-fetched."""
    return any(one.cost <= PLAINLY and metric not in EARNINGS for metric, one in name.meant.items())


def settings_shown(columns: Mapping[str, FloatArray], metrics: Mapping[str, str]) -> dict[str, float]:
    """Return settings that columns beside metrics show: steps that were planned, the norm that gradients are cut to.

    `columns` hold the finite numbers of each column, `metrics` are metric → column.
    """
    shown = dict[str, float]()
    for executed, setting in (("optimizer_steps", "updates_per_batch"), ("epochs_executed", "ppo_epochs")):
        planned = columns.get(f"{metrics.get(executed, '')} {PLANNED}")
        if planned is not None and len(planned) and planned[0] >= 1 and (planned == planned[0]).all():
            shown[setting] = float(planned[0])
    norm = metrics.get("grad_norm", "")
    if len(alone := columns.get(norm, np.zeros(0))) >= LEAST and np.allclose(alone, alone[0], rtol=1e-3, atol=0):
        shown["max_grad_norm"] = float(alone[0])  # what it was cut to
    for key, cut in columns.items():
        before = columns.get(norm)
        # A rate is constant and below every norm too: the name has to say that it is the same norm.
        other = key in metrics.values() or not of_one_norm(key, norm)
        if before is None or other or len(cut) != len(before) or len(cut) < LEAST:
            continue
        if (
            (cut <= before * 1.01).all()
            and (before > cut[0]).all()
            and np.allclose(cut, cut[0], rtol=1e-3, atol=0)
            and cut[0] > 0
        ):
            shown["max_grad_norm"] = float(cut[0])
    return shown
