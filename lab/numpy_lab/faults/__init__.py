"""Named fault switches; importing this package fills the registry."""

from __future__ import annotations

from . import (
    batches,
    data_reuse,
    decision_table,
    drift,
    estimates,
    gaussian,
    identity,
    mismatch,
    no_update,
    numerics,
    outliers,
    over_constrained,
    samples,
    signal,
    sound,
    stability,
    value,
)
from .registry import FAULTS, Fault, fault

__all__ = [
    "FAULTS",
    "Fault",
    "batches",
    "data_reuse",
    "decision_table",
    "drift",
    "estimates",
    "fault",
    "gaussian",
    "identity",
    "mismatch",
    "no_update",
    "numerics",
    "outliers",
    "over_constrained",
    "samples",
    "signal",
    "sound",
    "stability",
    "value",
]
