"""Named fault switches; importing this package fills the registry."""

from __future__ import annotations

from . import (
    data_reuse,
    decision_table,
    identity,
    mismatch,
    no_update,
    numerics,
    over_constrained,
    signal,
    sound,
    stability,
    value,
)
from .registry import FAULTS, Fault, fault

__all__ = [
    "FAULTS",
    "Fault",
    "data_reuse",
    "decision_table",
    "fault",
    "identity",
    "mismatch",
    "no_update",
    "numerics",
    "over_constrained",
    "signal",
    "sound",
    "stability",
    "value",
]
