"""A critic that starts over, advantages that fade at the optimum, losses over more tokens than were written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_median, finite_of, median, running_medians, scatter_of
from ppo_doctor.derive.onset import collapse_step, thinned
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, Series

#: Records of an untrained critic that are more than an odd one, and of a run that shows what came before or after.
COLD, LEAST = 3, 20
#: Explained variance (fraction) of a critic that is worse than none, and of one that has learnt.
WORSE, LEARNT = -0.5, 0.25
#: Records right before a collapse that tell what led to it.
BEFORE = 8


def critic_relearns(observations: Observations) -> Fact | None:
    """Return how much worse than a constant the critic is (minus explained variance) where it starts over, else 0.

    It starts over where a stretch of at least three records below -0.5 follows on one with a median above 0.25, and
    improves by half or more within the stretch and the records after it. A critic with new weights errs by more than it
    did: where the value loss did not rise, what fell is the variance of the returns, as it does near their ceiling.
    """
    explained = observations.series("explained_variance_alive")
    if explained is None or np.isfinite(explained.values).sum() < LEAST:
        return None
    values = finite_of(explained.values)
    stretch = _longest(values < WORSE)
    fallen = 0.0
    if stretch is not None and stretch[0] >= BEFORE and median(values[stretch[0] - BEFORE : stretch[0]]) > LEARNT:
        bottom, end = median(values[stretch[0] : stretch[0] + COLD]), median(values[-BEFORE:])
        fallen = -bottom if end > 0.5 * bottom and _errs_more(observations, explained, stretch) else 0.0
    says = f"{explained.raw}, {len(values)} records"
    return Fact(name="critic_relearns", value=fallen, how="computed", source=explained.source(), says=says)


def _errs_more(observations: Observations, explained: Series, stretch: tuple[int, int]) -> bool:
    """Tell whether the value loss of a stretch of finite explained variances is above that right before it."""
    loss = observations.run.series.get("value_loss")
    if loss is None or not beside_each_other(loss, explained):
        return True
    values = loss.values[np.isfinite(explained.values)]
    before, during = values[stretch[0] - BEFORE : stretch[0]], values[stretch[0] : stretch[0] + COLD]
    return not finite_median(during) <= finite_median(before)


def cold_critic_dip(observations: Observations) -> Fact | None:
    """Return how many scatters the reward fell while the critic was worse than none, or 0.

    The stretch is the longest of at least three records with an explained variance below -0.5; the reward right after
    it is held against that before it (the first records, where the run begins with it).
    """
    explained, reward = observations.series("explained_variance_alive"), _reward(observations)
    if explained is None or reward is None or np.isfinite(explained.values).sum() < LEAST:
        return None
    stretch = _longest(explained.values < WORSE)
    if stretch is None or stretch[1] - stretch[0] > len(explained) // 2:
        return Fact(name="cold_critic_dip", value=0.0, how="computed", unit="scatters", source=reward.source())
    return _dip(reward, float(explained.axis.steps[stretch[0]]), float(explained.axis.steps[stretch[1] - 1]))


def _reward(observations: Observations) -> Series | None:
    logged = (observations.run.series.get(name) for name in ("episode_return", "reward_mean"))
    return next((s for s in logged if s is not None and np.isfinite(s.values).sum() >= LEAST), None)


def _longest(holds: BoolArray) -> tuple[int, int] | None:
    """Return [first, stop) of the longest stretch in which a condition holds, None below three records."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], holds.astype(np.int8), [0]])))
    stretches = [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= COLD]
    return max(stretches, key=lambda s: s[1] - s[0], default=None)


def _dip(reward: Series, since: float, until: float) -> Fact:
    steps, values = thinned(reward)
    at, end = int(np.searchsorted(steps, since)), int(np.searchsorted(steps, until, "right"))
    before = values[max(0, at - BEFORE) : at] if at >= COLD else values[:COLD]
    during = values[end : end + BEFORE]
    if len(during) < COLD:
        during = values[-COLD:]
    scatter = scatter_of(values) / math.sqrt(2)
    fall = (median(before) - median(during)) / max(scatter, 1e-9 * max(1.0, float(np.abs(values).max())))
    says = f"{reward.raw} went from {median(before):.3g} to {median(during):.3g} while the critic was worse than none"
    return Fact(
        name="cold_critic_dip",
        value=max(0.0, fall),
        how="computed",
        unit="scatters",
        source=reward.source(at),
        says=says,
    )


def advantages_before_collapse(observations: Observations) -> Fact | None:
    """Return the spread of raw advantages right before the reward collapsed, over the largest of the run before that.

    From advantages before whitening, else from the square root of the value loss, which is that of the critic's error.
    None without a collapse.
    """
    step = collapse_step(observations)
    logged = observations.run.series.get("advantages_raw_std") or observations.run.series.get("value_loss")
    if step is None or logged is None:
        return None
    usable = np.isfinite(logged.values) & (logged.axis.steps < step)
    values = np.abs(logged.values[usable])
    if len(values) < LEAST:
        return None
    largest = float(running_medians(values, 5).max())
    share = median(values[-BEFORE:]) / largest if largest > 0 else 1.0
    value = share if logged.name == "advantages_raw_std" else math.sqrt(share)
    says = f"{logged.raw} right before step {step} over the largest before it"
    return Fact(
        name="advantages_before_collapse",
        value=value,
        how="computed",
        unit="of the largest",
        source=logged.source(),
        says=says,
    )


def loss_tokens_per_written(observations: Observations) -> Fact | None:
    """Return the tokens in the loss over those that the policy wrote: mean length × samples × passes over them.

    None where the number of samples or of passes is not known.
    """
    tokens, length = observations.run.series.get("tokens_in_loss"), observations.run.series.get("response_length")
    samples, passes = observations.number("rollout_size"), observations.number("ppo_epochs")
    if tokens is None or length is None or not beside_each_other(tokens, length) or not samples or not passes:
        return None
    if not observations.configured("rollout_size") or not observations.configured("ppo_epochs"):
        return None
    usable = np.isfinite(tokens.values) & np.isfinite(length.values) & (length.values > 0)
    if usable.sum() < COLD:
        return None
    value = median(tokens.values[usable] / (length.values[usable] * samples * passes))
    says = f"{tokens.raw} over {samples:g} completions, {passes:g} passes"
    return Fact(name="loss_tokens_per_written", value=value, how="computed", source=tokens.source(), says=says)


def sampler_gap_at_rest(observations: Observations) -> Fact | None:
    """Return the growth of the gap between sampler and trainer over a run in which no weight changes.

    Nothing changes where the learning rate is 0 throughout, or the logged size of every update. None otherwise.
    """
    growth = observations.fact("sampler_gap_growth")
    still = [observations.run.series.get(name) for name in ("learning_rate", "update_norm")]
    if growth is None or not any(s is not None and len(s) and bool(s.at(0).all()) for s in still):
        return None
    return Fact(
        name="sampler_gap_at_rest",
        value=growth.value,
        how="computed",
        unit="times",
        source=growth.source,
        says=growth.says,
    )
