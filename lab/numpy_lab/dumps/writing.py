"""Files of tensors as trainers write them: `.npz` by NumPy, `.safetensors` and `.pt` by their formats' descriptions."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_SAFE = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "bool": "BOOL", "uint16": "BF16"}
_STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "bool": "BoolStorage",
    "uint16": "BFloat16Storage",
}


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name for the tensor of another name, in the same memory."""

    of: str


def bfloat16(values: Array) -> Array:
    """Return the bits of the nearest bfloat16 numbers, as uint16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def npz(path: Path, tensors: Mapping[str, Any]) -> Path:
    """Write arrays and numbers; compressed nothing."""
    held: dict[str, Any] = {name: np.asarray(value) for name, value in tensors.items()}
    np.savez(path, **held)
    return path


def safetensors(path: Path, tensors: Mapping[str, Any]) -> Path:
    """Write arrays; numbers go into the metadata; uint16 stands for bfloat16."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        if not isinstance(value, np.ndarray):
            header.setdefault("__metadata__", {})[name] = str(value)
            continue
        raw = np.ascontiguousarray(value)
        place = [len(data), len(data) + raw.nbytes]
        header[name] = {"dtype": _SAFE[raw.dtype.name], "shape": list(raw.shape), "data_offsets": place}
        data += raw.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def pt(path: Path, tree: Mapping[str, Any]) -> Path:
    """Write nested dicts of arrays, lists and numbers as torch.save does; an Alias shares its storage."""
    pickled = _Pickled()
    body = pickled.value(tree, "")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + body + b".")
        archive.writestr("archive/byteorder", "little")
        for key, raw in enumerate(pickled.storages):
            archive.writestr(f"archive/data/{key}", raw.tobytes())
        archive.writestr("archive/version", "3\n")
    return path


class _Pickled:
    """The opcodes of protocol 2 for a state dict; storages are numbered as they come."""

    def __init__(self) -> None:
        self.storages: list[Array] = []
        self._keys: dict[str, int] = {}

    def value(self, value: Any, path: str) -> bytes:
        if isinstance(value, Mapping):
            items = (self._key(k) + self.value(v, f"{path}.{k}" if path else str(k)) for k, v in value.items())
            return b"}(" + b"".join(items) + b"u"
        if isinstance(value, list):
            return b"](" + b"".join(self.value(item, f"{path}.{at}") for at, item in enumerate(value)) + b"e"
        if isinstance(value, bool):
            return b"\x88" if value else b"\x89"
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, Alias):
            return self._tensor(self.storages[self._keys[value.of]], self._keys[value.of])
        if isinstance(value, np.ndarray):
            self._keys[path] = len(self.storages)
            self.storages.append(np.ascontiguousarray(value))
            return self._tensor(self.storages[-1], self._keys[path])
        return self._text(str(value))

    def _key(self, key: object) -> bytes:
        return self.value(key, "") if isinstance(key, int) else self._text(str(key))

    def _text(self, text: str) -> bytes:
        raw = text.encode()
        return b"X" + struct.pack("<I", len(raw)) + raw

    def _ints(self, numbers: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(self.value(int(n), "") for n in numbers) + b"t"

    def _tensor(self, array: Array, key: int) -> bytes:
        kind = f"ctorch\n{_STORAGES[array.dtype.name]}\n".encode()
        named = b"(" + self._text("storage") + kind + self._text(str(key)) + self._text("cpu")
        storage = named + self.value(array.size, "") + b"tQ"
        strides = tuple(step // array.itemsize for step in array.strides)
        shape = self._ints(array.shape) + self._ints(strides)
        hooks = b"ccollections\nOrderedDict\n)R"
        return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + b"\x89" + hooks + b"tR"


def rows_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write one sample per line, as NeMo-RL does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
