"""Which reader a file of tensors needs, by its suffix and first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError
from ppo_doctor.tensors.legacy import MAGIC, read_legacy
from ppo_doctor.tensors.numpy_files import read_npy, read_npz
from ppo_doctor.tensors.safetensors import read_safetensors
from ppo_doctor.tensors.torch_files import read_torch_zip

if TYPE_CHECKING:
    from pathlib import Path

    from ppo_doctor.tensors.tensor import Archive

_TORCH = (".pt", ".pth", ".bin", ".ckpt")
_ZIP, _NPY, _PICKLE = b"PK\x03\x04", b"\x93NUMPY", b"\x80"


def is_archive(path: Path) -> bool:
    """Tell whether a file holds tensors, from its suffix and its first bytes; False for what cannot be opened."""
    try:
        return _container(path, _first(path)) is not None
    except OSError:
        return False


def read_archive(path: Path) -> Archive:
    """Return the tensors of a file; their data are read when they are asked for.

    Raises DoctorError for what is no such file, is damaged, or would have to be executed.
    """
    try:
        head, size = _first(path), path.stat().st_size
    except OSError as error:
        raise DoctorError(f"{path} cannot be opened: {error.strerror or error}") from error
    container = _container(path, head)
    if container == "npz":
        return read_npz(path, size)
    if container == "npy":
        return read_npy(path, size)
    if container == "safetensors":
        return read_safetensors(path, size)
    if container == "pt" and head.startswith(_ZIP):
        return read_torch_zip(path, size)
    if container == "pt" and head.startswith(MAGIC):
        return read_legacy(path)
    if container == "pt":
        raise DoctorError(
            f"{path} is a plain pickle, which could run anything; it is never unpickled",
            hint="save tensors: torch.save(state_dict, ...) or numpy.savez(...)",
        )
    raise DoctorError(
        f"{path} holds no tensors that can be read",
        hint="dumps are .npz, .npy, .safetensors and .pt files; see docs/dumps.md",
    )


def _first(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _container(path: Path, head: bytes) -> str | None:
    suffix = path.suffix.lower()
    if head.startswith(_NPY):
        return "npy"
    if suffix == ".safetensors":
        return "safetensors"
    if suffix == ".npz":
        return "npz"
    if suffix in _TORCH and head.startswith((_ZIP, _PICKLE)):
        return "pt"
    return None
