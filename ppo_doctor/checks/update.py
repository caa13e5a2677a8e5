"""Statistics of an update: optimizer steps per batch (K), executed epochs, early stopping by KL, hidden passes."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks import counters
from ppo_doctor.checks.counters import counted, finite, marked
from ppo_doctor.checks.series import fact
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, mean_of, median
from ppo_doctor.model.run import SINGLE, Fact, Series
from ppo_doctor.trainers.detection import profile
from ppo_doctor.trainers.updates import deciding_setting

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray

#: Share of a target KL below which an update did not end because of it.
FAR_BELOW = 0.1


@statistic("optimizer_steps", "epochs_executed_total", "reward_mean")
def updates_observed(view: RunView) -> Fact | None:
    """Return K, the optimizer steps per batch, as the log itself shows it; None if it does not."""
    for method in METHODS:
        updates = method(view)
        if updates is not None:
            return updates
    return None


@statistic("ppo_epochs+num_minibatches")
def updates_planned(view: RunView) -> Fact | None:
    """Return K by the configuration, else by the trainer's defaults if the log does not contradict them.

    If the log contradicts one of the defaults, none is used, since the run was then configured.
    """
    planned = view.run.facts.get("updates_configured")
    return None if planned is not None and planned.how == "default" and counters.refuted(view) else planned


@statistic("passes+ppo_epochs")
def passes_missing(view: RunView) -> Series | None:
    """Return by how many passes over its samples each observed update stayed below the configured epochs.

    Where a target KL is configured, an early stop leaves passes out on purpose, unless the KL is far below the target.
    """
    passes, epochs = view.run.series.get("passes"), view.given("ppo_epochs")
    target, kl = view.given("target_kl"), view.run.series.get("approx_kl")
    if passes is None or epochs is None or (target and (kl is None or len(kl) != len(passes))):
        return None
    says = f"{epochs:g} epochs are configured, less '{passes.raw}'"
    values = epochs - passes.values
    if target and kl is not None:
        values = np.where(kl.values < FAR_BELOW * target, values, 0.0)
    return dataclasses.replace(passes, name="passes_missing", values=values, unit="passes", how="computed", says=says)


@statistic("optimizer_steps", "ppo_epochs+num_minibatches")
def updates_effective(view: RunView) -> Fact | None:
    """Return K: observed, else configured, else by the trainer's defaults."""
    return view.fact("updates_observed") or view.fact("updates_planned")


@statistic("ppo_epochs+num_minibatches")
def updates_asked(view: RunView) -> Fact | None:
    """Return the setting to pass to `--set` to make K known; None if K is known by more than defaults."""
    run = view.run
    if view.fact("updates_known") is not None or not view.held:
        return None
    known = {name for name, setting in counters.settings_with_counts(view).items() if setting.how != "default"}
    key = deciding_setting(profile(run.framework), known)
    return fact(key, None, f"--set {key}=… tells K")


@statistic("optimizer_steps", "ppo_epochs+num_minibatches")
def updates_known(view: RunView) -> Fact | None:
    """Return K unless it rests on a trainer's defaults alone, which are evidence but no proof."""
    updates = view.fact("updates_effective")
    return updates if updates is not None and updates.how != "default" else None


#: Largest KL (nats) between two passes over the same samples with the same weights in half precision.
ROUNDING = 0.003
#: Aggregations of metrics that are computed in the forward pass of a step, so before it.
BEFORE_THE_STEP = ("all minibatches", "last minibatch", "last epoch")


@statistic("approx_kl", "ratio_std")
def apart_before_the_step(view: RunView) -> Fact | None:
    """Return the median KL (nats) of the forward passes of steps if it is more than rounding; else None.

    With one step per batch it would be 0 by construction. If it is not, the ratio is not 1 by construction.
    """
    kl = view.series("kl_size")
    if kl is None or not (kl.aggregation or "").startswith(BEFORE_THE_STEP):
        return None
    size = finite_median(kl.values)
    return fact(size, kl, "") if size > ROUNDING else None


#: Fewest records that show whether samples are ever clipped, or how a loss is composed.
TELLING = 5
#: KL or share of samples that counts as 0, and share of its size by which an entropy changes if the policy does.
WITHIN_NONE, MOVED = 1e-6, 0.01
#: Metrics that count the steps of an update, and fewest updates that show how they vary.
PER_UPDATE, MANY = ("optimizer_steps", "optimizer_steps_total"), 12


@statistic("optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs")
def epochs_share(view: RunView) -> Fact | None:
    """Return executed over configured work per batch; None if the work is not configured but a default."""
    epochs = counters.epochs_per_batch(view)
    wanted = view.given("ppo_epochs")
    if epochs is not None and wanted:
        return _share(epochs, epochs.value, wanted, "epochs")
    observed = view.fact("updates_observed")
    configured = view.run.facts.get("updates_configured")
    if observed is None or configured is None or configured.how != "configured" or not configured.value:
        return None
    return _share(observed, observed.value, configured.value, "optimizer steps")


#: Lowest usual target (spinningup: 0.01 to 0.05): a stop at one is the trust region at work …
USUAL_TARGET_KL = 0.005
#: … as long as it leaves a fifth of the configured work.
LEAST_OF_USUAL_STOP = 0.2


@statistic("optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs")
def unexplained_share(view: RunView) -> Fact | None:
    """Return executed over configured work per batch; 1 if an early stop at a usual target explains the rest.

    None if the configured epochs are only a cap, such as spinningup's train_pi_iters, or if a log with a target has too
    few KLs to tell whether updates stop at it.
    """
    share = view.fact("epochs_share")
    if share is None or "epochs_are_a_cap" in view.run.facts:
        return None
    executed = share.number or 0.0
    reach, target = view.value("kl_over_target"), view.number("target_kl")
    if executed < 1 and target and reach is None and view.logged("approx_kl"):
        return None
    stopped = reach is not None and reach >= 0.5 and (target or 0.0) >= USUAL_TARGET_KL
    if executed < 1 and stopped and executed >= LEAST_OF_USUAL_STOP:
        says = f"{share.says}; the early stop at target_kl {target:g} explains it"
        return dataclasses.replace(share, name="unexplained_share", value=1.0, says=says)
    return dataclasses.replace(share, name="unexplained_share")


def _share(base: Fact, executed: object, wanted: object, what: str) -> Fact:
    done, planned = float(str(executed)), float(str(wanted))
    return fact(
        done / planned,
        base,
        f"{done:g} of {planned:g} configured {what} per batch executed",
        "fraction",
        how="observed",
    )


def _from_generation_spacing(view: RunView) -> Fact | None:
    """Return K as the steps between records with keys that only a generation writes (TRL GRPO).

    If records are not known to be single steps, K is at least the number of records from one generation to the next.
    """
    generation = marked(view, "generation_marker")
    every = view.run.series.get("loss") or view.run.series.get("grad_norm")
    if generation is None or every is None or len(generation) < 3 or len(every) < 3:
        return None
    spacing = median(np.diff(generation.axis.steps))
    if "steps_numbered" in view.run.facts and view.number("logging_steps") != 1:
        # a record may average several optimizer steps: K is the spacing or a multiple of it
        says = f"'{generation.raw}' appears in one record of {spacing:g}"
        return counted(generation, spacing, says) if spacing > 1.0 else None
    if median(np.diff(every.axis.steps)) != 1.0:
        return None  # records average over several optimizer steps: the spacing is hidden
    steps = "optimizer step" if spacing == 1 else f"{spacing:g} optimizer steps"
    return counted(generation, spacing, f"'{generation.raw}' appears every {steps}")


def _from_single_cell(view: RunView) -> Fact | None:
    """Return 1 if a variance over minibatch means is NaN in every record: there is one minibatch (TRL PPO)."""
    series = marked(view, "single_update_marker")
    if series is None or len(series) < 3 or not np.isnan(series.values).all():
        return None
    return counted(series, 1.0, f"'{series.raw}' is NaN in all {len(series)} records: a single minibatch")


def _from_one_loss(view: RunView) -> Fact | None:
    """Return 1 if the loss of the last minibatch is the mean over all minibatches (Stable-Baselines3).

    Other minibatches would have other losses. Only if a counter shows one epoch: with more epochs, either they were not
    executed or it counts something else.
    """
    epochs, loss = counters.epochs_per_batch(view), view.run.series.get("loss")
    names = {"policy_loss": "", "value_loss": "vf_coef", "entropy": "ent_coef"}
    parts = [beside(loss, view.run.series.get(name)) for name in names]
    factors = [view.number(setting) if setting else 1.0 for setting in names.values()]
    if epochs is None or epochs.value != 1.0 or loss is None or loss.aggregation != "last minibatch":
        return None
    whole: FloatArray = np.zeros(len(loss))
    for part, factor, sign in zip(parts, factors, (1, 1, -1), strict=True):
        if part is None or factor is None or part.aggregation != "all minibatches":
            return None
        whole = whole + sign * factor * part.values
    known = np.isfinite(loss.values) & np.isfinite(whole)
    if known.sum() < TELLING or loss.at(0).any() or not _rounds_to(loss.values[known], whole[known]):
        return None
    return counted(loss, 1.0, f"'{loss.raw}' of the last minibatch is that of all, after one epoch")


def _rounds_to(loss: FloatArray, whole: FloatArray) -> bool:
    """Return whether a loss is the sum of its parts, up to two float32 units of the loss or of 1."""
    return bool((np.abs(loss - whole) <= 2 * SINGLE * np.maximum(1.0, np.abs(loss))).all())


def _from_one_pass(view: RunView) -> Fact | None:
    """Return 1 if each batch is passed over once, and the policy changes between batches but never within one."""
    passes, entropy = counters.epochs_per_batch(view), view.series("entropy")
    within = [series for name in ("approx_kl", "clip_fraction") if (series := view.series(name)) is not None]
    if passes is None or passes.value != 1 or entropy is None or not within or len(within[0]) < TELLING:
        return None
    if any(np.nanmax(np.abs(series.values)) > WITHIN_NONE for series in within):
        return None
    known = finite(entropy)
    if not len(known) or not np.ptp(known) > MOVED * np.abs(known).max():
        return None
    return counted(within[0], 1.0, f"{passes.says}, and '{within[0].raw}' is 0 within it")


METHODS = (
    counters.from_steps,
    _from_generation_spacing,
    _from_single_cell,
    counters.from_samples,
    counters.from_rows,
    counters.from_settings,
    _from_one_loss,
    _from_one_pass,
)


@statistic("approx_kl+target_kl", "early_stopped", "optimizer_steps+approx_kl")
def kl_over_target(view: RunView) -> Fact | None:
    """Return median KL over the target of the early stop; 0 if no target is configured or no update stops early.

    1 if the log itself says that most updates stop early. A stop comes at 1.0 to 1.5 times the target, and a record
    that averages over its epoch shows less, so a stop that binds shows a ratio near 1 in most records.
    """
    setting, stops = view.run.config.get("target_kl"), view.run.series.get("early_stopped")
    if stops is not None and len(finite(stops)) >= TELLING and mean_of(finite(stops) > 0) > 0.5:
        says = f"{stops.raw} is not 0 in {mean_of(finite(stops) > 0):.0%} of {len(stops)} records"
        return fact(1.0, stops, says, "times", how="observed")
    if setting is None:
        return _no_target(view)
    if not setting.value or (view.run.config.get("early_stopping") and not _stops(view)):
        return fact(0.0, setting, "no target_kl set", "times", how=setting.how)
    target, kl = view.number("target_kl"), view.series("approx_kl")
    values = finite(kl)
    if not target or kl is None or len(values) < 3:
        return None
    if (steps := _never_cut(view)) is not None:
        says = f"{steps.raw} is {finite(steps)[0]:g} in all {len(finite(steps))} records: no update stops early"
        return fact(0.0, steps, says, "times", how="observed")
    ratio = median(values) / target
    says = f"median {kl.raw} {median(values):.3g} against target_kl {target:g}"
    return fact(ratio, kl, says, "times", how="observed")


def _never_cut(view: RunView) -> Series | None:
    """Return the count of executed steps if it is that of a whole update, or one less, in every record; else None."""
    steps, planned = view.run.series.get("optimizer_steps"), view.run.facts.get("updates_configured")
    counts = finite(steps)
    if planned is None or not isinstance(planned.value, int | float) or len(counts) < TELLING:
        return None
    return steps if counts.min() == counts.max() >= planned.value - 1 > 0 else None


#: Counts of executed steps show an early stop if they have this many values, or change this often and fall to one step,
#: and if their median is at most this share of a whole update.
UNEVEN, OFTEN, HALF = 3, 5, 0.6


@statistic("optimizer_steps+approx_kl", "optimizer_steps_total+approx_kl", "epochs_executed+approx_kl")
def stops_at_kl(view: RunView) -> Fact | None:
    """Return the median KL (nats) of updates that end early at different steps; None if they do not.

    A lost setting leaves the same number of steps in each update; a stop depends on the data. Batches of different
    sizes have different numbers of steps as well, so the answer is None if the environment steps between updates
    differ.
    """
    work, kl = _done(view), view.series("kl_size") or view.run.series.get("probe_kl")
    size = finite(kl)
    if work is None or kl is None or len(work[1]) < MANY or not len(size):
        return None
    counts, done, whole = work
    rollouts = np.diff(finite(view.run.series.get("env_steps")))
    in_part = counts.name == "epochs_executed" and median(done) < 1  # without a stop, an epoch would be completed
    varies = len(set(done.tolist())) >= UNEVEN or (done.min() == 1 and np.count_nonzero(np.diff(done)) >= OFTEN)
    uneven = varies and median(done) <= HALF * whole
    if not (in_part or uneven) or (len(rollouts) and rollouts.max() > 1.1 * rollouts.min()):
        return None
    range_text = f"{counts.raw} is {done.min():g} to {done.max():g} of {whole:g}"
    says = f"{range_text}, and {kl.raw} {median(size):.3g} in the median"
    return fact(median(size), counts, says, "nats")


def _done(view: RunView) -> tuple[Series, FloatArray, float] | None:
    """Return what each update did, in passes or optimizer steps, and what a whole one does.

    A whole update does what is planned, or the most that any did, and at least one pass.
    """
    epochs = view.run.series.get("epochs_executed")
    if epochs is not None and len(done := finite(epochs)):
        return epochs, done, max(1.0, view.number("ppo_epochs") or 0.0, float(done.max()))
    counts = next((s for name in PER_UPDATE if (s := view.run.series.get(name)) is not None), None)
    done = finite(counts)
    if counts is None or not len(done):
        return None
    grows = np.diff(done)
    done = grows if len(grows) and (grows >= 0).all() and grows.any() else done
    planned = view.run.facts.get("updates_configured")
    return counts, done, max(planned.number or 0.0 if planned is not None else 0.0, float(done.max()))


def _stops(view: RunView) -> bool:
    """Return whether early stopping is on, or not configured."""
    setting = view.run.config.get("early_stopping")
    return setting is None or bool(setting.value)


def _no_target(view: RunView) -> Fact | None:
    """Return 1 if updates stop early although no target is known, 0 if epochs are configured without one."""
    stops = view.fact("stops_at_kl")
    if stops is not None:
        return dataclasses.replace(stops, name="kl_over_target", value=1.0, unit="times")
    epochs = view.run.config.get("ppo_epochs")
    if epochs is None or epochs.how == "default":
        return None
    return fact(0.0, epochs, "no target_kl configured", "times", how="default")


@statistic("target_kl", "optimizer_steps+approx_kl")
def binding_target_kl(view: RunView) -> Fact | None:
    """Return the configured target_kl if early stopping is on; without one, the KL that updates are seen to end at.

    A target of 0 is none (skrl's default).
    """
    setting = view.run.config.get("target_kl")
    target = view.number("target_kl")
    if setting is None:
        stops = view.fact("stops_at_kl")
        return stops and dataclasses.replace(stops, name="binding_target_kl")
    if setting is None or not target or not _stops(view):
        return None
    return fact(target, setting, "", "nats", how=setting.how)


@statistic("learning_rate")
def applied_learning_rate(view: RunView) -> Series | None:
    """Return the logged learning rate; a configured one does not apply to single records."""
    return view.run.series.get("learning_rate")


#: Metrics that are 0 in every record if the policy of every pass is the stored one.
DEPARTURES = ("ratio_departure", "clip_fraction", "clip_fraction_low", "clip_fraction_high")
#: Share of passes with the same loss in print from which on it counts as repeated in all of them.
REPEATS = 0.9


@statistic("loss", "grad_norm")
def passes_hidden(view: RunView) -> Fact | None:
    """Return 1 if there are several passes over a batch and the log hides all but the first, else None.

    Passes that are configured, or that the spacing of generations shows, may not have been executed, or may have been
    compared with themselves. A ratio of 1 and a repeated loss show that only if the log leaves out no step and rounds
    nothing away. None if a ratio or a clipped sample shows that later passes meet another policy than the stored one.
    """
    generation = marked(view, "generation_marker")
    every = view.run.series.get("loss") or view.run.series.get("grad_norm")
    if generation is None or every is None or len(every) < 3:
        return None
    says = _left_out(view, generation, every) or _rounded_away(view)
    if not says or any(map(partial(_departs, view), DEPARTURES)):
        return None
    return fact(1.0, every, says, how="observed")


def _left_out(view: RunView, generation: Series, every: Series) -> str:
    """Return a sentence if records leave out optimizer steps of several updates per batch, else an empty string."""
    distance, configured = median(np.diff(every.axis.steps)), view.value("updates_planned")
    spaced = len(generation) > 2 and median(np.diff(generation.axis.steps)) > distance
    several = spaced or (configured is not None and configured > 1)
    if distance <= 1 or not several or view.fact("updates_observed") is not None:
        return ""
    return f"records are {distance:g} optimizer steps apart and show no ratio but 1: log each step, or the ratio"


def _rounded_away(view: RunView) -> str:
    """Return a sentence if the loss repeats from pass to pass only as far as it is printed, else an empty string."""
    change = view.series("loss_change_within_batch")
    if change is None or change.resolution.exact or not len(change):
        return ""
    if mean_of(change.values <= change.resolution.absolute) < REPEATS:
        return ""
    return f"{change.raw} is less than the log prints, and no ratio is but 1: log more digits, or the ratio"


def _departs(view: RunView, name: str) -> bool:
    """Return whether a metric is above 0 in some record, beyond its printed digits."""
    series = view.series(name)
    return series is not None and bool(np.any(finite_of(series.values) > series.resolution.absolute))
