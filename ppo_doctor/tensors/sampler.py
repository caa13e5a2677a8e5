"""Does the sampler move on? Its log-probs of equal tokens after equal prefixes, from one update to a later one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.repeats import HEAD, head, prefixes

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.batches import Batch
    from ppo_doctor.tensors.cells import Cells
    from ppo_doctor.tensors.tensor import Tensor

#: Fewer tokens that two updates have in common do not tell a change.
LEAST_COMMON = 8
#: Tokens of an update that are kept.
MOST_KEPT = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Said:
    """What the sampler said of tokens: `keys` are equal for equal tokens after equal prefixes, `values` in nats."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float64]


def said(batch: Batch, cells: Cells | None, mask: Tensor | None) -> Said | None:
    """Return the sampler's log-probs in the first epoch by prompt and tokens; None where the dump lacks any of these.

    The old log-probs are the sampler's where no others are there.
    """
    sampler, tokens, prompt = batch.get("rollout_log_prob", "old_log_prob"), batch.get("tokens"), batch.prompt
    if sampler is None or tokens is None or prompt is None or len(sampler.shape) != 2 or not sampler.shape[1]:
        return None
    if tokens.shape != sampler.shape or not prompt.shape or prompt.shape[0] != sampler.shape[0]:
        return None
    rows = min(sampler.shape[0], max(1, HEAD // max(sampler.shape[1], math.prod(prompt.shape[1:]))))
    values = head(sampler, rows)
    keep = np.isfinite(values)
    if mask is not None and mask.shape == sampler.shape:
        keep &= head(mask, rows) != 0
    if cells is not None and len(cells.epochs) == sampler.shape[0]:
        keep &= (cells.epochs[:rows] == cells.epochs.min())[:, None]
    keys = prefixes(head(tokens, rows), _numbered(head(prompt, rows)))
    return _bounded(keys[keep], values[keep])


def _numbered(prompt: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return one number per row for prompts that are told by one, or by their tokens."""
    if prompt.ndim == 1:
        return prompt
    flat = prompt.reshape(len(prompt), -1)
    return (prefixes(flat, np.zeros(len(flat)))[:, -1] >> np.uint64(12)).astype(np.float64)  # which it holds exactly


def _bounded(keys: npt.NDArray[np.uint64], values: npt.NDArray[np.float64]) -> Said:
    """Keep each key once; those with the smallest keys, so that two updates keep the same ones."""
    kept, first = np.unique(keys, return_index=True)
    return Said(keys=kept[:MOST_KEPT], values=values[first[:MOST_KEPT]])


def joined(parts: Sequence[Said]) -> Said:
    """Return what the sampler said in several files of one update."""
    return _bounded(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]))


def moved(earlier: Said, later: Said) -> float:
    """Return the root mean square of the change of log-probs of common tokens, in nats; NaN where they are few."""
    _, at, there = np.intersect1d(earlier.keys, later.keys, assume_unique=True, return_indices=True)
    if len(at) < LEAST_COMMON:
        return math.nan
    return float(np.sqrt(np.mean((later.values[there] - earlier.values[at]) ** 2)))
