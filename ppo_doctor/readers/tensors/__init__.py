"""Tensor dumps and checkpoints: files of arrays as named tensors, read without executing anything in them."""

from __future__ import annotations

from ppo_doctor.readers.tensors.archives import archives_in, is_archive, read_archive
from ppo_doctor.readers.tensors.tensor import Archive, Tensor

__all__ = ["Archive", "Tensor", "archives_in", "is_archive", "read_archive"]
