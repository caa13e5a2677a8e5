"""The policy gets no update: dead advantages, dead learning rate."""

from __future__ import annotations

import numpy as np

from ..nets import F32
from ..settings import Progress, Setup, TrainConfig, scheduled_learning_rate
from .registry import fault, onset

_START = "begins at 60 %, at 30 %, at the start of the run"


@fault(
    "adv-exactly-zero",
    description="every advantage is exactly zero: a constant reward (GRPO), or a zero weight on the advantages (PPO)",
    severities=_START,
    default_severity=3,
    level_with={
        "trl-grpo": ("reward-pipeline-broken", "reward-too-sparse"),
    },
)
def adv_exactly_zero(setup: Setup, severity: int) -> Setup:
    begin = onset(severity)

    def zeroed(values: F32, progress: Progress) -> F32:
        return values * np.float32(0) if progress.reached(begin) else values

    if setup.config.algorithm == "grpo":
        return setup.with_stages(reward=zeroed)
    return setup.with_stages(advantages=zeroed)


@fault(
    "lr-zero",
    description="the learning-rate schedule returns exactly 0 long before the run ends",
    severities=_START,
    default_severity=3,
)
def lr_zero(setup: Setup, severity: int) -> Setup:
    begin = onset(severity)

    def schedule(config: TrainConfig, progress: Progress) -> float:
        return 0.0 if progress.reached(begin) else scheduled_learning_rate(config, progress)

    return setup.with_stages(learning_rate=schedule)
