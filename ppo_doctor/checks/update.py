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


@statistic("optimizer_steps", "epochs_executed_total", "reward_mean")
def updates_observed(view: RunView) -> Fact | None:
    """Return the optimizer steps per batch that the log itself reveals."""
    for method in METHODS:
        found = method(view)
        if found is not None:
            return found
    return None


@statistic("ppo_epochs+num_minibatches")
def updates_planned(view: RunView) -> Fact | None:
    """Return K by the configuration, else by the framework's defaults as far as the log does not contradict them.

    Defaults belong together: a run that shows one of them to be otherwise is not the one that the others are of.
    """
    planned = view.run.facts.get("updates_configured")
    return None if planned is not None and planned.how == "default" and counters.refuted(view) else planned


@statistic("optimizer_steps", "ppo_epochs+num_minibatches")
def updates_effective(view: RunView) -> Fact | None:
    """Return K: observed, else configured, else the framework's default."""
    return view.fact("updates_observed") or view.fact("updates_planned")


@statistic("ppo_epochs+num_minibatches")
def updates_asked(view: RunView) -> Fact | None:
    """Return the setting that tells K where it is unknown, or known by defaults alone, as `--set` takes it."""
    run = view.run
    if view.fact("updates_known") is not None or not view.held:
        return None
    known = {name for name, setting in counters.told(view).items() if setting.how != "default"}
    key = deciding_setting(profile(run.framework), known)
    return fact(key, None, f"--set {key}=… tells K")


@statistic("optimizer_steps", "ppo_epochs+num_minibatches")
def updates_known(view: RunView) -> Fact | None:
    """Return K unless only a framework's default speaks for it, which is evidence but no proof."""
    updates = view.fact("updates_effective")
    return updates if updates is not None and updates.how != "default" else None


#: KL in nats between two passes over the same samples with the same weights, in half precision, with room.
ROUNDING = 0.003
#: Averages over the passes that steps are taken on: of one step per batch that pass is made before it.
BEFORE_THE_STEP = ("all minibatches", "last minibatch", "last epoch")


@statistic("approx_kl", "ratio_std")
def apart_before_the_step(view: RunView) -> Fact | None:
    """Return the median KL (nats) of the passes that steps are taken on, where that is more than rounding; else None.

    With one step per batch it would be 0 by construction; where it is not, nothing about the ratio is constant.
    """
    kl = view.series("kl_size")
    if kl is None or not (kl.aggregation or "").startswith(BEFORE_THE_STEP):
        return None
    size = finite_median(kl.values)
    return fact(size, kl, "") if size > ROUNDING else None


#: Records that tell whether the clip ever acts, or the loss is ever seen.
TELLING = 5
#: A KL, or a share of samples, that is none; and by how much of its size an entropy changes that moves.
WITHIN_NONE, MOVED = 1e-6, 0.01
#: What counts the work of one update, and the updates that show how it varies.
PER_UPDATE, MANY = ("optimizer_steps", "optimizer_steps_total"), 12


@statistic("optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs")
def epochs_share(view: RunView) -> Fact | None:
    """Return executed over configured work per batch; only a configuration that was found counts as configured."""
    epochs = counters.epochs_per_batch(view)
    wanted = view.given("ppo_epochs")
    if epochs is not None and wanted:
        return _share(epochs, epochs.value, wanted, "epochs")
    observed = view.fact("updates_observed")
    configured = view.run.facts.get("updates_configured")
    if observed is None or configured is None or configured.how != "configured" or not configured.value:
        return None
    return _share(observed, observed.value, configured.value, "optimizer steps")


#: Targets from here on are usual (spinningup: 0.01 to 0.05), and a stop at one is the trust region at work …
USUAL_TARGET_KL = 0.005
#: … as long as it leaves a fifth of the configured work.
LEAST_OF_USUAL_STOP = 0.2


@statistic("optimizer_steps+ppo_epochs", "epochs_executed_total+ppo_epochs")
def unexplained_share(view: RunView) -> Fact | None:
    """Return executed over configured work, 1 where an early stop at a usual target explains what is missing.

    None where the configured epochs are only a cap, as spinningup's train_pi_iters.
    """
    share = view.fact("epochs_share")
    if share is None or "epochs_are_a_cap" in view.run.facts:
        return None
    executed = share.number or 0.0
    reach, target = view.value("kl_over_target"), view.number("target_kl")
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
    """TRL GRPO with a record per optimizer step: keys that only a generation writes are K steps apart.

    Where records are not said to be single steps, those without a generation still show K of at least their spacing.
    """
    generation = marked(view, "generation_marker")
    every = view.run.series.get("loss") or view.run.series.get("grad_norm")
    if generation is None or every is None or len(generation) < 3 or len(every) < 3:
        return None
    spacing = median(np.diff(generation.axis.steps))
    if "steps_numbered" in view.run.facts and view.number("logging_steps") != 1:
        # a record may be several optimizer steps where the log does not say so: K is the spacing, or a multiple
        says = f"'{generation.raw}' appears in one record of {spacing:g}"
        return counted(generation, spacing, says) if spacing > 1.0 else None
    if median(np.diff(every.axis.steps)) != 1.0:
        return None  # records average over several optimizer steps: the spacing is hidden
    steps = "optimizer step" if spacing == 1 else f"{spacing:g} optimizer steps"
    return counted(generation, spacing, f"'{generation.raw}' appears every {steps}")


def _from_single_cell(view: RunView) -> Fact | None:
    """TRL PPO: a variance over minibatch means that is NaN in every record had a single minibatch."""
    series = marked(view, "single_update_marker")
    if series is None or len(series) < 3 or not np.isnan(series.values).all():
        return None
    return counted(series, 1.0, f"'{series.raw}' is NaN in all {len(series)} records: a single minibatch")


def _from_one_loss(view: RunView) -> Fact | None:
    """Stable-Baselines3: where the last minibatch has the loss that all have in the mean, there is but one.

    Losses of other minibatches differ by what their samples differ. Only beside a counter that shows one epoch: where
    it shows more, they were not executed, or it counts something else.
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
    """Tell whether a loss is the sum of its parts up to the float32 units of the largest, which is 1 or more."""
    return bool((np.abs(loss - whole) <= 2 * SINGLE * np.maximum(1.0, np.abs(loss))).all())


def _from_one_pass(view: RunView) -> Fact | None:
    """Return 1 where each batch is passed over once, and the policy moves between batches but never within one."""
    passes, entropy = counters.epochs_per_batch(view), view.series("entropy")
    within = [found for name in ("approx_kl", "clip_fraction") if (found := view.series(name)) is not None]
    if passes is None or passes.value != 1 or entropy is None or not within or len(within[0]) < TELLING:
        return None
    if any(np.nanmax(np.abs(found.values)) > WITHIN_NONE for found in within):
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
    """Return median KL over the target of the early stop; 0 where the configuration sets no target.

    1 where the log says itself that a stop ends most updates.
    A stop comes at 1.0 to 1.5 times the target, and the record that averages over its epoch shows less, so a stop that
    binds shows a ratio near 1 in most records.
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
    """Return the count of executed steps where it is that of a whole update in every record, give or take the last."""
    steps, planned = view.run.series.get("optimizer_steps"), view.run.facts.get("updates_configured")
    counts = finite(steps)
    if planned is None or not isinstance(planned.value, int | float) or len(counts) < TELLING:
        return None
    return steps if counts.min() == counts.max() >= planned.value - 1 > 0 else None


#: Counts of executed steps that differ are those of a stop: so many of them, or one step and another number in turn so
#: often, and half of what a whole update has.
UNEVEN, OFTEN, HALF = 3, 5, 0.6


@statistic("optimizer_steps+approx_kl", "optimizer_steps_total+approx_kl", "epochs_executed+approx_kl")
def stops_at_kl(view: RunView) -> Fact | None:
    """Return the median KL (nats) of updates that end early at different steps, None where they do not.

    A lost setting leaves the same number of steps in each update; a stop depends on the data. Batches of different
    sizes have different numbers of steps as well: nothing is told where the environment steps between updates differ.
    """
    told, kl = _done(view), view.series("kl_size") or view.run.series.get("probe_kl")
    size = finite(kl)
    if told is None or kl is None or len(told[1]) < MANY or not len(size):
        return None
    counts, done, whole = told
    rollouts = np.diff(finite(view.run.series.get("env_steps")))
    in_part = counts.name == "epochs_executed" and median(done) < 1  # a loop that is lost ends with a pass
    varies = len(set(done.tolist())) >= UNEVEN or (done.min() == 1 and np.count_nonzero(np.diff(done)) >= OFTEN)
    uneven = varies and median(done) <= HALF * whole
    if not (in_part or uneven) or (len(rollouts) and rollouts.max() > 1.1 * rollouts.min()):
        return None
    kept = f"{counts.raw} is {done.min():g} to {done.max():g} of {whole:g}"
    says = f"{kept}, and {kl.raw} {median(size):.3g} in the median"
    return fact(median(size), counts, says, "nats")


def _done(view: RunView) -> tuple[Series, FloatArray, float] | None:
    """Return what each update did, in passes or optimizer steps, and what a whole one does: as planned, or the most.

    A whole update has one pass at least.
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
    setting = view.run.config.get("early_stopping")
    return setting is None or bool(setting.value)


def _no_target(view: RunView) -> Fact | None:
    """A target that nobody tells is reached where updates end early; a configuration of epochs without one has none."""
    stops = view.fact("stops_at_kl")
    if stops is not None:
        return dataclasses.replace(stops, name="kl_over_target", value=1.0, unit="times")
    epochs = view.run.config.get("ppo_epochs")
    if epochs is None or epochs.how == "default":
        return None
    return fact(0.0, epochs, "no target_kl configured", "times", how="default")


@statistic("target_kl", "optimizer_steps+approx_kl")
def binding_target_kl(view: RunView) -> Fact | None:
    """Return the configured target_kl when early stopping is on, else the KL that updates are seen to end at.

    0 is no target (skrl's default).
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
    """Return the learning rate as logged; a configured one says nothing about single records."""
    return view.run.series.get("learning_rate")


#: What is 0 in each record where the policy of every pass is the stored one.
DEPARTURES = ("ratio_departure", "clip_fraction", "clip_fraction_low", "clip_fraction_high")
#: Share of passes from which on a loss seems to repeat in all of them.
REPEATS = 0.9


@statistic("loss", "grad_norm")
def passes_hidden(view: RunView) -> Fact | None:
    """Return the passes over a batch where the log hides all but the first, else None.

    Of several passes that are configured, or that the spacing of generations shows, none may have been executed, or
    each may have been compared with itself: a ratio of 1 and a loss that repeats show only where no step is left out
    and nothing is rounded away. None where a ratio or a clipped sample shows that later passes meet another policy
    than the stored one.
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
    apart, configured = median(np.diff(every.axis.steps)), view.value("updates_planned")
    spaced = len(generation) > 2 and median(np.diff(generation.axis.steps)) > apart
    several = spaced or (configured is not None and configured > 1)
    if apart <= 1 or not several or view.fact("updates_observed") is not None:
        return ""
    return f"records are {apart:g} optimizer steps apart and show no ratio but 1: log each step, or the ratio"


def _rounded_away(view: RunView) -> str:
    """Tell where a loss seems to repeat from pass to pass, and is printed too coarsely to say so."""
    change = view.series("loss_change_within_batch")
    if change is None or change.resolution.exact or not len(change):
        return ""
    if mean_of(change.values <= change.resolution.absolute) < REPEATS:
        return ""
    return f"{change.raw} is less than the log prints, and no ratio is but 1: log more digits, or the ratio"


def _departs(view: RunView, name: str) -> bool:
    series = view.series(name)
    return series is not None and bool(np.any(finite_of(series.values) > series.resolution.absolute))
