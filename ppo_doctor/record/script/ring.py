"""Remember which call computed which numbers, so that old log-probs are traced to where they come from by value."""

from __future__ import annotations

import array
import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_doctor.record.script.places import Stack

#: Largest tensor that is remembered, and number of values by which a tensor is looked up.
LARGEST, PROBES = 1 << 17, 8
#: Share of the probes that a call must have computed.
ENOUGH = 0.9


@dataclass(frozen=True, slots=True)
class Origin:
    """The calls at one place that computed the values of a tensor.

    `first` and `last` are the counts of optimizer steps at which they did, `graded` whether with a gradient.
    """

    stack: Stack
    first: int
    last: int
    graded: bool


def numbers_of(tensor: Any) -> np.ndarray[Any, np.dtype[np.float32]]:  # noqa: ANN401 - a torch tensor
    """Return the values as float32 numbers, flat, on the host; those of a float32 tensor there are not copied."""
    values = tensor.detach() if tensor.requires_grad else tensor
    if str(values.dtype) != "torch.float32" or not values.is_cpu:
        values = values.float().cpu()
    flat: np.ndarray[Any, np.dtype[np.float32]] = values.numpy().reshape(-1)
    return flat


def _probes(tensor: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - a torch tensor
    bits = numbers_of(tensor).view(np.int32)
    distinct = np.unique(bits[bits != 0])
    return distinct[:: max(1, len(distinct) // PROBES)][:PROBES]


class Ring:
    """The latest values that calls computed, in one flat array."""

    def __init__(self, values: int) -> None:
        self._bits = np.zeros(values, np.int32)
        self._largest = min(LARGEST, values // 4)
        self._end = 0
        self._starts = array.array("q")
        self._calls: list[tuple[Stack, int, bool]] = []

    def add(self, numbers: np.ndarray[Any, np.dtype[np.float32]], stack: Stack, step: int, graded: bool) -> None:
        """Remember the values of one call; the older half is forgotten when the ring is full."""
        size = numbers.size
        if not 0 < size <= self._largest:
            return
        if self._end + size > self._bits.size:
            self._forget()
        self._bits[self._end : self._end + size] = numbers.view(np.int32)
        self._starts.append(self._end)
        self._calls.append((stack, step, graded))
        self._end += size

    def _forget(self) -> None:
        keep = bisect.bisect_left(self._starts, self._end // 2)
        offset = self._starts[keep] if keep < len(self._starts) else self._end
        self._bits[: self._end - offset] = self._bits[offset : self._end].copy()
        self._starts = array.array("q", (start - offset for start in self._starts[keep:]))
        self._calls = self._calls[keep:]
        self._end -= offset

    def stacks(self) -> set[Stack]:
        """Return the frames of all remembered calls."""
        return {stack for stack, _, _ in self._calls}

    def latest(self, wanted: Callable[[Stack], bool]) -> Stack:
        """Return the frames of the latest call that are wanted, none if there are none."""
        return next((stack for stack, _, _ in reversed(self._calls) if wanted(stack)), ())

    def first(self, tensor: Any) -> tuple[np.ndarray[Any, Any], Stack] | None:  # noqa: ANN401 - a torch tensor
        """Return the values of the earliest call that computed all values of a tensor, and its frames."""
        probes = _probes(tensor)
        calls = [call for call, found in self._holding(probes).items() if len(found) == len(probes)]
        if not calls:
            return None
        begin, end = ([*self._starts, self._end][each] for each in (min(calls), min(calls) + 1))
        return self._bits[begin:end].view(np.float32).copy(), self._calls[min(calls)][0]

    def _holding(self, probes: np.ndarray[Any, Any]) -> dict[int, set[int]]:
        """Return the calls that computed some values, each with those that it did."""
        starts, held = np.asarray(self._starts), dict[int, set[int]]()
        for probe in probes.tolist():
            calls = np.searchsorted(starts, np.flatnonzero(self._bits[: self._end] == probe), "right") - 1
            for call in np.unique(calls).tolist():
                held.setdefault(call, set()).add(probe)
        return held

    def clear(self) -> None:
        """Forget everything."""
        self._end, self._starts, self._calls = 0, array.array("q"), []

    def origin(self, tensor: Any, *, latest: bool = False) -> Origin | None:  # noqa: ANN401 - a torch tensor
        """Return the earliest place that computed nearly all values of a tensor, preferably without a gradient.

        With `latest`, it is the place that computed them last.
        """
        probes = _probes(tensor)
        held: dict[tuple[Stack, bool], tuple[set[int], list[int]]] = {}
        for call, found in self._holding(probes).items():
            stack, step, graded = self._calls[call]
            values, steps = held.setdefault((stack, graded), (set(), []))
            values |= found
            steps.append(step)
        whole = [(key, steps) for key, (values, steps) in held.items() if len(values) >= ENOUGH * len(probes)]
        whole = [each for each in whole if not each[0][1]] or whole
        if not whole:
            return None
        (stack, graded), steps = whole[-1] if latest else min(whole, key=lambda each: min(each[1]))
        return Origin(stack, min(steps), max(steps), graded)
