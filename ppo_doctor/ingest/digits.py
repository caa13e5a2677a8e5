"""To how many digits a log prints its numbers, as far as the numbers themselves tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct, finite_of

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray, Series

#: A column needs this many distinct values before its printing tells how it was rounded.
DISTINCT = 20
#: From so many values on the longest of a column has all the digits that the log prints.
SEVERAL = 5
#: Columns printed with more decimals than this count as written in full.
MOST_DECIMALS = 6
#: Values that are looked at first.
PROBE = 16


def fits(values: FloatArray, decimals: int) -> bool:
    """Tell whether every value could have been rounded to that many decimals; an all-zero column could."""
    finite = values[np.isfinite(values)]
    return not _vast(finite) and bool(np.array_equal(np.round(finite, decimals), finite))


def _vast(values: FloatArray) -> bool:
    """Tell whether some value is beyond 1e15, where float64 has no decimals left and rounding may overflow."""
    return bool((np.abs(values) > 1e15).any())


def inferred_decimals(values: FloatArray) -> int | None:
    """Return the decimals to which a column was rounded, or None if it was not or too few values tell.

    Whole numbers are counts, not rounded measurements.
    """
    finite = finite_of(values)[:4096]
    if _written_in_full(finite[:PROBE]):
        return None
    held = distinct(finite)
    if len(held) < DISTINCT or _vast(held) or np.array_equal(held, np.round(held)):
        return None
    for decimals in range(1, MOST_DECIMALS + 1):
        if np.array_equal(np.round(held, decimals), held):
            return decimals
    return None


def _written_in_full(values: FloatArray) -> bool:
    """Tell whether a few values below a million surely have more decimals than any rounded column: the usual case."""
    small = values[np.abs(values) < 1e6]
    return bool((np.round(small, MOST_DECIMALS) != small).any())


#: Records whose zeros have one sign by no accident, and the coarsest print that shows the loss of an ordinary step.
SIGNS, FINE = 12, 5e-5


def with_common_resolution(named: Mapping[str, Series]) -> dict[str, Series]:
    """Give a column that cannot tell its own rounding the finest rounding of a log that rounds everything.

    An all-zero column says nothing about its digits; if every telling column was rounded, so was this one.
    """
    if any(s.resolution.exact and _tells_fractions(s) for s in named.values()):
        return dict(named)  # the usual log, known by its first column
    fractional = [s for s in named.values() if not s.resolution.exact and _tells_fractions(s)]
    if not fractional or _by_digits(named.values()):
        return dict(named)
    finest = min(series.resolution.absolute for series in fractional)
    places = round(-np.log10(2 * finest))
    if not all(fits(s.values, places) for s in named.values() if s.resolution.exact):
        return dict(named)  # a column of few values has more decimals: they are not common
    return {name: _rounded(s, finest) if s.resolution.exact else s for name, s in named.items()}


def with_signed_zeros(named: dict[str, Series]) -> dict[str, Series]:
    """Take a policy loss that prints as 0 for an exact 0 where no record has the other sign.

    The mean of advantages that are not 0 at a ratio of 1 is rounding of either sign, which print keeps (-0.00000).
    Steps too small to print leave losses of one sign as well, the negative one, beside a gradient that is not 0.
    """
    loss, gradient = named.get("policy_loss"), named.get("grad_norm")
    if loss is None or len(loss) < SIGNS or loss.values.any() or not 0 < loss.resolution.absolute <= FINE:
        return named
    negative = np.signbit(loss.values)
    silent = gradient is not None and not gradient.values.any()
    if negative.any() and not (silent and negative.all()):
        return named
    return {**named, "policy_loss": replace(loss, resolution=replace(loss.resolution, absolute=0.0))}


def _by_digits(columns: Iterable[Series]) -> bool:
    """Tell whether numbers were cut to so many digits (%.4g) rather than decimals: then a 0 is one in full.

    The digits are as many in each column of several values, and the decimals are not.
    """
    held = [values for s in columns if len(values := distinct(finite_of(s.values)[:4096])) >= SEVERAL]
    fractions = [values for values in held if not _vast(values) and not np.array_equal(values, np.round(values))]
    places = {next((n for n in range(1, MOST_DECIMALS + 1) if fits(values, n)), 0) for values in fractions}
    return len(places) > 1 and len({max(map(_digits, values.tolist())) for values in fractions}) == 1


def _digits(value: float) -> int:
    """Return the significant digits of a number, without the zeros behind them."""
    return len(f"{abs(value):.14e}".partition("e")[0].replace(".", "").rstrip("0")) if value else 0


def _tells_fractions(series: Series) -> bool:
    values = series.values
    telling = len(distinct(finite_of(values)[:4096])) >= DISTINCT
    return telling and not np.array_equal(np.round(values), values, equal_nan=True)


def _rounded(series: Series, absolute: float) -> Series:
    values = series.values[np.isfinite(series.values)]
    if len(values) and np.array_equal(np.round(values), values) and np.abs(values).max() > 1:
        return series  # a counter
    return replace(series, resolution=replace(series.resolution, absolute=absolute))
