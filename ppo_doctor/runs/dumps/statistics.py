"""Statistics of columns larger than memory, summed in float64 piece by piece: moments, and those of the PPO ratio."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: Elements of one piece: three arrays of float64 of this size fit the second-level cache.
PIECE = 1 << 16
#: Elements of a product that BLAS computes in one thread.
_ALONE = 1 << 13
#: Quantiles and distinct values are computed from a random sample of about this many elements. The rank of a quantile
#: is then off by at most 0.0042 (three standard errors). Columns of at most this many elements give exact quantiles.
SAMPLE = 1 << 17
QUANTILES = (0.01, 0.5, 0.99)
#: For log-ratios within this of 0, k3 is computed by its series, whose first omitted term is 1e-13 of the sum there.
SMALL = 0.01
#: A mean k3 of a piece below this is computed sample by sample, because the difference of sums would lose digits.
CANCELS = 1e-5
#: Squares of ratios below this are too close to the smallest float64 to keep their digits.
SMALLEST_SQUARED = 1e-140


def kept_pieces(
    tensors: tuple[Tensor, ...], mask: Tensor | None, elements: int = PIECE
) -> Iterator[tuple[Floats, ...]]:
    """Yield pieces of tensors of one size side by side, without the elements where the mask is 0.

    Raises:
        ValueError: the sizes differ.
    """
    sizes = {tensor.size for tensor in (*tensors, *([mask] if mask else []))}
    if len(sizes) > 1:
        raise ValueError(f"tensors of different sizes: {sorted(sizes)}")
    streams = (tensor.chunks(elements) for tensor in tensors)
    if mask is None:
        yield from zip(*streams, strict=True)
        return
    for marks, *pieces in zip(mask.chunks(elements), *streams, strict=True):
        keep = marks != 0
        if keep.all():
            yield tuple(pieces)
        elif keep.any():
            yield tuple(piece[keep] for piece in pieces)


def products(one: Floats, other: Floats) -> float:
    """Return the sum of products, in parts for which BLAS starts no threads: these cost more than they save."""
    return math.fsum(float(np.dot(one[at : at + _ALONE], other[at : at + _ALONE])) for at in range(0, len(one), _ALONE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Count, mean, standard deviation (of the population) and extremes of the finite values of a column.

    All but the count are NaN for an empty column.
    """

    count: int
    mean: float
    std: float
    low: float
    high: float


class Column:
    """A running summary of one column.

    The mean of the first piece is subtracted from all values before they are squared and summed, unless it is below
    their spread: sums of plain squares would lose a factor mean^2/variance of precision.
    """

    __slots__ = ("count", "high", "low", "shift", "squares", "total")

    def __init__(self) -> None:
        self.count = 0
        self.shift = self.total = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, values: Floats) -> Floats:
        """Add a piece without NaN, and return it with the shift subtracted."""
        if not len(values):
            return values
        if not self.count:
            mean = float(values.mean())
            far = math.isfinite(mean) and 2 * mean * mean > products(values, values) / len(values)
            self.shift = mean if far else 0.0
        shifted = values - self.shift if self.shift else values
        self.count += len(values)
        self.total += float(shifted.sum())
        self.squares += products(shifted, shifted)
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))
        return shifted

    @property
    def mean(self) -> float:
        """Return the mean, NaN without values."""
        return self.shift + self.total / self.count if self.count else math.nan

    @property
    def variance(self) -> float:
        """Return the population variance, NaN without values, infinite where squares overflow."""
        if not self.count:
            return math.nan
        if self.low == self.high:
            return 0.0 if math.isfinite(self.low) else math.inf
        offset = self.total / self.count
        spread = self.squares / self.count - offset * offset  # not offset**2, which raises where it overflows
        return math.inf if math.isnan(spread) else max(0.0, spread)

    @property
    def std(self) -> float:
        """Return the population standard deviation, NaN without values."""
        return math.sqrt(self.variance)

    @property
    def mean_square(self) -> float:
        """Return the mean of the squares, NaN without values."""
        return self.variance + self.mean * self.mean

    def covariance(self, other: Column, cross: float) -> float:
        """Return the covariance with another column, from the sum of products of shifted values."""
        if not self.count:
            return math.nan
        return cross / self.count - (self.total / self.count) * (other.total / self.count)

    def correlation(self, other: Column, cross: float) -> float:
        """Return the correlation with another column; NaN where one of them does not vary."""
        size = self.std * other.std
        if not size > 0:
            return math.nan
        return min(1.0, max(-1.0, self.covariance(other, cross) / size))

    def summary(self) -> Summary:
        """Return what was added so far."""
        low, high = (self.low, self.high) if self.count else (math.nan, math.nan)
        return Summary(count=self.count, mean=self.mean, std=self.std, low=low, high=high)


def describe(tensor: Tensor, mask: Tensor | None = None) -> Summary:
    """Return the summary of the finite values of a tensor where `mask` (of the same size) is not 0.

    Raises:
        ValueError: the mask has another size.
    """
    column = Column()
    with np.errstate(over="ignore", invalid="ignore"):
        for (piece,) in kept_pieces((tensor,), mask):
            values = piece.astype(np.float64, copy=False)
            column.add(values[np.isfinite(values)])
    return column.summary()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStatistics:
    """The importance ratio r = exp(new - old) over the samples in the loss; shares are fractions of these.

    `k1`, `k2`, `k3` estimate KL(old || new) from samples of old, in nats (Schulman 2020): -log r, (log r)^2/2 and
    r - 1 - log r. `ess` is (sum r)^2 / (n sum r^2), a fraction. `clipped_low` and `clipped_high` are the shares of
    ratios below and above the clip range; `effective_low` counts of them only those with a negative advantage,
    `effective_high` those with a positive one, where clipping changes the gradient. `dual` is the share of ratios above
    the dual-clip bound with a negative advantage. `gain` is mean(r A) - mean(A), `advantage_corr` the correlation of
    log r with A. `deviations` is |mean(r) - 1| in standard errors. NaN stands for what is unknown.
    """

    samples: int
    nonfinite: int
    ratio: Summary
    one_share: float
    distinct: int
    quantiles: Mapping[float, float]
    k1: float
    k2: float
    k3: float
    ess: float
    deviations: float
    clipped_low: float
    clipped_high: float
    effective_low: float
    effective_high: float
    dual: float
    gain: float
    advantage_corr: float


def ratio_statistics(
    new: Tensor,
    old: Tensor,
    *,
    mask: Tensor | None = None,
    advantages: Tensor | None = None,
    clip: tuple[float, float] | None = None,
    dual_clip: float | None = None,
) -> RatioStatistics:
    """Return the statistics of the ratio of two tensors of log-probs of one size, in one pass and bounded memory.

    `clip` is the range around 1 as (below, above), such as (0.2, 0.2). Samples whose log-ratio or advantage is NaN or
    infinite are counted and left out.

    Raises:
        ValueError: the sizes differ.
    """
    sums = _RatioSums(clip=clip, dual_clip=dual_clip, rate=min(1.0, SAMPLE / max(new.size, 1)))
    tensors = (new, old) if advantages is None else (new, old, advantages)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        for pieces in kept_pieces(tensors, mask):
            sums.add(*pieces)
        return sums.result()


@dataclass(slots=True, kw_only=True)
class _RatioSums:
    """Sums over the pieces so far."""

    clip: tuple[float, float] | None
    dual_clip: float | None
    rate: float
    log_ratio: Column = field(default_factory=Column)
    ratio: Column = field(default_factory=Column)
    advantages: Column = field(default_factory=Column)
    counts: Counter[str] = field(default_factory=Counter)
    k3: float = 0.0
    log_ratio_advantage: float = 0.0
    ratio_advantage: float = 0.0
    sampled: list[Floats] = field(default_factory=list)
    #: The seed is fixed, so that the same dump gives the same numbers.
    chance: np.random.Generator = field(default_factory=lambda: np.random.Generator(np.random.SFC64(7)))

    def add(self, new: Floats, old: Floats, advantages: Floats | None = None) -> None:
        d = np.subtract(new, old, dtype=np.float64)
        a = None if advantages is None else advantages.astype(np.float64, copy=False)
        finite = np.isfinite(d) if a is None else np.isfinite(d) & np.isfinite(a)
        if not finite.all():
            self.counts["nonfinite"] += len(d) - int(np.count_nonzero(finite))
            d, a = d[finite], None if a is None else a[finite]
        if not len(d):
            return
        self._keep_some(d)
        r: Floats = np.exp(d)
        self.counts["one"] += int(np.count_nonzero(d == 0))
        self.k3 += _k3_sum(d, r)
        shifted_d, shifted_r = self.log_ratio.add(d), self.ratio.add(r)
        self._count_clipped(r, a)
        if a is not None:
            shifted_a = self.advantages.add(a)
            self.log_ratio_advantage += products(shifted_d, shifted_a)
            self.ratio_advantage += products(shifted_r, shifted_a)

    def _count_clipped(self, r: Floats, a: Floats | None) -> None:
        outside: dict[str, npt.NDArray[np.bool_]] = {}
        if self.clip is not None:
            outside = {"low": r < 1 - self.clip[0], "high": r > 1 + self.clip[1]}
        for side, there in outside.items():
            self.counts[side] += int(np.count_nonzero(there))
            if a is not None:
                acting = a < 0 if side == "low" else a > 0
                self.counts[f"effective_{side}"] += int(np.count_nonzero(there & acting))
        if self.dual_clip is not None and a is not None:
            self.counts["dual"] += int(np.count_nonzero((r > self.dual_clip) & (a < 0)))

    def _keep_some(self, d: Floats) -> None:
        if self.rate >= 1:
            self.sampled.append(d)
            return
        where = self.chance.integers(0, len(d), int(self.chance.binomial(len(d), self.rate)))
        self.sampled.append(d[where])

    def result(self) -> RatioStatistics:
        n, ratio, signed = self.log_ratio.count, self.ratio.summary(), self.advantages.count > 0
        ranked = np.sort(np.concatenate([np.empty(0), *self.sampled]))
        return RatioStatistics(
            samples=n,
            nonfinite=self.counts["nonfinite"],
            ratio=ratio,
            one_share=self._share("one"),
            distinct=int(np.count_nonzero(ranked[1:] != ranked[:-1])) + 1 if len(ranked) else 0,
            quantiles=_quantiles(ranked),
            k1=-self.log_ratio.mean,
            k2=self.log_ratio.mean_square / 2,
            k3=self.k3 / n if n else math.nan,
            ess=_effective_share(ratio),
            deviations=_deviations(ratio),
            clipped_low=self._share("low", known=self.clip is not None),
            clipped_high=self._share("high", known=self.clip is not None),
            effective_low=self._share("effective_low", known=self.clip is not None and signed),
            effective_high=self._share("effective_high", known=self.clip is not None and signed),
            dual=self._share("dual", known=self.dual_clip is not None and signed),
            gain=self._gain() if signed else math.nan,
            advantage_corr=self.log_ratio.correlation(self.advantages, self.log_ratio_advantage),
        )

    def _share(self, name: str, *, known: bool = True) -> float:
        return self.counts[name] / self.log_ratio.count if known and self.log_ratio.count else math.nan

    def _gain(self) -> float:
        """Return mean(r A) - mean(A): what the unclipped surrogate gained since r was 1."""
        covariance = self.ratio.covariance(self.advantages, self.ratio_advantage)
        return covariance + (self.ratio.mean - 1) * self.advantages.mean


def _effective_share(ratio: Summary) -> float:
    """Return (sum r)^2 / (n sum r^2), by the coefficient of variation, whose squares do not overflow.

    NaN for ratios whose squares are too large or too small for float64.
    """
    known = ratio.mean > SMALLEST_SQUARED and math.isfinite(ratio.mean) and math.isfinite(ratio.std)
    variation = ratio.std / ratio.mean if known else math.nan
    return 1 / (1 + variation * variation)


def _deviations(ratio: Summary) -> float:
    """Return |mean(r) - 1| over its standard error; 0 where every ratio is 1."""
    if not ratio.count:
        return math.nan
    error = ratio.std / math.sqrt(ratio.count)
    off = abs(ratio.mean - 1)
    if error == 0:
        return 0.0 if off == 0 else math.inf
    return off / error


def _k3_sum(d: Floats, r: Floats) -> float:
    """Return the sum of r - 1 - log r, as a difference of sums where that keeps enough digits."""
    total = float(r.sum()) - len(d) - float(d.sum())
    return total if not total < CANCELS * len(d) else float(k3_of(d, r).sum())


def k3_of(d: Floats, r: Floats) -> Floats:
    """Return r - 1 - log r for log-ratios `d` and their exponentials, by the Taylor series for |d| < 0.01."""
    inner: Floats = 1 / 2 + d * (1 / 6 + d * (1 / 24 + d * (1 / 120 + d * (1 / 720 + d / 5040))))
    return np.where(np.abs(d) < SMALL, d * d * inner, r - 1 - d)


def _quantiles(ranked: Floats) -> dict[float, float]:
    """Return quantiles of the ratio, which are the exponentials of those of its sorted logarithms.

    Between two samples they are interpolated linearly (Hyndman and Fan 1996, definition 7).
    """
    if not len(ranked):
        return dict.fromkeys(QUANTILES, math.nan)
    places = np.array(QUANTILES) * (len(ranked) - 1)
    whole = np.floor(places).astype(np.int64)
    low, high = ranked[whole], ranked[np.minimum(whole + 1, len(ranked) - 1)]
    return dict(zip(QUANTILES, np.exp(low + (high - low) * (places - whole)).tolist(), strict=True))
