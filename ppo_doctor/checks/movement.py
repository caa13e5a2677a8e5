"""Statistics of the KL of updates, and whether the policy moves: by KL, ratio, entropy, reference KL and reward."""

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

#: KL of an update whose log-ratios have a root mean square of 1e-3 nats: what moves less, does not move.
STILL_KL = 5e-7
STILL_PATH = 0.03  # share of its choices that a policy changed at most over the whole run, below which it stands
#: Mean of whitened advantages over float32 samples: a surrogate within it saw ratios of 1.
SURROGATE_NOISE = 2e-6
RATIO_NOISE = 1e-5
#: The widest of usual clip ranges, taken where none is told.
WIDE_CLIP = 0.4
#: Whitened advantages gain so much (√(2·KL)) from no update that is not wild: a larger policy loss is their mean.
OFFSET = 0.5
#: Scatter of an entropy, over the larger of its median and so many nats, beside which a change would not show.
WIDE, LEAST_ENTROPY = 0.15, 0.3
#: Standard errors by which neighbours are alike: from where on an entropy drifts, and up to where it is mere scatter.
DRIFTS, SCATTER = 3, 2
#: Records from which on that nothing moved says something.
FEWEST = 8
#: Records from which on "constant" can have been otherwise.
SEVERAL = 3
#: A KL to the reference of 0 in so many digits is 0.
FINEST = 1e-6
#: Standard errors by which a reward rises or falls that a frozen policy does not earn: of thirds, and of blocks.
TREND, BLOCKS = 3.3, 5
#: Reference KL that a policy which moved has reached, and one that stands has not.
APART, AT_REFERENCE = 0.01, 0.01
#: Of the records after a first KL of exactly 0, those that may be small though the policy left.
FEW = 0.1
#: By how much the KL to the reference grows from the first fifth of a run to its last quarter where the policy leaves.
GROWN = 2


def divergence_of(view: RunView) -> Series | None:
    """Return the logged KL between the old and the new policy."""
    return view.logged("approx_kl", "approx_kl_k2", "approx_kl_k1")


def _divergence(view: RunView, pick: Callable[[FloatArray], float], where: str) -> Fact | None:
    """Return a number of |KL|; None where the log prints it too coarsely to tell it from 0."""
    series = divergence_of(view)
    if series is None:
        return None
    size = float(pick(np.abs(finite(series))))
    told = size > series.resolution.absolute or series.resolution.absolute < STILL_KL
    return fact(size, series, f"{series.raw} is {size:.3g} {where}") if told else None


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
    """Return the larger of the median |KL| and one third of the maximum over the first fifth of the records."""
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


#: What is logged of a ratio but for its mean.
_OF_RATIOS = ("ratio_std", "ratio_abs_dev", "ratio_max", "ratio_min")


def never_clipped(view: RunView) -> bool | None:
    """Return whether no sample was ever clipped; if no clip fraction is logged, whether the ratio never spreads."""
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
    return condition(flat, _witness(view), _flatness(view))


def _ratios_at_one(view: RunView) -> bool | None:
    departure = view.series("ratio_departure")
    told = departure is not None and not set(_OF_RATIOS).isdisjoint(view.run.series)
    if departure is not None and told and departure.resolution == EXACT and not departure.values.any():
        return True  # by more than its digits: no ratio behind them is what the policy moved by
    ratios = view.values("ratio_mean")
    return None if ratios is None else bool((np.abs(ratios - 1) < RATIO_NOISE).all())


def _surrogate_at_noise(view: RunView) -> bool | None:
    """Return whether the policy loss is that of a ratio of 1; None where it is the mean of advantages, not whitened.

    Where only the whole loss is logged, and it is at noise, so is the surrogate in it; at exactly 0 nothing was in it.
    """
    surrogate, losses = view.value("surrogate_high"), view.values("policy_loss")
    if losses is None and (whole := view.values("loss")) is not None and len(whole):
        return 0 < median(np.abs(whole)) <= float(quantile(np.abs(whole), 0.9)) <= SURROGATE_NOISE or None
    if surrogate is None or (losses is not None and abs(float(median(losses))) > OFFSET):
        return None
    # a mean over tokens weighs long completions more: of them the mean of whitened advantages is not 0
    by_tokens = view.holds("completions") is True
    return surrogate <= SURROGATE_NOISE or (None if by_tokens else False)


def _may_be_unlogged(view: RunView, unclipped: bool | None, at_one: bool | None, quiet: bool | None) -> bool:
    """Tell whether a KL of exactly 0 may only say that none was computed: alone, beside a surrogate that is alive."""
    most = view.value("divergence_largest")
    return most == 0 and unclipped is None and at_one is None and quiet is False


def _witness(view: RunView) -> Series | None:
    return divergence_of(view) or view.logged("ratio_mean", "policy_loss", "clip_fraction", "loss")


def _flatness(view: RunView) -> str:
    told = view.says("divergence_high", "surrogate_high", "losses_repeat")
    clipped = view.logged("clip_fraction")
    if view.value("updates_effective") == 1:
        clipped = None  # of one update per batch it is 0 by construction, and shows nothing
    most = "" if clipped is None else f"{clipped.raw} reaches {np.nanmax(clipped.values):.3g}"
    return "; ".join(filter(None, (told, most)))


def stays_at_reference(view: RunView) -> bool | None:
    """Return whether the policy is next to the reference in every record; None where no KL to it is logged."""
    reference = view.values("ref_kl")
    if reference is None:
        return None
    return bool(np.abs(reference).max() < AT_REFERENCE) and not left_the_reference(view)


def is_the_reference(view: RunView) -> bool:
    """Tell whether the KL to the reference is exactly 0 in every record: what the entropy does then is sampling."""
    series = view.run.series.get("ref_kl")
    known = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    return series is not None and len(known) >= FEWEST and not known.any() and series.resolution.absolute < FINEST


def left_the_reference(view: RunView) -> bool | None:
    """Return whether the policy went away from the reference: far, or by a KL that grows and is no scatter.

    Of a policy that stands the KL is rounding, or what two passes differ by, and has no course.
    """
    series = view.values("ref_kl")
    if series is None:
        return None
    end, begin = (abs(float(part(series, 2).mean())) for part in (late, early))
    # adapters that are 0 make the first KL exactly 0; what two passes differ by would be there from the start
    left = series[0] == 0 and len(series) >= FEWEST and float(quantile(np.abs(series[1:]), FEW)) > MOVING_KL
    far = left or (end > APART and end > 20 * abs(float(series[0])))
    grows = len(series) >= FEWEST and end > MOVING_KL and end > GROWN * begin and drift(series) > DRIFTS
    return far or grows


@statistic("entropy", "entropy_loss", "action_std", "update_norm", "probe_kl")
def moves_apart_from_ratio(view: RunView) -> Fact | None:
    """Tell whether the policy changes by a witness that no old log-prob enters: entropy, update norm, a probe's KL."""
    entropy = view.holds("entropy_moves")
    norms, probe = view.values("update_norm"), view.values("probe_kl")
    stepped = None if norms is None or not len(norms) else bool(median(norms) > 0)
    probed = None if probe is None or not len(probe) else bool(median(probe) > STILL_KL)
    told = [s.raw for s in map(view.run.series.get, ("update_norm", "probe_kl")) if s is not None]
    says = "; ".join(filter(None, (view.says("entropy_moves"), " and ".join(told) and f"{' and '.join(told)} above 0")))
    moves = False if is_the_reference(view) else any_known(entropy, stepped, probed)
    return condition(moves, view.logged("update_norm", "probe_kl", "entropy", "entropy_loss"), says)


@statistic("entropy", "entropy_loss", "action_std", "ref_kl", "reward_mean", "episode_return", "eval_return")
def policy_moves(view: RunView) -> Fact | None:
    """Tell whether the policy changes: by its entropy, KL, reference KL or a reward that clearly rises or falls.

    A reward that does neither tells nothing: many policies earn the same.
    """
    usual = view.value("divergence_usual")
    paid = True if _reward_moves(view) else None
    apart = view.holds("moves_apart_from_ratio")
    far = None if usual is None else usual > MOVING_KL
    moves = any_known(apart, left_the_reference(view), paid, far)
    says = view.says("moves_apart_from_ratio", "reward_course")
    return condition(moves, view.logged("entropy", "entropy_loss", "ref_kl", *REWARDS), says)


def _reward_moves(view: RunView) -> bool:
    """Tell whether the reward goes where a frozen policy's does not: by blocks, or by thirds where it is an average.

    A moving average is like its neighbours whatever it averages, and begins with few episodes.
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
    """Tell whether the policy stands still by every witness: ratio (or clipping), entropy, reference KL, reward.

    One record is constant in nothing.
    """
    witness = _witness(view) or entropy_of(view)
    if witness is None or len(finite(witness)) < SEVERAL:
        return None
    if is_the_reference(view):
        return condition(True, view.run.series.get("ref_kl"), "the KL to the reference is exactly 0")
    if view.holds("several_updates") is False:
        # With one update per batch the ratio is 1 by construction: the entropy alone can tell.
        stays = view.holds("entropy_stands")
        return condition(stays, _witness(view), view.says("entropy_stands"))
    gradient = view.logged("actor_grad_norm", "grad_norm")
    silent = gradient is not None and not finite(gradient).any() and _at_one_in_print(view)
    if gradient is not None and silent and view.holds("policy_moves") is not True:
        return condition(True, gradient, f"{gradient.raw} is 0 in every record, and the ratio 1")
    flat = _is_flat(view)
    if flat is None:
        return None
    rise = view.value("reward_trend")
    stands = all_known(view.holds("entropy_stands"), stays_at_reference(view))
    moved = _may_move(view) or left_the_reference(view) is True
    if stands is False and not moved and (rise is None or rise <= TREND):
        stands = True
    unwatched = entropy_of(view) is None and view.values("ref_kl") is None
    several = view.holds("several_updates") is True
    if unwatched and several and rise is not None and abs(rise) <= TREND and _went_nowhere(view):
        stands = True  # what no entropy tells, a reward tells that stays where it is
    holds = both(flat, stands, *([] if rise is None else [rise <= TREND]))
    says = "; ".join(filter(None, (_flatness(view), view.says("entropy_stands"))))
    return condition(holds, _witness(view), says)


def _at_one_in_print(view: RunView) -> bool:
    """Tell whether the ratio is 1 in every record as far as the log prints it."""
    departure = view.series("ratio_departure")
    return departure is not None and len(departure) > 0 and bool(departure.at(0).all())


def _may_move(view: RunView) -> bool:
    """Tell whether the entropy is more than scatter about one mean, or nobody can tell.

    Of one update per batch no ratio tells, and wide scatter hides much.
    """
    entropy = entropy_of(view)
    values = finite(entropy) if entropy is not None else np.empty(0)
    scatter = len(values) > 0 and drift(values) < SCATTER
    if view.value("updates_effective") == 1:  # nothing else tells that it stands
        scatter = scatter and float(np.ptp(values)) < WIDE * max(abs(float(median(values))), LEAST_ENTROPY)
    return not scatter or view.holds("entropy_moves") is not False


def _is_flat(view: RunView) -> bool | None:
    """Return whether the ratio is 1, by itself, clipping or KL; where no log-prob is compared, by the entropy."""
    high, unclipped = view.value("divergence_high"), never_clipped(view)
    unlogged = high is None and unclipped is None and _ratios_at_one(view) is None
    if unlogged and _entropy_is_one_number(view):
        return True
    flat = view.holds("ratio_flat")
    if unlogged and flat is None and not _may_move(view):
        return view.holds("entropy_stands")
    if flat is False and high is not None:  # a mean ratio that is not quite 1 is a step: the KL tells how large
        return all_known(high < STILL_KL or _went_nowhere(view), unclipped)
    flat = unclipped if flat is None else flat
    return flat if flat is not None or high is None else high < STILL_KL


def _went_nowhere(view: RunView) -> bool:
    """Tell whether all updates together moved next to no probability: each at most √(KL/2) of it (Pinsker)."""
    size = np.abs(finite(kl)) if (kl := divergence_of(view)) is not None else np.full(1, np.inf)
    return float(np.sqrt(size / 2).sum()) < STILL_PATH


def _entropy_is_one_number(view: RunView) -> bool:
    """Tell whether the mean entropy of the choices in many states is one number, up to float32.

    A Gaussian's entropy is that of its deviation, which may be fixed while the mean of the actions moves.
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

    Whitening scales the critic's errors to unit variance, so the advantages are not 0.
    """
    critic, stands = view.logged("value_loss"), view.holds("policy_stands")
    silent = view.value("surrogate_zero_share") or 0.0  # a loss of exactly 0 is moved by no noise
    holds = None if stands is None else stands and critic is not None and silent < 0.95
    told = view.says("policy_stands")
    return condition(holds, _witness(view), told)


@statistic("approx_kl+clip_fraction+policy_loss", "approx_kl+ratio_std")
def ratio_ignored(view: RunView) -> Fact | None:
    """Tell whether KL is measured where the loss sees no ratio: nothing clipped, a surrogate or ratio at noise.

    Or a KL that ratios within the clip range cannot have: by each of its estimators k1 to k3 it is -ln(1 - ε) at most.

    Of a batch that is used once the ratio is 1, and a KL that is computed after the update is not 0: where nothing
    tells how often it is used, a trainer that is known to average its KL over minibatches does not compute it so.
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
    return condition(holds, _witness(view), _flatness(view))


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
    """Tell whether KL is 0 up to what a float32 log-ratio leaves, in every record."""
    most = view.value("divergence_largest")
    holds = None if most is None else most <= 1e-13
    return condition(holds, divergence_of(view), view.says("divergence_largest"))


#: Records of a run that has a beginning and a later half; the share of them that is its beginning.
MANY, BEGINNING = 80, 20
#: Records of a run whose end is looked at, of such an end, and the parts of a run that it may be; how often a record of
#: the end is below one of those before.
FADING_FEWEST, LEAST_END, ENDS, NEARLY_ALL = 60, 10, (60, 30, 20), 0.9
#: Updates that clip next to nothing in so many records do not reach the clip range, and a rate that is left for that.
UNCLIPPED, RATE_LEFT = 0.95, 0.5


@statistic("approx_kl", "approx_kl_k2")
def divergence_fades(view: RunView) -> Fact | None:
    """Return the median |KL| of the first twentieth of records over that of the later half; 1 where it falls by right.

    It does where the first updates were small, where the rate falls, where updates are still clipped later, and
    where the reward rises.
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
    """Return how much of the range of the reward's medians is lost between the last records and those before; else 0.

    It is where nearly each of the last is below nearly each of those before. Ends of several lengths are tried.
    """
    found = reward_of(view)
    if found is None or len(found[1]) < FADING_FEWEST:
        return None
    series, values = found
    ends = sorted({max(LEAST_END, len(values) // part) for part in ENDS})
    lost = [(_share_lost(values, size), size) for size in ends if 4 * size <= len(values)]
    share, size = max(lost, default=(0.0, LEAST_END))
    before, end = float(median(values[-3 * size : -size])), float(median(values[-size:]))
    says = f"{series.raw} is {end:.4g} in the last {size} records and {before:.4g} in as many twice before (medians)"
    told = fact(share, series, says)
    at = int(np.flatnonzero(np.isfinite(series.values))[-size])
    return replace(told, since=int(series.axis.steps[at]), source=series.source(at)) if share else told


def _share_lost(values: FloatArray, size: int) -> float:
    end, before = values[-size:], values[-3 * size : -size]
    below = len(before) - np.searchsorted(np.sort(before), end, side="right")  # of those before, that each is below
    if below.mean() < NEARLY_ALL * len(before):
        return 0.0
    blocks = np.median(values[len(values) % size :].reshape(-1, size), axis=1)
    return float((median(before) - median(end)) / max(np.ptp(blocks), 1e-12))


def _slowed(view: RunView) -> bool:
    """Tell whether the learning rate of the later half is far below that of the first records."""
    rate = view.logged("learning_rate")
    if rate is None:
        return view.value("decay_share") is not None
    held = finite(rate)
    return float(median(_later(held))) < RATE_LEFT * float(held.max())


def _later(values: FloatArray) -> FloatArray:
    return values[len(values) // 2 :]
