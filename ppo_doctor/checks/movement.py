"""Statistics of the KL of updates, and of whether the policy changes: by KL, ratio, entropy, reference KL, reward."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.rewards import MOVING_KL, REWARDS, reward_of
from ppo_doctor.checks.series import (
    all_known,
    any_known,
    both,
    condition,
    constant,
    drift,
    early,
    entropy_of,
    fact,
    finite,
    late,
)
from ppo_doctor.checks.statistics import REWARDS_LOGGED, statistic
from ppo_doctor.model.arrays import median, quantile
from ppo_doctor.model.run import EXACT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, FloatArray, Series

#: KL (nats) below which an update counts as no change: log-ratios with a root mean square of 1e-3.
STILL_KL = 5e-7
STILL_PATH = 0.03  # bound on the share of its choices that a policy changed in the run, below which it did not move
#: Rounding of the mean of whitened float32 advantages: a surrogate no larger than this had ratios of 1.
SURROGATE_NOISE = 2e-6
RATIO_NOISE = 1e-5
#: The widest clip range in common use, assumed where none is known.
WIDE_CLIP = 0.4
#: Policy loss above which advantages are not whitened: an update gains at most √(2·KL) on whitened ones.
OFFSET = 0.5
#: Range of an entropy in which a change would not show, as a share of its median or of LEAST_ENTROPY nats.
WIDE, LEAST_ENTROPY = 0.15, 0.3
#: Standard errors of `drift`: a series drifts above the first and only scatters below the second.
DRIFTS, SCATTER = 3, 2
#: Fewest records in which a lack of movement is evidence.
FEWEST = 8
#: Fewest records of a metric that can be called constant.
SEVERAL = 3
#: Resolution below which a printed KL of 0 to the reference counts as exactly 0.
FINEST = 1e-6
#: Standard errors of a change of reward that a frozen policy does not cause: between thirds, and between blocks.
TREND, BLOCKS = 3.3, 5
#: KL to the reference (nats) that a policy exceeds once it has left it, and stays below while next to it.
APART, AT_REFERENCE = 0.01, 0.01
#: Share of the records after a first KL of exactly 0 that may be small although the policy left the reference.
FEW = 0.1
#: Factor by which the KL to the reference grows, from first fifth to last quarter of a run, if the policy leaves it.
GROWN = 2


def divergence_of(view: RunView) -> Series | None:
    """Return the logged KL between the old and the new policy."""
    return view.logged("approx_kl", "approx_kl_k2", "approx_kl_k1")


def _divergence(view: RunView, pick: Callable[[FloatArray], float], where: str) -> Fact | None:
    """Return `pick` of |KL|; None if the log prints the KL too coarsely to tell that number from 0."""
    series = divergence_of(view)
    if series is None:
        return None
    size = float(pick(np.abs(finite(series))))
    resolved = size > series.resolution.absolute or series.resolution.absolute < STILL_KL
    return fact(size, series, f"{series.raw} is {size:.3g} {where}") if resolved else None


@statistic("approx_kl", "approx_kl_k2")
def divergence_high(view: RunView) -> Fact | None:
    """Return the 90th percentile of |KL|."""
    return _divergence(view, lambda v: float(quantile(v, 0.9)), "in its 90th percentile")


@statistic("approx_kl", "approx_kl_k2")
def divergence_usual(view: RunView) -> Fact | None:
    """Return the median of |KL|."""
    return _divergence(view, lambda v: float(median(v)), "in the median")


@statistic("approx_kl", "approx_kl_k2")
def divergence_largest(view: RunView) -> Fact | None:
    """Return the largest |KL|."""
    return _divergence(view, lambda v: float(v.max()), "at most")


@statistic("approx_kl", "approx_kl_k2")
def divergence_violent(view: RunView) -> Fact | None:
    """Return the largest |KL| of the first fifth of the records over 3, but at least the median of |KL|."""
    usual, series = view.fact("divergence_usual"), divergence_of(view)
    if series is None:
        return None
    known = np.flatnonzero(np.isfinite(series.values))
    size = np.abs(finite(series))
    at = int(np.argmax(early(size)))
    largest, middle = float(size[at]), float(median(size))
    if usual is not None and largest / 3 <= middle:
        return replace(usual, name="divergence_violent")
    if largest / 3 <= series.resolution.absolute >= STILL_KL:
        return usual and replace(usual, name="divergence_violent")
    says = f"{series.raw} is {largest:.3g} at step {series.axis.steps[known[at]]}, and {middle:.3g} in the median"
    return fact(largest / 3, series, says, at=int(known[at]))


#: Metrics of the ratio other than its mean.
_OF_RATIOS = ("ratio_std", "ratio_abs_dev", "ratio_max", "ratio_min")


def never_clipped(view: RunView) -> bool | None:
    """Return whether no sample was ever clipped, or the ratio never spreads; None if the log has neither metric."""
    clipped, spread = view.values("clip_fraction"), view.values("ratio_std")
    if clipped is None and spread is not None and bool((spread < RATIO_NOISE).all()):
        return True
    return None if clipped is None else bool((clipped == 0).all())


@statistic("approx_kl", "approx_kl_k2", "ratio_mean", "policy_loss", "clip_fraction")
def ratio_flat(view: RunView) -> Fact | None:
    """Return whether the ratio is 1 throughout, by the most direct logged metric: KL, ratio, policy loss, loss."""
    high, unclipped = view.value("divergence_high"), never_clipped(view)
    at_one, quiet = _ratios_at_one(view), _surrogate_at_noise(view)
    if _may_be_unlogged(view, unclipped, at_one, quiet):
        return None
    if high is not None:
        flat = all_known(high < STILL_KL, at_one, unclipped)
    elif at_one is not None or quiet is not None:
        flat = all_known(at_one if at_one is not None else quiet, unclipped)
    else:
        repeats = view.value("losses_repeat")
        flat = unclipped if repeats is not None and repeats > 0.9 else (False if unclipped is False else None)
    return condition(flat, _evidence_series(view), _flatness(view))


def _ratios_at_one(view: RunView) -> bool | None:
    """Return whether all logged ratios are 1, by every metric of the ratio or by its mean; None if none is logged."""
    departure = view.series("ratio_departure")
    beyond_mean = departure is not None and not set(_OF_RATIOS).isdisjoint(view.run.series)
    if departure is not None and beyond_mean and departure.resolution == EXACT and not departure.values.any():
        return True  # the printed digits are too fine to hide the movement of the policy
    ratios = view.values("ratio_mean")
    return None if ratios is None else bool((np.abs(ratios - 1) < RATIO_NOISE).all())


def _surrogate_at_noise(view: RunView) -> bool | None:
    """Return whether the policy loss is that of a ratio of 1; None if advantages are not whitened.

    If only the total loss is logged and it is at noise level, so is the surrogate. A total loss of exactly 0 contains
    no surrogate, so the answer is None.
    """
    surrogate, losses = view.value("surrogate_high"), view.values("policy_loss")
    if losses is None and (whole := view.values("loss")) is not None and len(whole):
        return 0 < median(np.abs(whole)) <= float(quantile(np.abs(whole), 0.9)) <= SURROGATE_NOISE or None
    if surrogate is None or (losses is not None and abs(float(median(losses))) > OFFSET):
        return None
    # a mean over tokens weighs long completions more, so whitened advantages do not average to 0
    by_tokens = view.holds("completions") is True
    return surrogate <= SURROGATE_NOISE or (None if by_tokens else False)


def _may_be_unlogged(view: RunView, unclipped: bool | None, at_one: bool | None, quiet: bool | None) -> bool:
    """Return whether a KL of 0 may mean that none was computed: no ratio is logged, and the surrogate is alive."""
    most = view.value("divergence_largest")
    return most == 0 and unclipped is None and at_one is None and quiet is False


def _evidence_series(view: RunView) -> Series | None:
    """Return the series that shows most directly whether the ratio is 1."""
    return divergence_of(view) or view.logged("ratio_mean", "policy_loss", "clip_fraction", "loss")


def _flatness(view: RunView) -> str:
    """Return the sentence of the numbers behind `ratio_flat`."""
    texts = view.says("divergence_high", "surrogate_high", "losses_repeat")
    clipped = view.logged("clip_fraction")
    if view.value("updates_effective") == 1:
        clipped = None  # with one update per batch it is 0 by construction
    most = "" if clipped is None else f"{clipped.raw} reaches {np.nanmax(clipped.values):.3g}"
    return "; ".join(filter(None, (texts, most)))


def stays_at_reference(view: RunView) -> bool | None:
    """Return whether the policy is next to its reference in every record; None if no KL to it is logged."""
    reference = view.values("ref_kl")
    if reference is None:
        return None
    return bool(np.abs(reference).max() < AT_REFERENCE) and not left_the_reference(view)


def is_the_reference(view: RunView) -> bool:
    """Return whether the KL to the reference is exactly 0 in every record, so that the entropy only scatters."""
    series = view.run.series.get("ref_kl")
    known = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    return series is not None and len(known) >= FEWEST and not known.any() and series.resolution.absolute < FINEST


def left_the_reference(view: RunView) -> bool | None:
    """Return whether the KL to the reference became large, or grows beyond scatter; None if it is not logged.

    For a frozen policy this KL is rounding or the difference of two forward passes, and has no trend.
    """
    series = view.values("ref_kl")
    if series is None:
        return None
    end, begin = (abs(float(part(series, 2).mean())) for part in (late, early))
    # adapters start at 0 and make the first KL exactly 0; a difference of two passes would exist from the start
    left = series[0] == 0 and len(series) >= FEWEST and float(quantile(np.abs(series[1:]), FEW)) > MOVING_KL
    far = left or (end > APART and end > 20 * abs(float(series[0])))
    grows = len(series) >= FEWEST and end > MOVING_KL and end > GROWN * begin and drift(series) > DRIFTS
    return far or grows


@statistic("entropy", "entropy_loss", "action_std", "update_norm", "probe_kl")
def moves_apart_from_ratio(view: RunView) -> Fact | None:
    """Return whether the policy changes, by what needs no old log-probs: entropy, update norm, KL on probe inputs."""
    entropy = view.holds("entropy_moves")
    norms, probe = view.values("update_norm"), view.values("probe_kl")
    stepped = None if norms is None or not len(norms) else bool(median(norms) > 0)
    probed = None if probe is None or not len(probe) else bool(median(probe) > STILL_KL)
    names = [s.raw for s in map(view.run.series.get, ("update_norm", "probe_kl")) if s is not None]
    says = "; ".join(
        filter(None, (view.says("entropy_moves"), " and ".join(names) and f"{' and '.join(names)} above 0"))
    )
    moves = False if is_the_reference(view) else any_known(entropy, stepped, probed)
    return condition(moves, view.logged("update_norm", "probe_kl", "entropy", "entropy_loss"), says)


@statistic("entropy", "entropy_loss", "action_std", "ref_kl", "reward_mean", "episode_return", "eval_return")
def policy_moves(view: RunView) -> Fact | None:
    """Return whether the policy changes: by its entropy, KL, reference KL or a reward that clearly rises or falls.

    A constant reward is no evidence, since many policies earn the same.
    """
    usual = view.value("divergence_usual")
    reward_moves = True if _reward_moves(view) else None
    entropy_or_weights = view.holds("moves_apart_from_ratio")
    large_kl = None if usual is None else usual > MOVING_KL
    moves = any_known(entropy_or_weights, left_the_reference(view), reward_moves, large_kl)
    says = view.says("moves_apart_from_ratio", "reward_course")
    return condition(moves, view.logged("entropy", "entropy_loss", "ref_kl", *REWARDS), says)


def _reward_moves(view: RunView) -> bool:
    """Return whether the reward changes beyond what a frozen policy earns.

    Blocks are compared, or thirds of a moving average: its blocks resemble their neighbours whatever it averages, and
    its first records average few episodes.
    """
    trend, blocks = (view.value(name) for name in ("reward_trend", "reward_course"))
    reward = view.logged(*REWARDS)
    averaged = reward is not None and reward.aggregation == "moving average"
    return abs(trend or 0.0) > TREND or (not averaged and abs(blocks or 0.0) > BLOCKS)


@statistic(
    *(
        "approx_kl",
        "approx_kl_k2",
        "policy_loss+entropy",
        "clip_fraction+entropy",
        "entropy",
        "entropy_loss",
        "action_std",
        "ref_kl",
    )
)
def policy_stands(view: RunView) -> Fact | None:
    """Return whether the policy does not change by all evidence: ratio or clipping, entropy, reference KL, reward.

    None for fewer than three records.
    """
    evidence = _evidence_series(view) or entropy_of(view)
    if evidence is None or len(finite(evidence)) < SEVERAL:
        return None
    if is_the_reference(view):
        return condition(True, view.run.series.get("ref_kl"), "the KL to the reference is exactly 0")
    if view.holds("several_updates") is False:
        # With one update per batch the ratio is 1 by construction, so only the entropy counts.
        steady = view.holds("entropy_stands")
        return condition(steady, _evidence_series(view), view.says("entropy_stands"))
    gradient = view.logged("actor_grad_norm", "grad_norm")
    silent = gradient is not None and not finite(gradient).any() and _at_one_in_print(view)
    if gradient is not None and silent and view.holds("policy_moves") is not True:
        return condition(True, gradient, f"{gradient.raw} is 0 in every record, and the ratio 1")
    flat = _is_flat(view)
    if flat is None:
        return None
    rise = view.value("reward_trend")
    unmoved = all_known(view.holds("entropy_stands"), stays_at_reference(view))
    moved = _may_move(view) or left_the_reference(view) is True
    if unmoved is False and not moved and (rise is None or rise <= TREND):
        unmoved = True
    unwatched = entropy_of(view) is None and view.values("ref_kl") is None
    several = view.holds("several_updates") is True
    if unwatched and several and rise is not None and abs(rise) <= TREND and _went_nowhere(view):
        unmoved = True  # without an entropy, a constant reward is the evidence
    holds = both(flat, unmoved, *([] if rise is None else [rise <= TREND]))
    says = "; ".join(filter(None, (_flatness(view), view.says("entropy_stands"))))
    return condition(holds, _evidence_series(view), says)


def _at_one_in_print(view: RunView) -> bool:
    """Return whether the ratio is 1 in every record, to the digits that the log prints."""
    departure = view.series("ratio_departure")
    return departure is not None and len(departure) > 0 and bool(departure.at(0).all())


def _may_move(view: RunView) -> bool:
    """Return whether the entropy is more than scatter about one mean, or is not logged.

    With one update per batch wide scatter counts as well: the ratio is 1 by construction, and the scatter hides a
    change.
    """
    entropy = entropy_of(view)
    values = finite(entropy) if entropy is not None else np.empty(0)
    scatter = len(values) > 0 and drift(values) < SCATTER
    if view.value("updates_effective") == 1:  # the entropy is the only evidence
        scatter = scatter and float(np.ptp(values)) < WIDE * max(abs(float(median(values))), LEAST_ENTROPY)
    return not scatter or view.holds("entropy_moves") is not False


def _is_flat(view: RunView) -> bool | None:
    """Return whether the ratio is 1 by its own metrics, clipping or KL; by the entropy if none of them is logged."""
    high, unclipped = view.value("divergence_high"), never_clipped(view)
    unlogged = high is None and unclipped is None and _ratios_at_one(view) is None
    if unlogged and _entropy_is_one_number(view):
        return True
    flat = view.holds("ratio_flat")
    if unlogged and flat is None and not _may_move(view):
        return view.holds("entropy_stands")
    if flat is False and high is not None:  # a mean ratio slightly off 1 is a step whose size the KL gives
        return all_known(high < STILL_KL or _went_nowhere(view), unclipped)
    flat = unclipped if flat is None else flat
    return flat if flat is not None or high is None else high < STILL_KL


def _went_nowhere(view: RunView) -> bool:
    """Return whether all updates together changed next to no probability: each at most √(KL/2) of it (Pinsker)."""
    size = np.abs(finite(kl)) if (kl := divergence_of(view)) is not None else np.full(1, np.inf)
    return float(np.sqrt(size / 2).sum()) < STILL_PATH


def _entropy_is_one_number(view: RunView) -> bool:
    """Return whether the mean entropy over many states is one number, up to float32.

    False for a Gaussian policy: its entropy follows from its deviation, which may be fixed while the mean moves.
    """
    series, actions = entropy_of(view), view.fact("actions")
    gaussian = actions is not None and actions.value == "continuous"
    if series is None or gaussian or "action_std" in view.run.series:
        return False
    values = finite(series)
    return series.resolution.absolute < RATIO_NOISE and len(values) >= FEWEST and constant(values)


@statistic("approx_kl+value_loss", "policy_loss+entropy+value_loss")
def policy_stands_beside_critic(view: RunView) -> Fact | None:
    """Return whether the policy does not change although the critic is trained.

    Whitening scales the errors of the critic to unit variance, so the advantages are not 0.
    """
    critic, unmoved = view.logged("value_loss"), view.holds("policy_stands")
    silent = view.value("surrogate_zero_share") or 0.0  # a policy loss of exactly 0 does not train the policy
    holds = None if unmoved is None else unmoved and critic is not None and silent < 0.95
    return condition(holds, _evidence_series(view), view.says("policy_stands"))


@statistic("approx_kl+clip_fraction+policy_loss", "approx_kl+ratio_std")
def ratio_ignored(view: RunView) -> Fact | None:
    """Return whether KL is measured where the loss sees no ratio: nothing is clipped, and the ratio is 1.

    The ratio counts as 1 if the surrogate is at noise level, if the logged ratios are 1, or if KL exceeds -ln(1 - ε),
    which no estimator k1 to k3 reaches with ratios inside the clip range.

    For a batch that is used once this is no fault: the ratio is 1, and the KL after the update is not 0. If the number
    of uses is unknown, several are assumed where the trainer is known to average its KL over minibatches.
    """
    usual, high = (view.value(f"divergence_{name}") for name in ("usual", "high"))
    low = view.given("clip_range") or WIDE_CLIP
    upper = view.given("clip_range_high") or low
    beyond = (high is not None and low < 1 and high > max(-math.log1p(-low), math.log1p(upper))) or None
    blind = any_known(_surrogate_at_noise(view), _ratios_at_one(view), beyond)
    kl = divergence_of(view)
    reused = view.holds("several_updates")
    reused = True if reused is None and kl is not None and kl.aggregation else reused
    holds = both(never_clipped(view), blind, None if usual is None else usual > MOVING_KL, reused)
    return condition(holds, _evidence_series(view), _flatness(view))


@statistic("approx_kl+learning_rate")
def root_divergence_per_rate(view: RunView) -> Fact | None:
    """Return √(2·KL) of an update over the learning rate."""
    usual, rate = view.value("divergence_usual"), view.value("rate_largest")
    if usual is None or not rate:
        return None
    size = math.sqrt(2 * usual) / rate
    return fact(size, divergence_of(view), f"√(2·KL) is {size:.3g} learning rates")


@statistic("approx_kl", "approx_kl_k2")
def divergence_zero(view: RunView) -> Fact | None:
    """Return whether KL is 0 in every record, up to the rounding of float32 log-ratios."""
    most = view.value("divergence_largest")
    holds = None if most is None else most <= 1e-13
    return condition(holds, divergence_of(view), view.says("divergence_largest"))


#: Fewest records for a comparison of beginning and later half; the beginning is one record in BEGINNING.
MANY, BEGINNING = 80, 20
#: Fewest records of a run and of its end, the fractions (one in 60, …) that an end may be, and the share of pairs in
#: which the record of the end is below the one before it.
FADING_FEWEST, LEAST_END, ENDS, NEARLY_ALL = 60, 10, (60, 30, 20), 0.9
#: Share of records without clipping from which on updates stay inside the clip range; share of the rate that is left.
UNCLIPPED, RATE_LEFT = 0.95, 0.5


@statistic("approx_kl", "approx_kl_k2")
def divergence_fades(view: RunView) -> Fact | None:
    """Return the median |KL| of the first twentieth of records over that of the later half; 1 if it may fall.

    It may where the first updates were small, the learning rate falls, updates still clip later, or the reward rises.
    """
    series = divergence_of(view)
    size = np.empty(0) if series is None else np.abs(finite(series))
    if series is None or len(size) < MANY or view.holds("several_updates") is False:
        return None
    early = size[: len(size) // BEGINNING]
    first, later = float(median(early)), float(median(_later(size)))
    if later <= series.resolution.absolute:
        return None
    says = f"{series.raw} is {first:.3g} in the first {len(early)} records and {later:.3g} in the later half"
    excused = first < MOVING_KL or _slowed(view) or (view.value("reward_trend") or 0.0) > TREND
    clipped = view.logged("clip_fraction")
    if clipped is not None and (share := float((_later(finite(clipped)) == 0).mean())) < UNCLIPPED:
        excused = True
    elif clipped is not None:
        says += f", in which {clipped.raw} is 0 in {share:.0%} of the records"
    return fact(1.0 if excused else first / later, series, f"{says} (medians)", "times")


@statistic(*REWARDS_LOGGED)
def drop_at_end(view: RunView) -> Fact | None:
    """Return the share of the reward's range (of medians) that the last records lost to those before; 0 if none.

    Only an end in which nearly every record is below nearly every record before it counts. Ends of several lengths are
    tried, and the largest loss is returned.
    """
    reward = reward_of(view)
    if reward is None or len(reward[1]) < FADING_FEWEST:
        return None
    series, values = reward
    ends = sorted({max(LEAST_END, len(values) // part) for part in ENDS})
    lost = [(_share_lost(values, size), size) for size in ends if 4 * size <= len(values)]
    share, size = max(lost, default=(0.0, LEAST_END))
    before, end = float(median(values[-3 * size : -size])), float(median(values[-size:]))
    says = f"{series.raw} is {end:.4g} in the last {size} records and {before:.4g} in as many twice before (medians)"
    drop = fact(share, series, says)
    at = int(np.flatnonzero(np.isfinite(series.values))[-size])
    return replace(drop, since=int(series.axis.steps[at]), source=series.source(at)) if share else drop


def _share_lost(values: FloatArray, size: int) -> float:
    end, before = values[-size:], values[-3 * size : -size]
    below = len(before) - np.searchsorted(np.sort(before), end, side="right")  # how many each is below
    if below.mean() < NEARLY_ALL * len(before):
        return 0.0
    blocks = np.median(values[len(values) % size :].reshape(-1, size), axis=1)
    return float((median(before) - median(end)) / max(np.ptp(blocks), 1e-12))


def _slowed(view: RunView) -> bool:
    """Return whether the learning rate of the later half is far below its maximum, or is configured to decay."""
    rate = view.logged("learning_rate")
    if rate is None:
        return view.value("decay_share") is not None
    rates = finite(rate)
    return float(median(_later(rates))) < RATE_LEFT * float(rates.max())


def _later(values: FloatArray) -> FloatArray:
    return values[len(values) // 2 :]
