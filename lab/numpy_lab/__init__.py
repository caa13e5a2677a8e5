"""The training lab: real PPO and GRPO in NumPy, with faults injected and logs written as frameworks write them."""

from __future__ import annotations

from .dialects import write
from .faults import FAULTS, Fault
from .records import RunRecord
from .train import run

__all__ = ["FAULTS", "Fault", "RunRecord", "run", "write"]
