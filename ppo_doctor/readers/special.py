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
    # Not `replace`, which looks for each twice: to count them, and to replace them.
    for spelling in nan:
        data = _NAN.join(data.split(spelling))
    for spelling in infinity:
        data = _INF.join(data.split(spelling))
    return data


def restore(columns: FloatArray) -> None:
    """Turn the stand-ins in an array of shape [columns, rows] back, in place."""
    if not columns.size:
        return
    # Most columns hold neither; a NaN that stands there already compares false, and its column is gone through.
    clear = (columns.max(axis=1) < _INF_NUMBER) & (columns.min(axis=1) > -_INF_NUMBER)
    for column in (columns[place] for place in np.flatnonzero(~clear)):
        size = np.abs(column)
        column[size == _NAN_NUMBER] = np.nan
        infinite = size == _INF_NUMBER
        column[infinite] = np.copysign(np.inf, column[infinite])
