"""A series as a row of blocks, one per record or per stretch of records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
WIDEST = 40
#: Missing, not a number, and the two infinities.
GAP, NOT_A_NUMBER, UP, DOWN = "·", "×", "↑", "↓"


def sparkline(points: Sequence[float | None], width: int = WIDEST) -> str:
    """Return a drawing at most `width` characters long, scaled from the least to the greatest finite value.

    A stretch of records shows the one furthest from the median of all, so that a single spike stays visible.
    """
    finite = sorted(p for p in points if p is not None and math.isfinite(p))
    low, high = (finite[0], finite[-1]) if finite else (0.0, 0.0)
    middle = finite[len(finite) // 2] if finite else 0.0
    stretches = [_telling(stretch, middle) for stretch in _stretches(points, width)]
    return "".join(_sign(point, low, high) for point in stretches)


def _stretches(points: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    size = max(1, math.ceil(len(points) / width))
    return [points[start : start + size] for start in range(0, len(points), size)]


def _telling(stretch: Sequence[float | None], middle: float) -> float | None:
    """Return the oddest value of a stretch: not finite before far from the middle before missing."""
    values = [point for point in stretch if point is not None]
    odd = [value for value in values if not math.isfinite(value)]
    return odd[0] if odd else max(values, key=lambda value: abs(value - middle), default=None)


def _sign(point: float | None, low: float, high: float) -> str:
    if point is None:
        return GAP
    if math.isnan(point):
        return NOT_A_NUMBER
    if math.isinf(point):
        return UP if point > 0 else DOWN
    if high == low:
        return BLOCKS[0] if point == 0 else BLOCKS[3]
    return BLOCKS[min(int((point - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)]
