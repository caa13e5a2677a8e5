"""What training scripts hand over as numbers and settings, as JSON holds it: NumPy's scalars, lists, nested objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ppo_doctor.record import measures
from ppo_doctor.record.kinds import Tensor

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
