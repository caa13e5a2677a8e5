"""Statistics of clipping: clip fraction (usual, first, before a step), the clip range in force, periodic dips."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import condition, fact, finite, generation_starts
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, median

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, Fact, FloatArray, Series

#: Beginnings of levels and losses with sequence-level ratios, whose clip range is far smaller (3e-4 is usual in GSPO).
SEQUENCE_LEVEL = ("sequence", "gspo")
#: Fewest records of which the first is compared with the others.
FEWEST_AFTER_FIRST = 5
#: Fewest batches of one optimizer step from which their clip fraction is taken.
FEWEST_OF_ONE = 5


@statistic("clip_fraction+approx_kl")
def clip_range_in_force(view: RunView) -> Fact | None:
    """Return the clip range that fits the usual clip fraction at the usual KL, if log-ratios are Gaussian.

    Their variance is 2·KL, so a share f outside ±c means c = √(2·KL)·Φ⁻¹(1 - f/2).
    """
    clipped = view.logged("clip_fraction")
    usual = view.value("divergence_usual")
    if clipped is None or not usual:
        return None
    share = finite_median(clipped.values)
    if not 0.0 < share < 1.0:
        return None
    from statistics import NormalDist  # not at the top: its import takes a fiftieth of a short diagnosis

    outside = 1 - share / 2
    size = math.sqrt(2 * usual) * NormalDist().inv_cdf(outside) if outside < 1 else math.inf
    return fact(size, clipped, f"{clipped.raw} {share:.2g} at a KL of {usual:.2g} fits a range of {size:.2g}")


@statistic("clip_range")
def clip_range_given(view: RunView) -> Fact | None:
    """Return the clip range as logged in the first half, else as configured; None for sequence-level ratios."""
    if _sequence_level(view):
        return None
    logged = view.logged("clip_range")
    if logged is not None:
        size = _first_half(logged)
        return fact(size, logged, f"{logged.raw} is {size:g}")
    configured = view.given("clip_range")
    return None if configured is None else fact(configured, None, f"the clip range is set to {configured:g}")


def _sequence_level(view: RunView) -> bool:
    settings = (view.run.config.get(name) for name in ("importance_sampling_level", "loss_type"))
    return any(str(setting.value).lower().startswith(SEQUENCE_LEVEL) for setting in settings if setting)


def _first_half(series: Series) -> float:
    """Return the median of the first half of the records: schedules of the clip range may end at 0."""
    return finite_median(series.values[: max(1, len(series) // 2)])


def _starts(view: RunView) -> BoolArray | None:
    """Return which records of the clip fraction are the first step on a generation; None if records are averages."""
    return generation_starts(view, view.run.series.get("clip_fraction"))


@statistic("clip_fraction")
def clipped_usually(view: RunView) -> Fact | None:
    """Return the median clip fraction, without the first steps of generations, whose ratios are 1 by definition."""
    clipped, starts = view.logged("clip_fraction"), _starts(view)
    if clipped is None:
        return None
    share = finite_median(clipped.values if starts is None else clipped.values[~starts])
    return fact(share, clipped, f"{clipped.raw} is {share:.3g} in the median")


@statistic("clip_fraction")
def clipped_first(view: RunView) -> Fact | None:
    """Return the clip fraction of the first record; None if that is a single step, whose ratios are 1.

    None too if there are few records, of which the first cannot be told from the others.
    """
    clipped = view.logged("clip_fraction")
    if clipped is None or _starts(view) is not None or len(finite(clipped)) < FEWEST_AFTER_FIRST:
        return None
    first = float(finite(clipped)[0])
    return fact(first, clipped, f"{clipped.raw} is {first:.3g} in the first record")


@statistic("clip_fraction+reward_mean")
def clipped_before_a_step(view: RunView) -> Fact | None:
    """Return the median clip fraction at the first step of generations, where every ratio should still be 1."""
    clipped, starts = view.logged("clip_fraction"), _starts(view)
    if clipped is None or starts is None:
        return None
    share = finite_median(clipped.values[starts][1:])
    if math.isnan(share):
        return None
    return fact(share, clipped, f"{clipped.raw} is {share:.3g} at the first step of a generation")


@statistic("clip_fraction+optimizer_steps")
def clipped_in_one_step(view: RunView) -> Fact | None:
    """Return the median clip fraction of the batches with exactly one counted optimizer step."""
    clipped, steps = view.logged("clip_fraction"), view.logged("optimizer_steps")
    counted = beside(clipped, steps)
    if clipped is None or counted is None:
        return None
    shares = finite_of(clipped.values[counted.values == 1.0])
    if len(shares) < FEWEST_OF_ONE:
        return None
    share = median(shares)
    says = f"{clipped.raw} is {share:.3g} in the median of {len(shares)} records in which {counted.raw} is 1"
    return fact(share, clipped, says)


@statistic("clip_fraction+policy_loss")
def clipped_to_nothing(view: RunView) -> Fact | None:
    """Return whether most samples are clipped and the policy loss is nearly 0."""
    clipped, loss = view.logged("clip_fraction"), view.value("surrogate_high")
    if clipped is None or loss is None:
        return None
    share = median(finite(clipped))
    return condition(share > 0.7 and loss < 0.01, clipped, f"{share:.0%} are clipped at a policy loss of {loss:.2g}")


@statistic("clip_fraction", "approx_kl")
def dips(view: RunView) -> Fact | None:
    """Return the period, in records, at which clipping or KL drops to nearly 0; 0 if there is none.

    A period that equals the records of a batch is ignored: it is the first minibatch, or epoch, of each batch.
    """
    starts = _starts(view)
    candidates = [s for name in ("first_ratio_dev", "clip_fraction", "approx_kl") if (s := view.logged(name))]
    for series in candidates:
        values = series.values[starts] if starts is not None and series.name == "clip_fraction" else series.values
        period = _period(np.abs(finite_of(values)))
        if period and period not in (view.value("records_per_batch"), _records_per_step(series)):
            return fact(period, series, f"{series.raw} falls to nothing in every {period}th record")
    known = next((s for s in candidates if len(s) >= 12 and s.name != "first_ratio_dev"), None)
    known = known or next((s for s in candidates if len(s) >= 12), None)
    return None if known is None else fact(0, known, f"{known.raw} has no period")


def _records_per_step(series: Series) -> int | None:
    """Return the number of records that share each step; None if it is one or differs."""
    gaps = np.diff(np.flatnonzero(np.diff(series.axis.steps, prepend=-1)))
    return int(gaps[0]) if len(gaps) and gaps[0] > 1 and (gaps == gaps[0]).all() else None


def _period(values: FloatArray) -> int:
    """Return the constant distance, three records or more, between values below 12 % of the median; else 0.

    The last dip has to be near the end: three dips in a row and none after them are chance.
    """
    usual = median(values) if len(values) >= 12 else 0.0
    low = np.flatnonzero(values < 0.12 * usual)
    if usual <= 0 or len(low) < 3:
        return 0
    gaps = np.diff(low)
    goes_on = low[-1] + gaps[0] >= len(values)
    return int(gaps[0]) if gaps[0] >= 3 and (gaps == gaps[0]).all() and goes_on else 0


@statistic("clip_range", "clip_fraction+approx_kl")
def implied_clip_range(view: RunView) -> Fact | None:
    """Return the clip range in the first half of the run: logged, else configured, else an upper bound.

    A share f of samples outside 1 ± ε has a mean k3 of at least about f·ε²/2 for small ε, so ε ≤ sqrt(2·KL/f). None for
    sequence-level ratios.
    """
    if _sequence_level(view):
        return None
    logged = view.run.series.get("clip_range")
    if logged is not None and len(logged):
        says = f"median of the first {max(1, len(logged) // 2)} records"
        return fact(_first_half(logged), logged, says, how="observed")
    configured = view.given("clip_range")
    if configured is not None:
        setting = view.run.config["clip_range"]
        return fact(configured, setting, f"{setting.key} = {configured:g}", how=setting.how)
    kl = view.run.series.get("approx_kl")
    clipped = beside(kl, view.run.series.get("clip_fraction"))
    if clipped is None or kl is None or not _of_one_sign(kl):
        return None
    share, divergence = _first_half(clipped), _first_half(kl)
    if not (share > 0 and divergence > 0):
        return None
    bound = math.sqrt(2 * divergence / share)
    return fact(bound, view.run.series["clip_fraction"], f"at most sqrt(2·{divergence:.2g}/{share:.2g})")


def _of_one_sign(kl: Series) -> bool:
    """Return whether the KL's estimator is never negative: by its name, or because every record is above 0."""
    if kl.estimator is None:
        known = finite_of(kl.values)
        return bool(len(known)) and float(known.min()) > 0
    return kl.estimator in ("k2", "k3", "exact")
