"""Stable-Baselines3's PPO on classic control: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from lab.cases import write_settings
from lab.edits import edited

ENVS, UPDATES = 8, 50
CARTPOLE: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "n_steps": 64,
    "batch_size": 128,
    "n_epochs": 5,
    "gamma": 0.98,
    "gae_lambda": 0.95,
}
PENDULUM: Mapping[str, Any] = {**CARTPOLE, "gamma": 0.9, "n_steps": 128, "batch_size": 256, "n_epochs": 8}

Wrap = Callable[[Any], Any]


def untouched(_: Any) -> None:
    """Do nothing to what was just made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    variant: str = "CartPole"
    env: str = "CartPole-v1"
    settings: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the script's configuration does not tell the truth about."""
    trainer: type[Any] = PPO
    inside: Wrap = lambda env: env
    """Between the task and Monitor: what is logged as the episode's return is changed with it."""
    outside: Wrap = lambda env: env
    before: Callable[[Any], None] = untouched
    """What the user does to the model between making and training it."""

    def train(self, folder: Path, seed: int) -> Path:
        """Train and return progress.csv."""
        torch.set_num_threads(1)
        base = PENDULUM if self.env == "Pendulum-v1" else CARTPOLE
        told = {**base, **self.settings}
        model = self.trainer("MlpPolicy", self._envs(seed), seed=seed, device="cpu", **{**told, **self.hidden})
        model.set_logger(configure(str(folder), ["csv"]))
        total = UPDATES * ENVS * told["n_steps"]
        write_settings(folder, _told(told, model, total))
        self.before(model)
        try:
            model.learn(total_timesteps=total)
        finally:
            model.logger.close()
        return folder / "progress.csv"

    def _envs(self, seed: int) -> Any:
        def one() -> Any:
            return self.outside(Monitor(self.inside(gymnasium.make(self.env))))

        vector = DummyVecEnv([one] * ENVS)
        vector.seed(seed)
        return vector


def _told(told: Mapping[str, Any], model: Any, total: int) -> dict[str, Any]:
    plain = {name: value for name, value in told.items() if isinstance(value, int | float | str | None)}
    return {"algo": "ppo", "policy": "MlpPolicy", "n_envs": model.n_envs, "total_timesteps": total, **plain}


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
    """The same in the loss alone: what is logged as KL still compares with the rollout."""

    train = edited(PPO.train, {"th.exp(log_prob - rollout_data.old_log_prob)": "th.exp(log_prob - log_prob.detach())"})


class EpochsIgnored(PPO):
    """A return that slipped into the loop: one epoch is run, whatever was configured."""

    train = edited(PPO.train, {"if not continue_training:": "if True:"})


class BreaksLater(gymnasium.RewardWrapper):
    """A running normaliser that divides 0 by 0 once, after a good while."""

    seen = 0

    def reward(self, reward: Any) -> float:
        self.seen += 1
        return float("nan") if self.seen > 1500 else float(reward)


def freeze_actor(model: Any) -> None:
    """Freeze for a warm start, and forget to thaw."""
    policy = model.policy
    for part in (policy.mlp_extractor.policy_net, policy.action_net):
        part.requires_grad_(False)


def replace_actor(model: Any) -> None:
    """Swap in a head after the optimizer was made; nobody tells the optimizer."""
    policy = model.policy
    policy.mlp_extractor.policy_net = torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64)
    )
    policy.action_net = torch.nn.Linear(64, policy.action_space.n)


np.seterr(all="ignore")
