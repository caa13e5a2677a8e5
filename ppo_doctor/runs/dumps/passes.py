"""How log-probs of two passes over the same tokens at the same weights differ; the pattern of differences shows why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps.batches import chosen, spread_rows
from ppo_doctor.runs.dumps.same_tokens import repeat_share
from ppo_doctor.runs.dumps.statistics import Column, kept_pieces, products

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from ppo_doctor.runs.dumps.batches import Batch, Cells

    Floats = npt.NDArray[np.float64]

#: A log-ratio beyond this (nats) counts as moved: above the noise of half precision for most tokens.
MOVED = 0.02
#: Fewer amounts of padding do not determine a line.
LEAST_LEVELS = 4
#: Fewer pairs do not show a pattern.
LEAST_PAIRS = 50
#: The padding of more rows than this is not computed.
MOST_ROWS = 1 << 22
#: Half a unit in the last place, relative. float64 counts as float32, from which it was often widened.
_HALF_ULP = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
_HALF_ULP_FLOAT32 = 2.0**-25
#: Equal numbers stay equal when both are stored in one type. Noise of size e changes the rounding of a share e/ulp of
#: them by one ulp, which leaves sqrt(e * ulp): the geometric mean of float32's half unit and the type's whole one.
_ONE_TYPE = {dtype: math.sqrt(_HALF_ULP_FLOAT32 * 2 * half) for dtype, half in _HALF_ULP.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """How log-probs of one pass differ from those of another over the same tokens; d is their difference in nats.

    `slope` is that of the first on the second, `slope_back` that of the second on the first: noise on either side makes
    both at most 1, a temperature makes one of them larger. `above` and `below` are the shares of tokens with d beyond
    MOVED nats, `rising` the share of positive d among those that are not 0. `rounding` is the root mean square that
    float32 arithmetic and storage alone would give d. `padding` and `position` correlate |d| with the padding of the
    row and the place in it; `least_padded` is the mean |d| of rows without padding over that of all, or an upper bound
    of it (see `unpadded`). NaN stands for what is unknown.
    """

    samples: int
    std: float
    correlation: float
    slope: float
    slope_back: float
    above: float
    below: float
    rising: float
    rounding: float
    padding: float
    position: float
    least_padded: float


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
    known = {"padding": padding, "position": position}
    extra = {name: tensor for name, tensor in known.items() if tensor is not None}
    sums = _Sums(names=tuple(extra))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for pieces in kept_pieces((one, other, *extra.values()), mask):
            sums.add(*pieces)
        relative = _ONE_TYPE if one.dtype == other.dtype else _HALF_ULP
        return sums.result(*(relative.get(tensor.dtype, _HALF_ULP_FLOAT32) for tensor in (one, other)))


@dataclass(slots=True, kw_only=True)
class _Sums:
    """Sums over the pieces so far; `names` says which of padding and position are known."""

    names: tuple[str, ...]
    one: Column = field(default_factory=Column)
    other: Column = field(default_factory=Column)
    gap: Column = field(default_factory=Column)
    size: Column = field(default_factory=Column)
    extra: tuple[Column, ...] = field(default_factory=lambda: (Column(), Column()))
    size_extra: list[float] = field(default_factory=lambda: [0.0, 0.0])
    levels: dict[float, tuple[int, float]] = field(default_factory=dict)
    one_other: float = 0.0
    above: int = 0
    below: int = 0
    positive: int = 0
    negative: int = 0

    def add(self, *pieces: Floats) -> None:
        x, y, *extra = (piece.astype(np.float64, copy=False) for piece in pieces)
        d = x - y
        finite = np.isfinite(d)
        if not finite.all():
            x, y, d, *extra = (values[finite] for values in (x, y, d, *extra))
        if not len(d):
            return
        self.one_other += products(self.one.add(x), self.other.add(y))
        self.gap.add(d)
        self.above += int(np.count_nonzero(d > MOVED))
        self.below += int(np.count_nonzero(d < -MOVED))
        self.positive += int(np.count_nonzero(d > 0))
        self.negative += int(np.count_nonzero(d < 0))
        size = np.abs(d)
        shifted = self.size.add(size)
        for at, (name, values) in enumerate(zip(self.names, extra, strict=True)):
            self.size_extra[at] += products(shifted, self.extra[at].add(values))
            if name == "padding":
                self._add_levels(size, values)

    def _add_levels(self, size: Floats, padding: Floats) -> None:
        """Add |d| to its amount of padding, which is the same for a whole row: rows are summed before the sorting."""
        starts = np.concatenate([[0], np.flatnonzero(np.diff(padding)) + 1])
        levels, place = np.unique(padding[starts], return_inverse=True)
        counts = np.bincount(place, weights=np.diff(starts, append=len(padding)))
        sums = np.bincount(place, weights=np.add.reduceat(size, starts))
        for level, count, total in zip(levels.tolist(), counts.tolist(), sums.tolist(), strict=True):
            before = self.levels.get(level, (0, 0.0))
            self.levels[level] = before[0] + int(count), before[1] + total

    def result(self, one_ulp: float, other_ulp: float) -> Passes:
        n = self.gap.count
        moved = self.positive + self.negative
        squares = (one_ulp**2 * self.one.mean_square + other_ulp**2 * self.other.mean_square) / 3
        correlations = {
            name: self.size.correlation(column, cross)
            for name, column, cross in zip(self.names, self.extra, self.size_extra, strict=False)
        }
        return Passes(
            samples=n,
            std=self.gap.std,
            correlation=self.one.correlation(self.other, self.one_other),
            slope=_slope(self.one, self.other, self.one_other),
            slope_back=_slope(self.other, self.one, self.one_other),
            above=self.above / n if n else math.nan,
            below=self.below / n if n else math.nan,
            rising=self.positive / moved if moved else math.nan,
            rounding=math.sqrt(squares),
            padding=correlations.get("padding", math.nan),
            position=correlations.get("position", math.nan),
            least_padded=unpadded(self.levels) / self.size.mean if self.size.mean > 0 else math.nan,
        )


def _slope(of: Column, on: Column, cross: float) -> float:
    return of.covariance(on, cross) / on.variance if on.variance > 0 else math.nan


def unpadded(levels: Mapping[float, tuple[int, float]]) -> float:
    """Return the mean |d| of rows without padding; `levels` holds count and sum of |d| of each amount of padding.

    If every row is padded: the height at 0 of the least-squares line through the means, plus one standard error of it.
    NaN if the amounts are too few or too similar to determine it.
    """
    if len(levels) < 2:
        return math.nan
    if 0.0 in levels:
        return levels[0.0][1] / levels[0.0][0]
    padding = np.array(sorted(levels))
    if len(levels) < LEAST_LEVELS or padding[0] > padding[-1] / 2:
        return math.nan
    counts, sums = np.array([levels[level] for level in padding.tolist()], np.float64).T
    means, weights = sums / counts, counts / counts.sum()
    centre = float(weights @ padding)
    spread = float(weights @ (padding - centre) ** 2)
    slope = float(weights @ ((padding - centre) * means)) / spread
    height = float(weights @ means) - slope * centre
    residual = float(weights @ (means - height - slope * padding) ** 2) / (len(levels) - 2)
    return height + math.sqrt(residual * (1 + centre**2 / spread))


Pair = tuple[Tensor, Tensor, Tensor | None]


def passes_metrics(batch: Batch, cells: Cells | None, mask: Tensor | None, *, single_update: bool) -> dict[str, float]:
    """Return how the passes of a dump that were made at the same weights differ.

    The trainer's two passes are new and old log-probs of the first minibatch, or of all minibatches if a batch is
    trained on once; the sampler's is compared with the trainer's old log-probs. The pattern is that of the pair that
    differs more.
    """
    found: dict[str, float] = {}
    pairs: list[tuple[float, Passes, Pair]] = []
    start, sampler = _start_pair(batch, cells, mask, single_update), _sampler_pair(batch, cells, mask)
    for name, pair in (("start", start), ("sampler", sampler)):
        passes = None if pair is None else _compared(batch, pair)
        if passes is None or pair is None or not passes.samples:
            continue
        if pair is start and math.isnan(passes.least_padded):
            passes = _with_padding_of_epoch(batch, cells, mask, passes)
        found[f"{name}_logratio_std"] = passes.std
        pairs.append((passes.std, passes, pair))
    if not pairs:
        return {}
    std, passes, pair = max(pairs, key=lambda entry: entry[0] if math.isfinite(entry[0]) else -1.0)
    found["passes_logratio_std"] = std
    if passes.samples < LEAST_PAIRS:
        return found
    of_start = found.get("sampler_logratio_std") != std
    return found | _pattern(passes) | _repeats(batch, pair, cells if of_start else None, mask)


def _start_pair(batch: Batch, cells: Cells | None, mask: Tensor | None, single_update: bool) -> Pair | None:
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    if new is None or old is None or (cells is None and not single_update):
        return None
    if cells is None or single_update:
        return new, old, mask
    keep = chosen(new, cells.first, mask)
    return None if keep is None else (new, old, keep)


def _sampler_pair(batch: Batch, cells: Cells | None, mask: Tensor | None) -> Pair | None:
    """Return the pair in the first epoch; later ones repeat the samples, which would make noise look systematic."""
    trainer, sampler = batch.get("old_log_prob"), batch.get("rollout_log_prob")
    if trainer is None or sampler is None:
        return None
    return trainer, sampler, mask if cells is None else chosen(trainer, cells.first_epoch, mask)


def _compared(batch: Batch, pair: Pair) -> Passes:
    one, other, mask = pair
    if len(one.shape) != 2 or one.shape[1] < 2:
        return compare_passes(one, other, mask=mask)
    places = Tensor.of("places", np.arange(one.shape[1], dtype=np.float32))
    position = replace(places, shape=one.shape, stride=(0, 1))
    return compare_passes(one, other, mask=mask, padding=padding_of(batch, one), position=position)


def _with_padding_of_epoch(batch: Batch, cells: Cells | None, mask: Tensor | None, passes: Passes) -> Passes:
    """Return what the first minibatch shows, with the effect of padding computed over the whole first epoch.

    A minibatch may hold too few amounts of padding. Steps within the epoch add to |d| at all of them.
    """
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    if new is None or old is None or cells is None or not passes.std > 0:
        return passes
    keep = chosen(new, cells.epochs == 0, mask)
    if keep is None:
        return passes
    epoch = _compared(batch, (new, old, keep))
    return replace(passes, padding=epoch.padding, least_padded=epoch.least_padded)


def _pattern(passes: Passes) -> dict[str, float]:
    moved = passes.above + passes.below
    return {
        "passes_over_rounding": passes.std / passes.rounding if passes.rounding > 0 else math.nan,
        "passes_correlation": passes.correlation,
        "passes_slope_excess": max(passes.slope, passes.slope_back) - 1,
        "passes_moved_share": moved,
        "passes_one_sided": abs(passes.above - passes.below) / moved if moved else math.nan,
        "passes_asymmetry": abs(2 * passes.rising - 1),
        "passes_padding_corr": passes.padding,
        "passes_least_padded": passes.least_padded,
        "passes_position_corr": passes.position,
    }


def _repeats(batch: Batch, pair: Pair, cells: Cells | None, mask: Tensor | None) -> dict[str, float]:
    """Return how equal tokens after equal prefixes differ; `cells` is given if the pair is that of the first minibatch.

    If too few tokens repeat in it, those of the whole first epoch are compared, within each minibatch, because the
    weights differ between minibatches.
    """
    tokens, group = batch.get("tokens"), batch.get("group")
    if tokens is None or group is None:
        return {}
    share = repeat_share(pair[0], pair[1], tokens, group, pair[2])
    if share is None and cells is not None and len(cells.minibatches) == group.size == pair[0].shape[0] > 1:
        keep = chosen(pair[0], cells.epochs == 0, mask)
        apart = np.unique(np.stack([group.array().ravel(), cells.minibatches]), axis=1, return_inverse=True)[1]
        share = None if keep is None else repeat_share(pair[0], pair[1], tokens, Tensor.of("group", apart), keep)
    return {} if share is None else {"passes_repeat_share": share}


def padding_of(batch: Batch, base: Tensor) -> Tensor | None:
    """Return for each token of `base`, of shape [rows, time], how many tokens of padding its row has.

    This is the padding before the prompt if the dump has an attention mask or prompt lengths, else that after the
    completion. None if it is unknown or all rows have the same.
    """
    rows = base.shape[0]
    if rows > MOST_ROWS:
        return None
    attention, lengths, mask = batch.get("attention_mask"), batch.get("prompt_lengths"), batch.get("mask")
    if attention is not None and len(attention.shape) == 2 and attention.shape[0] == rows:
        leading = (np.where(r.any(axis=1), r.argmax(axis=1), r.shape[1]) for r in _blocks_of_rows(attention))
        counts = np.concatenate(list(leading))
    elif lengths is not None and lengths.size == rows:
        counts = lengths.values().max() - lengths.values()
    elif mask is not None and mask.shape == base.shape:
        counts = base.shape[1] - np.concatenate([block.sum(axis=1) for block in _blocks_of_rows(mask)])
    else:
        return None
    return spread_rows(counts.astype(np.float32), base) if counts.min() < counts.max() else None


def _blocks_of_rows(mask: Tensor) -> Iterator[npt.NDArray[np.bool_]]:
    width = mask.shape[1]
    for piece in mask.chunks(max(1, (1 << 18) // max(width, 1)) * width):
        yield (piece != 0).reshape(-1, width)
