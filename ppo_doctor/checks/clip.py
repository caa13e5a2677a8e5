"""Statistics of clipping, compared with the KL."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import condition, fact, finite, generation_starts
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, median
from ppo_doctor.model.run import Fact

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, Series

NORMAL = statistics.NormalDist()
#: Levels and losses whose ratio is that of a sequence, which is clipped a hundred times closer.
SEQUENCE = ("sequence", "gspo")
#: Batches of one step, at least, that tell what one step clips.
FEWEST_OF_ONE = 5


@statistic("clip_fraction+approx_kl")
def clip_range_in_force(view: RunView) -> Fact | None:
    """Return the clip range that fits the usual clip fraction at the usual KL, for log-ratios that are Gaussian.

    They have a variance of 2·KL, so a share f outside ±c means c = √(2·KL)·Φ⁻¹(1 - f/2).
    """
    clipped = view.logged("clip_fraction")
    usual = view.value("divergence_usual")
    if clipped is None or not usual:
        return None
    part = float(finite_median(clipped.values))
    if not 0.0 < part < 1.0:
        return None
    outside = 1 - part / 2
    size = math.sqrt(2 * usual) * NORMAL.inv_cdf(outside) if outside < 1 else math.inf
    return fact(size, clipped, f"{clipped.raw} {part:.2g} at a KL of {usual:.2g} fits a range of {size:.2g}")


@statistic("clip_range")
def clip_range_given(view: RunView) -> Fact | None:
    """Return the clip range as logged in the first half, else as configured; None for sequence-level ratios."""
    kinds = [view.run.config.get(name) for name in ("importance_sampling_level", "loss_type")]
    if any(kind is not None and str(kind.value).lower().startswith(SEQUENCE) for kind in kinds):
        return None
    logged = view.logged("clip_range")
    if logged is not None:
        size = float(finite_median(logged.values[: max(1, len(logged) // 2)]))
        return fact(size, logged, f"{logged.raw} is {size:g}")
    chosen = view.given("clip_range")
    return None if chosen is None else fact(chosen, None, f"the clip range is set to {chosen:g}")


def _starts(view: RunView) -> BoolArray | None:
    return generation_starts(view, view.run.series.get("clip_fraction"))


@statistic("clip_fraction")
def clipped_usually(view: RunView) -> Fact | None:
    """Return the usual clip fraction, of generations without their first step, whose ratios are 1 by definition."""
    clipped, begins = view.logged("clip_fraction"), _starts(view)
    if clipped is None:
        return None
    part = float(finite_median(clipped.values if begins is None else clipped.values[~begins]))
    return fact(part, clipped, f"{clipped.raw} is {part:.3g} in the median")


@statistic("clip_fraction")
def clipped_first(view: RunView) -> Fact | None:
    """Return the clip fraction of the first record, where that is an average over an update."""
    clipped = view.logged("clip_fraction")
    if clipped is None or _starts(view) is not None:
        return None
    first = float(finite(clipped)[0])
    return fact(first, clipped, f"{clipped.raw} is {first:.3g} in the first record")


@statistic("clip_fraction+reward_mean")
def clipped_before_a_step(view: RunView) -> Fact | None:
    """Return the usual clip fraction at the first step of a generation, where a ratio has had no time to leave 1."""
    clipped, begins = view.logged("clip_fraction"), _starts(view)
    if clipped is None or begins is None:
        return None
    starts = clipped.values[begins][1:]
    if not np.isfinite(starts).any():
        return None
    part = float(finite_median(starts))
    return fact(part, clipped, f"{clipped.raw} is {part:.3g} at the first step of a generation")


@statistic("clip_fraction+optimizer_steps")
def clipped_in_one_step(view: RunView) -> Fact | None:
    """Return the usual clip fraction of the batches of which one optimizer step is counted."""
    clipped, steps = view.logged("clip_fraction"), view.logged("optimizer_steps")
    counted = beside(clipped, steps)
    if clipped is None or counted is None or steps is None:
        return None
    shares = clipped.values[(counted.values == 1.0) & np.isfinite(clipped.values)]
    if len(shares) < FEWEST_OF_ONE:
        return None
    part = float(median(shares))
    says = f"{clipped.raw} is {part:.3g} in the median of {len(shares)} records in which {steps.raw} is 1"
    return fact(part, clipped, says)


@statistic("clip_fraction+policy_loss")
def clipped_to_nothing(view: RunView) -> Fact | None:
    """Tell whether most samples are clipped and the surrogate is next to nothing."""
    clipped, loss = view.values("clip_fraction"), view.value("surrogate_high")
    if clipped is None or loss is None:
        return None
    part = float(median(clipped))
    series = view.logged("clip_fraction")
    return condition(part > 0.7 and loss < 0.01, series, f"{part:.0%} are clipped at a policy loss of {loss:.2g}")


@statistic("clip_fraction", "approx_kl")
def dips(view: RunView) -> Fact | None:
    """Return the period, in records, at which clipping or KL falls to nothing; 0 where there is none."""
    begins = _starts(view)
    clipped, kl = view.logged("clip_fraction"), view.logged("approx_kl")
    first = view.logged("first_ratio_dev")
    for series in (first, clipped, kl):
        if series is None:
            continue
        values = series.values[begins] if begins is not None and series is clipped else series.values
        period = _period(np.abs(values[np.isfinite(values)]))
        # the first minibatch, or epoch, of each batch
        if period and period not in (view.value("records_per_batch"), _records_per_step(series)):
            return fact(period, series, f"{series.raw} falls to nothing in every {period}th record")
    known = [s for s in (clipped, kl, first) if s is not None and len(s) >= 12]
    return fact(0, known[0], f"{known[0].raw} has no period") if known else None


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


#: Objectives whose ratios are sequence-level or length-normalised: a range of 3e-4 is usual there (GSPO).
SEQUENCE_LEVEL = ("sequence", "sequence_token", "gspo")


@statistic("clip_range", "clip_fraction+approx_kl")
def implied_clip_range(view: RunView) -> Fact | None:
    """Return the clip range in force in the first half of the run: logged, else configured, else an upper bound.

    A share f of samples outside 1 ± ε has mean k3 of at least about f·ε²/2 for small ε, so ε ≤ sqrt(2·KL/f). Schedules
    that end at zero are why only the first half counts. None for sequence-level ratios.
    """
    if _sequence_level(view):
        return None
    logged = view.run.series.get("clip_range")
    if logged is not None and len(logged):
        early = logged.values[: max(1, len(logged) // 2)]
        value = finite_median(early)
        says = f"median of the first {len(early)} records"
        return fact(value, logged, says, how="observed")
    configured = view.given("clip_range")
    if configured is not None:
        setting = view.run.config["clip_range"]
        says = f"{setting.key} = {configured:g}"
        return fact(configured, setting, says, how=setting.how)
    return _from_divergence(view)


def _sequence_level(view: RunView) -> bool:
    settings = (view.run.config.get(name) for name in ("importance_sampling_level", "loss_type"))
    return any(str(setting.value).lower() in SEQUENCE_LEVEL for setting in settings if setting)


def _from_divergence(view: RunView) -> Fact | None:
    clipped, kl = view.run.series.get("clip_fraction"), view.run.series.get("approx_kl")
    if clipped is None or kl is None or not _of_one_sign(kl):
        return None
    found = bound_of_range(clipped, kl)
    if found is None:
        return None
    bound, says = found
    return fact(bound, clipped, says)


def _of_one_sign(kl: Series) -> bool:
    """Tell whether an estimate of the KL has no noise that cancels: by its name, or as no record is 0 or below it."""
    if kl.estimator is None:
        known = finite_of(kl.values)
        return bool(len(known)) and float(known.min()) > 0
    return kl.estimator in ("k2", "k3", "exact")


def bound_of_range(clipped: Series, kl: Series) -> tuple[float, str] | None:
    """Return the widest clip range that so large a share can leave at so small a KL, and the formula."""
    half, shares = max(1, len(kl) // 2), beside(kl, clipped)
    if shares is None:
        return None
    share, divergence = finite_median(shares.values[:half]), finite_median(kl.values[:half])
    if not (share > 0 and divergence > 0):
        return None
    return math.sqrt(2 * divergence / share), f"at most sqrt(2·{divergence:.2g}/{share:.2g})"
