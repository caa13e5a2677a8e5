"""Do old and new log-probs belong to the same samples? Their correlation at other offsets tells."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.tensor import Tensor

    Floats = npt.NDArray[np.float64]

#: Elements at the head of a dump that are looked at.
HEAD = 1 << 18
#: Fewer pairs do not tell a correlation: its standard error would be above 0.071.
LEAST_PAIRS = 200
#: Offsets: neighbouring tokens, and usual numbers of environments whose rows alternate.
OFFSETS = (1, 2, 3, 4, 8, 16, 32, 64, 128)


def shift_gain(new: Tensor, old: Tensor, mask: Tensor | None = None) -> tuple[float, int] | None:
    """Return by how much the correlation of new and old log-probs is larger at another offset, and that offset.

    At most 0 where they agree best as they are. None for fewer than LEAST_PAIRS pairs, or where one does not vary.
    Offset k means that new[i] goes with old[i + k].
    """
    columns = _head(new), _head(old), None if mask is None else _head(mask) != 0
    here = _correlation(*columns, 0)
    if math.isnan(here):
        return None
    length = new.shape[-1] if len(new.shape) > 1 else new.size
    offsets = [k for size in OFFSETS if size < length for k in (size, -size)]
    there = [(found, k) for k in offsets if not math.isnan(found := _correlation(*columns, k))]
    best, offset = max(there, default=(math.nan, 0))
    return (best - here, offset) if there else None


def _head(tensor: Tensor) -> Floats:
    first = next(chain(tensor.chunks(HEAD), [np.empty(0)]))
    return first.astype(np.float64)


def _correlation(new: Floats, old: Floats, keep: npt.NDArray[np.bool_] | None, offset: int) -> float:
    size = len(new) - abs(offset)
    if size < LEAST_PAIRS:
        return math.nan
    at, to = max(0, -offset), max(0, offset)
    one, other = new[at : at + size], old[to : to + size]
    usable = np.isfinite(one) & np.isfinite(other)
    if keep is not None:
        usable &= keep[at : at + size] & keep[to : to + size]
    one, other = one[usable], other[usable]
    if len(one) < LEAST_PAIRS or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])
