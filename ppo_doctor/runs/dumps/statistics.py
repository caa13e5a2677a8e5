"""Statistics of the ratio in one pass over new and old log-probs, and the KL of each minibatch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.run import Note
from ppo_doctor.runs.dumps.moments import Column, Summary, Widened, kept_pieces, products
from ppo_doctor.runs.dumps.same_tokens import SamplerLogProbs

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Tensor
    from ppo_doctor.runs.dumps.batches import Cells

    Floats = npt.NDArray[np.float64]

#: Quantiles and distinct values are taken from a random sample of about this many
#: elements. The rank of a quantile is then off by at most 0.0042 (three standard errors); below it they are exact.
SAMPLE = 1 << 17
QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
#: Log-ratios within this of 0 take k3 from its series, whose first omitted term is 1e-13 of the sum there.
SMALL = 0.01
#: A mean k3 of a piece below this is computed sample by sample: its difference of sums would lose digits.
CANCELS = 1e-5
#: Squares of ratios below this are too near to the smallest float64 to keep their digits.
SMALLEST_SQUARED = 1e-140


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioStatistics:
    """The importance ratio r = exp(new - old) over the samples in the loss; shares are fractions of these.

    `k1`, `k2`, `k3` estimate KL(old || new) from samples of old, in nats (Schulman 2020): -log r, (log r)^2/2 and
    r - 1 - log r. `ess` is (sum r)^2 / (n sum r^2), a fraction. `clipped_low` and `clipped_high` count ratios outside
    the range on either side, `effective_low` and `effective_high` only those that the clip acts on: advantages below
    0, or above. `dual` counts ratios above the dual-clip bound with a negative advantage. `gain` is
    mean(r A) - mean(A), `advantage_corr` the correlation of log r with A. `deviations` is |mean(r) - 1| in standard
    errors. NaN stands for what cannot be told.
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
    effective_low: float = math.nan
    effective_high: float = math.nan
    dual: float = math.nan
    gain: float = math.nan
    advantage_corr: float = math.nan


def ratio_statistics(
    new: Tensor,
    old: Tensor,
    *,
    mask: Tensor | None = None,
    advantages: Tensor | None = None,
    clip: tuple[float, float] | None = None,
    dual_clip: float | None = None,
) -> RatioStatistics:
    """Return the statistics of the ratio of two tensors of log-probs of one size, in bounded memory.

    `clip` is the range around 1 as (below, above), such as (0.2, 0.2). Samples whose log-ratio or advantage is NaN or
    infinite are counted and left out.

    Raises:
        ValueError: the sizes differ.
    """
    gathered = _Gathered(clip=clip, dual_clip=dual_clip, rate=min(1.0, SAMPLE / max(new.size, 1)))
    tensors = (new, old) if advantages is None else (new, old, advantages)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        for pieces in kept_pieces(tensors, mask):
            gathered.add(*pieces)
        return gathered.result()


def _ends(values: Floats) -> tuple[float, float]:
    """Return the least and the largest of some values, NaN where one of them is."""
    return float(values.min()), float(values.max())


@dataclass(frozen=True, slots=True)
class _Advantages:
    """A piece of advantages with its extremes."""

    values: Floats
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> _Advantages:
        return cls(values, *(_ends(values) if len(values) else (math.nan, math.nan)))

    @property
    def finite(self) -> bool:
        return math.isfinite(self.high - self.low)


def _no_counts() -> dict[str, int]:
    return dict.fromkeys(("one", "low", "high", "effective_low", "effective_high", "dual"), 0)


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """Sums so far."""

    clip: tuple[float, float] | None
    dual_clip: float | None
    rate: float
    log_ratio: Column = field(default_factory=Column)
    ratio: Column = field(default_factory=Column)
    advantages: Column = field(default_factory=Column)
    counts: dict[str, int] = field(default_factory=_no_counts)
    nonfinite: int = 0
    k3: float = 0.0
    log_ratio_advantage: float = 0.0
    ratio_advantage: float = 0.0
    wide: tuple[Widened, ...] = field(default_factory=lambda: tuple(Widened() for _ in range(3)))
    sampled: list[Floats] = field(default_factory=list)
    #: a fixed seed: the same dump gives the same numbers
    chance: np.random.Generator = field(default_factory=lambda: np.random.Generator(np.random.SFC64(7)))

    def add(self, new: Floats, old: Floats, advantages: Floats | None = None) -> None:
        d, old = self.wide[0](new), self.wide[1](old)
        np.subtract(d, old, out=d)
        low, high = _ends(d)
        a = None if advantages is None else _Advantages.of(self.wide[2](advantages))
        if not math.isfinite(high - low) or not (a is None or a.finite):
            finite = np.isfinite(d) if a is None else np.isfinite(d) & np.isfinite(a.values)
            self.nonfinite += len(d) - int(np.count_nonzero(finite))
            d, old = d[finite], old[finite]
            a = None if a is None else _Advantages.of(a.values[finite])
            if not len(d):
                return
            low, high = _ends(d)
        self._keep_some(d)
        self._add_finite(d, old, a, low, high)

    def _add_finite(self, d: Floats, old: Floats, a: _Advantages | None, low: float, high: float) -> None:
        r: Floats = np.exp(d, out=old)  # whose memory is in the cache, and which is not needed any more
        if not self.ratio.count and abs(float(r.mean()) - 1) <= float(r.std()) < 1:
            self.ratio.shift = 1.0  # so that its sums hold r - 1, as k3 needs it
        self._count_clipped(r, a, low, high)
        before = self.log_ratio.total, self.ratio.total
        shifted_d = self.log_ratio.add(d, low=low, high=high)
        shifted_r = self.ratio.add(r, low=math.nan, high=math.nan, in_place=True)
        sum_d = self.log_ratio.total - before[0] + len(d) * self.log_ratio.shift
        sum_r = self.ratio.total - before[1] + len(d) * (self.ratio.shift - 1)
        self.k3 += _k3(d, sum_r - sum_d, low, high)
        self.counts["one"] += int(np.count_nonzero(d == 0)) if low <= 0 <= high else 0
        if a is not None:
            shifted_a = self.advantages.add(a.values, low=a.low, high=a.high)
            self.log_ratio_advantage += products(shifted_d, shifted_a)
            self.ratio_advantage += products(shifted_r, shifted_a)

    def _count_clipped(self, r: Floats, a: _Advantages | None, low: float, high: float) -> None:
        """Count ratios outside the range; a piece that stays within it costs nothing."""
        if self.clip is not None:
            below, above = 1 - self.clip[0], 1 + self.clip[1]
            if _exp(low) <= below:
                self._count("low", r < below, None if a is None else a.values < 0)
            if _exp(high) >= above:
                self._count("high", r > above, None if a is None else a.values > 0)
        if self.dual_clip is not None and a is not None and _exp(high) >= self.dual_clip:
            self.counts["dual"] += int(np.count_nonzero((r > self.dual_clip) & (a.values < 0)))

    def _count(self, side: str, outside: npt.NDArray[np.bool_], acting: npt.NDArray[np.bool_] | None) -> None:
        self.counts[side] += int(np.count_nonzero(outside))
        if acting is not None:
            self.counts[f"effective_{side}"] += int(np.count_nonzero(outside & acting))

    def _keep_some(self, d: Floats) -> None:
        if self.rate >= 1:
            self.sampled.append(d.copy())
            return
        where = self.chance.integers(0, len(d), int(self.chance.binomial(len(d), self.rate)))
        self.sampled.append(d[where])

    def result(self) -> RatioStatistics:
        n, counts = self.log_ratio.count, self.counts
        share = {name: count / n if n else math.nan for name, count in counts.items()}
        unknown = dict.fromkeys(share, math.nan)
        clipped = share if self.clip is not None else unknown
        acting = clipped if self.advantages.count else unknown
        ranked = np.sort(np.concatenate([np.empty(0), *self.sampled]))
        return RatioStatistics(
            samples=n,
            nonfinite=self.nonfinite,
            ratio=self._ratio(),
            one_share=share["one"],
            distinct=_distinct(ranked),
            quantiles=_quantiles(ranked),
            k1=-self.log_ratio.mean,
            k2=self.log_ratio.mean_square / 2,
            k3=self.k3 / n if n else math.nan,
            ess=self._ess(),
            deviations=self._deviations(),
            clipped_low=clipped["low"],
            clipped_high=clipped["high"],
            effective_low=acting["effective_low"],
            effective_high=acting["effective_high"],
            dual=share["dual"] if self.dual_clip is not None and self.advantages.count else math.nan,
            gain=self._gain(),
            advantage_corr=self.log_ratio.correlation(self.advantages, self.log_ratio_advantage)
            if self.advantages.count
            else math.nan,
        )

    def _ratio(self) -> Summary:
        column = self.ratio
        low, high = _exp(self.log_ratio.low), _exp(self.log_ratio.high)
        return Summary(
            count=column.count,
            mean=math.inf if high == math.inf and column.count else column.mean,
            std=math.sqrt(self._ratio_variance()),
            low=low if column.count else math.nan,
            high=high if column.count else math.nan,
        )

    def _ratio_variance(self) -> float:
        if self.log_ratio.count and _exp(self.log_ratio.high) == math.inf:
            return math.inf
        if self.log_ratio.low == self.log_ratio.high:
            return 0.0
        spread = self.ratio.variance
        return math.inf if math.isnan(spread) and self.ratio.count else spread

    def _ess(self) -> float:
        """Return (sum r)^2 / (n sum r^2) by way of the coefficient of variation, whose squares do not overflow.

        Ratios whose squares leave what float64 holds exactly, at either end, give nan.
        """
        mean, std = self.ratio.mean, math.sqrt(self._ratio_variance())
        known = mean > SMALLEST_SQUARED and math.isfinite(mean) and math.isfinite(std)
        return 1 / (1 + (std / mean) * (std / mean)) if known else math.nan

    def _deviations(self) -> float:
        """Return |mean(r) - 1| over its standard error; 0 where every ratio is 1."""
        n = self.ratio.count
        off = abs(self.ratio.mean - 1) if n else math.nan
        error = math.sqrt(self._ratio_variance() / n) if n else math.nan
        if error == 0:
            return 0.0 if off == 0 else math.inf
        return off / error

    def _gain(self) -> float:
        """Return mean(r A) - mean(A): what the unclipped surrogate gained since r was 1."""
        if not self.advantages.count:
            return math.nan
        covariance = self.ratio.covariance(self.advantages, self.ratio_advantage)
        return covariance + (self.ratio.mean - 1) * self.advantages.mean


def _k3(d: Floats, total: float, low: float, high: float) -> float:
    """Return the sum of r - 1 - log r without the cancellation that plain float64 has near 0.

    `total` is the plain sum of r - 1 less that of log r, with which it agrees where that is large enough.
    """
    if low == high == 0:
        return 0.0
    if not total < CANCELS * len(d):
        return total
    if max(-low, high) < SMALL:
        return float(k3_series(d).sum())
    near = np.abs(d) < SMALL
    far = d[~near]
    return float(k3_series(d[near]).sum()) + float((np.expm1(far) - far).sum())


def k3_series(d: Floats) -> Floats:
    """Return exp(d) - 1 - d by its Taylor series, for |d| < 0.01."""
    inner: Floats = 1 / 2 + d * (1 / 6 + d * (1 / 24 + d * (1 / 120 + d * (1 / 720 + d / 5040))))
    return d * d * inner


def _exp(value: float) -> float:
    return math.exp(value) if value < 709.7 else float(np.exp(value))


def _distinct(ranked: Floats) -> int:
    return int(np.count_nonzero(ranked[1:] != ranked[:-1])) + 1 if len(ranked) else 0


def _quantiles(ranked: Floats) -> dict[float, float]:
    """Return quantiles of the ratio, which are the exponentials of those of its sorted logarithms.

    Between two samples they lie on a straight line (Hyndman and Fan 1996, definition 7).
    """
    if not len(ranked):
        return dict.fromkeys(QUANTILES, math.nan)
    places = np.array(QUANTILES) * (len(ranked) - 1)
    whole = np.floor(places).astype(np.int64)
    low, high = ranked[whole], ranked[np.minimum(whole + 1, len(ranked) - 1)]
    return dict(zip(QUANTILES, np.exp(low + (high - low) * (places - whole)).tolist(), strict=True))


#: Elements that are looked at at a time.
PIECE = 1 << 16
#: A KL below this (nats) is what float32 makes of equal log-probs.
LEAST_KL = 1e-8
#: Fewer minibatches do not tell a trend.
LEAST_CELLS = 6


@dataclass(frozen=True, slots=True)
class Kl:
    """Samples of one minibatch of one epoch, and their sum of k3 in nats."""

    count: int
    total: float

    @property
    def mean(self) -> float:
        """Return the mean KL, NaN without samples."""
        return self.total / self.count if self.count else math.nan


Cell = tuple[int, int]


def kl_by_cell(new: Tensor, old: Tensor, cells: Cells, mask: Tensor | None) -> dict[Cell, Kl]:
    """Return the KL of each (epoch, minibatch) of a dump, in one pass; pairs that are not finite are left out.

    `new`, `old` and `mask` have one size, their first axis is the rows that `cells` tells.
    """
    if not new.size or new.size != old.size or (mask is not None and mask.size != new.size):
        return {}
    rows = new.shape[0] if new.shape else 1
    totals, counts = _by_row(new, old, mask, rows)
    epochs, minibatches = (np.broadcast_to(ids, rows) for ids in (cells.epochs, cells.minibatches))
    pairs, place = np.unique(np.stack([epochs, minibatches]), axis=1, return_inverse=True)
    place = place.reshape(-1)
    sums = np.bincount(place, weights=totals, minlength=pairs.shape[1])
    sizes = np.bincount(place, weights=counts, minlength=pairs.shape[1])
    return {
        (int(epoch), int(minibatch)): Kl(int(size), float(total))
        for epoch, minibatch, size, total in zip(*pairs.tolist(), sizes.tolist(), sums.tolist(), strict=True)
        if size
    }


def _by_row(new: Tensor, old: Tensor, mask: Tensor | None, rows: int) -> tuple[Floats, Floats]:
    """Return the sum of k3 over each row, and how many of its samples are counted."""
    width = new.size // rows
    step = max(1, PIECE // width)
    totals, counts = np.zeros(rows), np.zeros(rows)
    kept = None if mask is None else mask.chunks(step * width)
    with np.errstate(over="ignore", invalid="ignore"):
        for at, (n, o) in enumerate(zip(new.chunks(step * width), old.chunks(step * width), strict=True)):
            d = n.astype(np.float64) - o
            usable = np.isfinite(d)
            if kept is not None:
                usable &= next(kept) != 0
            values = k3_of(np.where(usable, d, 0.0)).reshape(-1, width)
            here = slice(at * step, at * step + len(values))
            totals[here] = values.sum(axis=1)
            counts[here] = usable.reshape(-1, width).sum(axis=1)
    return totals, counts


def k3_of(d: Floats) -> Floats:
    """Return r - 1 - log r of log-ratios, one by one (Schulman 2020)."""
    return np.where(np.abs(d) < SMALL, k3_series(d), np.exp(d) - 1 - d)


def joined(parts: Iterable[Mapping[Cell, Kl]]) -> dict[Cell, Kl]:
    """Return the minibatches of several files of one update."""
    found: dict[Cell, Kl] = {}
    for part in parts:
        for cell, kl in part.items():
            before = found.get(cell, Kl(0, 0.0))
            found[cell] = Kl(before.count + kl.count, before.total + kl.total)
    return found


def growth(cells: Mapping[Cell, Kl]) -> dict[str, float]:
    """Return how KL grows through an update.

    `kl_first_epoch_share` is the KL of the first epoch over that of the last: optimizer steps make it small. A policy
    that is synced at every epoch, or noise, has 1. `kl_step_corr` is the correlation of the root of a minibatch's KL,
    which grows with the way gone, with the number of steps before it. Both are left out where nothing moves.
    """
    found: dict[str, float] = {}
    epochs = sorted({epoch for epoch, _ in cells})
    if len(epochs) > 1:
        first, last = (_pooled(cells, epoch) for epoch in (epochs[0], epochs[-1]))
        if math.isfinite(first) and LEAST_KL < last < math.inf:
            found["kl_first_epoch_share"] = first / last
    roots = np.sqrt([max(0.0, cells[cell].mean) for cell in sorted(cells)])
    if len(roots) >= LEAST_CELLS and np.isfinite(roots).all() and roots.max() ** 2 > LEAST_KL and np.ptp(roots) > 0:
        found["kl_step_corr"] = float(np.corrcoef(roots, np.arange(len(roots)))[0, 1])
    return found


def _pooled(cells: Mapping[Cell, Kl], epoch: int) -> float:
    held = [kl for (at, _), kl in cells.items() if at == epoch]
    return Kl(sum(kl.count for kl in held), math.fsum(kl.total for kl in held)).mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Canonical metrics of one record: a dump, or a pair of checkpoints; `step` is None where nothing tells it.

    `raw` says per metric of which tensors it was computed. Metrics that cannot be told are left out. `epoch` and
    `minibatch` are those of a dump that holds only one, `cells` counts those that it tells apart;
    `old` sums up the old log-probs of each epoch in it, `kls` the KL of each minibatch of an epoch; `sampler` holds the
    sampler's log-probs.
    """

    path: str
    container: str
    step: int | None
    values: Mapping[str, float]
    raw: Mapping[str, str]
    notes: tuple[Note, ...] = ()
    epoch: int | None = None
    minibatch: int | None = None
    cells: int | None = None
    old: Mapping[int, Summary] = field(default_factory=dict)
    kls: Mapping[Cell, Kl] = field(default_factory=dict)
    sampler: SamplerLogProbs | None = None


#: A number that stands alone, or behind a word that counts: dump_12, step12, but not bf16 or fp32.
_COUNTED = re.compile(
    r"(?:(?<![A-Za-z0-9.])|(?<=step)|(?<=update)|(?<=iter)|(?<=epoch)|(?<=dump)|(?<=ckpt))(\d+)", re.I
)


def number_in(path: str) -> int | None:
    """Return the last number in a file's name that counts something, or in that of its folder, if any."""
    file = Path(path)
    found = _COUNTED.findall(file.stem) or _COUNTED.findall(file.parent.name)
    return int(found[-1][:15]) if found else None
