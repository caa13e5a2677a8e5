"""How two passes over the same tokens at the same weights differ: the pattern of their log-ratio names the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.moments import Column, kept_pieces, products

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: A log-ratio beyond this (nats) counts as moved: above the noise of half precision for most tokens.
MOVED = 0.02
#: Fewer amounts of padding do not tell a line.
LEAST_LEVELS = 4
#: Half a unit in the last place, relative; float64 is what float32 was widened to as often as not.
_HALF_ULP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
_HALF_ULP_FLOAT32 = 2.0**-25
#: Equal numbers stay equal when both are stored in one type. A noise of e turns over e/ulp of them by one ulp, which
#: leaves sqrt(e * ulp): the geometric mean of float32's half unit and the type's whole one.
_TURNED_OVER = {dtype: math.sqrt(_HALF_ULP_FLOAT32 * 2 * half) for dtype, half in _HALF_ULP.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How log-probs of one pass differ from those of another over the same tokens; d is their difference in nats.

    `slope` is that of the first on the second, `slope_back` that of the second on the first: noise on either side makes
    both at most 1, a temperature makes one of them larger. `above` and `below` are the shares of tokens with d beyond
    MOVED nats, `rising` the share of positive d among those that are not 0. `rounding` is what float32 arithmetic and
    storing make of equal numbers, in nats (root of the mean square). `padding` and `position` correlate |d| with the
    padding of the row and the place in it; `least_padded` is the mean |d| of rows without padding, over that of all,
    or its upper bound by the line through the others (see `unpadded`). NaN stands for what cannot be told.
    """

    samples: int
    std: float
    mean: float
    correlation: float
    slope: float
    slope_back: float
    above: float
    below: float
    rising: float
    rounding: float
    padding: float = math.nan
    position: float = math.nan
    least_padded: float = math.nan


def compare_passes(
    one: Tensor,
    other: Tensor,
    *,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
    position: Tensor | None = None,
) -> Passes:
    """Return how two tensors of log-probs of one size differ, in one pass and bounded memory.

    `padding` and `position` are of the same size: tokens of padding in a token's row, and its place in the row. Pairs
    that are not finite are left out.

    Raises:
        ValueError: the sizes differ.
    """
    gathered = _Gathered(with_padding=padding is not None, with_position=position is not None)
    extra = tuple(tensor for tensor in (padding, position) if tensor is not None)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for pieces in kept_pieces((one, other, *extra), mask):
            gathered.add(*pieces)
        return gathered.result(*_roundings(one.dtype, other.dtype))


def _roundings(one: str, other: str) -> tuple[float, float]:
    """Return what rounding does to numbers of two types, relative; two of one type are rounded alike."""
    known = _TURNED_OVER if one == other else _HALF_ULP
    return known.get(one, _HALF_ULP_FLOAT32), known.get(other, _HALF_ULP_FLOAT32)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """Sums so far."""

    with_padding: bool
    with_position: bool
    one: Column = field(default_factory=Column)
    other: Column = field(default_factory=Column)
    gap: Column = field(default_factory=Column)
    size: Column = field(default_factory=Column)
    levels: dict[float, tuple[int, float]] = field(default_factory=dict)
    extra: tuple[Column, ...] = field(default_factory=lambda: (Column(), Column()))
    crosses: list[float] = field(default_factory=lambda: [0.0, 0.0])
    cross: float = 0.0
    above: int = 0
    below: int = 0
    positive: int = 0
    negative: int = 0

    def add(self, *pieces: Floats) -> None:
        x, y, *extra = (piece.astype(np.float64, copy=False) for piece in pieces)
        d = x - y
        if not math.isfinite(float(d.sum())):
            finite = np.isfinite(d)
            x, y, d, *extra = (values[finite] for values in (x, y, d, *extra))
        if not len(d):
            return
        self.cross += products(self.one.add(x), self.other.add(y))
        self.gap.add(d)
        self.above += int(np.count_nonzero(d > MOVED))
        self.below += int(np.count_nonzero(d < -MOVED))
        self.positive += int(np.count_nonzero(d > 0))
        self.negative += int(np.count_nonzero(d < 0))
        if extra:
            self._add_extra(np.abs(d), extra)

    def _add_extra(self, size: Floats, extra: list[Floats]) -> None:
        shifted = self.size.add(size)
        for at, values in enumerate(extra):
            self.crosses[at] += products(shifted, self.extra[at].add(values))
        if self.with_padding:
            self._add_levels(size, extra[0])

    def _add_levels(self, size: Floats, padding: Floats) -> None:
        """Add |d| to its amount of padding; rows have one, so that runs are summed before anything is sorted."""
        starts = np.concatenate([[0], np.flatnonzero(np.diff(padding)) + 1])
        found, place = np.unique(padding[starts], return_inverse=True)
        counts = np.bincount(place, weights=np.diff(starts, append=len(padding)))
        sums = np.bincount(place, weights=np.add.reduceat(size, starts))
        for level, count, total in zip(found.tolist(), counts.tolist(), sums.tolist(), strict=True):
            before = self.levels.get(level, (0, 0.0))
            self.levels[level] = before[0] + int(count), before[1] + total

    def result(self, one_ulp: float, other_ulp: float) -> Passes:
        n = self.gap.count
        links = [self.size.correlation(self.extra[at], self.crosses[at]) for at in (0, 1)]
        moved = self.positive + self.negative
        squares = (one_ulp**2 * self.one.mean_square + other_ulp**2 * self.other.mean_square) / 3
        return Passes(
            samples=n,
            std=math.sqrt(self.gap.variance) if n else math.nan,
            mean=self.gap.mean,
            correlation=self.one.correlation(self.other, self.cross),
            slope=_slope(self.one, self.other, self.cross),
            slope_back=_slope(self.other, self.one, self.cross),
            above=self.above / n if n else math.nan,
            below=self.below / n if n else math.nan,
            rising=self.positive / moved if moved else math.nan,
            rounding=math.sqrt(squares) if n else math.nan,
            padding=links[0] if self.with_padding else math.nan,
            position=links[int(self.with_padding)] if self.with_position else math.nan,
            least_padded=unpadded(self.levels) / self.size.mean if self.size.mean > 0 else math.nan,
        )


def unpadded(levels: Mapping[float, tuple[int, float]]) -> float:
    """Return the mean |d| of rows without padding; `levels` holds count and sum of |d| of each amount of padding.

    Where every row is padded: the height at 0 of the least-squares line through the means, one standard error of it
    above. Few amounts, or alike ones, do not tell it: NaN.
    """
    if len(levels) < 2:
        return math.nan
    if 0.0 in levels:
        return levels[0.0][1] / levels[0.0][0]
    padding = np.array(sorted(levels))
    if len(levels) < LEAST_LEVELS or padding[0] > padding[-1] / 2:
        return math.nan
    counts, sums = (np.array([levels[level][at] for level in padding.tolist()], np.float64) for at in (0, 1))
    means, weights = sums / counts, counts / counts.sum()
    centre = float(weights @ padding)
    spread = float(weights @ (padding - centre) ** 2)
    slope = float(weights @ ((padding - centre) * means)) / spread
    height = float(weights @ means) - slope * centre
    residual = float(weights @ (means - height - slope * padding) ** 2) / (len(levels) - 2)
    return height + math.sqrt(residual * (1 + centre**2 / spread))


def _slope(of: Column, on: Column, cross: float) -> float:
    return of.covariance(on, cross) / on.variance if on.variance > 0 else math.nan
