"""Statistics of sampler and reference: policy lag, KL to the reference, coefficient of the KL penalty, log-prob gap."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.learning_rate import FEW_UPDATES, MANY_UPDATES, NATS_PER_RATE_COMPLETIONS, of_completions
from ppo_doctor.checks.series import (
    any_known,
    both,
    condition,
    fact,
    finite,
    late,
    paired,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, median, quantile
from ppo_doctor.model.run import EXACT, Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray

    _Kls = tuple[Series, FloatArray, Series, FloatArray]

#: Largest distance below 0 (nats) of the mean of an estimator if the KL is 0.
LEAST_NEGATIVE = 0.01
#: Factor by which a KL exceeds what the steps between two records can cause.
FAR_BEYOND = 4.0
#: Shares of the first reference KL that the KL of the first update has if the record may be made after its steps.
LEFT_AT_ONCE, LEAPT = 0.25, 0.1
#: Fewest records of a run whose end is compared with its start.
LEAST = 6
#: Records at the start of a run, and KL of an update (nats) that counts as large.
BEGINNING, COUNTS = 3, 0.02
#: Largest scatter of a quotient that is one number, apart from how its means are taken.
ONE_NUMBER = 0.05


@statistic("sampling_temperature")
def sampling_temperature_off(view: RunView) -> Series | None:
    """Return the distance from 1 of the temperature that the rollout has and training does not have."""
    series = view.run.series.get("sampling_temperature")
    if series is None:
        return None
    values, says = np.abs(series.values - 1), f"distance of '{series.raw}' from 1"
    return replace(series, name="sampling_temperature_off", values=values, how="computed", says=says)


@statistic("clip_fraction")
def clipped_from_the_start(view: RunView) -> Fact | None:
    """Return the smaller of the first and the usual clip fraction."""
    first, usual = view.value("clipped_first"), view.value("clipped_usually")
    if first is None or usual is None:
        return None
    return fact(
        min(first, usual), view.logged("clip_fraction"), f"{first:.2g} are clipped at first and {usual:.2g} usually"
    )


@statistic("sampler_temperature")
def temperatures_apart(view: RunView) -> Fact | None:
    """Return the ratio of sampler's and trainer's temperature, at least 1; a trainer without one divides by 1."""
    sampled = view.given("sampler_temperature")
    if sampled is None or sampled <= 0:
        return None
    trained = view.number("temperature") or 1.0
    says = f"completions are sampled at a temperature of {sampled:g}, and log-probs taken at {trained:g}"
    return fact(max(sampled / trained, trained / sampled), None, says)


@statistic("policy_lag")
def lag_usual(view: RunView) -> Fact | None:
    """Return the median lag of samples, in updates; versions are divided by K if they count optimizer steps."""
    series, each = view.logged("policy_lag"), 1.0
    if series is None or not len(finite(series)):
        return None
    if "versions_are_steps" in view.run.facts:
        each = view.value("updates_effective") or np.inf
    lag = median(finite(series))
    return fact(lag / each, series, f"{series.raw} is {lag:g} in the median")


@statistic("policy_lag")
def lag_at_end(view: RunView) -> Fact | None:
    """Return the lag of the sampler's weights at the end if it only ever grew; else 0."""
    series = view.logged("policy_lag")
    if series is None or len(series) < 4:
        return None
    lags = finite(series)
    grown = float(lags[-1]) if lags[-1] > lags[0] and (np.diff(lags) >= 0).all() else 0.0
    return fact(grown, series, f"{series.raw} goes from {lags[0]:g} to {lags[-1]:g}")


def _first_reference(view: RunView) -> float | None:
    """Return the reference KL of the first record if that was made before any step; None in thinned logs."""
    series = view.logged("ref_kl")
    if series is None or len(series) < 2 or not np.isfinite(series.values[:2]).all():
        return None
    moved = view.logged("approx_kl")
    size = abs(float(moved.values[0])) if moved is not None and np.isfinite(moved.values[0]) else None
    silent = size == 0 and view.holds("several_updates")  # the policy was compared with itself
    if silent or (size is not None and size > LEFT_AT_ONCE * abs(float(series.values[0]))):
        return None  # the first update may have moved the policy that far
    steps, values = series.axis.steps, series.values
    leapt = size is not None and size > LEAPT * abs(float(values[0]))
    if leapt and float(np.nanmin(np.abs(values[1:BEGINNING]))) < abs(float(values[0])) / 2:
        return None  # another model would stay that far away: the first update leapt and came back
    first, own, gap = float(values[0]), int(median(np.diff(steps))), _spacing(view)
    if steps[0] <= 1 and gap <= 1:
        return first
    starts_the_log = steps[0] <= 1 or steps[0] in (own, gap)
    at_sampling = series.aggregation == "sum over tokens"  # over completions that were sampled before the update
    return first if starts_the_log and (at_sampling or _beyond_an_interval(view, first, gap)) else None


def _spacing(view: RunView) -> int:
    """Return the steps between records of the log: the least of all metrics, as some are logged once per generation."""
    axes = [series.axis.steps for series in view.run.series.values() if len(series) > 1]
    return min((int(median(np.diff(steps))) for steps in axes), default=1)


def _beyond_an_interval(view: RunView, first: float, gap: int) -> bool:
    """Return whether a KL is far more than the steps between two records can cause, starting at 0.

    A log-ratio grows at most linearly with steps, and a KL is half its square. The size of a step is taken from the KL
    of updates, else from the learning rate; False if neither is known.
    """
    moved = view.logged("approx_kl")
    updates = view.value("updates_effective") or FEW_UPDATES
    if moved is not None and np.isfinite(moved.values[0]):
        # metrics over all minibatches are those of one batch, whatever the log counts as steps
        steps = updates if (moved.aggregation or "").startswith("all minibatches") else gap
        return abs(first) > FAR_BEYOND * abs(float(moved.values[0])) * max(1.0, steps) ** 2
    rates, configured = view.logged("learning_rate"), view.given("learning_rate")
    rate = configured if rates is None else float(finite(rates)[:2].max())
    if rate is None or not of_completions(view):
        return False
    reach = NATS_PER_RATE_COMPLETIONS * rate * max(1, gap) * max(1.0, min(updates, MANY_UPDATES))
    return abs(first) > FAR_BEYOND * 0.5 * reach**2


@statistic("ref_kl")
def reference_first(view: RunView) -> Fact | None:
    """Return the KL to the reference before the first step, which is 0 if training starts at the reference.

    None if it is below -0.01, because the samples are then another policy's; None for a run resumed from a checkpoint.
    """
    if any(note.event == "resumed" for note in view.run.notes):
        return None
    first = _first_reference(view)
    if first is not None and first < 0 and abs(first) > LEAST_NEGATIVE:
        return None
    series = view.logged("ref_kl")
    if first is None or series is None:
        return None
    return fact(abs(first), series, f"{series.raw} is {first:.3g} in the first record")


@statistic("ref_kl")
def reference_end(view: RunView) -> Fact | None:
    """Return the KL to the reference per token at the end of the run; None if it is a sum over tokens."""
    series = view.logged("ref_kl")
    summed = series is None or "sum" in (series.aggregation or "") or series.estimator is None
    if series is None or summed or len(finite(series)) < LEAST:
        return None
    end = median(late(finite(series)))
    return fact(end, series, f"{series.raw} is {end:.3g} at the end")


@statistic("ref_kl+entropy")
def reference_follows(view: RunView) -> Fact | None:
    """Return whether the reference KL is exactly 0 throughout although the policy moves.

    None if every number is 0 and neither a coefficient nor the name shows that there is a penalty: then the KL may not
    be computed at all.
    """
    series, coefficient = view.logged("ref_kl"), view.logged("kl_coef")
    if series is None:
        return None
    never = bool((finite(series) == 0).all())
    penalised = (view.given("kl_coef") or 0.0) > 0 or (
        coefficient is not None and bool((finite(coefficient) > 0).any())
    )
    if never and not penalised and "penalty" not in series.raw and not series.values.any():
        return None
    # policy_moves is no only on evidence that includes a reference KL of 0, so only its yes counts
    moves = any_known(view.holds("entropy_moves"), view.holds("policy_moves") or None)
    holds = both(never, moves)
    return condition(holds, series, f"{series.raw} is exactly 0 in every record")


@statistic("kl_penalty_reward+ref_kl", "kl_coef", "loss+policy_loss+ref_kl", "kl_term+ref_kl")
def penalty_coefficient(view: RunView) -> Fact | None:
    """Return the coefficient of the KL penalty: logged, else as rewards or the loss contain it, else configured."""
    logged = view.logged("kl_coef")
    if logged is not None and view.run.keys.get(logged.raw) != "guessed":
        first = float(finite(logged)[0])
        return fact(first, logged, f"{logged.raw} is {first:g} at first")
    penalty, kl = view.logged("kl_penalty_reward"), view.logged("ref_kl")
    if penalty is not None and kl is not None:
        penalties, sizes = paired(penalty, kl)
        known = np.abs(sizes) > 1e-4
        if known.any():
            applied = float(median(-penalties[known] / sizes[known]))
            return fact(applied, penalty, f"-{penalty.raw} / {kl.raw} is {applied:.3g}")
    in_loss = view.fact("penalty_in_loss") or _of_term(view)
    if in_loss is not None:
        return replace(in_loss, name="penalty_coefficient")
    if kl is None and view.logged("approx_kl") is None:
        return None  # without a logged KL nothing shows that the penalty acts
    names = [name for name in ("kl_coef", "kl_loss_coef") if view.configured(name)]
    size_set = view.number(names[0]) if names else None
    return None if not size_set else fact(size_set, None, f"{names[0]} is {size_set:g}")


def _of_term(view: RunView) -> Fact | None:
    """Return the logged KL term of the loss over the KL if that is one number."""
    term, kl = view.logged("kl_term"), view.logged("ref_kl")
    if term is None or kl is None:
        return None
    terms, sizes = paired(term, kl)
    known = np.abs(sizes) > 1e-4
    if known.sum() < LEAST:
        return None
    quotients = terms[known] / sizes[known]
    middle = float(median(quotients))
    if not middle or float(median(np.abs(quotients - middle))) > ONE_NUMBER * abs(middle):
        return None
    return fact(middle, term, f"{term.raw} / {kl.raw} is {middle:.3g}")


@statistic("kl_penalty_reward+ref_kl", "kl_coef", "loss+policy_loss+ref_kl", "kl_term+ref_kl")
def penalty_over_spread(view: RunView) -> Fact | None:
    """Return the penalty's coefficient over three deviations of the reward, or over 1 if none is logged.

    The best policy with that penalty is the reference times exp(reward/coefficient): it stays at the reference if this
    is above 1. Three deviations count as at least 0.5.
    """
    coefficient, deviations = view.fact("penalty_coefficient"), view.values("reward_std")
    if coefficient is None or coefficient.number is None:
        return None
    scale = 1.0 if deviations is None else max(0.5, 3 * float(median(deviations)))
    return fact(coefficient.number / scale, view.logged("kl_penalty_reward", "kl_coef", "ref_kl"), coefficient.says)


@statistic("kl_coef")
def penalty_growth(view: RunView) -> Fact | None:
    """Return the highest over the first coefficient of the KL penalty if it rises in most records; else 1."""
    series = view.logged("kl_coef")
    sizes = None if series is None else finite(series)
    if series is None or sizes is None or len(sizes) < 4 or sizes[0] == 0:
        return None
    growth = float(sizes.max() / sizes[0]) if float((np.diff(sizes) > 0).mean()) > 0.6 else 1.0
    return fact(growth, series, f"{series.raw} goes from {sizes[0]:.3g} to {sizes.max():.3g}")


@statistic("loss+ref_kl")
def penalty_is_loss(view: RunView) -> Fact | None:
    """Return |loss| over |reference KL| if the policy stays at the reference and the loss is large; else 0."""
    loss, kl = view.logged("loss"), view.logged("ref_kl")
    if loss is None or kl is None:
        return None
    size, divergence = float(finite_median(np.abs(loss.values))), float(finite_median(np.abs(kl.values)))
    if not divergence:
        return None  # the penalty at the reference is 0, whatever its coefficient
    sizes = np.abs(finite(kl))
    at_reference = max(float(quantile(sizes, 0.9)), float(late(sizes).mean())) < 0.05 and size > 0.05
    over = size / max(divergence, 1e-9) if at_reference else 0.0
    return fact(over, loss, f"|{loss.raw}| is {size:.3g} at a {kl.raw} of {divergence:.2g}")


#: Least share of samples that so large a KL clips.
CLIPPED_BY_IT = 0.1


@statistic("approx_kl+ref_kl")
def kl_of_all_training(view: RunView) -> Fact | None:
    """Return the KL of an update over that to the reference in the later half; 0 if the update's is small.

    Both are of the same size at first. Later the KL to the policy before the update stays small, and the other adds up.
    """
    both_kls = _kls(view)
    if both_kls is None or len(both_kls[1]) < 2 * LEAST:
        return None
    return _over_reference(both_kls, slice(len(both_kls[1]) // 2, None), "later half")


@statistic("approx_kl+ref_kl")
def kl_beyond_reference(view: RunView) -> Fact | None:
    """Return the first KL to the sampler's policy over that to the reference; 0 if it is small.

    A policy that begins at its reference is no farther from its last version than from its start.
    """
    both_kls = _kls(view)
    if both_kls is None:
        return None
    clipped = view.values("clip_fraction")
    guessed = view.run.keys.get(both_kls[0].raw) == "guessed"
    if guessed and (clipped is None or float(median(clipped[:BEGINNING])) < CLIPPED_BY_IT):
        return None  # so large a KL would clip samples: the metric may be something else
    return _over_reference(both_kls, slice(BEGINNING), "first records")


def _kls(view: RunView) -> _Kls | None:
    """Return the KL of an update and that to the reference, with the sizes of both in the records that have both."""
    reference, update = view.logged("ref_kl"), view.logged("approx_kl")
    if reference is None or update is None:
        return None
    sizes, origins = (np.abs(values) for values in paired(update, reference))
    return (update, sizes, reference, origins) if len(sizes) >= LEAST else None


def _over_reference(kls: _Kls, part: slice, where: str) -> Fact:
    """Return the median of the first KL over that of the second in a part of the records; 0 if that is small."""
    update, sizes, reference, origins = kls
    size, origin = float(median(sizes[part])), float(median(origins[part]))
    least = max(origin, reference.resolution.absolute, 1e-6)
    says = f"{update.raw} is {size:.3g} in the {where}, {reference.raw} {origin:.3g}"
    return fact(size / least if size > COUNTS else 0.0, update, says)


#: What TRL's PPO logs as the variance of the ratio, and most means in it, assumed if the number is unknown.
CELLS, MOST_CELLS = "variance of minibatch means", 1024.0
#: Falls below a half per fall below a twentieth above which a KL only scatters: synced references of the lab stay at or
#: below 2.3, and batches of a few prompts against a fixed reference are at 8 or more.
HALVED_PER_FALL = 4
#: Metrics of the gap between sampler and trainer at the same weights.
GAPS = ("rollout_logp_diff", "rollout_kl", "rollout_prob_diff")


@statistic("ratio_mean", "approx_kl+approx_kl_k1")
def mean_ratio_off(view: RunView) -> Series | None:
    """Return |mean ratio - 1| per record: logged, else k3 - k1 of the same window.

    Over samples that were drawn with the stored probabilities the mean is 1 for any new policy.
    """
    run = view.run
    ratio = run.series.get("ratio_mean")
    if ratio is not None and len(ratio):
        off, says = np.abs(ratio.values - 1), f"|{ratio.raw} - 1|"
        return dataclasses.replace(ratio, name="mean_ratio_off", values=off, how="computed", says=says)
    k3 = run.series.get("approx_kl")
    k1 = beside(k3, run.series.get("approx_kl_k1"))
    if k3 is None or k1 is None or k3.estimator != "k3" or not k3.shares_window(k1):
        return None
    off, says = np.abs(k3.values - k1.values), f"|{k3.raw} - {k1.raw}|"
    return dataclasses.replace(k3, name="mean_ratio_off", values=off, unit="", how="computed", says=says)


@statistic("rollout_logp_diff", "rollout_kl")
def sampler_gap_growth(view: RunView) -> Fact | None:
    """Return the gap between sampler and trainer at its worst over that in its first tenth.

    Medians of tenths are compared, so that one odd batch is no trend. 0 if the gap stays below what half precision
    explains (mean |Δ log-prob| of 0.05: huggingface/trl issues 5312 and 6789).
    """
    series = view.logged(*GAPS, fewest=20)
    if series is None:
        return None
    values = np.abs(finite_of(series.values))
    tenth = max(3, len(values) // 10)
    blocks = [median(values[i : i + tenth]) for i in range(0, len(values) - tenth + 1, tenth)]
    first = median(values[: max(3, len(values) // 10)])
    worst = max(blocks)
    times = worst / max(first, 1e-4) if worst > 0.05 else 0.0
    says = f"{series.raw} went from {first:.3g} to {worst:.3g}"
    return fact(times, series, says, "times")


@statistic("rollout_logp_diff")
def sampler_gap(view: RunView) -> Series | None:
    """Return the mean |Δ log-prob| between sampler and trainer at the same weights, per record."""
    return view.run.series.get("rollout_logp_diff")


def _reference_kl_at_sampling(view: RunView) -> Series | None:
    """Return the KL to the reference in the records before the first step on a batch; None if they are unknown."""
    kl = view.run.series.get("ref_kl")
    marker = view.run.facts.get("generation_marker")
    if kl is None or not len(kl):
        return None
    if kl.aggregation == "sum over tokens":
        return kl
    if marker is None:
        return None
    generation = view.run.series.get(str(marker.value))
    if generation is None:
        return None
    keep = np.flatnonzero(np.isin(kl.axis.steps, generation.axis.steps))
    return replace(kl, axis=kl.axis.take(keep), values=kl.values[keep]) if len(keep) else None


@statistic("ref_kl")
def reference_kl_returns(view: RunView) -> Fact | None:
    """Return how often the KL to the reference falls below a twentieth of what it had grown to.

    A reference that is replaced by the policy starts again at 0: a sawtooth. A fall counts only after three records
    well above 0. A KL that is often negative is noise around 0. A KL that halves far more often than it falls is noise
    as well: with few prompts each batch has a KL of its own.
    """
    kl = _reference_kl_at_sampling(view) or view.run.series.get("ref_kl")
    if kl is None or np.isfinite(kl.values).sum() < 12:
        return None
    values = finite_of(kl.values)
    usual = median(values)
    if not usual > 1e-3 or float(np.mean(values < 0)) > 0.05:
        return None
    ramp = np.minimum(np.minimum(values[2:-1], values[1:-2]), values[:-3])
    falls = int(((values[3:] < 0.05 * values[2:-1]) & (ramp > 0.3 * usual)).sum())
    halved = int((values[1:] < 0.5 * values[:-1]).sum())
    says = f"{kl.raw} falls to under a twentieth {falls} times in {len(values)} records"
    if halved > HALVED_PER_FALL * falls:
        says, falls = f"{says}, and to under a half {halved} times: its records scatter that much", 0
    return fact(falls, kl, says, "times", how="observed")


def of_episodes(view: RunView) -> bool:
    """Return whether samples are known to be steps of episodes."""
    return view.kind.samples.value == "episodes"


@statistic("ratio_mean+ratio_batch_var")
def first_cell_off(view: RunView) -> Series | None:
    """Return how many times too small the variance of minibatch means is for one of them to have mean ratio 1.

    The first minibatch of a batch is seen before any step, so that its ratios are 1 if the stored log-probs are the
    policy's. With one of n means at 1 and their mean at m the others are 1 + (m - 1)·n/(n - 1) on average, and the
    sample variance is at least (m - 1)²·n/(n - 1)². Values above 1 refute it. If n is unknown, a large one is assumed,
    which requires the least variance.
    """
    mean = view.run.series.get("ratio_mean")
    spread = beside(mean, view.run.series.get("ratio_batch_var"))
    if mean is None or spread is None or spread.aggregation not in (None, CELLS):
        return None
    cells = _cells(view)
    least = np.square(mean.values - 1) * cells / (cells - 1) / (cells - 1)
    rounding = 2 * np.abs(mean.values - 1) * mean.resolution.absolute + spread.resolution.absolute
    values = np.maximum(0.0, least - rounding) / np.maximum(spread.values, 1e-12)
    says = f"least variance that {mean.raw} asks for, over {spread.raw}"
    return dataclasses.replace(
        mean, name="first_cell_off", values=values, unit="", resolution=EXACT, how="computed", says=says
    )


def _cells(view: RunView) -> float:
    """Return the number of minibatch means in the logged variance; the largest plausible number if it is unknown."""
    parts = [view.number(name) for name in ("ppo_epochs", "num_minibatches", "gradient_accumulation_steps")]
    known = view.configured("ppo_epochs") and view.configured("num_minibatches")
    if not known or parts[0] is None or parts[1] is None or not parts[1] > 0:
        return MOST_CELLS
    # a minibatch is at most all micro-batches of the batch
    return max(2.0, parts[0] * parts[1] * max(1, math.ceil((parts[2] or 1.0) / parts[1])))
