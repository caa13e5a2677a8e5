"""How much is clipped, against what the KL allows."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_median, median
from ppo_doctor.signals.course import condition, fact, finite, generation_starts, given, series_of, value_of, values_of

if TYPE_CHECKING:
    from ppo_doctor.model import BoolArray, Fact, FloatArray, Series
    from ppo_doctor.signals.course import Observations

NORMAL = statistics.NormalDist()
#: Levels and losses whose ratio is that of a sequence, which is clipped a hundred times closer.
SEQUENCE = ("sequence", "gspo")
#: Batches of one step, at least, that tell what one step clips.
FEWEST_OF_ONE = 5


def clip_range_in_force(observations: Observations) -> Fact | None:
    """Return the clip range that fits the usual clip fraction at the usual KL, for log-ratios that are Gaussian.

    They have a variance of 2·KL, so a share f outside ±c means c = √(2·KL)·Φ⁻¹(1 - f/2).
    """
    clipped = series_of(observations, "clip_fraction")
    usual = value_of(observations.fact("divergence_usual"))
    if clipped is None or not usual:
        return None
    part = float(finite_median(clipped.values))
    if not 0.0 < part < 1.0:
        return None
    outside = 1 - part / 2
    size = math.sqrt(2 * usual) * NORMAL.inv_cdf(outside) if outside < 1 else math.inf
    return fact(
        "clip_range_in_force",
        size,
        clipped,
        f"{clipped.raw} {part:.2g} at a KL of {usual:.2g} fits a range of {size:.2g}",
    )


def clip_range_given(observations: Observations) -> Fact | None:
    """Return the clip range as logged in the first half, else as configured; None for sequence-level ratios."""
    kinds = [observations.run.config.get(name) for name in ("importance_sampling_level", "loss_type")]
    if any(kind is not None and str(kind.value).lower().startswith(SEQUENCE) for kind in kinds):
        return None
    logged = series_of(observations, "clip_range")
    if logged is not None:
        size = float(finite_median(logged.values[: max(1, len(logged) // 2)]))
        return fact("clip_range_given", size, logged, f"{logged.raw} is {size:g}")
    chosen = given(observations, "clip_range")
    return None if chosen is None else fact("clip_range_given", chosen, None, f"the clip range is set to {chosen:g}")


def _starts(observations: Observations) -> BoolArray | None:
    return generation_starts(observations, observations.run.series.get("clip_fraction"))


def clipped_usually(observations: Observations) -> Fact | None:
    """Return the usual clip fraction, of generations without their first step, whose ratios are 1 by definition."""
    clipped, begins = series_of(observations, "clip_fraction"), _starts(observations)
    if clipped is None:
        return None
    part = float(finite_median(clipped.values if begins is None else clipped.values[~begins]))
    return fact("clipped_usually", part, clipped, f"{clipped.raw} is {part:.3g} in the median")


def clipped_first(observations: Observations) -> Fact | None:
    """Return the clip fraction of the first record, where that is an average over an update."""
    clipped = series_of(observations, "clip_fraction")
    if clipped is None or _starts(observations) is not None:
        return None
    first = float(finite(clipped)[0])
    return fact("clipped_first", first, clipped, f"{clipped.raw} is {first:.3g} in the first record")


def clipped_before_a_step(observations: Observations) -> Fact | None:
    """Return the usual clip fraction at the first step of a generation, where a ratio has had no time to leave 1."""
    clipped, begins = series_of(observations, "clip_fraction"), _starts(observations)
    if clipped is None or begins is None:
        return None
    starts = clipped.values[begins][1:]
    if not np.isfinite(starts).any():
        return None
    part = float(finite_median(starts))
    return fact(
        "clipped_before_a_step", part, clipped, f"{clipped.raw} is {part:.3g} at the first step of a generation"
    )


def clipped_in_one_step(observations: Observations) -> Fact | None:
    """Return the usual clip fraction of the batches of which one optimizer step is counted."""
    clipped, steps = series_of(observations, "clip_fraction"), series_of(observations, "optimizer_steps")
    counted = beside(clipped, steps)
    if clipped is None or counted is None or steps is None:
        return None
    shares = clipped.values[(counted.values == 1.0) & np.isfinite(clipped.values)]
    if len(shares) < FEWEST_OF_ONE:
        return None
    part = float(median(shares))
    says = f"{clipped.raw} is {part:.3g} in the median of {len(shares)} records in which {steps.raw} is 1"
    return fact("clipped_in_one_step", part, clipped, says)


def clipped_to_nothing(observations: Observations) -> Fact | None:
    """Tell whether most samples are clipped and the surrogate is next to nothing."""
    clipped, loss = values_of(observations, "clip_fraction"), value_of(observations.fact("surrogate_high"))
    if clipped is None or loss is None:
        return None
    part = float(median(clipped))
    series = series_of(observations, "clip_fraction")
    return condition(
        "clipped_to_nothing",
        part > 0.7 and loss < 0.01,
        series,
        f"{part:.0%} are clipped at a policy loss of {loss:.2g}",
    )


def dips(observations: Observations) -> Fact | None:
    """Return the period, in records, at which clipping or KL falls to nothing; 0 where there is none."""
    begins = _starts(observations)
    clipped, kl = series_of(observations, "clip_fraction"), series_of(observations, "approx_kl")
    first = series_of(observations, "first_ratio_dev")
    for series in (first, clipped, kl):
        if series is None:
            continue
        values = series.values[begins] if begins is not None and series is clipped else series.values
        period = _period(np.abs(values[np.isfinite(values)]))
        # the first minibatch, or epoch, of each batch
        if period and period not in (value_of(observations.fact("records_per_batch")), _records_per_step(series)):
            return fact("dips", period, series, f"{series.raw} falls to nothing in every {period}th record")
    known = [s for s in (clipped, kl, first) if s is not None and len(s) >= 12]
    return fact("dips", 0, known[0], f"{known[0].raw} has no period") if known else None


def _records_per_step(series: Series) -> int | None:
    """Return the number of records that share each step, None where it is one or differs."""
    starts = np.flatnonzero(np.diff(series.axis.steps, prepend=-1))
    gaps = np.diff(starts)
    return int(gaps[0]) if len(gaps) and gaps[0] > 1 and (gaps == gaps[0]).all() else None


def _period(values: FloatArray) -> int:
    usual = float(median(values)) if len(values) >= 12 else 0.0
    low = np.flatnonzero(values < 0.12 * usual)
    if usual <= 0 or len(low) < 3:
        return 0
    gaps = np.diff(low)
    goes_on = low[-1] + gaps[0] >= len(values)  # three in a row and none after are chance
    return int(gaps[0]) if gaps[0] >= 3 and (gaps == gaps[0]).all() and goes_on else 0
