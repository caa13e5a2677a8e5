"""Read files of torch.save, zip archives (since 1.6) and the older format, without unpickling them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.tensors.naming import role
from ppo_doctor.readers.tensors.pickle_opcodes import follow
from ppo_doctor.readers.tensors.safe_pickle import ArrayShell, LeftOut, Record, Refused, StorageRef, Symbol, Value, View
from ppo_doctor.readers.tensors.storages import MappedFile, Member, Part, members
from ppo_doctor.readers.tensors.tensor import (
    DAMAGED,
    LONGEST_TEXT,
    Archive,
    Tensor,
    as_float,
    check_view,
    codes,
    raw_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers.tensors.tensor import AnyArray

#: Most objects that are visited, and the greatest depth: a list of ten lists of ten lists … can name a thousand million
#: objects in a hundred bytes.
MOST_VISITS, DEEPEST = 500_000, 64
#: A visit takes 4 µs. As long take so many numbers of a list, or letters of a name; the role of a name takes 15 visits.
_NUMBERS, _LETTERS, _NAMING = 16, 256, 15
#: Longest name of a tensor; names grow with every container around it.
LONGEST_NAME = 4_096
#: Longest tuple of numbers that is a setting, such as the betas of Adam; longer ones are data.
LONGEST_SETTING = 8


class Flattener:
    """Collects the tensors and settings of a nested container; `open_view` makes a tensor of a name and a view."""

    def __init__(self, path: str, open_view: Callable[[str, View], Tensor]) -> None:
        self.path = path
        self.tensors: dict[str, Tensor] = {}
        self.scalars: dict[str, ConfigValue] = {}
        self._open_view = open_view
        self._notes = Ledger(path)
        self._visits = 0

    def archive(self) -> Archive:
        """Return the tensors and settings that were added."""
        notes = tuple(self._notes.notes())
        return Archive(path=self.path, container="pt", tensors=self.tensors, scalars=self.scalars, notes=notes)

    def add(self, name: str, value: Value, depth: int = 0) -> None:
        """Add a value and everything in it under a dotted name."""
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
        """Return a name that no tensor has yet: {"a.b": …, "a": {"b": …}} would give two the same name."""
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
        self._notes.tell("left out", f"{name[:LONGEST_TEXT]} is left out: it is {why}", kind="skipped")


_SAVE_FLAT = "save tensors, not lists of numbers: torch.save({'log_probs': torch.tensor(...)}, ...) or numpy.savez"


def _numbers(values: list[Value] | tuple[Value, ...]) -> AnyArray | None:
    """Return numbers as an array of bool, int64 or float64, or None if other values are among them."""
    kinds = {type(value) for value in values}
    if not kinds or not kinds <= {int, float, bool}:
        return None
    if kinds == {bool}:
        return np.array(values, dtype=np.bool_)
    if float not in kinds and all(abs(value) < 1 << 63 for value in values):
        return np.array(values, dtype=np.int64)
    return np.fromiter(map(as_float, values), dtype=np.float64, count=len(values))


#: Largest pickle in bytes; one that describes tensors needs some hundred for each.
LARGEST_PICKLE = 64 << 20
_STATE_DICT = "save tensors only: torch.save(model.state_dict(), ...), or a dict of tensors; nothing in it was run"
_SCRIPT = "save the weights by themselves: torch.save(model.state_dict(), ...)"


def read_torch_zip(path: Path, size: int) -> Archive:
    """Return the tensors of a file of torch.save; those in nested containers have dotted names.

    Raises DoctorError for damage, for a pickle that names anything that tensors do not need, and for TorchScript
    programs.
    """
    found = members(MappedFile(path, size))
    root = _root(path, found)
    big_endian = _text(found, f"{root}byteorder") == "big"
    value = described(path, _content(path, found[f"{root}data.pkl"]))
    storages = {name.removeprefix(f"{root}data/"): found[name] for name in found if name.startswith(f"{root}data/")}
    return _opened(path, value, storages, big_endian=big_endian)


def _opened(path: Path, value: Value, storages: Mapping[str, Member], *, big_endian: bool = False) -> Archive:
    """Return the archive that a pickle describes, with the data of its storages."""

    def open_view(name: str, view: View) -> Tensor:
        member = storages.get(view.storage.key)
        if member is None:
            raise DoctorError(f"{path}: the data of {name} are missing", hint=DAMAGED)
        return tensor_of(f"{path}: {name}", name, view, member, big_endian=big_endian)

    flattener = Flattener(str(path), open_view)
    flattener.add("", value)
    return flattener.archive()


def described(path: Path, pickle: bytes | BinaryIO, storages: dict[str, StorageRef] | None = None) -> Value:
    """Return the value that a pickle describes, and add the storages that it names to `storages`.

    Raises DoctorError for damage, and for a pickle that names anything that tensors do not need.
    """
    try:
        return follow(pickle, storages)
    except Refused as refused:
        raise DoctorError(f"{path} is refused: it holds {str(refused)[:200]}", hint=_STATE_DICT) from refused
    except ValueError as error:
        raise DoctorError(f"{path} cannot be read: {str(error)[:200]}", hint=DAMAGED) from error


def tensor_of(where: str, name: str, view: View, member: Member, *, big_endian: bool) -> Tensor:
    """Return a view of a storage as a tensor; raises DoctorError for a view that reaches beyond the storage."""
    _check_storage(where, view.storage, member.size)
    check_view(where, view.shape, view.stride, view.offset, member.size // raw_type(view.dtype).itemsize)
    return Tensor(
        name=name,
        dtype=view.dtype,
        shape=tuple(view.shape),
        storage=view.storage.key,
        offset=view.offset,
        stride=tuple(view.stride),
        data=member.data,
        big_endian=big_endian,
    )


def _check_storage(where: str, storage: StorageRef, size: int) -> None:
    if storage.count >= 1 << 62 or storage.count * _width(storage) > size:
        raise DoctorError(f"{where} claims more data than the {size:,} bytes that are there", hint=DAMAGED)


def _width(storage: StorageRef) -> int:
    return raw_type(storage.dtype).itemsize if storage.dtype else 1


def _root(path: Path, found: Mapping[str, Member]) -> str:
    """Return the folder in the zip that holds all members, with its slash."""
    pickles = [name for name in found if name == "data.pkl" or (name.endswith("/data.pkl") and name.count("/") == 1)]
    if len(pickles) != 1:
        raise DoctorError(
            f"{path} is a zip, but no file of torch.save", hint="dumps are .pt, .npz, .npy or .safetensors"
        )
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in found or any(name.startswith(f"{root}code/") for name in found):
        raise DoctorError(f"{path} is a TorchScript program", hint=_SCRIPT)
    return root


def _content(path: Path, member: Member) -> bytes:
    if member.size > LARGEST_PICKLE:
        raise DoctorError(f"{path} has a pickle of {member.size:,} bytes", hint=_STATE_DICT)
    return member.data.view().tobytes()


def _text(found: Mapping[str, Member], name: str) -> str:
    member = found.get(name)
    return member.data.view().tobytes().decode("utf-8", "replace").strip() if member and member.size < 100 else ""


#: First bytes of the format before 1.6: a number, pickled by protocol 2.
MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Pickles of a file: number, version, machine, the saved value, and the keys of its storages.
_PICKLES = 5


def read_legacy(path: Path, size: int) -> Archive:
    """Return the tensors of a file in the format before PyTorch 1.6: pickles, then the storages one after the other.

    Raises DoctorError as `read_torch_zip` does.
    """
    file = MappedFile(path, size)
    stream = io.BytesIO(file.view()[:LARGEST_PICKLE].tobytes())
    named: dict[str, StorageRef] = {}
    *_, value, keys = [described(path, stream, named) for _ in range(_PICKLES)]
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in named for key in keys):
        raise DoctorError(f"{path} lists storages that no tensor has", hint=DAMAGED)
    found = _in_sequence(file, stream.tell(), [named[key] for key in keys])
    return _opened(path, value, found)


def _in_sequence(file: MappedFile, at: int, storages: Iterable[StorageRef]) -> dict[str, Member]:
    """Return by key the storages that begin at `at`; each is its number of elements, followed by its bytes."""
    found: dict[str, Member] = {}
    for storage in storages:
        start = at + 8
        count = int.from_bytes(file.view()[at:start].tobytes(), "little")
        at = start + count * _width(storage)
        if at > file.size:
            raise DoctorError(f"{file.path} is cut off: a storage of {count:,} elements is missing", hint=DAMAGED)
        found[storage.key] = Member(size=at - start, data=Part(file, start, at))
    return found
