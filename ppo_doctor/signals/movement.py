"""Does the policy move, and does the ratio see it? KL, surrogate, entropy, reference KL, each up to its resolution."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median, quantile
from ppo_doctor.model import EXACT
from ppo_doctor.signals.course import (
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
    given,
    late,
    series_of,
    told_of,
    truth_of,
    value_of,
    values_of,
)
from ppo_doctor.signals.rewards import MOVING_KL, REWARDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ppo_doctor.model import Fact, FloatArray, Series
    from ppo_doctor.signals.course import Observations

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


def divergence_of(observations: Observations) -> Series | None:
    """Return the logged KL between the old and the new policy."""
    return series_of(observations, "approx_kl", "approx_kl_k2", "approx_kl_k1")


def _divergence(observations: Observations, name: str, pick: Callable[[FloatArray], float], where: str) -> Fact | None:
    """Return a number of |KL|; None where the log prints it too coarsely to tell it from 0."""
    series = divergence_of(observations)
    if series is None:
        return None
    size = float(pick(np.abs(finite(series))))
    told = size > series.resolution.absolute or series.resolution.absolute < STILL_KL
    return fact(name, size, series, f"{series.raw} is {size:.3g} {where}") if told else None


def divergence_high(observations: Observations) -> Fact | None:
    """Return the 90th percentile of |KL|."""
    return _divergence(observations, "divergence_high", lambda v: float(quantile(v, 0.9)), "in its 90th percentile")


def divergence_usual(observations: Observations) -> Fact | None:
    """Return the median of |KL|."""
    return _divergence(observations, "divergence_usual", lambda v: float(median(v)), "in the median")


def divergence_largest(observations: Observations) -> Fact | None:
    """Return the largest |KL|."""
    return _divergence(observations, "divergence_largest", lambda v: float(v.max()), "at most")


def divergence_violent(observations: Observations) -> Fact | None:
    """Return the median |KL|, or a third of the largest of the first fifth of the records, whichever is larger."""
    usual, series = observations.fact("divergence_usual"), divergence_of(observations)
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
    found = fact("divergence_violent", largest / 3, series, says)
    return replace(found, source=series.source(int(known[at])))


#: What is logged of a ratio but for its mean.
_OF_RATIOS = ("ratio_std", "ratio_abs_dev", "ratio_max", "ratio_min")


def never_clipped(observations: Observations) -> bool | None:
    """Return whether no sample was ever clipped, for none of a ratio that never spreads is."""
    clipped, spread = values_of(observations, "clip_fraction"), values_of(observations, "ratio_std")
    if clipped is None and spread is not None and bool((spread < RATIO_NOISE).all()):
        return True
    return None if clipped is None else bool((clipped == 0).all())


def ratio_flat(observations: Observations) -> Fact | None:
    """Tell whether the ratio is 1 throughout, by the best witness that the log has: KL, ratio, surrogate, loss."""
    high, unclipped = value_of(observations.fact("divergence_high")), never_clipped(observations)
    at_one, quiet = _ratios_at_one(observations), _surrogate_at_noise(observations)
    if _may_be_unlogged(observations, unclipped, at_one, quiet):
        return None
    if high is not None:
        flat = all_known(high < STILL_KL, at_one, unclipped)
    elif at_one is not None or quiet is not None:
        flat = all_known(at_one if at_one is not None else quiet, unclipped)
    else:
        repeats = value_of(observations.fact("losses_repeat"))
        flat = unclipped if repeats is not None and repeats > 0.9 else (False if unclipped is False else None)
    return condition("ratio_flat", flat, _witness(observations), _flatness(observations))


def _ratios_at_one(observations: Observations) -> bool | None:
    departure = observations.series("ratio_departure")
    told = departure is not None and not set(_OF_RATIOS).isdisjoint(observations.run.series)
    if departure is not None and told and departure.resolution == EXACT and not departure.values.any():
        return True  # by more than its digits: no ratio behind them is what the policy moved by
    ratios = values_of(observations, "ratio_mean")
    return None if ratios is None else bool((np.abs(ratios - 1) < RATIO_NOISE).all())


def _surrogate_at_noise(observations: Observations) -> bool | None:
    """Return whether the policy loss is that of a ratio of 1; None where it is the mean of advantages, not whitened.

    Where only the whole loss is logged, and it is at noise, so is the surrogate in it; at exactly 0 nothing was in it.
    """
    surrogate, losses = value_of(observations.fact("surrogate_high")), values_of(observations, "policy_loss")
    if losses is None and (whole := values_of(observations, "loss")) is not None and len(whole):
        return 0 < median(np.abs(whole)) <= float(quantile(np.abs(whole), 0.9)) <= SURROGATE_NOISE or None
    if surrogate is None or (losses is not None and abs(float(median(losses))) > OFFSET):
        return None
    # a mean over tokens weighs long completions more: of them the mean of whitened advantages is not 0
    by_tokens = truth_of(observations.fact("completions")) is True
    return surrogate <= SURROGATE_NOISE or (None if by_tokens else False)


def _may_be_unlogged(
    observations: Observations, unclipped: bool | None, at_one: bool | None, quiet: bool | None
) -> bool:
    """Tell whether a KL of exactly 0 may only say that none was computed: alone, beside a surrogate that is alive."""
    most = value_of(observations.fact("divergence_largest"))
    return most == 0 and unclipped is None and at_one is None and quiet is False


def _witness(observations: Observations) -> Series | None:
    return divergence_of(observations) or series_of(observations, "ratio_mean", "policy_loss", "clip_fraction", "loss")


def _flatness(observations: Observations) -> str:
    told = told_of(observations, "divergence_high", "surrogate_high", "losses_repeat")
    clipped = series_of(observations, "clip_fraction")
    if value_of(observations.fact("updates_effective")) == 1:
        clipped = None  # of one update per batch it is 0 by construction, and shows nothing
    most = "" if clipped is None else f"{clipped.raw} reaches {np.nanmax(clipped.values):.3g}"
    return "; ".join(filter(None, (told, most)))


def stays_at_reference(observations: Observations) -> bool | None:
    """Return whether the policy is next to the reference in every record; None where no KL to it is logged."""
    reference = values_of(observations, "ref_kl")
    if reference is None:
        return None
    return bool(np.abs(reference).max() < AT_REFERENCE) and not left_the_reference(observations)


def is_the_reference(observations: Observations) -> bool:
    """Tell whether the KL to the reference is exactly 0 in every record: what the entropy does then is sampling."""
    series = observations.run.series.get("ref_kl")
    known = series.values[np.isfinite(series.values)] if series is not None else np.empty(0)
    return series is not None and len(known) >= FEWEST and not known.any() and series.resolution.absolute < FINEST


def left_the_reference(observations: Observations) -> bool | None:
    """Return whether the policy went away from the reference: far, or by a KL that grows and is no scatter.

    Of a policy that stands the KL is rounding, or what two passes differ by, and has no course.
    """
    series = values_of(observations, "ref_kl")
    if series is None:
        return None
    end, begin = (abs(float(part(series, 2).mean())) for part in (late, early))
    # adapters that are 0 make the first KL exactly 0; what two passes differ by would be there from the start
    left = series[0] == 0 and len(series) >= FEWEST and float(quantile(np.abs(series[1:]), FEW)) > MOVING_KL
    far = left or (end > APART and end > 20 * abs(float(series[0])))
    grows = len(series) >= FEWEST and end > MOVING_KL and end > GROWN * begin and drift(series) > DRIFTS
    return far or grows


def moves_apart_from_ratio(observations: Observations) -> Fact | None:
    """Tell whether the policy changes by a witness that no old log-prob enters: entropy, update norm, a probe's KL."""
    entropy = truth_of(observations.fact("entropy_moves"))
    norms, probe = values_of(observations, "update_norm"), values_of(observations, "probe_kl")
    stepped = None if norms is None or not len(norms) else bool(median(norms) > 0)
    probed = None if probe is None or not len(probe) else bool(median(probe) > STILL_KL)
    told = [s.raw for s in map(observations.run.series.get, ("update_norm", "probe_kl")) if s is not None]
    says = "; ".join(
        filter(None, (told_of(observations, "entropy_moves"), " and ".join(told) and f"{' and '.join(told)} above 0"))
    )
    moves = False if is_the_reference(observations) else any_known(entropy, stepped, probed)
    return condition(
        "moves_apart_from_ratio",
        moves,
        series_of(observations, "update_norm", "probe_kl", "entropy", "entropy_loss"),
        says,
    )


def policy_moves(observations: Observations) -> Fact | None:
    """Tell whether the policy changes: by its entropy, KL, reference KL or a reward that clearly rises or falls.

    A reward that does neither tells nothing: many policies earn the same.
    """
    usual = value_of(observations.fact("divergence_usual"))
    paid = True if _reward_moves(observations) else None
    apart = truth_of(observations.fact("moves_apart_from_ratio"))
    far = None if usual is None else usual > MOVING_KL
    moves = any_known(apart, left_the_reference(observations), paid, far)
    says = told_of(observations, "moves_apart_from_ratio", "reward_course")
    return condition(
        "policy_moves", moves, series_of(observations, "entropy", "entropy_loss", "ref_kl", *REWARDS), says
    )


def _reward_moves(observations: Observations) -> bool:
    """Tell whether the reward goes where a frozen policy's does not: by blocks, or by thirds where it is an average.

    A moving average is like its neighbours whatever it averages, and begins with few episodes.
    """
    trend, blocks = (value_of(observations.fact(name)) for name in ("reward_trend", "reward_course"))
    reward = series_of(observations, *REWARDS)
    averaged = reward is not None and reward.aggregation == "moving average"
    return abs(trend or 0.0) > TREND or (not averaged and abs(blocks or 0.0) > BLOCKS)


def policy_stands(observations: Observations) -> Fact | None:
    """Tell whether the policy stands still by every witness: ratio (or clipping), entropy, reference KL, reward.

    One record is constant in nothing.
    """
    witness = _witness(observations) or entropy_of(observations)
    if witness is None or len(finite(witness)) < SEVERAL:
        return None
    if is_the_reference(observations):
        return condition(
            "policy_stands", True, observations.run.series.get("ref_kl"), "the KL to the reference is exactly 0"
        )
    if truth_of(observations.fact("several_updates")) is False:
        # With one update per batch the ratio is 1 by construction: the entropy alone can tell.
        stays = truth_of(observations.fact("entropy_stands"))
        return condition("policy_stands", stays, _witness(observations), told_of(observations, "entropy_stands"))
    gradient = series_of(observations, "actor_grad_norm", "grad_norm")
    silent = gradient is not None and not finite(gradient).any() and _at_one_in_print(observations)
    if gradient is not None and silent and truth_of(observations.fact("policy_moves")) is not True:
        return condition("policy_stands", True, gradient, f"{gradient.raw} is 0 in every record, and the ratio 1")
    flat = _is_flat(observations)
    if flat is None:
        return None
    rise = value_of(observations.fact("reward_trend"))
    stands = all_known(truth_of(observations.fact("entropy_stands")), stays_at_reference(observations))
    moved = _may_move(observations) or left_the_reference(observations) is True
    if stands is False and not moved and (rise is None or rise <= TREND):
        stands = True
    unwatched = entropy_of(observations) is None and values_of(observations, "ref_kl") is None
    several = truth_of(observations.fact("several_updates")) is True
    if unwatched and several and rise is not None and abs(rise) <= TREND and _went_nowhere(observations):
        stands = True  # what no entropy tells, a reward tells that stays where it is
    holds = both(flat, stands, *([] if rise is None else [rise <= TREND]))
    says = "; ".join(filter(None, (_flatness(observations), told_of(observations, "entropy_stands"))))
    return condition("policy_stands", holds, _witness(observations), says)


def _at_one_in_print(observations: Observations) -> bool:
    """Tell whether the ratio is 1 in every record as far as the log prints it."""
    departure = observations.series("ratio_departure")
    return departure is not None and len(departure) > 0 and bool(departure.at(0).all())


def _may_move(observations: Observations) -> bool:
    """Tell whether the entropy is more than scatter about one mean, or nobody can tell.

    Of one update per batch no ratio tells, and wide scatter hides much.
    """
    entropy = entropy_of(observations)
    values = finite(entropy) if entropy is not None else np.empty(0)
    scatter = len(values) > 0 and drift(values) < SCATTER
    if value_of(observations.fact("updates_effective")) == 1:  # nothing else tells that it stands
        scatter = scatter and float(np.ptp(values)) < WIDE * max(abs(float(median(values))), LEAST_ENTROPY)
    return not scatter or truth_of(observations.fact("entropy_moves")) is not False


def _is_flat(observations: Observations) -> bool | None:
    """Return whether the ratio is 1, by itself, clipping or KL; where no log-prob is compared, by the entropy."""
    high, unclipped = value_of(observations.fact("divergence_high")), never_clipped(observations)
    unlogged = high is None and unclipped is None and _ratios_at_one(observations) is None
    if unlogged and _entropy_is_one_number(observations):
        return True
    flat = truth_of(observations.fact("ratio_flat"))
    if unlogged and flat is None and not _may_move(observations):
        return truth_of(observations.fact("entropy_stands"))
    if flat is False and high is not None:  # a mean ratio that is not quite 1 is a step: the KL tells how large
        return all_known(high < STILL_KL or _went_nowhere(observations), unclipped)
    flat = unclipped if flat is None else flat
    return flat if flat is not None or high is None else high < STILL_KL


def _went_nowhere(observations: Observations) -> bool:
    """Tell whether all updates together moved next to no probability: each at most √(KL/2) of it (Pinsker)."""
    size = np.abs(finite(kl)) if (kl := divergence_of(observations)) is not None else np.full(1, np.inf)
    return float(np.sqrt(size / 2).sum()) < STILL_PATH


def _entropy_is_one_number(observations: Observations) -> bool:
    """Tell whether the mean entropy of the choices in many states is one number, up to float32.

    A Gaussian's entropy is that of its deviation, which may be fixed while the mean of the actions moves.
    """
    series, actions = entropy_of(observations), observations.fact("actions")
    gaussian = actions is not None and actions.value == "continuous"
    if series is None or gaussian or "action_std" in observations.run.series:
        return False
    values = finite(series)
    return series.resolution.absolute < RATIO_NOISE and len(values) >= FEWEST and constant(values)


def policy_stands_beside_critic(observations: Observations) -> Fact | None:
    """Tell whether the policy stands still though a critic is trained, whose errors whitening makes into advantages."""
    critic, stands = series_of(observations, "value_loss"), truth_of(observations.fact("policy_stands"))
    silent = value_of(observations.fact("surrogate_zero_share")) or 0.0  # a loss of exactly 0 is moved by no noise
    holds = None if stands is None else stands and critic is not None and silent < 0.95
    told = told_of(observations, "policy_stands")
    return condition("policy_stands_beside_critic", holds, _witness(observations), told)


def ratio_ignored(observations: Observations) -> Fact | None:
    """Tell whether KL is measured where the loss sees no ratio: nothing clipped, a surrogate or ratio at noise.

    Or a KL that ratios within the clip range cannot have: by each of its estimators k1 to k3 it is -ln(1 - ε) at most.

    Of a batch that is used once the ratio is 1, and a KL that is computed after the update is not 0: where nothing
    tells how often it is used, a trainer that is known to average its KL over minibatches does not compute it so.
    """
    usual, high = (value_of(observations.fact(f"divergence_{name}")) for name in ("usual", "high"))
    low = given(observations, "clip_range") or WIDE_CLIP
    upper = given(observations, "clip_range_high") or low
    beyond = (high is not None and low < 1 and high > max(-math.log1p(-low), math.log1p(upper))) or None
    blind = any_known(_surrogate_at_noise(observations), _ratios_at_one(observations), beyond)
    kl = divergence_of(observations)
    reused = truth_of(observations.fact("several_updates"))
    reused = True if reused is None and kl is not None and kl.aggregation else reused
    holds = both(never_clipped(observations), blind, None if usual is None else usual > MOVING_KL, reused)
    return condition("ratio_ignored", holds, _witness(observations), _flatness(observations))


def root_divergence_per_rate(observations: Observations) -> Fact | None:
    """Return √(2·KL) of an update over the learning rate."""
    usual, rate = value_of(observations.fact("divergence_usual")), value_of(observations.fact("rate_largest"))
    if usual is None or not rate:
        return None
    size = math.sqrt(2 * usual) / rate
    return fact("root_divergence_per_rate", size, divergence_of(observations), f"√(2·KL) is {size:.3g} learning rates")


def divergence_zero(observations: Observations) -> Fact | None:
    """Tell whether KL is 0 up to what a float32 log-ratio leaves, in every record."""
    most = value_of(observations.fact("divergence_largest"))
    holds = None if most is None else most <= 1e-13
    return condition("divergence_zero", holds, divergence_of(observations), told_of(observations, "divergence_largest"))
