"""Fuzzy search: the letters of a query in their order, best where they stand together and begin words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
#: Points for a letter that begins a word, or follows the letter matched before it.
_STARTS, _FOLLOWS = 3, 2


def score(query: str, text: str) -> float | None:
    """Return how well a query fits a text, None when its letters are not there in order; blanks do not count.

    The text itself is better than its beginning, that better than its inside, and any of them than scattered letters.
    """
    wanted, held = "".join(query.lower().split()), text.lower()
    if not wanted:
        return 0.0
    at = held.find(wanted)
    if at >= 0:
        return 100.0 * len(wanted) + (50 if _starts(held, at) else 0) - len(held) / 100
    return _scattered(wanted, held)


def _scattered(wanted: str, held: str) -> float | None:
    points, last = 0.0, -1
    for letter in wanted:
        at = held.find(letter, last + 1)
        if at < 0:
            return None
        points += 1 + (_STARTS if _starts(held, at) else 0) + (_FOLLOWS if at == last + 1 else 0)
        last = at
    return points - len(held) / 100


def _starts(text: str, at: int) -> bool:
    return at == 0 or not text[at - 1].isalnum()


def ranked(query: str, items: Iterable[Item], words: Callable[[Item], str]) -> list[Item]:
    """Return the items that fit, the best first; all of them in their order for an empty query."""
    if not query.strip():
        return list(items)
    scored = [(points, item) for item in items if (points := score(query, words(item))) is not None]
    return [item for _, item in sorted(scored, key=lambda pair: -pair[0])]
