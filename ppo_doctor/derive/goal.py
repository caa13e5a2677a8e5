"""Is the reward the goal? Evaluations beside the training reward, lengths, formats, and the way from the reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, mean_of, median, running_medians, scatter_of
from ppo_doctor.derive.mismatch import of_episodes
from ppo_doctor.derive.onset import thinned
from ppo_doctor.derive.outcome import outcome
from ppo_doctor.evidence import way
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Evaluations, and records of training, without which two trends cannot be held against each other.
EVALUATIONS, LEAST = 8, 30
#: Scatters of a single record by which a level has to fall before it counts as lower.
SCATTERS = 3.0
#: Parts of the reward, and words in their names.
PART = "reward_component."
FORMAT, ACCURACY = ("format", "xml", "tag"), ("accuracy", "correct", "answer", "exact", "math")


def evaluation_lost(observations: Observations) -> Fact | None:
    """Return the share of what evaluation had gained that is lost at the end, while the training reward still rose.

    Evaluation is cut at its best (running median of three); what follows has to lie three scatters below it, and the
    training reward's median over the last part above that around the best. One that never gained, or that is lost,
    has lost the share of its best that is gone. 0 otherwise. The greedy policy of a control task is evaluated by the
    same reward, and has its own ups and downs: there only what is lost for good counts.
    """
    judged, paid = observations.run.series.get("eval_return"), _training(observations)
    if judged is None or np.isfinite(judged.values).sum() < EVALUATIONS:
        return None
    if (gone := _gone(observations)) is not None:
        return gone
    if paid is None or of_episodes(observations):
        return None
    keep = np.isfinite(judged.values)
    steps, values = judged.axis.steps[keep].astype(np.float64), judged.values[keep]
    ends = [median(values[:2]), median(values[-2:])]
    smooth = np.concatenate([ends[:1], running_medians(values, 3), ends[1:]])
    best = int(np.argmax(smooth[: -max(2, len(values) // 6)]))
    gained, lost = smooth[best] - smooth[0], smooth[best] - median(values[-max(3, len(values) // 6) :])
    scatter = scatter_of(values) / math.sqrt(2)
    rose = _rise(paid, steps[best])
    falls = gained > SCATTERS * scatter and lost > SCATTERS * scatter and rose > SCATTERS
    says = (
        f"{judged.raw} went from {smooth[0]:.3g} to {smooth[best]:.3g} and back to {smooth[best] - lost:.3g}; "
        f"{paid.raw} rose by {rose:.2g} scatters since"
    )
    value = float(lost / gained) if falls else 0.0
    return Fact(
        name="evaluation_lost", value=value, how="computed", unit="of the gain", source=judged.source(best), says=says
    )


def _gone(observations: Observations) -> Fact | None:
    """Return the share of its best that an evaluation lost for good beside a training reward that rose."""
    became = outcome(observations.run)
    tested = became.evaluation
    if tested is None or tested.what not in ("lost", "fell") or not became.sound or not tested.best:
        return None
    share = (tested.best - (tested.end or 0.0)) / abs(tested.best)
    says = f"{tested.key}: {way(tested)}; {became.key}: {way(became)}"
    return Fact(
        name="evaluation_lost", value=share, how="computed", unit="of its best", source=tested.source, says=says
    )


def evaluation_behind(observations: Observations) -> Fact | None:
    """Return the share of the training return's gain that the evaluation of a control task made."""
    became = outcome(observations.run)
    tested = became.evaluation
    if tested is None or became.metric != "episode_return" or became.what not in ("learned", "levelled_off"):
        return None
    start, end, level = became.start, became.end, tested.end
    if start is None or end is None or level is None:
        return None
    if tested.records < EVALUATIONS or not of_episodes(observations):
        return None
    says = f"{tested.key} ends at {level:.4g}, {became.key} goes from {start:.4g} to {end:.4g}"
    return Fact(
        name="evaluation_behind", value=(level - start) / (end - start), how="computed", source=tested.source, says=says
    )


def _training(observations: Observations) -> Series | None:
    logged = (observations.run.series.get(name) for name in ("episode_return", "reward_mean"))
    return next((s for s in logged if s is not None and np.isfinite(s.values).sum() >= LEAST), None)


def _rise(paid: Series, since: float) -> float:
    """Return how many scatters the reward's last fifth lies above the records around a step."""
    steps, values = thinned(paid)
    width = max(5, len(values) // 5)
    at = int(np.searchsorted(steps, since))
    around, last = values[max(0, at - width) : at + 1], values[-width:]
    scatter = scatter_of(values) / math.sqrt(2)
    return (median(last) - median(around)) / max(scatter, 1e-9 * max(1.0, float(np.abs(values).max())))


def pretraining_loss_rise(observations: Observations) -> Fact | None:
    """Return by which share the loss on pretraining text rose from the first to the last fifth of the run."""
    loss = observations.run.series.get("ptx_loss")
    values = finite_of(loss.values) if loss is not None else np.empty(0)
    if loss is None or len(values) < LEAST:
        return None
    fifth = len(values) // 5
    first, last = median(values[:fifth]), median(values[-fifth:])
    if first <= 0:
        return None
    says = f"{loss.raw} went from {first:.4g} to {last:.4g}"
    return Fact(
        name="pretraining_loss_rise",
        value=last / first - 1,
        how="computed",
        unit="of the start",
        source=loss.source(),
        says=says,
    )


def accuracy_since_format(observations: Observations) -> Fact | None:
    """Return by how many standard errors accuracy rose since the format of answers was learnt.

    Parts of the reward tell by their names which they are. The format is learnt where it reaches 95 % of its best after
    a start below 70 %. None where it was there from the start, where accuracy is solved, or with too few records since.
    """
    form = _part(observations, FORMAT)
    right = beside(form, _part(observations, ACCURACY))
    if form is None or right is None:
        return None
    usable = np.isfinite(form.values) & np.isfinite(right.values)
    level, accuracy = form.values[usable], right.values[usable]
    if len(level) < 2 * LEAST or not level.max() > 0 or np.mean(level[: len(level) // 10]) > 0.7 * level.max():
        return None
    below = np.flatnonzero(np.convolve(level, np.ones(5) / 5, "valid") < 0.95 * level.max())
    since = accuracy[int(below[-1]) + 5 if len(below) else 0 :]
    if len(since) < LEAST or median(since) > 0.9 * max(1.0, float(accuracy.max())):
        return None
    first, last = since[: len(since) // 3], since[-(len(since) // 3) :]
    error = math.sqrt((float(np.var(first)) + float(np.var(last))) / len(first) + 1e-12)
    says = f"{right.raw} went from {mean_of(first):.3g} to {mean_of(last):.3g} since {form.raw} was learnt"
    return Fact(
        name="accuracy_since_format",
        value=(mean_of(last) - mean_of(first)) / error,
        how="computed",
        unit="standard errors",
        source=right.source(),
        says=says,
    )


def _part(observations: Observations, words: tuple[str, ...]) -> Series | None:
    """Return the part of the reward that is named so, of several the one that is earned most."""
    series = observations.run.series
    named = [n for n in series if n.startswith(PART) and any(word in n.lower() for word in words)]
    earned = [(mean_of(values), n) for n in named if len(values := finite_of(series[n].values))]
    return series[max(earned)[1]] if earned else None
