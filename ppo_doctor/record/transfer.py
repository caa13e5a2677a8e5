"""Carries what an update left on devices to the host, in one transfer per device."""

from __future__ import annotations

import math
import sys
from collections import defaultdict

import numpy as np

from ppo_doctor.record.kinds import Array, Tensor
from ppo_doctor.record.measures import is_torch


class Parcel:
    """Rows by topic, left where they were computed until they are fetched."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, topic: str, row: Tensor) -> None:
        """Keep one row (a vector, a scalar, or a number).

        Raises:
            TypeError, ValueError, OverflowError: it holds what is no number, or not as many as the topic's other rows.
        """
        kept = row if _elsewhere(row) else here(row)
        held = self._rows.get(topic)
        if held and math.prod(held[0].shape) != math.prod(kept.shape):
            raise ValueError(f"{topic} had {math.prod(held[0].shape)} numbers and has {math.prod(kept.shape)}")
        self._rows[topic].append(kept)

    def count(self, topic: str) -> int:
        """Return how many rows a topic holds."""
        return len(self._rows[topic]) if topic in self._rows else 0

    def fetch(self) -> dict[str, Array]:
        """Return an array of shape [rows, columns] per topic, and forget the rows."""
        waiting = [(topic, place, row) for topic, rows in self._rows.items() for place, row in enumerate(rows)]
        found = {(topic, place): here(row).reshape(-1) for topic, place, row in waiting if not is_torch(row)}
        by_device: dict[object, list[tuple[str, int, Tensor]]] = defaultdict(list)
        for topic, place, row in waiting:
            if is_torch(row):
                by_device[row.device].append((topic, place, row.detach().reshape(-1)))
        for group in by_device.values():
            found |= _brought(group)
        result = {topic: np.stack([found[topic, n] for n in range(len(rows))]) for topic, rows in self._rows.items()}
        self._rows.clear()
        return result


def _elsewhere(row: Tensor) -> bool:
    """Return whether a row may be on a device: looking at it now would make the host wait."""
    return hasattr(row, "shape") and not isinstance(row, np.ndarray | np.generic)


def here(array: Tensor) -> Array:
    """Return an array on the host, in float64."""
    return np.asarray(array.cpu() if is_torch(array) else array, dtype=np.float64)


def _brought(group: list[tuple[str, int, Tensor]]) -> dict[tuple[str, int], Array]:
    """Return the rows of one device after a single copy."""
    torch = sys.modules["torch"]
    flat = torch.cat([row.float() for _, _, row in group]).cpu().numpy().astype(np.float64)
    ends = np.cumsum([len(row) for _, _, row in group])
    return {key[:2]: part for key, part in zip(group, np.split(flat, ends[:-1]), strict=True)}
