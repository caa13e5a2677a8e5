"""What is paid for, and with what: pay per step, length told by entropies, lengths that only a limit explains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, median, quantile, running_medians
from ppo_doctor.derive.endings import paid_by_step
from ppo_doctor.derive.goal import changes_together
from ppo_doctor.derive.limits import at_a_limit
from ppo_doctor.derive.repeats import beside_each_other
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Records that a statement about a whole run needs, and that tell of its start.
LEAST, FIRST = 20, 3
#: Pay per step counts as one rate where the first fifth of the run spreads by at most this share of its median.
ONE_RATE = 0.3
#: Lengths have to spread by this factor before return can be seen to go with them.
VARIED = 1.3
#: Single episodes may be longer than the longest mean by this factor.
LONGER = 1.5
#: What changes by at most this share has settled, or is gone.
SETTLED = 0.25
#: More records than this share at the longest are a time limit.
AT_LIMIT = 0.1
#: A mean length counts as the longest from this share of it on: few answers happen to end before a limit.
AT_LONGEST = 0.98
#: Episodes have to have got shorter than this share of their best for pay per step to have replaced length.
SHORTER = 0.75
#: A policy that is this far from its first entropy is no longer random, and may have settled on one length.
RANDOM = 0.5
#: Fewest records of a random policy that a share of is taken.
FEWEST_RANDOM = 5


def pay_per_step_growth(observations: Observations) -> Fact | None:
    """Return return per step of the last fifth over the first, where it began as one rate and episodes got shorter.

    A task that pays a fixed rate per step pays for lasting. 0 where pay per step spreads by more than 0.3 of its median
    at the start, is not positive, or where episodes of the last fifth are not clearly shorter than they were at best.
    """
    paid, lasted = (observations.run.series.get(name) for name in ("episode_return", "episode_length"))
    if paid is None or lasted is None or not beside_each_other(paid, lasted):
        return None
    usable = np.isfinite(paid.values) & np.isfinite(lasted.values) & (lasted.values > 0)
    rate, steps = paid.values[usable] / lasted.values[usable], lasted.values[usable]
    if len(rate) < LEAST:
        return None
    fifth = len(rate) // 5
    first, last = median(rate[:fifth]), median(rate[-fifth:])
    best, now = float(running_medians(steps, max(3, len(steps) // 10)).max()), median(steps[-fifth:])
    spread = quantile(rate[:fifth], 0.9) - quantile(rate[:fifth], 0.1)
    counts = first > 0 and spread <= ONE_RATE * first and now <= SHORTER * best
    rates = f"{paid.raw} per {lasted.raw} went from {first:.3g} to {last:.3g}"
    says = f"{rates}; episodes from {best:.3g} at best to {now:.3g}"
    value = last / first if counts else 0.0
    return Fact(name="pay_per_step_growth", value=value, how="computed", unit="times", source=paid.source(), says=says)


def pay_rate_growth(observations: Observations) -> Fact | None:
    """Return return per step of the last fifth over the first, where a step paid one rate in the first fifth.

    0 where that spreads by more than 0.3 of its median at the start, is not positive, or where returns of the first
    fifth do not go with lengths, as they do where lasting is what is paid for.
    """
    paid, lasted = (observations.run.series.get(name) for name in ("episode_return", "episode_length"))
    if paid is None or lasted is None or not beside_each_other(paid, lasted):
        return None
    usable = np.isfinite(paid.values) & np.isfinite(lasted.values) & (lasted.values > 0)
    earned, steps = paid.values[usable], lasted.values[usable]
    if len(steps) < LEAST:
        return None
    fifth, rate = len(steps) // 5, earned / steps
    first, last = median(rate[:fifth]), median(rate[-fifth:])
    spread = quantile(rate[:fifth], 0.9) - quantile(rate[:fifth], 0.1)
    by_step = paid_by_step(steps[:fifth], earned[:fifth])
    value = last / first if by_step and first > 0 and spread <= ONE_RATE * first else 0.0
    says = f"{paid.raw} per {lasted.raw} went from {first:.3g} to {last:.3g}"
    return Fact(name="pay_rate_growth", value=value, how="computed", unit="times", source=paid.source(), says=says)


def returns_over_longest(observations: Observations) -> Fact | None:
    """Return the critic's targets over those of episodes half as long again as the longest mean that is logged.

    Of episodes of M steps that pay r each, the mean over steps of what is still to come grows with M; it is
    r/(1 - γ)·(1 - (1 - γᴹ)/(M·(1 - γ))). None where lengths hardly vary or return does not go with length, so that pay
    per step is not shown; where many records stand at the longest, as with a time limit, which may be bootstrapped.
    """
    series, gamma = observations.run.series, observations.number("gamma")
    returns, reward = series.get("returns_mean"), series.get("reward_mean")
    paid, lasted = series.get("episode_return"), series.get("episode_length")
    if returns is None or reward is None or paid is None or lasted is None or not beside_each_other(returns, reward):
        return None
    if (
        gamma is None
        or not 0 < gamma < 1
        or not observations.configured("gamma")
        or not beside_each_other(paid, lasted)
    ):
        return None
    steps = _steps_that_pay(paid, lasted)
    later = slice(len(returns) // 2, None)
    usable = np.isfinite(returns.values[later]) & (reward.values[later] > 0)
    if steps is None or usable.sum() < LEAST // 2:
        return None
    longest = LONGER * steps
    most = 1 - (1 - gamma**longest) / (longest * (1 - gamma))
    told = median((returns.values[later][usable] * (1 - gamma)) / reward.values[later][usable])
    says = f"{returns.raw} over what episodes of {longest:.3g} steps are worth at gamma {gamma:g}"
    source = returns.source()
    return Fact(name="returns_over_longest", value=told / most, how="computed", unit="times", source=source, says=says)


def _steps_that_pay(paid: Series, lasted: Series) -> float | None:
    """Return the longest mean length of the later half, where each step pays about the same and no limit shows."""
    if not beside_each_other(paid, lasted):
        return None
    usable = np.isfinite(paid.values) & np.isfinite(lasted.values) & (lasted.values > 0)
    rate, steps = (paid.values[usable] / lasted.values[usable]), lasted.values[usable]
    rate, steps = rate[len(rate) // 2 :], steps[len(steps) // 2 :]
    if len(steps) < LEAST // 2:
        return None
    varied = quantile(steps, 0.9) >= VARIED * quantile(steps, 0.1)
    level = median(rate) > 0 and quantile(rate, 0.9) - quantile(rate, 0.1) <= ONE_RATE * median(rate)
    return float(steps.max()) if varied and level and not at_a_limit(steps, AT_LIMIT) else None


def costs_escaped(observations: Observations) -> Fact | None:
    """Return the share of a reward that only costs which was saved in the first fifth of the run, and for good.

    Rewards are below 0 in every record. 0 where the rest of the run changes by more than a quarter of what was saved,
    or where the policy keeps a quarter of its entropy through the first half. None where rewards reach 0.
    """
    paid, entropy = observations.run.series.get("reward_mean"), observations.run.series.get("entropy")
    if paid is None or entropy is None:
        return None
    earned, free = (finite_of(s.values) for s in (paid, entropy))
    if len(earned) < LEAST or len(free) < LEAST or earned.max() >= 0 or not free[0] > 0:
        return None
    fifth = len(earned) // 5
    first, then, last = mean_of(earned[:FIRST]), median(earned[fifth : 2 * fifth]), median(earned[-fifth:])
    settled = abs(last - then) <= SETTLED * (then - first)
    gone = median(free[: len(free) // 2]) <= SETTLED * free[0]
    says = f"{paid.raw} went from {first:.3g} to {then:.3g} in the first fifth, and is {last:.3g} at the end"
    value = 1 - then / first if settled and gone else 0.0
    return Fact(name="costs_escaped", value=value, how="computed", unit="of the cost", source=paid.source(), says=says)


def entropy_sum_growth(observations: Observations) -> Fact | None:
    """Return the entropy of whole answers, last fifth over first records, where that of single tokens did not rise.

    The sum over an answer is length times entropy per token, less one for each token of padding in trl: where the sum
    rises and the entropy per token does not, answers got longer. 0 where the entropy per token rose.
    """
    whole, token = observations.run.series.get("objective_entropy"), observations.run.series.get("entropy")
    if whole is None or token is None or not beside_each_other(whole, token):
        return None
    ends = [_ends(series) for series in (whole, token)]
    if ends[0] is None or ends[1] is None or ends[0][0] <= 0:
        return None
    (first, last), (before, after) = ends[0], ends[1]
    says = f"{whole.raw} went from {first:.3g} to {last:.3g}, {token.raw} from {before:.3g} to {after:.3g}"
    value = last / first if after <= before else 0.0
    return Fact(name="entropy_sum_growth", value=value, how="computed", unit="times", source=whole.source(), says=says)


def _ends(series: Series) -> tuple[float, float] | None:
    """Return the mean of the first records and the median of the last fifth."""
    values = finite_of(series.values)
    if len(values) < LEAST:
        return None
    return mean_of(values[:FIRST]), median(values[-(len(values) // 5) :])


def reward_follows_entropy_sum(observations: Observations) -> Fact | None:
    """Return the correlation of reward and entropy of whole answers over batches, as differences of neighbours."""
    paid, whole = observations.run.series.get("reward_mean"), observations.run.series.get("objective_entropy")
    if paid is None or whole is None:
        return None
    return changes_together("reward_follows_entropy_sum", paid, whole, LEAST)


def ends_left(observations: Observations) -> Fact | None:
    """Return the completions that end by themselves in the last fifth of a run, over those of the first records."""
    counted = observations.run.series.get("end_tokens")
    ends = _ends(counted) if counted is not None else None
    if counted is None or ends is None or not ends[0] > 0:
        return None
    says = f"{counted.raw} went from {ends[0]:.3g} to {ends[1]:.3g}"
    source = counted.source()
    return Fact(
        name="ends_left", value=ends[1] / ends[0], how="computed", unit="of the first", source=source, says=says
    )


def reward_follows_ends(observations: Observations) -> Fact | None:
    """Return the correlation of reward and completions that end by themselves, as differences of neighbours."""
    paid, counted = observations.run.series.get("reward_mean"), observations.run.series.get("end_tokens")
    if paid is None or counted is None:
        return None
    return changes_together("reward_follows_ends", paid, counted, LEAST)


def one_length_share(observations: Observations) -> Fact | None:
    """Return the share of records with the longest mean length, in the first third but its start, of a random policy.

    Random answers end at random: batch after batch of one whole number of tokens is a limit. Records count while half
    of the first entropy is left, since a policy may settle on a length. 0 with fewer than five such records, and where
    the longest mean is no whole number.
    """
    length, entropy = observations.run.series.get("response_length"), observations.run.series.get("entropy")
    if length is None or entropy is None:
        return None
    values, free = (finite_of(s.values) for s in (length, entropy))
    if len(values) < LEAST or len(free) < LEAST or not free[0] > 0:
        return None
    longest, third = float(values.max()), free[: len(free) // 3]
    sharp = np.flatnonzero(third < RANDOM * free[0])
    end = round((int(sharp[0]) if len(sharp) else len(third)) / len(free) * len(values))
    early = values[max(0, min(len(values) // 10, end - FEWEST_RANDOM)) : end]
    limit = longest == math.floor(longest) and len(early) >= FEWEST_RANDOM
    share = float((early >= AT_LONGEST * longest).mean()) if limit else 0.0
    says = f"{length.raw} is {longest:.4g} at most"
    return Fact(
        name="one_length_share", value=share, how="computed", unit="of records", source=length.source(), says=says
    )


def discount_of_unknown_episodes(observations: Observations) -> Fact | None:
    """Return 1/(1 - gamma) where episodes' returns are logged and their lengths are not.

    None where the discount is a default.
    """
    gamma, series = observations.number("gamma"), observations.run.series
    if gamma is None or not observations.configured("gamma") or gamma >= 1:
        return None
    if "episode_return" not in series or "episode_length" in series:
        return None
    setting = observations.run.config["gamma"]
    says = f"{setting.key} = {gamma:g}"
    return Fact(
        name="discount_of_unknown_episodes",
        value=1 / (1 - gamma),
        how="configured",
        unit="steps",
        source=setting.source,
        says=says,
    )
