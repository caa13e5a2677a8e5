"""What surrounds a recorder: its rank, and the modes and random states that a probe must leave alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from ppo_doctor.record import measures
from ppo_doctor.record.kinds import Foreign, Tensor

#: Returns new and old log-probs of the same samples, and optionally a mask.
Probe = Callable[[], tuple[Any, ...]]


def rank() -> int:
    """Return this process's rank: of torch.distributed where it runs, else of the launcher."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    told = os.environ.get("RANK", "0")
    return int(told) if told.isdigit() else 0


def probed(probe: Probe, weights: Foreign) -> Tensor:
    """Return the statistics of a probe; modes of modules and random states are as before."""
    torch = sys.modules.get("torch")
    if torch is None:
        return measures.row(*_three(probe()))
    watched = weights is not None and hasattr(weights.model, "modules")
    modules = list(weights.model.modules()) if watched else []
    modes = [module.training for module in modules]
    devices = sorted({p.device.index for p in weights.parameters if p.device.type == "cuda"}) if watched else []
    try:
        for module in modules:
            module.training = False
        with torch.random.fork_rng(devices), torch.no_grad():
            return measures.row(*_three(probe()))
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _three(found: tuple[Any, ...]) -> tuple[Any, Any, None, Any]:
    return found[0], found[1], None, found[2] if len(found) > 2 else None
