"""What a log counts of a rollout batch: optimizer steps, passes, samples, rows. Counters beat what was configured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import frameworks
from ppo_doctor.arrays import finite_median, finite_of, mean_of, median
from ppo_doctor.frameworks.domains import OF_COMPLETIONS, OF_EITHER
from ppo_doctor.frameworks.planning import configured_updates
from ppo_doctor.model import Fact, Setting, SourceRef

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import ConfigValue, FloatArray, Series

STEPS_PER_BATCH = "optimizer steps per batch"
#: Fewest records of a counter, and the share of its gaps that have to agree, for it to tell the size of a rollout.
LEAST, ALIKE = 3, 0.9
#: From this share of its records on a log clips.
MOSTLY = 0.5
#: Metrics of which each update writes one, whose steps tell how far updates are apart.
OF_UPDATES = ("approx_kl", "policy_loss", "loss", "value_loss")


def marked(observations: Observations, fact: str) -> Series | None:
    """Return the series that a framework's fact names."""
    name = observations.run.facts.get(fact)
    return observations.run.series.get(str(name.value)) if name else None


def finite(series: Series | None) -> FloatArray:
    """Return the finite values of a series; none without it."""
    return finite_of(series.values) if series is not None else np.empty(0)


def _counts(series: Series | None) -> FloatArray:
    """Return the values of a counter; what is negative counts nothing."""
    values = finite(series)
    return values if (values >= 0).all() else np.empty(0)


def _growth(counter: Series) -> FloatArray:
    """Return what a counter of the whole run grows by from record to record, NaN where it falls and next to that.

    It falls where a run starts over, or where one of its numbers is wrong: then the rise to it, or from it, is too.
    """
    change: FloatArray = np.diff(counter.values)
    falls = np.pad(change < 0, 1)
    change[falls[:-2] | falls[1:-1] | falls[2:]] = np.nan
    return change


def counted(series: Series, value: float, says: str) -> Fact:
    """Return K as a series shows it."""
    return Fact(
        name="updates_observed", value=value, how="observed", unit=STEPS_PER_BATCH, source=series.source(), says=says
    )


def from_steps(observations: Observations) -> Fact | None:
    """Return K from a count of the optimizer steps of each batch, or of all where it grows from record to record."""
    each, total = (observations.run.series.get(name) for name in ("optimizer_steps", "optimizer_steps_total"))
    series = each or total or _own_steps(observations)
    values = _counts(series)
    if series is None or not len(values) or (each is None and len(values) < LEAST):
        return None
    grows = np.diff(values) > 0
    counts_all = grows.any() if each is None else _undeclared(observations, series) and len(grows) and grows.all()
    if counts_all:
        return _from_total(observations, series)
    return counted(series, median(values), f"median of {len(values)} records")


def _own_steps(observations: Observations) -> Series | None:
    """Return the steps of the log itself, where the trainer counts optimizer steps by them."""
    series = next((s for name in OF_UPDATES if (s := observations.run.series.get(name)) is not None), None)
    if series is None or "steps_are_updates" not in observations.run.facts:
        return None
    if (np.diff(series.axis.steps) <= 1).all():
        return None  # a console that numbers its records
    return replace(series, name="optimizer_steps_total", raw="step", values=series.axis.steps.astype(np.float64))


def _from_total(observations: Observations, total: Series) -> Fact | None:
    """Return K from a count of all optimizer steps, per batch where batches are counted too, else per record.

    None where each record is a step, as far as nobody counts batches: also where few records hold a rollout's reward.
    """
    batches = _batches_between(observations, total)
    per_batch = _growth(total) / (1 if batches is None else batches)
    per_batch = per_batch[np.isfinite(per_batch) & (per_batch > 0)]
    reward = observations.run.series.get("reward_mean")
    single = _undeclared(observations, total) or (reward is not None and 2 * len(reward) <= len(total))
    if not len(per_batch) or (batches is None and median(per_batch) == 1 and single):
        return None
    return counted(total, median(per_batch), f"'{total.raw}' grows by {median(per_batch):g} per batch")


def from_samples(observations: Observations) -> Fact | None:
    """Return K as the samples trained on per batch over the samples per optimizer step."""
    samples, size = (observations.run.series.get(name) for name in ("samples_trained", "samples_per_update"))
    if samples is None or size is None:
        return None
    seen, per_update = finite_median(samples.values), finite_median(size.values)
    if not (seen > 0 and per_update > 0):
        return None
    return counted(samples, seen / per_update, f"'{samples.raw}' over '{size.raw}'")


def from_rows(observations: Observations) -> Fact | None:
    """Return K as the records of an update where each minibatch has one, which a column of its own numbers."""
    series = next((s for name in OF_UPDATES if (s := observations.run.series.get(name)) is not None), None)
    if series is None or series.axis.update is None or series.axis.minibatch is None:
        return None
    _, rows = np.unique(series.axis.update, return_counts=True)
    if len(rows) < LEAST:
        return None
    return counted(series, median(rows.astype(np.float64)), f"records of '{series.raw}' per update, one per minibatch")


def from_settings(observations: Observations) -> Fact | None:
    """Return K by the framework's formula from what the log counts and, for the rest, settings that were found."""
    found = {name: setting for name, setting in told(observations).items() if setting.how != "default"}
    planned = configured_updates(frameworks.profile(observations.run.framework), found)
    epochs = epochs_per_batch(observations)
    if planned is None or planned.how != "observed" or epochs is None or not isinstance(planned.value, int | float):
        return None
    minibatches = float(planned.value) / float(str(epochs.value))
    parts = "one minibatch" if minibatches == 1 else f"{minibatches:g} minibatches"
    return Fact(
        name="updates_observed",
        value=float(planned.value),
        how="observed",
        unit=STEPS_PER_BATCH,
        source=epochs.source,
        says=f"{epochs.says}, {parts} each",
    )


def epochs_per_batch(observations: Observations) -> Fact | None:
    """Return the passes per batch that the log counts, in each batch or over all (Stable-Baselines3's n_updates)."""
    series = observations.run.series
    direct, counter = series.get("epochs_executed"), series.get("epochs_executed_total")
    if direct is not None and len(_counts(direct)):
        return counted(direct, median(_counts(direct)), f"median of '{direct.raw}'")
    if counter is None or len(counter) < LEAST:
        return None
    batches = _batches_between(observations, counter)
    per_batch = _growth(counter) / (1 if batches is None else batches)
    per_batch = per_batch[np.isfinite(per_batch) & (per_batch > 0)]
    if not len(per_batch):
        return None
    return counted(counter, mean_of(per_batch), f"'{counter.raw}' grows by {mean_of(per_batch):g} per batch")


def rollout_steps(observations: Observations) -> Fact | None:
    """Return the environment steps of a rollout, of all environments, that lie between two updates of the log."""
    run = observations.run
    series = next((s for name in OF_UPDATES if (s := run.series.get(name)) is not None), None)
    flag = run.facts.get("steps_are_env_steps")
    if series is None or flag is None or not flag.value or observations.kind.samples.value != "episodes":
        return None
    batches = _batches_between(observations, series)
    gaps = finite_of(np.diff(series.axis.steps) / (1 if batches is None else batches))
    if len(gaps) < LEAST or not median(gaps) > 1 or mean_of(gaps == median(gaps)) < ALIKE:
        return None
    says = f"updates stand {median(gaps):g} environment steps apart"
    return Fact(name="rollout_steps", value=median(gaps), how="observed", source=series.source(), says=says)


def told(observations: Observations) -> dict[str, Setting]:
    """Return the settings with what the log counts in their place: passes over a rollout, and its steps."""
    config = dict(observations.run.config)
    epochs, rollout = epochs_per_batch(observations), rollout_steps(observations)
    if epochs is not None:
        config["ppo_epochs"] = _observed(epochs, epochs.value)
    if rollout is not None:
        config |= {"rollout_steps": _observed(rollout, rollout.value), "num_envs": _observed(rollout, 1.0)}
    return config


def refuted(observations: Observations) -> bool:
    """Tell whether a default of the framework is not in force: the log counts otherwise, or is of another trainer."""
    run = observations.run
    if run.framework not in OF_EITHER:
        samples = "completions" if run.framework in OF_COMPLETIONS else "episodes"
        if observations.kind.excludes({"samples": samples}):
            return True
    epochs, rollout = epochs_per_batch(observations), rollout_steps(observations)
    passes = epochs is not None and _differs(observations, epochs, ("ppo_epochs",))
    steps = rollout is not None and _differs(observations, rollout, ("rollout_steps", "num_envs"))
    return passes or steps or one_step_clips(observations)


def one_step_clips(observations: Observations) -> bool:
    """Tell whether a default of one step per batch is not in force: before that step every ratio is 1, inside the clip.

    Where the log clips all the same, steps are more, or something is wrong with the ratio.
    """
    planned, clipped = observations.run.facts.get("updates_configured"), observations.run.series.get("clip_fraction")
    if planned is None or planned.how != "default" or planned.value != 1 or clipped is None:
        return False
    values = finite(clipped)
    return len(values) >= LEAST and mean_of(values > 0) >= MOSTLY


def _differs(observations: Observations, counted_one: Fact, names: tuple[str, ...]) -> bool:
    """Tell whether a count is not the product of settings of which one is a default."""
    numbers = [observations.number(name) for name in names]
    product = math.prod(number for number in numbers if number is not None)
    return None not in numbers and not all(map(observations.configured, names)) and counted_one.value != product


def _observed(fact: Fact, value: ConfigValue) -> Setting:
    source = fact.source or SourceRef(path="the log")
    return Setting(key=source.key or fact.name, value=value, how="observed", source=source)


def _undeclared(observations: Observations, series: Series) -> bool:
    """Tell whether no profile of a trainer says what a series counts."""
    run = observations.run
    return run.framework in OF_EITHER or run.keys.get(series.raw) == "guessed"


def _batches_between(observations: Observations, counter: Series) -> FloatArray | None:
    """Return the rollout batches between the records of a counter; None where nobody counts them."""
    iterations = observations.run.series.get("iteration")
    if iterations is not None and len(iterations):
        place = iterations.axis.steps.searchsorted(counter.axis.steps, "right") - 1  # the last record of a step
        known = iterations.axis.steps[place] == counter.axis.steps
        gaps = np.diff(np.where(known, iterations.values[place], np.nan))
    elif counter.axis.update is not None:
        gaps = np.diff(counter.axis.update).astype(np.float64)
    else:
        return None
    return np.where(gaps > 0, gaps, np.nan)
