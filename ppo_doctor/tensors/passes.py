"""How two passes over the same tokens at the same weights differ: the pattern of their log-ratio names the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.moments import Column, kept_pieces, products

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: A log-ratio beyond this (nats) counts as moved: above the noise of half precision for most tokens.
MOVED = 0.02
#: Half a unit in the last place, relative; float64 is what float32 was widened to as often as not.
_HALF_ULP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
_HALF_ULP_FLOAT32 = 2.0**-25


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How log-probs of one pass differ from those of another over the same tokens; d is their difference in nats.

    `slope` is that of the first on the second, `slope_back` that of the second on the first: noise on either side makes
    both at most 1, a temperature makes one of them larger. `above` and `below` are the shares of tokens with d beyond
    MOVED nats, `rising` the share of positive d among those that are not 0. `rounding` is what storing the two makes of
    equal numbers, in nats (root of the mean square). `padding` and `position` correlate |d| with the padding of the
    row and the place in it; `least_padded` is the mean |d| where the padding is least, over that of all. NaN stands
    for what cannot be told.
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
    least = None if padding is None else _least(padding, mask)
    gathered = _Gathered(with_padding=padding is not None, with_position=position is not None, least=least)
    extra = tuple(tensor for tensor in (padding, position) if tensor is not None)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for pieces in kept_pieces((one, other, *extra), mask):
            gathered.add(*pieces)
        return gathered.result(_half_ulp(one.dtype), _half_ulp(other.dtype))


def _half_ulp(dtype: str) -> float:
    return _HALF_ULP.get(dtype, _HALF_ULP_FLOAT32)


def _least(tensor: Tensor, mask: Tensor | None) -> float:
    found = [float(piece.min()) for (piece,) in kept_pieces((tensor,), mask) if len(piece)]
    return min(found, default=math.nan)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """Sums so far."""

    with_padding: bool
    with_position: bool
    least: float | None
    one: Column = field(default_factory=Column)
    other: Column = field(default_factory=Column)
    gap: Column = field(default_factory=Column)
    size: Column = field(default_factory=Column)
    unpadded: Column = field(default_factory=Column)
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
        if self.least is not None:
            self.unpadded.add(size[extra[0] == self.least])

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
            least_padded=self._least_padded(),
        )

    def _least_padded(self) -> float:
        varies = self.with_padding and self.extra[0].low < self.extra[0].high
        if not varies or not self.size.mean > 0 or not self.unpadded.count:
            return math.nan
        return self.unpadded.mean / self.size.mean


def _slope(of: Column, on: Column, cross: float) -> float:
    return of.covariance(on, cross) / on.variance if on.variance > 0 else math.nan
