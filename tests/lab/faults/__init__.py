"""Named fault switches; importing this package fills the registry."""

from __future__ import annotations

from . import data_reuse, identity, no_update, numerics, over_constrained, sound
from .registry import FAULTS, Fault, fault

__all__ = [
    "FAULTS",
    "Fault",
    "data_reuse",
    "fault",
    "identity",
    "no_update",
    "numerics",
    "over_constrained",
    "sound",
]
