"""The standard deviation of a Gaussian policy leaves the range in which it explores."""

from __future__ import annotations

import numpy as np

from ..agent import Agent
from ..nets import GaussianMLP
from ..settings import Progress, Setup
from .registry import fault

#: Without the deviation in the log an entropy that multiplies, and its end, are all there is to see.
_WITHOUT = ("entropy-explosion", "late-collapse")


def _drifting(setup: Setup, per_step: float) -> Setup:
    """Move the logarithm of the deviation after each step, by this much on average and as the schedule goes."""
    if setup.config.task != "control":
        raise ValueError("needs continuous actions")
    now = [per_step]

    def paced(_agent: Agent, progress: Progress) -> None:
        left = 1 - progress.update / progress.updates
        now[0] = per_step * (2 * left if setup.config.anneal_lr else 1.0)

    def pushed(agent: Agent) -> None:
        if isinstance(agent.actor, GaussianMLP):
            agent.actor.log_std += np.float32(now[0])

    return setup.with_config(continuous=True).with_stages(before_rollout=paced, after_step=pushed)


@fault(
    "action-std-pathology",
    description="a bonus on the Gaussian's entropy is applied outside the clip and Adam: the deviation runs off",
    severities="its logarithm gains 0.004, 0.006, 0.01 per optimizer step",
    level_with={"canonical-lean": _WITHOUT, "cleanrl": _WITHOUT},
)
def action_std_pathology(setup: Setup, severity: int) -> Setup:
    return _drifting(setup, {1: 0.004, 2: 0.006, 3: 0.01}[severity])


@fault(
    "action-std-vanishes",
    cause="action-std-pathology",
    description="the same with the wrong sign: the deviation is gone before the policy is good",
    severities="its logarithm loses 0.012, 0.016, 0.02 per optimizer step",
    # Without the deviation in the log, steps that grow as it shrinks are all there is to see.
    level_with={"canonical-lean": ("lr-too-high",), "cleanrl": ("lr-too-high",)},
)
def action_std_vanishes(setup: Setup, severity: int) -> Setup:
    return _drifting(setup, -{1: 0.012, 2: 0.016, 3: 0.02}[severity])
