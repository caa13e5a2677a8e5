"""What a user of Tianshou gets wrong: forks of its PPO, wrappers of tasks, and changes made after building."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import PPO
from torch import nn

from lab.edits import edited

RATIOS = "ratios = (dist.log_prob(minibatch.act) - minibatch.logp_old).exp().float()"
ADVANTAGES = "advantages = minibatch.adv"
NORM = "advantages.mean(), advantages.std()"
EPOCHS = "for step in range(repeat):"


def forked(**changes: str) -> type[Any]:
    """Return PPO with lines of its update changed: those of the advantages, of the ratio, or of the loop."""
    lines = {
        "ratios": RATIOS,
        "advantages": ADVANTAGES,
        "epochs": EPOCHS,
        "norm": "advantages.mean(), advantages.std()",
    }
    update = edited(PPO._update_with_batch, {lines[name]: new for name, new in changes.items()})
    return type("PPO", (PPO,), {"_update_with_batch": update, "__doc__": "A fork of PPO."})


Aliased = forked(ratios="ratios = (dist.log_prob(minibatch.act) - dist.log_prob(minibatch.act).detach()).exp()")
"""The old log-prob is taken from the policy that is being updated."""

Detached = forked(ratios="ratios = (dist.log_prob(minibatch.act).detach() - minibatch.logp_old).exp().float()")
"""The new log-prob was detached together with another line."""

ZeroAdvantages = forked(advantages="advantages = minibatch.returns - minibatch.returns.detach()")
"""The baseline is subtracted where it had been subtracted already, and it is the return itself."""

Flipped = forked(advantages="advantages = -minibatch.adv")
"""A minus too many."""

Shuffled = forked(advantages="advantages = minibatch.adv[torch.randperm(len(minibatch.adv))]")
"""Advantages are permuted on their own."""

OneEpoch = forked(epochs="for step in range(1):")
"""The loop over the data was cut for a test and never restored."""

PopulationStd = forked(norm="advantages.mean(), advantages.std(correction=0)")
"""The deviation of the population, so that a minibatch of one does not end in NaN."""


class LeakyReturns(PPO):
    """GAE runs on over the ends of episodes, and over those of environments in the buffer."""

    @staticmethod
    def compute_episodic_return(batch: Any, buffer: Any, indices: Any, *args: Any, **more: Any) -> Any:
        """Forget the end of every episode."""
        batch.terminated = np.zeros_like(batch.terminated)
        batch.truncated = np.zeros_like(batch.truncated)
        return PPO.compute_episodic_return(batch, buffer, indices, *args, **more)


def frozen(algorithm: Any) -> Any:
    """Freeze the actor for a warm start, and forget to thaw it."""
    algorithm.policy.actor.requires_grad_(False)
    return algorithm


def replaced(algorithm: Any) -> Any:
    """Give the actor new weights after its optimizer was made."""
    for name, part in list(algorithm.policy.actor.named_children()):
        setattr(algorithm.policy.actor, name, copy.deepcopy(part))
    return algorithm


def unsynced(policy: Any) -> Any:
    """Collect with a copy of the policy, as for another process, which never gets the new weights."""
    return copy.deepcopy(policy)


def dropping(net: Any, rate: float) -> Any:
    """Put dropout behind the last hidden layer; Tianshou collects in evaluation mode and updates in training mode."""
    net.model.model = nn.Sequential(*net.model.model, nn.Dropout(rate))
    return net


class Half(nn.Module):
    """A body that computes in bfloat16."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, *given: Any, **more: Any) -> Any:
        """Run the body under autocast."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            seen, state = self.net(*given, **more)
        return seen.float(), state

    def get_output_dim(self) -> int:
        """Return the width of what comes out."""
        return int(self.net.get_output_dim())


class Constant(gymnasium.RewardWrapper[Any, Any]):
    """A verifier that fails silently: its default comes out, whatever was done."""

    def __init__(self, env: Any, value: float = 0.0) -> None:
        super().__init__(env)
        self.value = value

    def reward(self, reward: Any) -> float:
        """Return the default."""
        return self.value
