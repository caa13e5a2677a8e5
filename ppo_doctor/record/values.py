"""Values that training scripts pass: numbers, settings, and arrays that stay on their devices during an update."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ppo_doctor.record import measures
from ppo_doctor.record.measures import Array, Tensor, is_torch

#: Deeper settings, and longer texts and lists, say nothing about a run.
DEEPEST, LONGEST = 8, 1_000


def scalar(value: object) -> Any:  # noqa: ANN401 - whatever the script counts in
    """Return a scalar of NumPy or torch as the number of Python that it holds, anything else as it is."""
    held = getattr(value, "item", None)
    return held() if callable(held) and getattr(value, "size", 1) != 0 else value


def number(value: object) -> float:
    """Return a finite number of Python.

    Raises:
        TypeError, ValueError, OverflowError: it is none.
    """
    held = scalar(value)
    if not isinstance(held, int | float) or not math.isfinite(held):
        raise TypeError(f"{held!r} is no finite number")
    return held


def average(value: Tensor) -> Tensor:
    """Return a number as it is, and the mean of an array or a list, where it is."""
    held = np.asarray(value, np.float64) if isinstance(value, list | tuple) else value
    return measures.plain(held).mean() if getattr(held, "shape", ()) else held


def is_empty(value: object) -> bool:
    """Tell whether an array holds nothing, as the returns of a window in which no episode ended."""
    return 0 in getattr(value, "shape", ()) or (isinstance(value, list | tuple) and not value)


def count(value: object) -> int:
    """Return a whole number of at least 1, and 1 for what is none."""
    try:
        return max(int(value), 1)  # type: ignore[call-overload, no-any-return]
    except Exception:  # noqa: BLE001 - what a stranger's object raises there may be anything
        return 1


def settings(config: object) -> dict[str, Any]:
    """Return settings of a mapping, or of the attributes of an object such as argparse's, as JSON holds them.

    Nested ones keep their form. What is neither a number, a text nor a list of these is left out.
    """
    held = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    found = {str(name): _setting(value, 0) for name, value in held.items()}
    return {name: value for name, value in found.items() if value is not _NOTHING}


_NOTHING = object()


def _setting(value: object, depth: int) -> Any:  # noqa: ANN401 - JSON is anything
    if getattr(value, "shape", None) == ():
        value = scalar(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return str(value)[:LONGEST]
    if depth >= DEEPEST:
        return _NOTHING
    if isinstance(value, Mapping):
        inner = {str(name): _setting(each, depth + 1) for name, each in value.items()}
        return {name: each for name, each in inner.items() if each is not _NOTHING}
    if isinstance(value, list | tuple) and len(value) <= LONGEST:
        listed = [_setting(each, depth + 1) for each in value]
        return [each for each in listed if each is not _NOTHING]
    return _NOTHING


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


#: Numbers that are none → the words that most readers of JSON take for them.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON, which knows neither NaN nor infinity: they stand as words in it."""
    words = {name: _WORDS[str(value)] for name, value in record.items() if _is_none(value)}
    return (json.dumps({**record, **words}, allow_nan=False) + "\n").encode()


def _is_none(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
