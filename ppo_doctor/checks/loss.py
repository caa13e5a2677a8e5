"""Statistics of the losses (policy loss zero, repeated or positive; coefficients in the loss) and of advantages."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.movement import DRIFTS
from ppo_doctor.checks.series import (
    condition,
    fact,
    finite,
    generation_starts,
    zero_share,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_of, mean_of, median, quantile
from ppo_doctor.model.run import SINGLE

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, FloatArray, Series


@statistic("policy_loss")
def surrogate_high(view: RunView) -> Fact | None:
    """Return the 90th percentile of the absolute policy loss."""
    series = view.logged("policy_loss")
    if series is None:
        return None
    high = float(quantile(np.abs(finite(series)), 0.9))
    return fact(high, series, f"|{series.raw}| is {high:.3g} in its 90th percentile")


@statistic("policy_loss")
def surrogate_zero_share(view: RunView) -> Fact | None:
    """Return the share of records in which the policy loss is exactly 0."""
    series = view.logged("policy_loss")
    zeros = zero_share(series, fewest=3)
    if series is None or zeros is None:
        return None
    return fact(zeros, series, f"{series.raw} is exactly 0 in {zeros:.0%} of the records")


@statistic("loss+reward_mean")
def losses_repeat(view: RunView) -> Fact | None:
    """Return the share of further steps on a generation with the loss of the step before, as at a ratio of 1.

    Steps are counted, not generations: if the marker of one is lost, two of them look like one.
    """
    loss = view.run.series.get("loss")
    starts = generation_starts(view, loss)
    if loss is None or starts is None:
        return None
    changes = np.abs(np.diff(loss.values))[~starts[1:]]
    if len(known := changes[np.isfinite(changes)]) < 3:
        return None
    repeated = float(np.mean(known <= 1e-6))
    text = f"{loss.raw} is that of the step before in {repeated:.0%} of the further steps on a generation"
    return fact(repeated, loss, text)


@statistic("policy_loss")
def surrogate_above_zero(view: RunView) -> Fact | None:
    """Return the share of records with a positive policy loss; at most half if chance explains it, 0 if it is offset.

    A surrogate gain is at most √(2·KL) times the deviation of the advantages (Cauchy and Schwarz): a policy loss far
    above that is the mean of the minibatch's advantages. None if nothing moves, or if the loss is never negative and no
    KL is logged: some trainers log its absolute value.
    """
    loss = view.run.series.get("policy_loss")
    kl = beside(loss, view.run.series.get("approx_kl"))
    if loss is None or not np.isfinite(loss.values).any():
        return None
    high = view.value("divergence_high")
    if (high is None and bool(np.nanmin(loss.values) >= 0)) or (high is not None and high < 1e-6):
        return None
    if kl is not None:
        root = np.sqrt(2 * np.abs(kl.values))
        known = np.isfinite(loss.values) & np.isfinite(root) & (root > 1e-3)
        if known.sum() >= 3 and float(median(np.abs(loss.values[known] / root[known]))) >= 1.5:
            return fact(0.0, loss, f"{loss.raw} is offset beyond what its KL allows")
    share, by_chance = float((finite(loss) > 0).mean()), 0.5 + DRIFTS / (2 * math.sqrt(len(finite(loss))))
    above = share if share > by_chance else min(share, 0.5)
    return fact(above, loss, f"{loss.raw} is above 0 in {share:.0%} of the records")


#: Terms that trainers add to the surrogate; a KL term as logged is preferred to the KL that it is computed from.
TERMS, PENALTIES = ("value_loss", "entropy"), ("kl_term", "ref_kl")
#: Fewest records that have to agree, and largest residual as a share of the deviation of the added terms.
LEAST, EXACT = 10, 1e-3
#: Largest error of a known coefficient, as a share of it or of SMALLEST.
KNOWN, SMALLEST = 0.02, 0.01
#: Coefficient that counts as 0.
NOTHING = 1e-5


def _terms(view: RunView) -> tuple[Series, list[Series], FloatArray] | None:
    """Return the loss, its other terms, and the finite rows of [loss - policy_loss, each term]; None if too few."""
    loss = view.logged("loss")
    policy = beside(loss, view.logged("policy_loss"))
    if loss is None or policy is None:
        return None
    logged = (beside(loss, view.logged(*names)) for names in (*((name,) for name in TERMS), PENALTIES))
    terms = [one for one in logged if one is not None]
    if any(_of_other_samples(loss, one) for one in (policy, *terms)):
        return None
    rows = np.column_stack([loss.values - policy.values, *(one.values for one in terms)])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return (loss, terms, rows) if terms and len(rows) >= LEAST else None


def _of_other_samples(loss: Series, term: Series) -> bool:
    """Return whether a term is declared as a mean over other samples than the loss: last minibatch or all."""
    return loss.aggregation is not None and term.aggregation is not None and loss.aggregation != term.aggregation


def _coefficient(view: RunView, name: str) -> tuple[Series, float] | None:
    """Return the loss and the coefficient of a term: loss - policy_loss = sum of coefficient x term, in every record.

    None if the records do not agree on it: means over other minibatches, a loss of another form, a schedule.
    """
    regression = _terms(view)
    if regression is None:
        return None
    loss, series, rows = regression
    added, terms = rows[:, 0], rows[:, 1:]
    names = [one.name for one in series]
    scale = np.abs(terms).max(axis=0)
    if name not in names or not scale.all() or not np.ptp(added):
        return None
    solved, _, rank, _ = np.linalg.lstsq(terms / scale, added, rcond=None)
    left = float(np.sqrt(np.mean((added - terms / scale @ solved) ** 2)))
    if rank < len(names) or left > EXACT * float(np.std(added)):
        return None
    at = names.index(name)
    spread = float(np.sqrt(np.linalg.inv((terms / scale).T @ (terms / scale))[at, at]))
    value, error = solved[at] / scale[at], left * spread / scale[at]
    return (loss, float(value)) if error <= KNOWN * max(abs(value), SMALLEST) else None


def _in_loss(view: RunView, term: str, sign: int) -> Fact | None:
    """Return the coefficient of a term in the loss, times `sign`; None if the loss does not show it."""
    coefficient = _coefficient(view, term)
    if coefficient is None:
        return None
    loss, value = coefficient
    value = float(f"{sign * value:.4g}") if abs(value) > NOTHING else 0.0
    return fact(value, loss, f"{loss.raw} holds {value:.3g} x {term} in every record")


@statistic("loss+policy_loss+value_loss")
def value_loss_in_loss(view: RunView) -> Fact | None:
    """Return the coefficient of the value loss in the loss."""
    return _in_loss(view, "value_loss", 1)


@statistic("loss+policy_loss+entropy")
def bonus_in_loss(view: RunView) -> Fact | None:
    """Return the coefficient of the entropy bonus in the loss: above 0 if entropy is rewarded."""
    return _in_loss(view, "entropy", -1)


@statistic("loss+policy_loss+ref_kl", "loss+policy_loss+kl_term")
def penalty_in_loss(view: RunView) -> Fact | None:
    """Return the coefficient of the reference KL in the loss; None if there is no such term.

    It is negative if the loss rewards divergence. If the logged term already includes its coefficient, only a negative
    result is returned.
    """
    penalty = view.logged(*PENALTIES)
    coefficient = None if penalty is None else _in_loss(view, penalty.name, 1)
    if penalty is None or coefficient is None or not isinstance(coefficient.value, float):
        return None
    # a coefficient of 0 may mean that the penalty is in the rewards
    conclusive = coefficient.value < 0 if penalty.name == "kl_term" else coefficient.value != 0
    return coefficient if conclusive else None


#: Metrics that count steps in total, metrics that count them per batch, and other metrics of an update.
TOTALS = ("optimizer_steps_total", "epochs_executed_total")
OF_BATCHES = ("optimizer_steps", "epochs_executed")
OF_UPDATES = ("policy_loss", "loss", "value_loss", "approx_kl")
#: Fewest records, share of them that has to be 0, and coarsest resolution of a value loss that counts as 0.
FEWEST, MOSTLY, FINE = 3, 0.95, 1e-4


@statistic("optimizer_steps", "optimizer_steps_total", "epochs_executed", "epochs_executed_total")
def no_step_counted(view: RunView) -> Fact | None:
    """Return whether the count of optimizer steps, or of passes, is 0 in every record although updates are logged.

    A count of the passes up to an early stop, which begins at 0 (spinningup's StopIter), is not used.
    """
    names = TOTALS if "epochs_are_a_cap" in view.run.facts else (*TOTALS, *OF_BATCHES)
    counter = next((s for name in names if (s := view.logged(name, fewest=FEWEST)) is not None), None)
    if counter is None or not any(view.logged(name, fewest=FEWEST) for name in OF_UPDATES):
        return None
    values = finite(counter)
    return condition(not values.any(), counter, f"{counter.raw} is 0 in all {len(values)} records")


@statistic("policy_loss+value_loss")
def losses_both_zero(view: RunView) -> Fact | None:
    """Return whether policy loss and value loss are exactly 0 although rewards differ and the policy does not move.

    A critic's squared error is exactly 0 only if it was not computed.
    """
    policy, critic = view.value("surrogate_zero_share"), view.logged("value_loss", fewest=FEWEST)
    differ = view.holds("rewards_differ")
    if policy is None or critic is None or differ is None or view.kind.samples.value != "episodes":
        return None
    if critic.resolution.absolute > FINE:
        return None
    zeros = mean_of(finite(critic) == 0)
    still = not view.holds("policy_moves")
    says = f"the policy loss is exactly 0 in {policy:.0%} of the records, {critic.raw} in {zeros:.0%}"
    return condition(min(policy, zeros) >= MOSTLY and differ and still, critic, says)


@statistic("policy_loss")
def surrogate_zero_of_updates(view: RunView) -> Fact | None:
    """Return the share of records in which the policy loss is exactly 0; None if the loss may not be computed.

    Without an optimizer step, or with a value loss of exactly 0, it is no evidence about advantages.
    """
    if any(view.holds(name) for name in ("no_step_counted", "losses_both_zero")):
        return None
    share = view.fact("surrogate_zero_share")
    return share and replace(share, name="surrogate_zero_of_updates")


#: Coarsest printed resolution at which whitened advantages, of size 1, differ from advantages of exactly 0.
RESOLVING = 0.005
#: Metrics that are 0 exactly if every advantage is 0, the most direct first.
DIRECT = ("advantages_abs_max", "advantages_raw_std", "advantages_std")


@statistic("frac_reward_zero_std", "advantages_std", "advantages_raw_std", "advantages_min+advantages_max")
def advantage_spread(view: RunView) -> Series | None:
    """Return a series that is 0 exactly where every advantage of the record's batch is zero.

    With groups it is the share of groups whose rewards differ; else the spread of the advantages themselves; for group
    methods without either, the spread of rewards.
    """
    series = view.run.series
    zero_groups = series.get("frac_reward_zero_std")
    if zero_groups is not None:
        return replace(
            zero_groups,
            name="advantage_spread",
            raw=f"1 - {zero_groups.raw}",
            values=1.0 - zero_groups.values,
            unit="fraction of groups",
            how="computed",
        )
    direct = next((series[name] for name in DIRECT if name in series), None) or _from_extremes(view)
    if direct is None and view.run.algorithm in ("grpo", "rloo"):
        direct = _of_rewards(view)
    return direct and replace(direct, name="advantage_spread", how="computed")


@statistic("advantages_abs_max", "advantages_std", "advantages_min+advantages_max")
def advantages_in_loss(view: RunView) -> Series | None:
    """Return a series that is 0 exactly where every advantage is zero in the loss.

    Advantages that differ between groups may be lost before the loss: by a mask, or by whitening minibatches of one.
    """
    series = view.run.series
    direct = series.get("advantages_abs_max") or series.get("advantages_std") or _from_extremes(view)
    return direct and replace(direct, name="advantages_in_loss", how="computed")


def _of_rewards(view: RunView) -> Series | None:
    """Return the spread of rewards, with the rounding of their mean as its resolution."""
    series = view.run.series
    spread, mean = series.get("reward_group_std") or series.get("reward_std"), series.get("reward_mean")
    if spread is None or mean is None:
        return spread
    least = SINGLE * float(np.abs(finite_of(mean.values)).max(initial=0.0))
    return replace(spread, resolution=replace(spread.resolution, rounding=least))


def _from_extremes(view: RunView) -> Series | None:
    """Return the larger of |smallest| and |largest advantage|, which verl logs: 0 only if every advantage is 0."""
    high = view.run.series.get("advantages_max")
    low = beside(high, view.run.series.get("advantages_min"))
    if low is None or high is None:
        return None
    values = np.maximum(np.abs(low.values), np.abs(high.values))
    coarser = max((low.resolution, high.resolution), key=lambda resolution: resolution.absolute)
    if coarser.absolute <= RESOLVING and "advantages_whitened" in view.run.facts:
        coarser = replace(coarser, absolute=0.0)
    raw = f"{low.raw}, {high.raw}"
    return replace(high, name="advantage_spread", raw=raw, values=values, resolution=coarser)
