"""Nested dicts and lists as tensors and scalars with dotted names."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.tensors.inert import ArrayShell, LeftOut, Record, StorageRef, Symbol, Value, View
from ppo_doctor.tensors.naming import role
from ppo_doctor.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ppo_doctor.model import ConfigValue
    from ppo_doctor.tensors.dtypes import AnyArray

#: Objects that are visited, and the depth to which, before a file counts as made to do harm: a list of ten lists of ten
#: lists … names a thousand million things in a hundred bytes. A visit takes 4 µs; so many numbers of a list, or letters
#: of a name, take as long as one, and what a name says as long as so many.
MOST_VISITS, DEEPEST = 500_000, 64
_NUMBERS, _LETTERS, _NAMING = 16, 256, 15
#: A longer name is no tensor's: names grow with every container that they go through.
LONGEST_NAME = 4_096
#: Tuples of numbers of up to so many are settings, such as the betas of Adam; longer ones are data.
LONGEST_SETTING = 8
LONGEST_TEXT = 4_096
_WRITTEN_OUT = 20


class Flattener:
    """Collects what a nested container holds; `open_view` makes a tensor of a name and a view."""

    def __init__(self, path: str, open_view: Callable[[str, View], Tensor]) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        self.scalars: dict[str, ConfigValue] = {}
        self._open_view = open_view
        self._notes: list[Note] = []
        self._left_out = 0
        self._visits = 0

    def notes(self) -> tuple[Note, ...]:
        """Return what was left out, at most twenty times and then in a count."""
        rest = self._left_out - len(self._notes)
        if rest <= 0:
            return tuple(self._notes)
        source = SourceRef(path=self.path)
        return (*self._notes, Note(text=f"{rest} more are left out", source=source, count=rest, kind="skipped"))

    def add(self, name: str, value: Value, depth: int = 0) -> None:
        """Take a value and all below it under a dotted name."""
        self._count(1 + len(name) // _LETTERS)
        if len(name) > LONGEST_NAME:
            raise DoctorError(f"{self.path} has names of more than {LONGEST_NAME:,} letters", hint=_SAVE_FLAT)
        if depth > DEEPEST:
            raise DoctorError(f"{self.path} is nested more than {DEEPEST} deep at {name[:80]}", hint=_SAVE_FLAT)
        if isinstance(value, View):
            self._tensor(name, self._open_view(self._free(name), value))
        elif isinstance(value, ArrayShell):
            self._array(name, value.array)
        elif isinstance(value, Record):
            self._below(name, value.attributes.items(), depth)
        elif isinstance(value, dict):
            self._below(name, value.items(), depth)
        elif isinstance(value, list | tuple):
            self._sequence(name, value, depth)
        elif isinstance(value, LeftOut):
            self._note(name, value.why)
        else:
            self._scalar(name, value)

    def _below(self, name: str, items: Iterable[tuple[Value, Value]], depth: int) -> None:
        for key, value in items:
            word = key if isinstance(key, str) else str(key)[:LONGEST_TEXT]
            self.add(f"{name}.{word}" if name else word, value, depth + 1)

    def _sequence(self, name: str, values: list[Value] | tuple[Value, ...], depth: int) -> None:
        self._count(len(values) // _NUMBERS)
        setting = isinstance(values, tuple) and len(values) <= LONGEST_SETTING
        array = None if setting else _numbers(values)
        if array is None and values and isinstance(values[0], str) and self._is_group(name):
            array = codes(values)
        if array is not None:
            self._array(name, array)
        else:
            self._below(name, enumerate(values), depth)

    def _is_group(self, name: str) -> bool:
        self._count(_NAMING)
        return role(name) == "group"

    def _array(self, name: str, array: AnyArray | None) -> None:
        if array is None:
            self._note(name, "an array without data")
        else:
            self._tensor(name, Tensor.of(self._free(name), array))

    def _tensor(self, name: str, tensor: Tensor) -> None:
        if tensor.name != name:
            self._note(name, f"there twice; the second is called {tensor.name}")
        self.tensors[tensor.name] = tensor

    def _free(self, name: str) -> str:
        """Return a name that no tensor has yet: {"a.b": …, "a": {"b": …}} has two of one name."""
        free, count = name or "tensor", 2
        while free in self.tensors:
            free = f"{name}#{count}"
            count += 1
        return free

    def _scalar(self, name: str, value: Value) -> None:
        if value is None or isinstance(value, bool | float):
            self.scalars[name] = value
        elif isinstance(value, int):
            if abs(value) < 1 << 63:
                self.scalars[name] = value
            else:
                self._note(name, "a number of more than 64 bits")
        elif isinstance(value, str):
            self.scalars[name] = value[:LONGEST_TEXT]
        elif isinstance(value, Symbol):
            self.scalars[name] = value.name
        elif isinstance(value, StorageRef):
            self._note(name, "a storage without a tensor")
        # bytes, sets and complex numbers are no settings and no tensors

    def _count(self, visits: int) -> None:
        self._visits += visits
        if self._visits > MOST_VISITS:
            raise DoctorError(f"{self.path} names more than {MOST_VISITS:,} values", hint=_SAVE_FLAT)

    def _note(self, name: str, why: str) -> None:
        self._left_out += 1
        if len(self._notes) < _WRITTEN_OUT:
            text = f"{name[:LONGEST_TEXT]} is left out: it is {why}"
            self._notes.append(Note(text=text, source=SourceRef(path=self.path), kind="skipped"))


_SAVE_FLAT = "save tensors, not lists of numbers: torch.save({'log_probs': torch.tensor(...)}, ...) or numpy.savez"


def _numbers(values: list[Value] | tuple[Value, ...]) -> AnyArray | None:
    """Return numbers as an array of bool, int64 or float64, or None where something else is among them."""
    kinds = {type(value) for value in values}
    if not kinds or not kinds <= {int, float, bool}:
        return None
    if kinds == {bool}:
        return np.array(values, dtype=np.bool_)
    if float not in kinds and all(abs(value) < 1 << 63 for value in values):
        return np.array(values, dtype=np.int64)
    return np.fromiter(map(_as_float, values), dtype=np.float64, count=len(values))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def codes(values: list[Value] | tuple[Value, ...]) -> AnyArray | None:
    """Return words as whole numbers, equal for equal words of any file; None for no words."""
    if not all(isinstance(value, str) for value in values):
        return None
    return np.fromiter((code(value) for value in values), dtype=np.int64, count=len(values))


def code(word: str) -> int:
    """Return a whole number that is a word's own, of 52 bits, which float64 holds exactly."""
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()) >> 12
