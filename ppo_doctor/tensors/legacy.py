"""Files of torch.save from before version 1.6, or with the old format asked for: PyTorch itself has to read them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.dtypes import RAW, raw_type
from ppo_doctor.tensors.inert import LeftOut, StorageRef, Value, View
from ppo_doctor.tensors.nesting import DEEPEST, Flattener
from ppo_doctor.tensors.tensor import Archive, InMemory, Tensor, check_view

if TYPE_CHECKING:
    from pathlib import Path

#: What all legacy files begin with: a number, pickled by protocol 2.
MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_INSTALL = 'pip install "ppo-doctor[torch]", or save it again with a current torch.save'


def read_legacy(path: Path) -> Archive:
    """Return the tensors of a legacy file, by `torch.load(weights_only=True)`; torch is imported here and nowhere else.

    Raises DoctorError where PyTorch is not installed, and for what it refuses or cannot read.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise DoctorError(f"{path} has PyTorch's old format, which takes PyTorch to read", hint=_INSTALL) from error
    if not hasattr(torch.Tensor, "untyped_storage"):
        raise DoctorError(f"{path} has PyTorch's old format, which takes PyTorch 2 to read", hint=_INSTALL)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever its unpickler meets
        first = str(error).partition("\n")[0][:200]
        raise DoctorError(f"{path} is refused by torch.load(weights_only=True): {first}", hint=_STATE_DICT) from error
    opener = _Opener(torch, path)
    flattener = Flattener(str(path), opener.tensor)
    flattener.add("", opener.inert(loaded))
    return Archive(
        path=str(path),
        container="pt",
        tensors=flattener.tensors,
        scalars=flattener.scalars,
        notes=flattener.notes(),
    )


_STATE_DICT = "save tensors only: torch.save(model.state_dict(), ...)"


class _Opener:
    """Turns what PyTorch loaded into the inert values that a followed pickle gives."""

    def __init__(self, torch: Any, path: Path) -> None:  # noqa: ANN401 - torch may not be there
        self._torch = torch
        self._path = path
        self._storages: dict[str, Any] = {}
        #: containers that were turned, by identity: what stands in a hundred places is turned once
        self._turned: dict[int, Value] = {}

    def inert(self, value: Value, depth: int = 0) -> Value:
        if depth > DEEPEST:
            raise DoctorError(f"{self._path} is nested more than {DEEPEST} deep", hint=_STATE_DICT)
        if isinstance(value, self._torch.Tensor):
            return self._view(value)
        if isinstance(value, dict | list | tuple):
            if id(value) not in self._turned:
                self._turned[id(value)] = self._container(value, depth + 1)
            return self._turned[id(value)]
        plain = value is None or isinstance(value, bool | int | float | str)
        return value if plain else LeftOut(f"of the class {type(value).__name__}")

    def _container(self, value: Value, depth: int) -> Value:
        if isinstance(value, dict):
            return {key: self.inert(below, depth) for key, below in value.items()}
        parts = [self.inert(below, depth) for below in value]
        return parts if isinstance(value, list) else tuple(parts)

    def _view(self, tensor: Any) -> Value:  # noqa: ANN401 - torch may not be there
        kind = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout is not self._torch.strided or tensor.is_quantized or kind not in RAW:
            return LeftOut(f"{tensor.layout}, {kind}")
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        storage = tensor.untyped_storage()
        key = str(storage._cdata)
        self._storages[key] = storage
        reference = StorageRef(kind, key, storage.nbytes() // raw_type(kind).itemsize)
        return View(reference, kind, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))

    def tensor(self, name: str, view: View) -> Tensor:
        storage = self._storages[view.storage.key]
        check_view(f"{self._path}: {name}", view.shape, view.stride, view.offset, view.storage.count)
        flat = self._torch.empty(0, dtype=self._torch.uint8).set_(storage)
        return Tensor(
            name=name,
            dtype=view.dtype,
            shape=view.shape,
            storage=view.storage.key,
            offset=view.offset,
            stride=view.stride,
            data=InMemory(np.asarray(flat.numpy())),
        )
