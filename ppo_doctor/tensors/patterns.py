"""What a dump says of log-probs that should agree: of sampler and trainer, and of two passes before any step."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.cells import chosen, places, spread_rows
from ppo_doctor.tensors.moments import describe
from ppo_doctor.tensors.passes import Passes, compare_passes
from ppo_doctor.tensors.repeats import repeat_share
from ppo_doctor.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ppo_doctor.tensors.batches import Batch
    from ppo_doctor.tensors.cells import Cells

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
        held = np.concatenate([piece.astype(np.float64) for piece in lengths.chunks()])
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
