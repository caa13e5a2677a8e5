"""Statistics of how the policy moves: entropy drift, sudden falls and spread of the KL, bursts of the reference KL."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ppo_doctor.checks.series import fact, reward_series
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_of, mean_of, median, quantile, running_quantiles, variance_of
from ppo_doctor.model.run import Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray

#: Fewest records per third that tell a drift of entropy from noise.
LEAST = 6
#: Records per third from which on the calmer third alone gives the noise.
ENOUGH = 10
#: Smallest standard error, as a share of the entropy. Six of them are about a tenth of a per cent: starved steps stay
#: below that, and learning exceeds it within a few updates (measured in this project's lab).
CREEP = 2e-4
#: Entropy (nats) below which a policy counts as deterministic: all other choices together have a probability of about a
#: thousandth. A step changes the log-prob of nearly every sample by no more than that, a KL of 5e-7 (`STILL_KL`).
DETERMINISTIC = 0.01


def while_alive(view: RunView, series: Series) -> Series:
    """Return a series of the policy's movement, NaN in the records in which the policy is deterministic.

    A deterministic policy has ratio 1 whatever the update does. The update that made it deterministic is kept.
    """
    entropy = beside(series, view.run.series.get("entropy"))
    if entropy is None or not len(entropy):
        return series
    known = np.isfinite(entropy.values) & (entropy.values >= 0)
    fixed = known & (entropy.values + entropy.resolution.absolute < DETERMINISTIC)
    if not fixed.any():
        return series
    dead = fixed & np.concatenate(([False], fixed[:-1]))
    return dataclasses.replace(series, values=np.where(dead, np.nan, series.values)) if dead.any() else series


@statistic("update_norm", "probe_kl")
def weight_motion(view: RunView) -> Series | None:
    """Return the logged size of each update: the parameters' change, else the KL of a probe after the update."""
    motion = view.run.series.get("update_norm") or view.run.series.get("probe_kl")
    return motion and while_alive(view, motion)


@statistic("entropy", "probe_kl", "update_norm")
def policy_drift(view: RunView) -> Fact | None:
    """Return how far entropy moved between the first and the last third of the run, in standard errors.

    The entropy of a frozen policy only scatters with its states, so that its thirds agree. Source: two-sample
    comparison of means with the variance inside the calmer third. The drift of a constant entropy is 0.
    """
    series = view.run.series.get("entropy")
    values = finite_of(series.values) if series is not None else np.empty(0)
    third = len(values) // 3
    if series is None or third < LEAST:
        return None
    first, last = values[:third], values[-third:]
    z = _standard_errors(first, last, series.resolution.absolute)
    says = f"{series.raw} went from {mean_of(first):.4g} to {mean_of(last):.4g}"
    return fact(z, series, says, "standard errors")


def _standard_errors(first: FloatArray, last: FloatArray, resolution: float) -> float:
    """Return the difference of two means over its standard error; NaN if that overflows."""
    gap = abs(mean_of(last) - mean_of(first))
    noise = sorted((variance_of(first, ddof=1), variance_of(last, ddof=1)))
    # A frozen policy scatters alike in both thirds; the scatter of a third with a collapse is the drift itself.
    pooled = (noise[0] + (noise[0] if len(first) >= ENOUGH else noise[1])) / len(first)
    # Rounding hides scatter below the last digit, and a creep that only averages reveal is no learning.
    floor = resolution + CREEP * max(abs(mean_of(first)), 1e-3)
    error = math.hypot(math.sqrt(pooled), floor)
    return gap / error if math.isfinite(error) else math.nan  # the squares may overflow


#: Lowest learning rates in common use: control (rsl_rl's lower bound), language models (full fine-tuning with RL).
LOWEST_USUAL = {"control": 1e-5, "language": 1e-7}


@statistic("approx_kl", "ratio_std")
def kl_size(view: RunView) -> Series | None:
    """Return |KL| of the old policy to the new one per record, in nats; else half the variance of the ratio.

    KL = Var(r)/2 is the second order of KL around ratio 1 (Schulman 2020, Approximating KL Divergence).
    """
    kl = view.run.series.get("approx_kl")
    if kl is not None and len(kl):
        return while_alive(view, dataclasses.replace(kl, name="kl_size", values=np.abs(kl.values), how="computed"))
    spread = view.run.series.get("ratio_std")
    if spread is None or not len(spread):
        return None
    printed, least = spread.resolution.absolute, spread.resolution.rounding
    # products, since a float's power raises where a product is infinite
    coarse = dataclasses.replace(spread.resolution, absolute=0.5 * printed * printed, rounding=0.5 * least * least)
    half = 0.5 * np.square(spread.values)
    says = f"half of {spread.raw} squared"
    size = dataclasses.replace(
        spread, name="kl_size", values=half, resolution=coarse, unit="nats", how="computed", says=says
    )
    return while_alive(view, size)


@statistic("learning_rate")
def rate_over_usual(view: RunView) -> Fact | None:
    """Return the largest learning rate over the lowest one in common use: 1e-5 for control, 1e-7 for language.

    Recommended rates are what a schedule starts from or warms up to, so the largest one is compared.
    """
    rate: Series | Fact | None = view.series("learning_rate")
    if rate is None and view.configured("learning_rate"):
        rate = view.setting("learning_rate")
    if rate is None:
        return None
    if isinstance(rate, Series):
        known, exact = finite_of(rate.values), rate.resolution.absolute
        if not len(known) or median(known) <= exact:
            return None  # zero, or zero in print
        if len(known) > 1 and bool((np.diff(known) > 0).all()):
            return None  # still warming up to an unknown rate
        value = float(known.max())
    else:
        value = float(rate.value) if isinstance(rate.value, int | float) else math.nan
    usual = LOWEST_USUAL["control" if view.kind.samples.value == "episodes" else "language"]
    if not value > 0:
        return None
    says = f"learning rate up to {value:.2g}, lowest usual {usual:g}"
    return fact(value / usual, rate, says, "times")


@statistic("logratio_advantage_corr")
def advantage_link(view: RunView) -> Fact | None:
    """Return the mean correlation of log-ratio and advantage on trained samples, in standard errors over records."""
    logged = view.run.series.get("logratio_advantage_corr")
    if logged is None:
        return None
    values = finite_of(logged.values)
    if len(values) < 20:
        return None
    z = float(np.mean(values) / max(float(np.std(values, ddof=1)) / math.sqrt(len(values)), 1e-12))
    says = f"mean correlation {mean_of(values):.3g} over {len(values)} records"
    return fact(z, logged, says, "standard errors")


#: Batches compared before and after a fall, and fewest after it: Adam remembers 1000 steps, some tens of batches.
BEFORE, AFTER, LEAST_AFTER = 5, 20, 15
#: Share of the batches after a fall that may be large.
ODD = 0.2
#: Share of the entropy left after a fall: a nearly deterministic policy moves little, however large its steps.
ALIVE = 0.7
#: Most points that a run is divided into; in a longer run each is the mean of several batches.
MOST = 400
#: KL (nats) below which updates have stopped rather than become smaller.
CEASED = 1e-9


@statistic("approx_kl+entropy", "ratio_std+entropy")
def movement_cliff(view: RunView) -> Fact | None:
    """Return how many times larger the KL of updates was before the sharpest fall that lasts; 1 if there is none.

    The second smallest KL of five batches is divided by the KL that four in five of the next twenty stay below. Both
    are over the square of the learning rate, to which KL is proportional. Falls to 0, and falls with the entropy, count
    as 1.
    """
    size, entropy = view.series("kl_size"), view.run.series.get("entropy")
    if size is None or entropy is None:
        return None
    width = max(_records_per_batch(view, size), math.ceil(len(size) / MOST))
    count = len(size) // width
    if count < BEFORE + 1 + LEAST_AFTER:
        return None
    steps = size.axis.steps[: count * width : width].astype(np.float64)
    kl = size.values[: count * width].reshape(count, width).mean(axis=1)
    per_rate = kl / np.square(_rate(view, steps))
    falls = _falls(per_rate)
    ordered = np.lexsort((np.arange(len(falls)), falls))[::-1]  # the sharpest first, of equal ones the latest
    lasting = (
        (float(falls[place]), at)
        for place in ordered.tolist()
        if _updates_go_on(kl, at := place + BEFORE) and _entropy_left(entropy, steps, at) > ALIVE
    )
    value, at = next(lasting, (1.0, 0))
    says = f"{size.raw} is {value:.3g} times smaller after step {steps[at]:.0f} than before, and stays so"
    return fact(max(1.0, value), size, says, "times")


def _records_per_batch(view: RunView, size: Series) -> int:
    """Return the records per rollout batch: trainers that log each optimizer step log rewards once per batch."""
    reward = reward_series(view)
    return max(1, round(len(size) / len(reward))) if reward is not None and len(reward) else 1


def _rate(view: RunView, steps: FloatArray) -> FloatArray:
    """Return the learning rate at each step over its largest; 1 if it is not logged."""
    rate = view.run.series.get("learning_rate")
    known = np.isfinite(rate.values) & (rate.values > 0) if rate is not None else np.zeros(0, dtype=bool)
    if rate is None or not known.any():
        return np.ones(len(steps))
    values: FloatArray = np.interp(steps, rate.axis.steps[known], rate.values[known])
    shares: FloatArray = values / values.max()
    return shares


def _falls(values: FloatArray) -> FloatArray:
    """Return the fall at each batch that has enough before and after it; 1 if one of those is not finite."""
    count = len(values) - BEFORE - LEAST_AFTER
    known = np.isfinite(values)
    sound = values if known.all() else np.where(known, values, 0.0)
    before = np.sort(sliding_window_view(sound, BEFORE), axis=1)[:count, 1]
    whole = max(0, count + LEAST_AFTER - AFTER)  # from there on fewer than AFTER batches are left
    later = sound[BEFORE + 1 :]
    ends = [quantile(later[place : place + AFTER], 1 - ODD) for place in range(whole, count)]
    after = np.concatenate([running_quantiles(later, AFTER, 1 - ODD)[:whole] if whole else [], ends])
    falls: FloatArray = before / np.maximum(after, 1e-300)
    if sound is not values:
        for place in range(count):
            first = place + BEFORE
            if not (known[place:first].all() and known[first + 1 : first + 1 + AFTER].all()):
                falls[place] = 1.0
    return falls


def _updates_go_on(kl: FloatArray, at: int) -> bool:
    """Return whether updates go on after a fall, with a KL above rounding."""
    after = kl[at + 1 : at + 1 + AFTER]
    return bool(np.isfinite(after).all()) and median(after) > CEASED


def _entropy_left(entropy: Series, steps: FloatArray, at: int) -> float:
    """Return the median entropy of the batches after a fall over that of the batches before."""
    end = steps[min(at + AFTER, len(steps) - 1)]
    logged = entropy.axis.steps
    begins, ends = np.searchsorted(logged, [steps[at - BEFORE], steps[at]])
    later, last = np.searchsorted(logged, [steps[at], end], side="right")
    before, after = entropy.values[begins:ends], entropy.values[later:last]
    before, after = finite_of(before), finite_of(after)
    if not len(before) or not len(after) or not median(before) > 0:
        return 1.0
    return median(after) / median(before)


#: A burst is at least this many times the record before it, and ends where it has fallen by the same factor.
TIMES = 5.0
#: Factor up to which the level after a burst is the level before; after a replaced reference it is 0 instead.
LEVEL = 5.0
#: Share of its height that a burst reaches at once; a climb begins with less.
AT_ONCE = 0.5
#: Bursts closer than this many records are one, as a batch is trained on several times.
APART = 8


@statistic("ref_kl")
def reference_kl_burst(view: RunView) -> Fact | None:
    """Return by which factor k3 to the reference leaps within a record and comes back, in the second largest burst.

    A policy does not leave its reference for a batch and return: a few tokens of that batch dominate the exponential of
    k3. The largest may be one odd batch; 0 if there are fewer than two. None for other estimators, which have no
    exponential, and below 24 records.
    """
    kl = view.run.series.get("ref_kl")
    if kl is None or kl.estimator != "k3" or np.isfinite(kl.values).sum() < 24:
        return None
    factors = bursts(finite_of(kl.values))
    second = factors[1] if len(factors) > 1 else 0.0
    says = f"{kl.raw} leaps by more than a factor of {TIMES:g} and back {len(factors)} times in {len(kl)} records"
    return fact(second, kl, says, "times", how="observed")


def bursts(values: FloatArray) -> list[float]:
    """Return the factors of separate bursts, largest first: up within a record, and back to the level before.

    A factor is the burst over the level before it, or over the median if that is larger: next to a reference that was
    just synced, any number is many times the one before.
    """
    starts = np.flatnonzero((values[:-1] > 0) & (values[1:] > TIMES * values[:-1])) + 1
    back = starts[_come_back(values, starts)].tolist()
    alone = [start for last, start in zip([-APART, *back], back, strict=False) if start - last >= APART]
    usual = median(values) if len(values) else 0.0
    return sorted((float(values[start] / max(values[start - 1], usual)) for start in alone), reverse=True)


def _come_back(values: FloatArray, starts: IntArray) -> BoolArray:
    """Return for each start whether values fall back to the level before it without rising further first."""
    ends = _first_below(values, starts, values[starts] / TIMES)
    above = _first_below(-values, starts, -values[starts] / AT_ONCE)
    before, there = values[starts - 1], values[np.minimum(ends, len(values) - 1)]
    same = (before / LEVEL < there) & (there < before * LEVEL)
    return np.asarray((ends < len(values)) & same & (above >= ends))


def _first_below(values: FloatArray, starts: IntArray, bounds: FloatArray) -> IntArray:
    """Return, for each start, the index of the first value from there on that is below its bound; else their number.

    Values are visited from the last to the first, and only those below all values between them and the start are kept.
    These are sorted, so the first one below a bound is found by bisection.
    """
    firsts = np.full(len(starts), len(values))
    listed, stop = values.tolist(), len(values)
    least: list[float] = []
    behind: list[int] = []
    for at in range(len(starts) - 1, -1, -1):
        first = int(starts[at])
        for place in range(stop - 1, first - 1, -1):
            while least and least[-1] >= listed[place]:
                least.pop()
                behind.pop()
            least.append(listed[place])
            behind.append(place)
        stop = first
        below = bisect_left(least, bounds[at])
        if below:
            firsts[at] = behind[below - 1]
    return firsts


#: Fewest records of a run for its spread of KL.
FEWEST = 20
#: Share of its start by which an entropy may change and still be constant.
STILL = 0.05
#: KL (nats) below which rounding is of one size as well.
NOISE = 1e-6


@statistic("approx_kl+entropy")
def steady_kl_spread(view: RunView) -> Fact | None:
    """Return the ninth over the first decile of the KL per update if entropy is constant; 100 if it changes.

    Steps along a gradient grow and shrink with advantages and distance. Noise of a fixed size moves the policy by the
    same KL each time, and in no direction. None below 1e-6 nats, where rounding has the same effect, and in control
    tasks: a policy that has converged, or was resumed after that, goes on by steps of one size.
    """
    kl, entropy = view.run.series.get("approx_kl"), view.run.series.get("entropy")
    if kl is None or entropy is None or view.kind.samples.value == "episodes":
        return None
    moved, free = (finite_of(s.values) for s in (kl, entropy))
    if len(moved) < FEWEST or len(free) < FEWEST or median(moved) <= NOISE or not quantile(moved, 0.1) > 0:
        return None
    low, high = quantile(moved, 0.1), quantile(moved, 0.9)
    still = abs(median(free[-(len(free) // 5) :]) - free[0]) <= STILL * abs(free[0])
    says = f"{kl.raw} lies between {low:.3g} and {high:.3g} in four of five records"
    value = high / low if still else 100.0
    return fact(value, kl, says, "times")
