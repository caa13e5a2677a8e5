"""Actor, critic and reference model with their optimizers; the batch that they learn from."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from .distributions import distribution
from .nets import F32, MLP, SGD, Adam, GaussianMLP
from .settings import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Units × tokens (one token per unit in control). `old_log_prob` is the buffer that the ratio reads."""

    inputs: F32
    actions: Any
    mask: F32
    old_log_prob: F32
    sampled_log_prob: F32
    ref_log_prob: F32 | None
    values: F32
    advantages: F32
    returns: F32


class Agent:
    """The policy, an optional critic, and an optional frozen reference policy."""

    def __init__(self, config: TrainConfig, features: int, actions: int, rng: np.random.Generator) -> None:
        self.distribution = distribution(continuous=config.continuous)
        policy = GaussianMLP if config.continuous else MLP
        self.actor: MLP = policy((features, *config.hidden, actions), rng, output_gain=0.1)
        if isinstance(self.actor, GaussianMLP):
            self.actor.log_std += np.float32(config.log_std_init)
        kind = SGD if config.optimizer == "sgd" else Adam
        self.actor_optimizer = kind(config.adam_eps, config.max_grad_norm)
        self.critic = MLP((features, *config.hidden, 1), rng, output_gain=0.1) if config.algorithm == "ppo" else None
        self.critic_optimizer = Adam(config.adam_eps, config.max_grad_norm)
        self.reference = copy.deepcopy(self.actor) if config.kl_coef else None
        self.old_policy: MLP | None = None
        """A policy that is kept as the old one, where training keeps one."""

    def log_prob(self, inputs: F32, actions: Any, *, policy: MLP | None = None) -> F32:
        """Log-probabilities of actions, one per row of inputs; the one code path for old, new and reference."""
        outputs, _ = (policy or self.actor).forward(inputs.reshape(-1, inputs.shape[-1]))
        shape = inputs.shape[:-1]
        return self.distribution.log_prob(outputs, actions.reshape(-1, *actions.shape[len(shape) :])).reshape(shape)

    @property
    def action_std(self) -> float | None:
        """Mean of the Gaussian policy's standard deviations; None for a choice among actions."""
        return float(np.exp(self.actor.log_std).mean()) if isinstance(self.actor, GaussianMLP) else None

    def value(self, inputs: F32) -> F32:
        shape = inputs.shape[:-1]
        if self.critic is None:
            return np.zeros(shape, np.float32)
        values, _ = self.critic.forward(inputs.reshape(-1, inputs.shape[-1]))
        return values.reshape(shape)
