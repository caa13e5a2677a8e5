"""Numbers break."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..nets import F32
from ..settings import Progress, Setup, guarded_std
from .registry import fault

Transform = Callable[[F32, Progress], F32]


@fault(
    "nan-inf",
    description="midway a division by zero makes NaN (a sensor's 0/0 velocity, or a group's std without epsilon), and "
    "the first step on it makes every weight NaN",
    severities="from 75 %, 50 %, 25 % of the run on",
)
def nan_inf(setup: Setup, severity: int) -> Setup:
    begin = {1: 0.75, 2: 0.5, 3: 0.25}[severity]
    if setup.config.task == "control":
        return setup.with_stages(observation=_stalled_clock(begin))
    if setup.config.algorithm == "grpo":
        return setup.with_stages(group_scale=_without_epsilon(begin))
    return setup.with_stages(reward=_empty_reference(begin))


def _stalled_clock(begin: float) -> Transform:
    """Environment 0 derives velocity from two equal readings over no time: 0/0."""

    def observe(observation: F32, progress: Progress) -> F32:
        elapsed = np.ones(observation.shape[:1], np.float32)
        elapsed[0] = not progress.reached(begin)
        seen = observation.copy()
        seen[:, 1] = seen[:, 1] * elapsed / elapsed
        return seen

    return observe


def _without_epsilon(begin: float) -> Callable[[F32, float, Progress], F32]:
    """The first group of equal rewards then gives 0/0."""

    def scale(std: F32, eps: float, progress: Progress) -> F32:
        return guarded_std(std, 0.0 if progress.reached(begin) else eps, progress)

    return scale


def _empty_reference(begin: float) -> Transform:
    """Sample 0's reference answer is empty: its score divides by a length of zero."""

    def reward(scores: F32, progress: Progress) -> F32:
        length = np.ones_like(scores)
        length[0] = not progress.reached(begin)
        return scores * length / length

    return reward
