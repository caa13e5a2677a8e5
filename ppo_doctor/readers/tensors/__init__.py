"""Read tensor dumps and checkpoints as named tensors, without executing anything in them.

A file is recognised by its suffix and its first bytes. The files of a split checkpoint are read through the index that
names them.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import contents, plain_file
from ppo_doctor.readers.tensors.numpy_files import read_npy, read_npz
from ppo_doctor.readers.tensors.rows import is_rows, read_jsonl_dump, read_parquet
from ppo_doctor.readers.tensors.safetensors import read_safetensors
from ppo_doctor.readers.tensors.tensor import DAMAGED, Archive, Tensor
from ppo_doctor.readers.tensors.torch_files import MAGIC, read_legacy, read_torch_zip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Archive", "Tensor", "archives_in", "is_archive", "read_archive"]

_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_ZIP, _NPY, _PICKLE, _PARQUET = b"PK\x03\x04", b"\x93NUMPY", b"\x80", b"PAR1"
_MEGATRON = b"MMIDIDX\x00\x00"
#: Pickles of settings in the folders of checkpoints.
_SETTINGS = frozenset(("training_args.bin", "scheduler.bin"))
#: Most files in a folder.
MOST_FILES = 10_000
#: Largest index in bytes, which needs some hundred for each tensor, and most files that it names.
LARGEST_INDEX, MOST_SHARDS = 64 << 20, 10_000
_INDICES = (".safetensors.index.json", ".bin.index.json")
_SHARD = re.compile(r"-\d+-of-\d+\.(safetensors|bin)$", re.IGNORECASE)


def is_archive(path: Path) -> bool:
    """Return whether a file holds tensors, by its suffix and its first bytes; False if it cannot be opened."""
    try:
        container = _container(path, _first_bytes(path)) if path.is_file() else None  # a pipe would block
    except (OSError, ValueError):
        return False
    return container is not None and (container != "parquet" or is_rows(path))


def archives_in(folder: Path) -> tuple[Path, ...]:
    """Return the files of tensors directly in a folder, ordered by the numbers in their names: 2 before 10.

    Raises DoctorError for a folder of more than 10,000 files.
    """
    files = list(islice((path for path in folder.iterdir() if path.is_file()), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise DoctorError(f"{folder} holds more than {MOST_FILES:,} files", hint="name the files to read")
    archives = [path for path in files if is_archive(path)]
    if any(map(_is_index, archives)):  # the index reads the shards
        archives = [path for path in archives if not _SHARD.search(path.name)]
    return tuple(sorted(archives, key=_by_numbers))


def _by_numbers(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", path.name)
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in parts], path.name


def read_archive(path: Path) -> Archive:
    """Return the tensors of a file, whose data are read on demand.

    Raises DoctorError for a file that holds no tensors, is damaged, or would have to be executed.
    """
    try:
        head, size = _first_bytes(path), path.stat().st_size
    except (OSError, ValueError) as error:  # ValueError for a name with a NUL in it
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DoctorError(f"{path} cannot be opened: {why}") from error
    container = _container(path, head)
    if container in _READERS:
        return _READERS[container](path, size)
    if container == "pt" and head.startswith(_ZIP):
        return read_torch_zip(path, size)
    if container == "pt" and head.startswith(MAGIC):
        return read_legacy(path, size)
    _refuse_others(path, head)
    if container == "pt":
        raise DoctorError(
            f"{path} is a plain pickle, which could run anything; it is never unpickled",
            hint="save tensors: torch.save(state_dict, ...) or numpy.savez(...)",
        )
    raise DoctorError(
        f"{path} holds no tensors that can be read",
        hint="dumps are .npz, .npy, .safetensors and .pt files; see docs/dumps.md",
    )


def _refuse_others(path: Path, head: bytes) -> None:
    """Raise DoctorError, with how to convert the file, for formats that are recognised but cannot be read."""
    suffix = path.suffix.lower()
    if suffix == ".distcp":
        raise DoctorError(
            f"{path} is a part of a distributed checkpoint, which torch has to put together",
            hint="python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER weights.pt (Megatron: "
            "tools/checkpoint/convert.py to torch or Hugging Face format)",
        )
    if head.startswith(_MEGATRON) or (suffix == ".bin" and path.with_suffix(".idx").is_file()):
        raise DoctorError(
            f"{path} is a Megatron dataset (.bin with .idx): token ids without log-probs",
            hint="write log_probs, old_log_probs and advantages of an update to .npz or .pt; see docs/dumps.md",
        )


def _first_bytes(path: Path) -> bytes:
    with plain_file(path) as file:
        return file.read(16)


def _container(path: Path, head: bytes) -> str | None:
    suffix = path.suffix.lower()
    if path.name in _SETTINGS:
        return None
    if _is_index(path):
        return "shards"
    if head.startswith(_NPY):
        return "npy"
    if suffix in (".safetensors", ".npz"):
        return suffix[1:]
    if suffix in _TORCH and head.startswith((_ZIP, _PICKLE)):
        return "pt"
    if head.startswith(_PARQUET):
        return "parquet"
    return "jsonl-dump" if is_rows(path) and suffix == ".jsonl" else None


def _is_index(path: Path) -> bool:
    return path.name.lower().endswith(_INDICES)


def _read_shards(path: Path, size: int) -> Archive:
    """Return the tensors of all files that an index names, as one archive.

    Raises DoctorError for an index that is damaged or names a file outside its folder, and for files or tensors that
    are missing.
    """
    places = _places(path, size)
    names = sorted(set(places.values()))
    if len(names) > MOST_SHARDS:
        raise DoctorError(f"{path} names {len(names):,} files", hint=DAMAGED)
    shards = {name: read_archive(_shard(path, name)) for name in names}
    tensors: dict[str, Tensor] = {}
    for name, file in places.items():
        tensor = shards[file].tensors.get(name)
        if tensor is None:
            raise DoctorError(f"{path} says that {name[:200]} is in {file}, where it is not", hint=DAMAGED)
        tensors[name] = replace(tensor, storage=f"{file}:{tensor.storage}")
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


def _shard(index: Path, name: str) -> Path:
    file = index.parent / name
    if file.name != name or _is_index(file):
        raise DoctorError(f"{index} names {name[:200]}, which is no file beside it", hint=DAMAGED)
    return file


#: Container → the function that reads a file of so many bytes.
_READERS: Mapping[str | None, Callable[[Path, int], Archive]] = {
    "npz": read_npz,
    "npy": read_npy,
    "safetensors": read_safetensors,
    "parquet": read_parquet,
    "jsonl-dump": lambda path, _: read_jsonl_dump(path),
    "shards": _read_shards,
}
