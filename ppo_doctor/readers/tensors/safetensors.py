"""Read safetensors: a JSON header of names, types and positions, followed by the data, memory-mapped.

The checks are those of the specification: a header of at most 100 MB, no duplicate key, and tensors that cover the data
to the last byte without gaps or overlaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.tensors.storages import MappedFile, Part
from ppo_doctor.readers.tensors.tensor import DAMAGED, LONGEST_TEXT, Archive, Tensor, stored

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_HEADER = 100_000_000
_METADATA = "__metadata__"
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "F64": "float64",
        "F32": "float32",
        "F16": "float16",
        "BF16": "bfloat16",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2": "float8_e5m2",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "F8_E8M0": "float8_e8m0fnu",
        "I64": "int64",
        "I32": "int32",
        "I16": "int16",
        "I8": "int8",
        "U64": "uint64",
        "U32": "uint32",
        "U16": "uint16",
        "U8": "uint8",
        "BOOL": "bool",
        "C64": "complex64",
    }
)


def read_safetensors(path: Path, size: int) -> Archive:
    """Return the tensors of a safetensors file; its metadata are the scalars.

    Raises DoctorError for a header or data that break the format. Types narrower than a byte are left out with a note.
    """
    file = MappedFile(path, size)
    header, start = _header(file)
    metadata = header.pop(_METADATA, {})
    spans = {name: _span(path, name, entry) for name, entry in header.items()}
    _check_cover(path, spans, size - start)
    tensors: dict[str, Tensor] = {}
    notes = Ledger(str(path))
    for name, (begin, end) in spans.items():
        dtype, shape = header[name]["dtype"], header[name]["shape"]
        if dtype not in _TYPES:
            text = f"{name} has the type {dtype[:20]}, which is not known, and is left out"
            notes.tell("left out", text, kind="skipped")
        else:
            data = Part(file, start + begin, start + end)
            tensors[name] = stored(f"{path}: {name}", name, _TYPES[dtype], shape, data, end - begin)
    return Archive(
        path=str(path),
        container="safetensors",
        tensors=tensors,
        scalars=_texts(metadata),
        notes=tuple(notes.notes()),
    )


def _header(file: MappedFile) -> tuple[dict[str, Any], int]:
    """Return the header and where the data begin."""
    path, view = file.path, file.view()
    length = int.from_bytes(view[:8].tobytes(), "little")
    if file.size < 8 or length > min(LARGEST_HEADER, file.size - 8):
        raise DoctorError(f"{path} claims a header of {length:,} bytes and has {file.size:,}", hint=DAMAGED)
    try:
        header = json.loads(view[8 : 8 + length].tobytes(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DoctorError(f"{path} has a header that cannot be read: {error}", hint=DAMAGED) from error
    if not isinstance(header, dict):
        raise DoctorError(f"{path} has a header that is no object", hint=DAMAGED)
    return header, 8 + length


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _span(path: Path, name: str, entry: object) -> tuple[int, int]:
    match entry:
        case {"dtype": str(), "shape": list(), "data_offsets": [int(begin), int(end)]} if 0 <= begin <= end:
            return begin, end
    raise DoctorError(f"{path}: {name} has no type, shape or place", hint=DAMAGED)


def _check_cover(path: Path, spans: Mapping[str, tuple[int, int]], size: int) -> None:
    """Raise DoctorError unless the tensors cover the data from the first to the last byte, each byte once."""
    at = 0
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != at:
            what = "overlaps another tensor" if begin < at else "leaves a hole before it"
            raise DoctorError(f"{path}: {name} {what}", hint=DAMAGED)
        at = end
    if at != size:
        raise DoctorError(f"{path} is cut off or has a tail: {size:,} bytes of data for {at:,}", hint=DAMAGED)


def _texts(metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict):
        return {}
    return {key: value[:LONGEST_TEXT] for key, value in metadata.items() if isinstance(value, str)}
