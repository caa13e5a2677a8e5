"""Faults of Stable-Baselines3's PPO as forks and scripts have them, and what sound scripts do to model and task."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecNormalize

from lab.edits import edited


class AliasedOldPolicy(PPO):
    """The fork takes the old log-prob from the policy that it is updating."""

    train = edited(
        PPO.train,
        {
            "- rollout_data.old_log_prob)\n\n": "- log_prob.detach())\n\n",
            "log_prob - rollout_data.old_log_prob\n": "log_prob - log_prob.detach()\n",
        },
    )


class RatioOnlyAliased(PPO):
    """The old log-prob of the loss is the current one; what is logged as KL still compares with the rollout."""

    train = edited(PPO.train, {"th.exp(log_prob - rollout_data.old_log_prob)": "th.exp(log_prob - log_prob.detach())"})


class EpochsIgnored(PPO):
    """A return that slipped into the loop: one epoch is run, whatever was configured."""

    train = edited(PPO.train, {"if not continue_training:": "if True:"})


class EpochsIgnoredCounted(PPO):
    """One epoch is run, while the counter adds the configured epochs, as in the releases before 2.0."""

    train = edited(
        PPO.train,
        {
            "        self._n_updates += 1\n        if not continue_training:\n            break\n": "        break\n",
            "    explained_var = ": "    self._n_updates += self.n_epochs\n    explained_var = ",
        },
    )


class ZeroAdvantages(PPO):
    """The baseline was subtracted twice over: advantages are returns minus returns."""

    train = edited(
        PPO.train, {"advantages = rollout_data.advantages": "advantages = rollout_data.returns - rollout_data.returns"}
    )


class FlippedAdvantages(PPO):
    """A minus too many."""

    train = edited(PPO.train, {"advantages = rollout_data.advantages": "advantages = -rollout_data.advantages"})


class DetachedLogProb(PPO):
    """Log-probs are detached before the ratio is taken: the surrogate has no gradient, the entropy bonus has one."""

    train = edited(PPO.train, {"values = values.flatten()": "values, log_prob = values.flatten(), log_prob.detach()"})


class Dropped(FlattenExtractor):
    """Features with dropout, which Stable-Baselines3 switches off for the rollout and on for the update."""

    def __init__(self, space: Any, rate: float = 0.2) -> None:
        super().__init__(space)
        self.drop = torch.nn.Dropout(rate)

    def forward(self, observations: Any) -> Any:
        """Return what is left of the observations."""
        return self.drop(super().forward(observations))


class Normed(FlattenExtractor):
    """Features behind batch norm: running statistics in the rollout, the minibatch's own in the update."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.norm = torch.nn.BatchNorm1d(self.features_dim, momentum=0.01)

    def forward(self, observations: Any) -> Any:
        """Return the observations, normalised."""
        return self.norm(super().forward(observations))


def freeze_actor(model: Any) -> None:
    """Freeze for a warm start, and forget to thaw."""
    policy = model.policy
    for part in (policy.mlp_extractor.policy_net, policy.action_net):
        part.requires_grad_(False)
    if hasattr(policy, "log_std"):
        policy.log_std.requires_grad_(False)


def unchecked(_model: Any) -> None:
    """Switch the checks of distributions off for speed, as many scripts do."""
    torch.distributions.Distribution.set_default_validate_args(False)


def normalised(vector: Any) -> Any:
    """Normalise observations and rewards with running statistics."""
    return VecNormalize(vector, norm_obs=True, norm_reward=True)


def lin_1e3(rest: float) -> float:
    """A linear schedule to 0, as the zoo's `lin_1e-3`."""
    return 1e-3 * rest


def lin_2e3(rest: float) -> float:
    """A steeper one."""
    return 2e-3 * rest


def lin_clip(rest: float) -> float:
    """The clip range goes to 0 with the learning rate, as in the zoo's Atari settings (plus a little)."""
    return 0.2 * rest + 1e-6
