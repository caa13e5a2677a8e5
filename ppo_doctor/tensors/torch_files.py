"""Files of torch.save, read without PyTorch: the zip of version 1.6 and later, whose pickle is followed, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.dtypes import raw_type
from ppo_doctor.tensors.inert import Refused, StorageRef, Value, View
from ppo_doctor.tensors.nesting import Flattener
from ppo_doctor.tensors.pickled import follow
from ppo_doctor.tensors.storages import DAMAGED, MappedFile
from ppo_doctor.tensors.tensor import Archive, Tensor, check_view
from ppo_doctor.tensors.zips import Member, members

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: A pickle that describes tensors has some hundred bytes for each of them.
LARGEST_PICKLE = 64 << 20
_STATE_DICT = "save tensors only: torch.save(model.state_dict(), ...), or a dict of tensors; nothing in it was run"
_SCRIPT = "save the weights by themselves: torch.save(model.state_dict(), ...)"


def read_torch_zip(path: Path, size: int) -> Archive:
    """Return the tensors of a file of torch.save; nested containers have dotted names.

    Raises DoctorError for damage, for a name that is not on the list of what torch.save writes for tensors, and for
    TorchScript programs.
    """
    found = members(MappedFile(path, size))
    root = _root(path, found)
    big_endian = _text(found, f"{root}byteorder") == "big"
    value = described(path, _content(path, found[f"{root}data.pkl"]))

    def open_view(name: str, view: View) -> Tensor:
        member = found.get(f"{root}data/{view.storage.key}")
        if member is None:
            raise DoctorError(f"{path}: the data of {name} are missing", hint=DAMAGED)
        return tensor_of(f"{path}: {name}", name, view, member, big_endian=big_endian)

    flattener = Flattener(str(path), open_view)
    flattener.add("", value)
    return Archive(
        path=str(path),
        container="pt",
        tensors=flattener.tensors,
        scalars=flattener.scalars,
        notes=flattener.notes(),
    )


def described(path: Path, pickle: bytes) -> Value:
    """Return what a pickle describes; raises DoctorError for damage and for what is not on the list."""
    try:
        return follow(pickle)
    except Refused as refused:
        raise DoctorError(f"{path} is refused: it holds {str(refused)[:200]}", hint=_STATE_DICT) from refused
    except ValueError as error:
        raise DoctorError(f"{path} cannot be read: {str(error)[:200]}", hint=DAMAGED) from error


def tensor_of(where: str, name: str, view: View, member: Member, *, big_endian: bool) -> Tensor:
    """Return a view of a storage as a tensor; raises DoctorError for one that reaches beyond the storage."""
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
    width = raw_type(storage.dtype).itemsize if storage.dtype else 1
    if storage.count >= 1 << 62 or storage.count * width > size:
        raise DoctorError(f"{where} claims more data than the {size:,} bytes that are there", hint=DAMAGED)


def _root(path: Path, found: Mapping[str, Member]) -> str:
    """Return the folder that holds everything in the zip, with its slash."""
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
