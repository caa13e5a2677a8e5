"""Stable-Baselines3's PPO on classic control: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

from .cases import Plan, plans_of, write_settings
from .edits import edited, untouched

TRAINER = f"Stable-Baselines3 {stable_baselines3.__version__}"
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


def halves(rest: float) -> float:
    """A linear schedule to 0, as the zoo's `lin_1e-3`."""
    return 1e-3 * rest


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


class ZeroAdvantages(PPO):
    """The baseline was subtracted twice over: advantages are returns minus returns."""

    train = edited(
        PPO.train, {"advantages = rollout_data.advantages": "advantages = rollout_data.returns - rollout_data.returns"}
    )


class FlippedAdvantages(PPO):
    """A minus too many."""

    train = edited(PPO.train, {"advantages = rollout_data.advantages": "advantages = -rollout_data.advantages"})


class Dropped(FlattenExtractor):
    """Features with dropout, which Stable-Baselines3 switches off for the rollout and on for the update."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, observations: Any) -> Any:
        return self.drop(super().forward(observations))


class Scaled(gymnasium.RewardWrapper):
    """Rewards times a factor."""

    def __init__(self, env: Any, factor: float) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


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


def _healthy() -> Iterator[tuple[str, Recipe]]:
    yield "the plain run", Recipe()
    yield "a linear learning-rate schedule", Recipe(variant="annealed", settings={"learning_rate": halves})
    yield "target_kl that sometimes stops", Recipe(variant="target kl", settings={"target_kl": 0.03, "n_epochs": 10})
    yield "continuous actions", Recipe(variant="Pendulum", env="Pendulum-v1")
    yield (
        "the defaults of the library",
        Recipe(variant="defaults", settings={"learning_rate": 3e-4, "n_epochs": 10, "batch_size": 64, "gamma": 0.99}),
    )
    yield (
        "a critic that is clipped, an entropy bonus, no whitening",
        Recipe(
            variant="odd settings",
            settings={"clip_range_vf": 0.5, "ent_coef": 0.01, "normalize_advantage": False, "max_grad_norm": 0.1},
        ),
    )


def _faulty() -> Iterator[tuple[str, str, Recipe]]:
    yield (
        "benign-single-update",
        "one epoch over one minibatch",
        Recipe(settings={"n_epochs": 1, "batch_size": 512, "learning_rate": 3e-3}),
    )
    yield "lr-zero", "a schedule that begins at its end", Recipe(settings={"learning_rate": 0.0})
    yield "lr-too-small", "1e-8 instead of 1e-3", Recipe(settings={"learning_rate": 1e-8})
    yield "lr-too-high", "0.1 instead of 1e-3", Recipe(settings={"learning_rate": 0.1})
    yield (
        "lr-too-high",
        "0.03 instead of 1e-3",
        Recipe(variant="Pendulum", env="Pendulum-v1", settings={"learning_rate": 0.03}),
    )
    yield "epochs-not-executed", "a break that came too early", Recipe(trainer=EpochsIgnored)
    yield "old-policy-aliased", AliasedOldPolicy.__doc__ or "", Recipe(trainer=AliasedOldPolicy)
    yield "old-policy-aliased", RatioOnlyAliased.__doc__ or "", Recipe(variant="loss only", trainer=RatioOnlyAliased)
    yield (
        "old-policy-aliased",
        AliasedOldPolicy.__doc__ or "",
        Recipe(variant="Pendulum", env="Pendulum-v1", trainer=AliasedOldPolicy),
    )
    yield "adv-exactly-zero", ZeroAdvantages.__doc__ or "", Recipe(trainer=ZeroAdvantages)
    yield "clip-range-too-small", "0.002 instead of 0.2", Recipe(settings={"clip_range": 0.002})
    yield (
        "clip-range-too-small",
        "0.002 instead of 0.2",
        Recipe(variant="Pendulum", env="Pendulum-v1", settings={"clip_range": 0.002}),
    )
    yield "target-kl-stops-early", "target_kl 1e-5", Recipe(settings={"target_kl": 1e-5, "n_epochs": 10})
    yield "advantage-sign-flipped", FlippedAdvantages.__doc__ or "", Recipe(trainer=FlippedAdvantages)
    yield (
        "advantage-sign-flipped",
        "costs given as rewards, outside Monitor",
        Recipe(variant="reward", outside=lambda env: Scaled(env, -1.0)),
    )
    yield (
        "dropout-or-train-mode",
        Dropped.__doc__ or "",
        Recipe(settings={"policy_kwargs": {"features_extractor_class": Dropped}}),
    )
    yield "no-grad-path", freeze_actor.__doc__ or "", Recipe(before=freeze_actor)
    yield "optimizer-orphaned-params", replace_actor.__doc__ or "", Recipe(before=replace_actor)
    yield (
        "reward-too-sparse",
        "MountainCar, whose goal is never met by chance",
        Recipe(variant="MountainCar", env="MountainCar-v0"),
    )
    yield "reward-pipeline-broken", "a reward that is 0 throughout", Recipe(inside=lambda env: Scaled(env, 0.0))
    yield "nan-inf", BreaksLater.__doc__ or "", Recipe(inside=BreaksLater)
    yield "critic-not-learning", "vf_coef 0", Recipe(settings={"vf_coef": 0.0})
    yield "entropy-explosion", "ent_coef 1", Recipe(settings={"ent_coef": 1.0})
    yield "reward-scale-off", "rewards times 1000", Recipe(inside=lambda env: Scaled(env, 1000.0))
    yield "over-reuse", "50 epochs", Recipe(settings={"n_epochs": 50})


def plans() -> Iterator[Plan]:
    """Yield every run."""
    return plans_of("sb3", _healthy, _faulty)


np.seterr(all="ignore")
