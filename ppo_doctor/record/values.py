"""Convert values that training scripts pass: numbers, settings, and arrays that stay on their device in an update."""

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

#: Deepest nesting of settings that is kept, and longest text and list.
DEEPEST, LONGEST = 8, 1_000


def scalar(value: object) -> Any:  # noqa: ANN401 - any type
    """Return a scalar of NumPy or torch as a Python number, anything else unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "size", 1) != 0 else value


def number(value: object) -> float:
    """Return a value as a finite Python number.

    Raises:
        TypeError, ValueError, OverflowError: the value is no finite number.
    """
    converted = scalar(value)
    if not isinstance(converted, int | float) or not math.isfinite(converted):
        raise TypeError(f"{converted!r} is no finite number")
    return converted


def average(value: Tensor) -> Tensor:
    """Return the mean of an array (on its device) or a list, and a number unchanged."""
    array = np.asarray(value, np.float64) if isinstance(value, list | tuple) else value
    return measures.plain(array).mean() if getattr(array, "shape", ()) else array


def is_empty(value: object) -> bool:
    """Return whether an array is empty, such as the returns if no episode ended."""
    return 0 in getattr(value, "shape", ()) or (isinstance(value, list | tuple) and not value)


def count(value: object) -> int:
    """Return a value as an integer of at least 1, and 1 if it is no number."""
    try:
        return max(int(value), 1)  # type: ignore[call-overload, no-any-return]
    except Exception:  # noqa: BLE001 - objects of other libraries may raise anything
        return 1


def settings(config: object) -> dict[str, Any]:
    """Return the settings in a mapping, or in the attributes of an object such as argparse's, as values for JSON.

    Nested mappings are kept. Values other than numbers, texts, and lists of these are left out.
    """
    raw = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    converted = {str(name): _setting(value, 0) for name, value in raw.items()}
    return {name: value for name, value in converted.items() if value is not _NOTHING}


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
    """Rows by topic, which stay on their devices until they are fetched."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, topic: str, row: Tensor) -> None:
        """Add one row (a vector, a scalar, or a number).

        Raises:
            TypeError, ValueError, OverflowError: the row is not numeric, or not as long as others of its topic.
        """
        added = row if _elsewhere(row) else here(row)
        rows = self._rows.get(topic)
        if rows and math.prod(rows[0].shape) != math.prod(added.shape):
            raise ValueError(f"{topic} had {math.prod(rows[0].shape)} numbers and has {math.prod(added.shape)}")
        self._rows[topic].append(added)

    def count(self, topic: str) -> int:
        """Return the number of rows of a topic."""
        return len(self._rows[topic]) if topic in self._rows else 0

    def fetch(self) -> dict[str, Array]:
        """Return an array of shape [rows, columns] for each topic, and remove the rows."""
        waiting = [(topic, place, row) for topic, rows in self._rows.items() for place, row in enumerate(rows)]
        fetched = {(topic, place): here(row).reshape(-1) for topic, place, row in waiting if not is_torch(row)}
        by_device: dict[object, list[tuple[str, int, Tensor]]] = defaultdict(list)
        for topic, place, row in waiting:
            if is_torch(row):
                by_device[row.device].append((topic, place, row.detach().reshape(-1)))
        for group in by_device.values():
            fetched |= _copied(group)
        result = {topic: np.stack([fetched[topic, n] for n in range(len(rows))]) for topic, rows in self._rows.items()}
        self._rows.clear()
        return result


def _elsewhere(row: Tensor) -> bool:
    """Return whether a row may be on a device, where reading it would make the host wait."""
    return hasattr(row, "shape") and not isinstance(row, np.ndarray | np.generic)


def here(array: Tensor) -> Array:
    """Return an array on the host in float64."""
    return np.asarray(array.cpu() if is_torch(array) else array, dtype=np.float64)


def _copied(group: list[tuple[str, int, Tensor]]) -> dict[tuple[str, int], Array]:
    """Return the rows of one device on the host, copied together."""
    torch = sys.modules["torch"]
    flat = torch.cat([row.float() for _, _, row in group]).cpu().numpy().astype(np.float64)
    ends = np.cumsum([len(row) for _, _, row in group])
    return {key[:2]: part for key, part in zip(group, np.split(flat, ends[:-1]), strict=True)}


#: Non-finite numbers → words that most readers of JSON accept for them.
_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON with NaN and infinity as words, which JSON numbers cannot express."""
    words = {name: _WORDS[str(value)] for name, value in record.items() if _is_nonfinite(value)}
    return (json.dumps({**record, **words}, allow_nan=False) + "\n").encode()


def _is_nonfinite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
