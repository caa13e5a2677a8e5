"""The arrays of a dump by name, read when asked for, and what is known of them so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.ingest.naming import parse

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.tensors.tensor import Archive, Tensor

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

#: What a rule says of arrays: name and role, None for one that it has not.
Told = Iterator[tuple[str, str | None]]
#: Elements of an array that are looked at; whole rows from its head.
MOST = 1 << 16
#: An array of prompts and completions is at most so many times as wide as one of completions; others are observations.
WIDEST = 64
#: A dump has tens of arrays; of more only the names are read.
MOST_ARRAYS = 100


class Dump:
    """The arrays of a dump by name, read when asked for, and what is known of them so far."""

    def __init__(self, archive: Archive, roles: dict[str, str | None], base: Tensor, given: frozenset[str]) -> None:
        self.roles = roles
        self.given = given
        self.rows = base.shape[0]
        self.shape = (self.rows, base.size // self.rows)
        self.head = min(self.rows, max(1, MOST // self.shape[1]))
        self._tensors = archive.tensors
        self._numbers = archive.scalars
        self._read: dict[str, Floats] = {}

    def take(self, told: Iterable[tuple[str, str | None]]) -> None:
        """Take what a rule says, one after the other, but of names that were given by hand."""
        for name, role in told:
            if name not in self.given:
                self.roles[name] = role

    def open(self) -> list[str]:
        """Return the names that are not understood."""
        return [name for name, role in self.roles.items() if role is None]

    def named(self, *roles: str) -> list[str]:
        """Return the names of arrays that have one of some roles."""
        return [name for name, role in self.roles.items() if role in roles]

    def free(self, role: str) -> bool:
        """Tell whether no array has a role."""
        return role not in self.roles.values()

    def is_array(self, name: str) -> bool:
        """Tell whether a name is that of an array, not of a single number beside them."""
        return name in self._tensors

    def array(self, name: str) -> Floats:
        """Return the head of an array as float64, empty for what is no array of numbers per sample or per row."""
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def _load(self, name: str) -> Floats:
        tensor = self._tensors.get(name)
        if tensor is None:
            number = self._numbers.get(name)
            whole = isinstance(number, int) and not isinstance(number, bool)
            return np.array(float(number)) if whole else np.empty(0)  # type: ignore[arg-type]
        try:
            return self._head(tensor)
        except DoctorError:  # of an array that nothing may need
            return np.empty(0)

    def _head(self, tensor: Tensor) -> Floats:
        if not tensor.size or tensor.dtype.startswith("complex"):
            return np.empty(0)
        if not tensor.shape or tensor.shape[0] != self.rows:
            return np.array(float(next(tensor.chunks(1))[0])) if tensor.size == 1 else np.empty(0)
        width = tensor.size // self.rows
        if width > WIDEST * self.shape[1]:
            return np.empty(0)
        values = next(tensor.chunks(self.head * width)).astype(np.float64).reshape(self.head, width)
        return values[:, 0] if width == 1 and self.shape[1] > 1 else values

    def per_sample(self, name: str) -> bool:
        """Tell whether an array has a number for each sample (token, or step of an episode)."""
        return self.array(name).shape == (self.head, self.shape[1])

    def per_row(self, name: str) -> bool:
        """Tell whether an array has a number for each row, or one for all."""
        return self.array(name).shape in ((self.head,), ()) or (self.shape[1] == 1 and self.per_sample(name))

    def integers(self, name: str) -> bool:
        """Tell whether an array is of a type of whole numbers, or a single whole number."""
        return self._tensors[name].dtype.startswith(("int", "uint")) if name in self._tensors else self.whole(name)

    def whole(self, name: str) -> bool:
        """Tell whether an array holds whole numbers only."""
        values = self.array(name)
        return bool(values.size) and bool(np.isfinite(values).all()) and bool((values == np.floor(values)).all())

    def binary(self, name: str) -> bool:
        """Tell whether an array holds 0 and 1 only."""
        values = self.array(name)
        return bool(values.size) and bool(((values == 0) | (values == 1)).all())

    def varied(self, name: str) -> bool:
        """Tell whether an array is finite where samples count, and no constant there."""
        values = self.array(name)[self.mask]
        return bool(np.isfinite(values).all()) and float(np.ptp(values)) > 0

    @property
    def mask(self) -> Bools:
        """Return which samples count: those of the mask, else those with an advantage, else all."""
        marks = self.one("mask", "advantages_raw", "advantages")
        kept = np.empty(0, bool) if marks is None else np.asarray(marks != 0)
        return kept if kept.any() else np.ones((self.head, self.shape[1]), bool)

    def one(self, *roles: str) -> Floats | None:
        """Return the first array with one of some roles that has a number for each sample."""
        return next((self.array(n) for role in roles for n in self.named(role) if self.per_sample(n)), None)


def one_each(dump: Dump) -> Floats | None:
    """Return the advantage of each row, None where a row has several."""
    name = next(iter(dump.named("advantages", "advantages_raw")), None)
    if name is None or not dump.array(name).size:
        return None
    values = dump.array(name)
    if values.ndim != 2:
        return values if values.ndim else None
    keep = dump.mask if values.shape == dump.mask.shape else np.ones(values.shape, bool)
    first: Floats = values[np.arange(len(values)), keep.argmax(axis=1)]
    return first if np.allclose(np.where(keep, values, first[:, None]), first[:, None], atol=1e-6) else None


def meanings_of(name: str) -> frozenset[str]:
    """Return every meaning that a word of a name has, its groups' as well."""
    said = parse(name)
    return said.concepts | said.groups
