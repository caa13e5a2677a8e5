"""A constraint holds the policy in place: the clip range, the KL stop."""

from __future__ import annotations

from ..settings import Setup
from .registry import fault


@fault(
    "clip-range-too-small",
    description="the clip range is far below the natural step, so most samples are clipped after the first step",
    severities="clip range 5e-3, 1e-3, 2e-4",
)
def clip_range_too_small(setup: Setup, severity: int) -> Setup:
    return setup.with_config(clip_range={1: 5e-3, 2: 1e-3, 3: 2e-4}[severity])


@fault(
    "target-kl-stops-early",
    description="target_kl is so small that most of the configured steps are never taken",
    severities="target_kl 1e-4, 1e-5, 1e-6",
    verdict="warning",
)
def target_kl_stops_early(setup: Setup, severity: int) -> Setup:
    if setup.config.task == "language" and setup.config.stop_rule != "trl-legacy":
        raise ValueError("TRL's newer trainers have no early stop")
    return setup.with_config(target_kl={1: 1e-4, 2: 1e-5, 3: 1e-6}[severity])
