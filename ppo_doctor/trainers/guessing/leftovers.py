"""Infer the columns that the assignment leaves open: zeros, counters, the return, and settings beside metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.trainers.guessing.abbreviations import Reading, words_of
from ppo_doctor.trainers.guessing.column_names import ColumnName, suggests
from ppo_doctor.trainers.guessing.relations import is_of_same_norm
from ppo_doctor.trainers.guessing.weights import ENOUGH_METRICS, LEAST_RECORDS, PLAIN_COST
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray
    from ppo_doctor.trainers.guessing.value_forms import Numbers

#: Metrics of what a training earns, and of how far its policy moved.
EARNINGS = frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total", "success_rate"})
MOVEMENTS = frozenset(
    {"approx_kl", "clip_fraction", "ratio_abs_dev", "ratio_mean", "approx_kl_k1", "probe_kl", "ref_kl"}
)
#: Metrics that may be 0 throughout, the likeliest first.
_ZEROS = ("approx_kl", "clip_fraction", "policy_loss", "grad_norm")
#: Metrics that are 0 only by a fault, so that the name has to mean them.
_NAMED_ZEROS = ("learning_rate", "advantages_std")
#: A counter that grows by at most this in each record counts optimizer steps and no samples.
FEW_STEPS = 12
#: The same if another counter counts samples, and words of counters that count episodes then.
MOST_STEPS = 512
_EPISODE_WORDS = frozenset(
    (
        *("ep", "eps", "episode", "episodes", "epis", "game", "games", "traj", "trajs", "trajectories"),
        *("rollouts", "prompts", "batches"),
    )
)
#: Samples of a batch, at least, and records in which a counter that stops has grown, at least.
MANY_SAMPLES, SEVERAL = 32, 4
#: Words of a counter of optimizer steps, whatever it grows by.
OPTIMIZER_WORDS = frozenset(
    (
        *("opt", "opts", "nopt", "nopts", "optim", "optimizer", "optimiser", "optsteps", "sgd", "adam", "gradsteps"),
        *("gs", "backward", "backwards", "backprops", "nudge", "nudges", "push", "pushes", "shove", "shoves"),
        *("mb", "mbs", "minibatch", "minibatches"),
    )
)


def zero_columns(
    measured: Mapping[str, Numbers],
    names: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
    open_metrics: Collection[str],
) -> dict[str, Reading]:
    """Return what columns of zeros are: as their names suggest, otherwise the KL and clip fraction that are missing.

    A policy that does not move has a KL and a clip fraction of 0, and it makes no difference which column is which.
    `open_metrics` are those that a column without a metric may be.
    """
    taken = {reading.metric for reading in chosen.values()} | set(named)
    zeros = [key for key, values in measured.items() if values.zero and key not in chosen]
    found: dict[str, Reading] = {}
    for metric in (m for m in (*_ZEROS, *_NAMED_ZEROS) if m not in taken):
        suggested = [key for key in zeros if key not in found and _is_zero_metric(names[key], metric)]
        if suggested:
            key = min(suggested, key=lambda key: _vagueness(names[key], metric))
            found[key] = names[key].meant.get(metric) or Reading(metric=metric, cost=0.0)
    taken |= {reading.metric for reading in found.values()}
    unknown = [key for key in zeros if key not in found and not names[key].meant and names[key].allowed is None]
    missing = [metric for metric in _ZEROS if metric not in taken and metric not in open_metrics]
    some = missing if len(unknown) >= len(missing) else missing[:2]
    if some[:2] != list(_ZEROS[:2]) or len(unknown) < len(some):
        return found
    return found | {key: Reading(metric=metric, cost=0.0) for key, metric in zip(unknown, some, strict=False)}


def _is_zero_metric(name: ColumnName, metric: str) -> bool:
    """Tell whether a name suggests that a column of zeros is a metric."""
    if metric in _NAMED_ZEROS:
        return metric in name.meant or metric in name.marks
    losses = {"policy_loss", "value_loss"}
    any_loss = metric in losses and all(losses <= hint or not losses & hint for hint in name.hints)
    return suggests(name, metric) and (metric in name.meant or not any_loss)


def _vagueness(name: ColumnName, metric: str) -> tuple[bool, bool, bool, int]:
    """Return a sort key by which the name that can mean the fewest other metrics comes first."""
    allowed = name.allowed or frozenset()
    return metric not in name.meant, metric not in allowed, not allowed, len(allowed)


def unfilled_columns(
    columns: Mapping[str, FloatArray],
    names: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
) -> dict[str, Reading]:
    """Return what the names of columns without any finite number plainly mean, as of a run that broke at once."""
    taken = {reading.metric for reading in chosen.values()} | set(named)
    found: dict[str, Reading] = {}
    for key, name in names.items():
        plain = min(name.meant.values(), key=lambda each: each.cost, default=None)
        if plain is None or plain.cost > PLAIN_COST or plain.metric in taken or np.isfinite(columns[key]).any():
            continue
        found[key] = plain
        taken.add(plain.metric)
    return found


def run_counters(
    columns: Mapping[str, FloatArray],
    names: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
) -> dict[str, Reading]:
    """Return the counters of optimizer steps and of environment steps over the whole run.

    Each grows by the same number in each record, perhaps until it stops. Environment steps are many more.
    """
    taken = {reading.metric for reading in chosen.values()} | set(named)
    counters = {key: each for key, values in columns.items() if key in names and (each := _increment(values))}
    samples = max(counters.values(), default=0.0)
    found: dict[str, Reading] = {}
    for key, each in counters.items():
        if key in chosen:
            continue
        known = columns[key][np.isfinite(columns[key])]
        words = {word for part in words_of(key) for word in part}
        beside_samples = (
            samples >= MANY_SAMPLES and each <= min(MOST_STEPS, samples / 2) and _EPISODE_WORDS.isdisjoint(words)
        )
        if not OPTIMIZER_WORDS.isdisjoint(words) or 2 <= each <= FEW_STEPS or (each >= 2 and beside_samples):
            metric, others = "optimizer_steps_total", taken & {"optimizer_steps", "optimizer_steps_total"}
        elif each >= MANY_SAMPLES and known[0] == each and not any(word.startswith("tok") for word in words):
            metric, others = "env_steps", taken & {"env_steps"}
        else:
            continue
        if not others:
            found[key] = Reading(metric=metric, cost=0.0)
            taken.add(metric)
    return found


def _increment(values: FloatArray) -> float:
    """Return by what a counter grows in each record, 0 if a column is no counter."""
    known = values[np.isfinite(values)]
    change = np.diff(known)
    each = float(change[0]) if len(change) else 0.0
    if each < 1 or (known % 1 != 0).any():
        return 0.0
    others = np.flatnonzero(change != each)
    stops = len(others) and others[0] >= SEVERAL and (change[others[0] :] == 0).all()
    return each if stops or not len(others) else 0.0


def return_left_over(
    measured: Mapping[str, Numbers],
    names: Mapping[str, ColumnName],
    chosen: Mapping[str, Reading],
    named: Collection[str],
) -> dict[str, Reading]:
    """Return the first column beside the clocks as the return if no other column is one: most scripts print it first.

    Other columns have to show that a policy is trained.
    """
    metrics = {reading.metric for reading in chosen.values()} | set(named)
    if not EARNINGS.isdisjoint(metrics) or len(metrics) < ENOUGH_METRICS or not metrics & MOVEMENTS:
        return {}
    for key, values in measured.items():
        if key in chosen or names[key].allowed is not None or values.zero:
            continue
        change = np.diff(values.known)
        plainly_another = any(
            one.cost <= PLAIN_COST and metric not in EARNINGS for metric, one in names[key].meant.items()
        )
        if len(change) and (change > 0).any() and (change < 0).any() and not plainly_another:
            return {key: Reading(metric="episode_return", cost=0.0)}
        if not (change >= 0).all():  # the first column that is no clock
            return {}
    return {}


def settings_shown(columns: Mapping[str, FloatArray], metrics: Mapping[str, str]) -> dict[str, float]:
    """Return settings that columns beside metrics show: planned steps and epochs, and the norm of clipped gradients.

    `columns` hold the finite numbers of each column, `metrics` are metric → column.
    """
    shown = dict[str, float]()
    for executed, setting in (("optimizer_steps", "updates_per_batch"), ("epochs_executed", "ppo_epochs")):
        planned = columns.get(f"{metrics.get(executed, '')} {PLANNED}")
        if planned is not None and len(planned) and planned[0] >= 1 and (planned == planned[0]).all():
            shown[setting] = float(planned[0])
    norm = metrics.get("grad_norm", "")
    before = columns.get(norm, np.zeros(0))
    if len(before) < LEAST_RECORDS:
        return shown
    if np.allclose(before, before[0], rtol=1e-3, atol=0):
        shown["max_grad_norm"] = float(before[0])  # each gradient was clipped
    for key, after in columns.items():
        # a learning rate is constant and below every norm too, so the name has to be that of the norm
        if key in metrics.values() or not is_of_same_norm(key, norm) or len(after) != len(before):
            continue
        clipped = (after <= before * 1.01).all() and (before > after[0]).all() and after[0] > 0
        if clipped and np.allclose(after, after[0], rtol=1e-3, atol=0):
            shown["max_grad_norm"] = float(after[0])
    return shown
