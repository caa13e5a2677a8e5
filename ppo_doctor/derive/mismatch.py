"""Do the samples and their stored log-probs come from the policy that is trained?"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, median
from ppo_doctor.model import EXACT, Fact, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: What TRL's PPO logs as the variance of the ratio, and how many means that may be over where nobody says.
CELLS, MOST_CELLS = "variance of minibatch means", 1024.0
#: A KL that falls below a half more often than this for each fall to a twentieth scatters: synced references of the lab
#: stay at 2.3 and less, and batches of a few prompts, against a fixed one, lie at 8 and more.
HALVED_PER_FALL = 4
#: Metrics of the gap between sampler and trainer at the same weights, and their identity value.
GAPS = (("rollout_logp_diff", 0.0), ("rollout_kl", 0.0), ("rollout_prob_diff", 0.0))


def _at(series: Series, marks: Series, name: str) -> Series | None:
    keep = np.isin(series.axis.steps, marks.axis.steps)
    if not keep.any():
        return None
    axis = series.axis.take(np.flatnonzero(keep))
    return dataclasses.replace(series, name=name, axis=axis, values=series.values[keep], how="computed")


def mean_ratio_off(observations: Observations) -> Series | None:
    """Return |mean ratio - 1| per record: logged, else k3 - k1 of the same window.

    Over samples that the old policy drew with the stored probabilities the mean is 1 for any new policy.
    """
    run = observations.run
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


def sampler_gap_growth(observations: Observations) -> Fact | None:
    """Return how many times larger the gap between sampler and trainer is at the worst than in its first quarter.

    Medians of tenths, so that one odd batch is no trend; 0 where the gap stays below what half precision explains
    (mean |Δ log-prob| of 0.05: huggingface/trl issues 5312 and 6789).
    """
    for name, _ in GAPS:
        series = observations.run.series.get(name)
        if series is not None and np.isfinite(series.values).sum() >= 20:
            return _gap_growth(series)
    return None


def _gap_growth(series: Series) -> Fact | None:
    values = np.abs(finite_of(series.values))
    tenth = max(3, len(values) // 10)
    blocks = [median(values[i : i + tenth]) for i in range(0, len(values) - tenth + 1, tenth)]
    first = median(values[: max(3, len(values) // 10)])
    worst = max(blocks)
    times = worst / max(first, 1e-4) if worst > 0.05 else 0.0
    says = f"{series.raw} went from {first:.3g} to {worst:.3g}"
    return Fact(name="sampler_gap_growth", value=times, how="computed", unit="times", source=series.source(), says=says)


def sampler_gap(observations: Observations) -> Series | None:
    """Return the mean |Δ log-prob| between sampler and trainer at the same weights, per record."""
    return observations.run.series.get("rollout_logp_diff")


def reference_kl_at_sampling(observations: Observations) -> Series | None:
    """Return the KL to the reference where nothing was stepped since sampling: per batch, or in generating records."""
    kl = observations.run.series.get("ref_kl")
    marker = observations.run.facts.get("generation_marker")
    if kl is None or not len(kl):
        return None
    if kl.aggregation == "sum over tokens":
        return dataclasses.replace(kl, name="reference_kl_at_sampling", how="computed")
    if marker is None:
        return None
    generation = observations.run.series.get(str(marker.value))
    return None if generation is None else _at(kl, generation, "reference_kl_at_sampling")


def reference_kl_returns(observations: Observations) -> Fact | None:
    """Return how often the KL to the reference falls back to under a twentieth of what it had grown to.

    A reference that is replaced by the policy starts again at 0: a sawtooth. A fall counts after a ramp only, three
    records that are well above 0; a KL that is often negative is noise around 0, and one that halves from record to
    record far more often than it falls is noise as well: of a few prompts, each batch has a KL of its own.
    """
    kl = observations.series("reference_kl_at_sampling") or observations.run.series.get("ref_kl")
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
    return Fact(name="reference_kl_returns", value=falls, how="observed", unit="times", source=kl.source(), says=says)


def of_episodes(observations: Observations) -> bool:
    """Tell whether samples are known to be steps of episodes."""
    return observations.kind.samples.value == "episodes"


def first_cell_off(observations: Observations) -> Series | None:
    """Return how many times too small the variance of minibatch means is for one of them to have mean ratio 1.

    The first minibatch of a batch is seen before any step, so that its ratios are 1 if the stored log-probs are the
    policy's. With one of n means at 1 and their mean at m the others are 1 + (m - 1)·n/(n - 1) on average, and the
    sample variance is at least (m - 1)²·n/(n - 1)². Values above 1 refute it. Where n is unknown a large one is taken,
    which asks for the least variance.
    """
    mean = observations.run.series.get("ratio_mean")
    spread = beside(mean, observations.run.series.get("ratio_batch_var"))
    if mean is None or spread is None or spread.aggregation not in (None, CELLS):
        return None
    cells = _cells(observations)
    least = np.square(mean.values - 1) * cells / (cells - 1) / (cells - 1)
    printed = 2 * np.abs(mean.values - 1) * mean.resolution.absolute + spread.resolution.absolute
    values = np.maximum(0.0, least - printed) / np.maximum(spread.values, 1e-12)
    says = f"least variance that {mean.raw} asks for, over {spread.raw}"
    return dataclasses.replace(
        mean, name="first_cell_off", values=values, unit="", resolution=EXACT, how="computed", says=says
    )


def _cells(observations: Observations) -> float:
    parts = [observations.number(name) for name in ("ppo_epochs", "num_minibatches", "gradient_accumulation_steps")]
    known = observations.configured("ppo_epochs") and observations.configured("num_minibatches")
    if not known or parts[0] is None or parts[1] is None or not parts[1] > 0:
        return MOST_CELLS
    # a minibatch is at most all micro-batches of the batch
    return max(2.0, parts[0] * parts[1] * max(1, math.ceil((parts[2] or 1.0) / parts[1])))
