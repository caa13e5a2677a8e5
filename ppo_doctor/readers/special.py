"""NaN and infinity for a parser that refuses them: numbers stand in for them, and are counted to be sure."""

from __future__ import annotations

from math import inf, nan
from operator import is_not
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Two doubles next to the largest: no measurement comes out at these.
_NAN, _INF = b"1.7976931348623155e308", b"1.7976931348623153e308"
_BACK: dict[float | None, float] = {float(_NAN): nan, -float(_NAN): nan, float(_INF): inf, -float(_INF): -inf}


def disguise(data: bytes, nans: Sequence[bytes], infinities: Sequence[bytes]) -> tuple[bytes, int]:
    """Return the data with every spelling of NaN and infinity replaced by its stand-in, and how many there were."""
    count = 0
    for spellings, stand_in in ((nans, _NAN), (infinities, _INF)):
        for spelling in spellings:
            if found := data.count(spelling):
                data = data.replace(spelling, stand_in)
                count += found
    return data, count


def restore(values: Iterable[float | None]) -> tuple[list[float | None], int]:
    """Return the values with every stand-in turned back, and how many there were.

    A count that differs from that of `disguise` means that one stood inside a word: the data must be parsed otherwise.
    Raises TypeError for a list or an object among the values.
    """
    before = list(values)
    after = list(map(_BACK.get, before, before))
    return after, sum(map(is_not, before, after))
