"""Numbers that a container holds in single precision, as the decimals that they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppo_doctor.model import FloatArray

#: Single precision keeps every decimal of six digits apart.
_DIGITS = 6
#: Powers of ten up to this one are exact in double precision, so that a quotient is the double next to its decimal.
_EXACT = 22


def written(values: NDArray[np.float32]) -> FloatArray:
    """Return float32 values as float64: the decimal of at most six digits that is stored as this value, if one is.

    A learning rate of 0.0003 is stored as 0.000300000014249…; both are the same float32, and only one of them was
    meant. It also shows the rounding of a metric that was logged in few digits. Other values stay what they are.
    """
    out = values.astype(np.float64)
    usable = np.isfinite(out) & (out != 0.0)
    held = out[usable]
    places = _DIGITS - 1 - np.floor(np.log10(np.abs(held)))
    sure = np.abs(places) <= _EXACT
    power = 10.0 ** np.where(sure, np.abs(places), 0.0)
    decimal = np.where(places >= 0, np.rint(held * power) / power, np.rint(held / power) * power)
    meant = sure & (decimal.astype(np.float32) == values[usable])
    out[usable] = np.where(meant, decimal, held)
    return out
