"""Compare two passes over the same tokens at the same weights; the pattern of differences shows the cause."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps.batches import chosen, places, spread_rows
from ppo_doctor.runs.dumps.moments import Column, describe, kept_pieces, products
from ppo_doctor.runs.dumps.same_tokens import repeat_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from ppo_doctor.runs.dumps.batches import Batch, Cells

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


#: Fewer pairs do not tell a pattern.
LEAST_PAIRS = 50
#: Rows whose masks are read to find their padding.
MOST_ROWS = 1 << 22

Pair = tuple[Tensor, Tensor, Tensor | None]


def of_passes(batch: Batch, cells: Cells | None, mask: Tensor | None, *, single_update: bool) -> dict[str, float]:
    """Return how the passes of a dump that were made at the same weights differ.

    The trainer's two passes are new and old log-probs of the first minibatch, or of all where a batch is trained on
    once; the sampler's are held against the trainer's at the start. The pattern is that of the pair that differs more.
    """
    found: dict[str, float] = {}
    pairs: list[tuple[float, Passes, Pair]] = []
    for name, pair in (("start", _start(batch, cells, mask, single_update)), ("sampler", _sampler(batch, cells, mask))):
        if pair is None:
            continue
        passes = _compared(batch, pair)
        if name == "start" and math.isnan(passes.least_padded):
            passes = _padded(batch, cells, mask, passes)
        if passes.samples:
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


def _start(batch: Batch, cells: Cells | None, mask: Tensor | None, single_update: bool) -> Pair | None:
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    if new is None or old is None or (cells is None and not single_update):
        return None
    if cells is None or single_update:
        return new, old, mask
    keep = chosen(new, cells.first, mask)
    return None if keep is None else (new, old, keep)


def _sampler(batch: Batch, cells: Cells | None, mask: Tensor | None) -> Pair | None:
    """Return the pair in one epoch: later ones hold the same samples again, and would make noise look like a rule."""
    trainer, sampler = batch.get("old_log_prob"), batch.get("rollout_log_prob")
    if trainer is None or sampler is None:
        return None
    keep = mask if cells is None else chosen(trainer, cells.epochs == cells.epochs.min(), mask)
    return trainer, sampler, keep


def _compared(batch: Batch, pair: Pair) -> Passes:
    one, other, mask = pair
    if len(one.shape) != 2 or one.shape[1] < 2:
        return compare_passes(one, other, mask=mask)
    return compare_passes(one, other, mask=mask, padding=padding_of(batch, one), position=places(one))


def _padded(batch: Batch, cells: Cells | None, mask: Tensor | None, passes: Passes) -> Passes:
    """Return what the first minibatch says, its padding as the first epoch tells it.

    A minibatch may hold too few amounts of padding. Steps within the epoch add to |d| at all of them.
    """
    new, old = batch.get("log_prob"), batch.get("old_log_prob")
    if new is None or old is None or cells is None or not passes.std > 0:
        return passes
    keep = chosen(new, cells.epochs == 0, mask)
    if keep is None:
        return passes
    whole = _compared(batch, (new, old, keep))
    return replace(passes, padding=whole.padding, least_padded=whole.least_padded)


def _pattern(passes: Passes) -> dict[str, float]:
    moved = passes.above + passes.below
    rounding = passes.rounding
    return {
        "passes_over_rounding": passes.std / rounding if rounding > 0 else math.nan,
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
    """Return how equal tokens after equal prefixes differ; `cells` where the pair is that of the first minibatch.

    One in which too few tokens repeat leaves it to the first epoch, whose minibatches have weights of their own each:
    only tokens of one of them are held against each other.
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

    That before the prompt where the attention mask or the prompts' lengths tell it, else that behind the completion.
    """
    rows = base.shape[0]
    if rows > MOST_ROWS:
        return None
    attention, lengths, mask = batch.get("attention_mask"), batch.get("prompt_lengths"), batch.get("mask")
    if attention is not None and len(attention.shape) == 2 and attention.shape[0] == rows:
        counts = _leading(attention)
    elif lengths is not None and lengths.size == rows:
        held = lengths.values()
        counts = held.max() - held
    elif mask is not None and mask.shape == base.shape:
        counts = base.shape[1] - np.concatenate([(block != 0).sum(axis=1) for block in _rows(mask)])
    else:
        return None
    return spread_rows(counts.astype(np.float32), base) if counts.min() < counts.max() else None


def _rows(tensor: Tensor) -> list[np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    width = tensor.shape[1]
    step = max(1, (1 << 18) // max(width, 1))
    return [(piece != 0).reshape(-1, width) for piece in tensor.chunks(step * width)]


def _leading(mask: Tensor) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many zeros stand before the first 1 of each row."""
    return np.concatenate([np.where(rows.any(axis=1), rows.argmax(axis=1), rows.shape[1]) for rows in _rows(mask)])


def of_versions(batch: Batch, scalars: dict[str, int]) -> dict[str, float]:
    """Return how many versions lie between the policy that sampled and the one that is trained, on average."""
    sampled, trained = batch.get("version"), batch.get("trained_version")
    now = scalars.get("trained_version") if trained is None else describe(trained).high
    then = scalars.get("version") if sampled is None else describe(sampled).mean
    return {} if now is None or then is None else {"policy_lag": float(now) - float(then)}


def of_kept_mass(batch: Batch, mask: Tensor | None) -> dict[str, float]:
    """Return the mean probability mass that the sampler left to choose from (top-p, top-k)."""
    kept = batch.get("kept_mass")
    if kept is None:
        return {}
    usable = mask if mask is not None and mask.size == kept.size else None
    summary = describe(kept, usable)
    return {"kept_mass_mean": summary.mean} if summary.count else {}
