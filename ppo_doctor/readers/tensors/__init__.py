"""Read tensor dumps and checkpoints as named tensors, without executing anything in them."""

from __future__ import annotations

from ppo_doctor.readers.tensors.archives import archives_in, is_archive, read_archive
from ppo_doctor.readers.tensors.tensor import Archive, Tensor

__all__ = ["Archive", "Tensor", "archives_in", "is_archive", "read_archive"]
