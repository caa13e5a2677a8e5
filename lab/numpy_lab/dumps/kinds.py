"""What is dumped: runs with one fault that a dump or a checkpoint shows, and sound ones of many kinds."""

from __future__ import annotations

# Each enters its kinds in the list, in the order of these imports.
from . import mismatch_kinds, signal_kinds
from .kind import KINDS, Kind

HALF_RATE = mismatch_kinds.HALF_RATE

__all__ = ["HALF_RATE", "KINDS", "Kind", "signal_kinds"]
