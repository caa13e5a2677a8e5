"""The ratio compares the policy with itself."""

from __future__ import annotations

from typing import Any

from ..agent import Agent, Batch
from ..nets import F32
from ..settings import Setup
from .registry import fault

_PACE = "learning rate × 1, 2, 4 (the trust region is missing, so larger steps hurt more)"


def _faster(setup: Setup, severity: int) -> Setup:
    pace = {1: 1.0, 2: 2.0, 3: 4.0}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * pace)


@fault(
    "old-policy-aliased",
    description="the old policy is the same object as the policy, so old log-probs follow every step",
    severities=_PACE,
    default_severity=1,
    level_with={
        "*": ("old-logp-resynced-per-minibatch",),
        "trl-ppo": ("old-logp-resynced-per-minibatch", "epochs-not-executed"),
    },
)
def old_policy_aliased(setup: Setup, severity: int) -> Setup:
    def current(batch: Batch, rows: Any, agent: Agent) -> F32:
        agent.old_policy = agent.actor
        return agent.log_prob(batch.inputs[rows], batch.actions[rows], policy=agent.old_policy)

    return _faster(setup, severity).with_stages(old_log_prob=current)


@fault(
    "old-logp-resynced-per-minibatch",
    description="the stored old log-probs are overwritten with the current policy's before every minibatch",
    severities=_PACE,
    default_severity=1,
    level_with={"*": ("old-policy-aliased",), "recorder": ("old-policy-aliased",)},
)
def old_logp_resynced_per_minibatch(setup: Setup, severity: int) -> Setup:
    def resync(batch: Batch, agent: Agent) -> None:
        batch.old_log_prob[...] = agent.log_prob(batch.inputs, batch.actions)

    return _faster(setup, severity).with_stages(before_minibatch=resync)
