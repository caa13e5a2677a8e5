"""Checkpoints that are split over several files, with an index that says which tensor is in which."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError
from ppo_doctor.opening import contents
from ppo_doctor.tensors.storages import DAMAGED
from ppo_doctor.tensors.tensor import Archive, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: An index has some hundred bytes for each tensor.
LARGEST_INDEX = 64 << 20
MOST_SHARDS = 10_000
_SUFFIXES = (".safetensors.index.json", ".bin.index.json")


def is_index(path: Path) -> bool:
    """Tell by its name whether a file is the index of a split checkpoint."""
    return path.name.lower().endswith(_SUFFIXES)


def is_part(path: Path) -> bool:
    """Tell by its name whether a file is one of several that an index names."""
    return bool(re.search(r"-\d+-of-\d+\.(safetensors|bin)$", path.name.lower()))


def read_shards(path: Path, size: int, read: Callable[[Path], Archive]) -> Archive:
    """Return the tensors of all files that an index names, as one archive; `read` reads one of them.

    Raises DoctorError for an index that is damaged, names a file outside of its folder, or one that is missing, and for
    tensors that the files do not hold.
    """
    places = _places(path, size)
    names = sorted(set(places.values()))
    if len(names) > MOST_SHARDS:
        raise DoctorError(f"{path} names {len(names):,} files", hint=DAMAGED)
    shards = {name: read(_beside(path, name)) for name in names}
    tensors: dict[str, Tensor] = {}
    for tensor, name in places.items():
        found = shards[name].tensors.get(tensor)
        if found is None:
            raise DoctorError(f"{path} says that {tensor[:200]} is in {name}, where it is not", hint=DAMAGED)
        tensors[tensor] = replace(found, storage=f"{name}:{found.storage}")
    first = next(iter(shards.values()))
    notes = tuple(note for shard in shards.values() for note in shard.notes)
    return Archive(path=str(path), container=first.container, tensors=tensors, scalars={}, notes=notes)


def _places(path: Path, size: int) -> dict[str, str]:
    """Return tensor → file from an index."""
    if size > LARGEST_INDEX:
        raise DoctorError(f"{path} has {size:,} bytes", hint=DAMAGED)
    try:
        index = json.loads(contents(path, LARGEST_INDEX))
    except (OSError, ValueError, RecursionError) as error:
        raise DoctorError(f"{path} cannot be read: {str(error)[:200]}", hint=DAMAGED) from error
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise DoctorError(f"{path} names no tensors", hint=DAMAGED)
    return places


def _beside(path: Path, name: str) -> Path:
    file = path.parent / name
    if file.name != name or is_index(file):
        raise DoctorError(f"{path} names {name[:200]}, which is no file beside it", hint=DAMAGED)
    return file
