"""Names of settings that are one slip of the keys away from a known one."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import SequenceMatcher

#: Shorter names are all near one another; so are those that lack a letter of these, unless they begin alike.
SHORTEST, SHORTEST_WRITTEN = 5, 4
#: Names this long may be wrong in two places, if so much of them is the same.
LONG, MUCH = 10, 0.9
_DIGITS = re.compile(r"\d+")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that somebody meant who wrote this one; None where none is that near.

    Names that differ in their digits alone are two of a kind, and no slip.
    """
    if len(name) < SHORTEST_WRITTEN:
        return None
    if len(name) < SHORTEST:
        known = [other for other in known if other[:1] == name[:1] and len(other) > len(name) and one_slip(name, other)]
    near = [
        other
        for other in known
        if len(other) >= SHORTEST
        and abs(len(other) - len(name)) <= 2
        and _near(name, other)
        and not _numbered(name, other)
    ]
    return min(near, key=lambda other: (not one_slip(name, other), other), default=None)


def one_slip(name: str, other: str) -> bool:
    """Tell whether one letter too many, too few, wrong, or swapped with its neighbour makes one name of the other."""
    if name == other:
        return False
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(name), len(other)) - start and name[-1 - end] == other[-1 - end]:
        end += 1
    left, right = name[start : len(name) - end], other[start : len(other) - end]
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])


def _near(name: str, other: str) -> bool:
    if one_slip(name, other):
        return True
    if min(len(name), len(other)) < LONG or name[0] != other[0]:
        return False
    return SequenceMatcher(None, name, other).ratio() >= MUCH


def _numbered(name: str, other: str) -> bool:
    """Tell whether names differ in their digits alone: in others at the same place, or in having some."""
    if _DIGITS.sub("", name) != _DIGITS.sub("", other):
        return False
    return _DIGITS.sub("0", name) == _DIGITS.sub("0", other) or not (_DIGITS.search(name) and _DIGITS.search(other))
