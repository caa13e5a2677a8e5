"""Choose the reader of a tensor file, and join checkpoints that are split over several files."""

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

_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_ZIP, _NPY, _PICKLE, _PARQUET = b"PK\x03\x04", b"\x93NUMPY", b"\x80", b"PAR1"
_MEGATRON = b"MMIDIDX\x00\x00"
#: Pickles of settings, which lie in the folders of checkpoints.
_SETTINGS = frozenset(("training_args.bin", "scheduler.bin"))
_READERS: Mapping[str, Callable[[Path, int], Archive]] = {
    "npz": read_npz,
    "npy": read_npy,
    "safetensors": read_safetensors,
    "parquet": read_parquet,
}
#: Files of a folder that are looked at.
MOST_FILES = 10_000


def is_archive(path: Path) -> bool:
    """Tell whether a file holds tensors, from its suffix and its first bytes; False for what cannot be opened."""
    try:
        container = _container(path, _first(path)) if path.is_file() else None  # a pipe would wait for its writer
    except (OSError, ValueError):
        return False
    return container is not None and (container != "parquet" or is_rows(path))


def archives_in(folder: Path) -> tuple[Path, ...]:
    """Return the files of tensors directly in a folder, in the order of the numbers in their names: 2 before 10.

    Raises DoctorError for a folder of more files than a run leaves.
    """
    files = list(islice((path for path in folder.iterdir() if path.is_file()), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise DoctorError(f"{folder} holds more than {MOST_FILES:,} files", hint="name the files to read")
    found = [path for path in files if is_archive(path)]
    if any(is_index(path) for path in found):  # the parts of a split checkpoint are read through it
        found = [path for path in found if not is_part(path)]
    return tuple(sorted(found, key=_in_order))


def _in_order(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.findall(r"\d+|\D+", path.name)
    return [(int(part[:18]), "") if part.isdecimal() else (-1, part) for part in parts], path.name


def read_archive(path: Path) -> Archive:
    """Return the tensors of a file; their data are read when they are asked for.

    Raises DoctorError for what is no such file, is damaged, or would have to be executed.
    """
    try:
        head, size = _first(path), path.stat().st_size
    except (OSError, ValueError) as error:  # ValueError for a name with a NUL in it
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DoctorError(f"{path} cannot be opened: {why}") from error
    if is_index(path):
        return read_shards(path, size, read_archive)
    container = _container(path, head)
    if container is not None and container in _READERS:
        return _READERS[container](path, size)
    if container == "jsonl-dump":
        return read_jsonl_dump(path)
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
    """Raise DoctorError for formats that are told apart and not read, with what to convert."""
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


def _first(path: Path) -> bytes:
    with plain_file(path) as file:
        return file.read(16)


def _container(path: Path, head: bytes) -> str | None:
    suffix = path.suffix.lower()
    if path.name in _SETTINGS:
        return None
    if head.startswith(_NPY):
        return "npy"
    if suffix == ".safetensors":
        return "safetensors"
    if suffix == ".npz":
        return "npz"
    if suffix in _TORCH and head.startswith((_ZIP, _PICKLE)):
        return "pt"
    if head.startswith(_PARQUET):
        return "parquet"
    if is_rows(path) and suffix == ".jsonl":
        return "jsonl-dump"
    if is_index(path):
        return "shards"
    return None


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
