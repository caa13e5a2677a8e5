"""Counts of optimizer steps, epochs and samples per batch, and coefficients and schedules that the log implies.

Counted values take precedence over configured ones.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import fact
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model import arrays
from ppo_doctor.model.arrays import beside, finite_median, finite_of, mean_of, median, quantile, same
from ppo_doctor.model.run import EXACT, Fact, Setting, SourceRef
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.updates import configured_updates

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray, Series
    from ppo_doctor.model.words import ConfigValue

STEPS_PER_BATCH = "optimizer steps per batch"
#: Fewest records of a counter, and share of its gaps that have to agree to be the size of a rollout.
LEAST, ALIKE = 3, 0.9
#: Share of records with clipped samples from which on a run counts as clipping.
MOSTLY = 0.5
#: Metrics that each update writes once, so that their steps show the distance of updates.
OF_UPDATES = ("approx_kl", "policy_loss", "loss", "value_loss")


def marked(view: RunView, fact: str) -> Series | None:
    """Return the series that a framework's fact names."""
    name = view.run.facts.get(fact)
    return view.run.series.get(str(name.value)) if name else None


def finite(series: Series | None) -> FloatArray:
    """Return the finite values of a series; an empty array if there is no series."""
    return finite_of(series.values) if series is not None else np.empty(0)


def _counts(series: Series | None) -> FloatArray:
    """Return the values of a counter; an empty array if one is negative."""
    values = finite(series)
    return values if (values >= 0).all() else np.empty(0)


def _growth(counter: Series) -> FloatArray:
    """Return the growth of a counter of the whole run from record to record; NaN where it falls, and next to that.

    A counter falls where a run starts over or one of its numbers is wrong; then the neighbouring differences are wrong
    too.
    """
    change: FloatArray = np.diff(counter.values)
    falls = np.pad(change < 0, 1)
    change[falls[:-2] | falls[1:-1] | falls[2:]] = np.nan
    return change


def counted(series: Series, value: float, says: str) -> Fact:
    """Return K as an observed fact of a series."""
    return fact(value, series, says, STEPS_PER_BATCH, how="observed", name="updates_observed")


def from_steps(view: RunView) -> Fact | None:
    """Return K from a count of the optimizer steps of each batch, or of all if it grows from record to record."""
    each, total = (view.run.series.get(name) for name in ("optimizer_steps", "optimizer_steps_total"))
    series = each or total or _own_steps(view)
    values = _counts(series)
    if series is None or not len(values) or (each is None and len(values) < LEAST):
        return None
    grows = np.diff(values) > 0
    counts_all = grows.any() if each is None else _undeclared(view, series) and len(grows) and grows.all()
    if counts_all:
        return _from_total(view, series)
    return counted(series, median(values), f"median of {len(values)} records")


def _own_steps(view: RunView) -> Series | None:
    """Return the steps of the log as a counter if the trainer counts optimizer steps by them, else None."""
    series = next((s for name in OF_UPDATES if (s := view.run.series.get(name)) is not None), None)
    if series is None or "steps_are_updates" not in view.run.facts:
        return None
    if (np.diff(series.axis.steps) <= 1).all():
        return None  # a console that numbers its records counts no steps
    return replace(series, name="optimizer_steps_total", raw="step", values=series.axis.steps.astype(np.float64))


def _from_total(view: RunView, total: Series) -> Fact | None:
    """Return K from a count of all optimizer steps: its growth per batch if batches are counted, else per record.

    None if each record is one step, no series counts batches, and few records have a reward or no known trainer
    declares the counter.
    """
    batches = _batches_between(view, total)
    per_batch = _growth(total) / (1 if batches is None else batches)
    per_batch = per_batch[np.isfinite(per_batch) & (per_batch > 0)]
    reward = view.run.series.get("reward_mean")
    single = _undeclared(view, total) or (reward is not None and 2 * len(reward) <= len(total))
    if not len(per_batch) or (batches is None and median(per_batch) == 1 and single):
        return None
    return counted(total, median(per_batch), f"'{total.raw}' grows by {median(per_batch):g} per batch")


def from_samples(view: RunView) -> Fact | None:
    """Return K as the samples trained on per batch over the samples per optimizer step."""
    samples, size = (view.run.series.get(name) for name in ("samples_trained", "samples_per_update"))
    if samples is None or size is None:
        return None
    seen, per_update = finite_median(samples.values), finite_median(size.values)
    if not (seen > 0 and per_update > 0):
        return None
    return counted(samples, seen / per_update, f"'{samples.raw}' over '{size.raw}'")


def from_rows(view: RunView) -> Fact | None:
    """Return K as the records per update of a log with one record per minibatch, by its own update numbers."""
    series = next((s for name in OF_UPDATES if (s := view.run.series.get(name)) is not None), None)
    if series is None or series.axis.update is None or series.axis.minibatch is None:
        return None
    _, rows = np.unique(series.axis.update, return_counts=True)
    if len(rows) < LEAST:
        return None
    return counted(series, median(rows.astype(np.float64)), f"records of '{series.raw}' per update, one per minibatch")


def from_settings(view: RunView) -> Fact | None:
    """Return K by the trainer's formula from what the log counts and, for the rest, configured settings."""
    settings = {name: setting for name, setting in settings_with_counts(view).items() if setting.how != "default"}
    planned = configured_updates(detection.profile(view.run.framework), settings)
    epochs = epochs_per_batch(view)
    if planned is None or planned.how != "observed" or epochs is None or not epochs.number:
        return None
    minibatches = (planned.number or 0.0) / epochs.number
    parts = "one minibatch" if minibatches == 1 else f"{minibatches:g} minibatches"
    return fact(planned.number or 0.0, epochs, f"{epochs.says}, {parts} each", STEPS_PER_BATCH, how="observed")


def epochs_per_batch(view: RunView) -> Fact | None:
    """Return the passes per batch that the log counts, per batch or in total (Stable-Baselines3's n_updates)."""
    series = view.run.series
    direct, counter = series.get("epochs_executed"), series.get("epochs_executed_total")
    if direct is not None and len(_counts(direct)):
        return counted(direct, median(_counts(direct)), f"median of '{direct.raw}'")
    if counter is None or len(counter) < LEAST:
        return None
    batches = _batches_between(view, counter)
    per_batch = _growth(counter) / (1 if batches is None else batches)
    per_batch = per_batch[np.isfinite(per_batch) & (per_batch > 0)]
    if not len(per_batch):
        return None
    return counted(counter, mean_of(per_batch), f"'{counter.raw}' grows by {mean_of(per_batch):g} per batch")


def rollout_steps(view: RunView) -> Fact | None:
    """Return the environment steps of a rollout, of all environments, by the distance of updates in the log."""
    run = view.run
    series = next((s for name in OF_UPDATES if (s := run.series.get(name)) is not None), None)
    flag = run.facts.get("steps_are_env_steps")
    if series is None or flag is None or not flag.value or view.kind.samples.value != "episodes":
        return None
    batches = _batches_between(view, series)
    gaps = finite_of(np.diff(series.axis.steps) / (1 if batches is None else batches))
    if len(gaps) < LEAST or not median(gaps) > 1 or mean_of(gaps == median(gaps)) < ALIKE:
        return None
    says = f"updates stand {median(gaps):g} environment steps apart"
    return fact(median(gaps), series, says, how="observed", name="rollout_steps")


def settings_with_counts(view: RunView) -> dict[str, Setting]:
    """Return the settings, with passes over a rollout and its steps replaced by what the log counts."""
    config = dict(view.run.config)
    epochs, rollout = epochs_per_batch(view), rollout_steps(view)
    if epochs is not None:
        config["ppo_epochs"] = _observed(epochs, epochs.value)
    if rollout is not None:
        config |= {"rollout_steps": _observed(rollout, rollout.value), "num_envs": _observed(rollout, 1.0)}
    return config


def refuted(view: RunView) -> bool:
    """Return whether a default of the trainer does not apply: the log counts otherwise, or is another trainer's."""
    run = view.run
    samples = detection.samples_of(run.framework)
    if samples and view.kind.excludes({"samples": samples}):
        return True
    epochs, rollout = epochs_per_batch(view), rollout_steps(view)
    passes = epochs is not None and _differs(view, epochs, ("ppo_epochs",))
    steps = rollout is not None and _differs(view, rollout, ("rollout_steps", "num_envs"))
    return passes or steps or one_step_clips(view)


def one_step_clips(view: RunView) -> bool:
    """Return whether the log clips although the default is one step per batch, with which every ratio is 1.

    Then there are more steps, or the ratio is wrong.
    """
    planned, clipped = view.run.facts.get("updates_configured"), view.run.series.get("clip_fraction")
    if planned is None or planned.how != "default" or planned.value != 1 or clipped is None:
        return False
    values = finite(clipped)
    return len(values) >= LEAST and mean_of(values > 0) >= MOSTLY


def _differs(view: RunView, counted_one: Fact, names: tuple[str, ...]) -> bool:
    """Return whether a count differs from the product of settings of which at least one is a default."""
    numbers = [view.number(name) for name in names]
    product = math.prod(number for number in numbers if number is not None)
    return None not in numbers and not all(map(view.configured, names)) and counted_one.value != product


def _observed(fact: Fact, value: ConfigValue) -> Setting:
    """Return a count as a setting that was observed."""
    source = fact.source or SourceRef(path="the log")
    return Setting(key=source.key or fact.name, value=value, how="observed", source=source)


def _undeclared(view: RunView, series: Series) -> bool:
    """Return whether no trainer's profile declares what a series counts."""
    run = view.run
    return not detection.samples_of(run.framework) or run.keys.get(series.raw) == "guessed"


def _batches_between(view: RunView, counter: Series) -> FloatArray | None:
    """Return the rollout batches between the records of a counter; None if the log does not count them."""
    iterations = view.run.series.get("iteration")
    if iterations is not None and len(iterations):
        place = iterations.axis.steps.searchsorted(counter.axis.steps, "right") - 1  # the last record of a step
        known = iterations.axis.steps[place] == counter.axis.steps
        gaps = np.diff(np.where(known, iterations.values[place], np.nan))
    elif counter.axis.update is not None:
        gaps = np.diff(counter.axis.update).astype(np.float64)
    else:
        return None
    return np.where(gaps > 0, gaps, np.nan)


#: Share below which Gauss's inequality is too weak to matter, and least rest 1 - f that it is used with.
LEAST_SHARE, LEAST_REST = 0.3, 0.1


@statistic("clip_fraction+approx_kl")
def clip_over_spread(view: RunView) -> Series | None:
    """Return the KL that the clip fraction requires if log-ratios scatter around 0 in one hump, over the logged KL.

    Gauss's inequality (1823): with one hump of deviation σ at most 1 - k/(√3 σ) lies beyond ±k. A share f beyond the
    clip range thus requires a mean square, twice the KL, of k²/3(1 - f)². It is 0 for small shares, for which the bound
    is weak. A mixture of such humps, as over epochs or tokens, is one hump too.
    """
    series = view.run.series
    kl, epsilon = series.get("approx_kl"), _range(view)
    clipped = beside(kl, series.get("clip_fraction"))
    if kl is None or clipped is None or epsilon is None:
        return None
    if kl.estimator not in ("k2", "k3") or clipped.estimator != "both sides" or not kl.shares_window(clipped):
        return None
    share = clipped.values - clipped.resolution.absolute
    required = math.log1p(epsilon) ** 2 / (6 * np.maximum(1 - share, LEAST_REST) ** 2)
    logged = np.abs(kl.values) + kl.resolution.absolute + arrays.UNIT
    return dataclasses.replace(
        kl,
        name="clip_over_spread",
        values=np.where(share >= LEAST_SHARE, required, 0.0) / logged,
        resolution=EXACT,
        how="computed",
        unit="times the KL there is",
        says=f"KL that {clipped.raw} asks for over {kl.raw}",
    )


def _range(view: RunView) -> float | None:
    """Return the smallest clip range in force: logged, else configured."""
    logged = view.run.series.get("clip_range")
    if logged is not None and len(logged):
        finite = finite_of(logged.values)
        return float(finite.min()) if len(finite) and finite.min() > 0 else None
    return view.given("clip_range") or None


#: Fewest epochs by which a schedule is too long if that is no coincidence, and how near it has to be.
FEWEST_EPOCHS, NEAR = 3, 0.03
#: Records that must agree before a quotient of metrics counts as a coefficient.
COEFFICIENTS_LEAST = 5
#: Largest median deviation of such quotients, relative to their median.
SPREAD = 0.05
#: Twice the fewest records of a KL term, and the share of its quotients that have to agree.
TELLING, FALLING = 20, 0.9


@statistic("kl_penalty_reward+ref_kl")
def kl_coef_implied(view: RunView) -> Fact | None:
    """Return the KL coefficient that turns the reference KL into the KL reward: -penalty / KL (TRL's PPO trainers).

    None if the quotient varies, as with an adaptive controller.
    """
    penalty = view.run.series.get("kl_penalty_reward")
    kl = beside(penalty, view.run.series.get("ref_kl"))
    if penalty is None or kl is None:
        return None
    known = np.isfinite(penalty.values) & np.isfinite(kl.values) & (np.abs(kl.values) > 1e-6)
    quotients = -penalty.values[known] / kl.values[known]
    if len(quotients) < COEFFICIENTS_LEAST or median(quotients) <= 0:
        return None
    middle = median(quotients)
    if median(np.abs(quotients - middle)) > SPREAD * middle:
        return None
    says = f"-{penalty.raw} / {kl.raw}, the same in {len(quotients)} records"
    return fact(middle, penalty, says)


@statistic("learning_rate")
def schedule_end_step(view: RunView) -> Fact | None:
    """Return the step at which a linear decay of the learning rate reaches 0, from its slope over the second half."""
    rate = view.run.series.get("learning_rate")
    if rate is None or len(rate) < 2 * COEFFICIENTS_LEAST:
        return None
    half = len(rate) // 2
    steps, values = rate.axis.steps[half:].astype(np.float64), rate.values[half:]
    if not np.isfinite(values).all() or values[0] <= values[-1] or steps[-1] <= steps[0] or values[-1] <= 0:
        return None
    if same(values[:1], values[-1]).all():
        return None
    slope = (values[-1] - values[0]) / (steps[-1] - steps[0])
    line = values[0] + slope * (steps - steps[0])
    if np.abs(line - values).max() > 1e-3 * float(values[0]):
        return None  # not a straight line: a cosine, or a controller
    end = float(steps[-1] - values[-1] / slope)
    says = f"{rate.raw} falls in a straight line and reaches 0 there"
    return fact(round(end), rate, says, "step", at=half)


@statistic("learning_rate+ppo_epochs")
def schedule_spans_epochs(view: RunView) -> Fact | None:
    """Return 1 if a linear decay of the learning rate is longer than the run by the number of epochs, else 0.

    At least three epochs count: a factor of two may be half of an intended schedule.
    """
    end, epochs = view.fact("schedule_end_step"), view.given("ppo_epochs")
    last = (view.run.steps or (0, 0))[1]
    if end is None or end.number is None or epochs is None or last <= 0:
        return None
    runs = end.number / last
    spans = epochs >= FEWEST_EPOCHS and abs(runs - epochs) <= NEAR * epochs
    says = f"the rate would reach 0 at step {end.value}, which is {runs:.3g} times step {last}; epochs: {epochs:g}"
    return fact(float(spans), end, says)


@statistic("loss+ref_kl")
def kl_in_loss(view: RunView) -> Fact | None:
    """Return loss / reference KL if it is the same in all records: the coefficient of the KL term, with its sign.

    At a ratio of 1 a centred surrogate is 0, and the KL term is the whole loss. None if the quotient varies.
    """
    loss = view.run.series.get("loss")
    kl = beside(loss, view.run.series.get("ref_kl"))
    if loss is None or kl is None:
        return None
    known = np.isfinite(loss.values) & np.isfinite(kl.values) & (np.abs(kl.values) > 1e-6)
    known &= np.abs(loss.values) > loss.resolution.absolute / SPREAD
    quotients = loss.values[known] / kl.values[known]
    if len(quotients) < TELLING // 2 or np.ptp(kl.values[known]) < abs(median(kl.values[known])) * SPREAD:
        return None  # two constants always have a constant quotient
    middle = median(quotients)
    if quantile(np.abs(quotients - middle), FALLING) > SPREAD * abs(middle):
        return None
    says = f"{loss.raw} / {kl.raw}, the same in {len(quotients)} records"
    return fact(middle, loss, says)
