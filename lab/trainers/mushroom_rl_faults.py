"""Faults of MushroomRL's PPO as forks and scripts have them."""

from __future__ import annotations

from typing import Any

import torch
from mushroom_rl.algorithms.actor_critic import PPO


class Flipped(PPO):
    """Values minus returns are taken for advantages."""

    def _update_policy(self, obs: Any, act: Any, adv: Any, old_log_p: Any) -> None:
        super()._update_policy(obs, act, -adv, old_log_p)


def orphan(agent: Any) -> None:
    """Make the optimizer for copies of the policy's tensors."""
    copies = [torch.nn.Parameter(each.detach().clone()) for each in agent.policy.parameters()]
    agent._optimizer = torch.optim.Adam(copies, lr=agent._optimizer.param_groups[0]["lr"])
