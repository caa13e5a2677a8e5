"""NaN and infinity for a parser that refuses them: while it works, numbers stand in for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

# Two doubles next to the largest: no measurement comes out at these. Whatever a word like "nan1" or "1nan" turns into
# is no number or too large for one, so a cell that holds one of the two was written as NaN or infinity.
_NAN, _INF = b"1.7976931348623155e308", b"1.7976931348623153e308"
_NAN_NUMBER, _INF_NUMBER = float(_NAN), float(_INF)


def disguise(data: bytes, nan: tuple[bytes, ...], infinity: tuple[bytes, ...]) -> bytes:
    """Return the data with every spelling of NaN and infinity replaced by its stand-in.

    Words inside of strings change too: the result is of use only where it turns out to hold numbers alone.
    """
    for spelling in nan:
        data = data.replace(spelling, _NAN)
    for spelling in infinity:
        data = data.replace(spelling, _INF)
    return data


def restore(columns: FloatArray) -> None:
    """Turn the stand-ins in an array of shape [columns, rows] back, in place."""
    for column in columns:
        size = np.abs(column)
        column[size == _NAN_NUMBER] = np.nan
        infinite = size == _INF_NUMBER
        column[infinite] = np.copysign(np.inf, column[infinite])
