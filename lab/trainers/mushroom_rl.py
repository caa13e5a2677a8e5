"""MushroomRL's PPO on a mass and a pendulum: sound runs, and a fault each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from mushroom_rl.algorithms.actor_critic import PPO
from mushroom_rl.core import Core, Environment, Logger, MDPInfo
from mushroom_rl.policy import GaussianTorchPolicy
from mushroom_rl.utils.dataset import compute_J
from mushroom_rl.utils.spaces import Box
from torch import nn

from lab.cases import Case, main, write_settings
from lab.tasks import register

from . import mushroom_rl_faults as faults

MASS, PENDULUM = "lab/Mass-v0", "Pendulum-v1"
#: What a user's script sets, after MushroomRL's examples.
SETTINGS: Mapping[str, Any] = {
    "env": MASS,
    "horizon": 50,
    "gamma": 0.95,
    "n_epochs": 10,
    "n_steps": 800,
    "n_steps_per_fit": 400,
    "n_episodes_test": 2,
    "actor_lr": 1e-3,
    "critic_lr": 1e-3,
    "n_epochs_policy": 4,
    "batch_size": 64,
    "eps_ppo": 0.2,
    "lam": 0.95,
    "ent_coeff": 0.0,
    "std_0": 1.0,
    "n_features": 32,
    "critic_fit": {"n_epochs": 3, "batch_size": 64},
}


class Task(Environment):
    """A task of gymnasium's as MushroomRL takes it: actions in [-1, 1], episodes cut at the horizon."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.env, self.seed = gymnasium.make(told["env"]), told["seed"]
        seen, act = self.env.observation_space, self.env.action_space
        ones = np.ones_like(act.high)
        super().__init__(
            MDPInfo(Box(low=seen.low, high=seen.high), Box(low=-ones, high=ones), told["gamma"], told["horizon"])
        )

    def reset(self, state: Any = None) -> Any:
        """Begin an episode; only the first is seeded."""
        seen, _ = self.env.reset(seed=self.seed)
        self.seed = None
        return np.asarray(seen, float)

    def step(self, action: Any) -> Any:
        """Do an action."""
        force = np.clip(action, -1, 1) * self.env.action_space.high
        seen, reward, terminated, _, _ = self.env.step(force.astype(np.float32))
        return np.asarray(seen, float), float(reward), bool(terminated), {}

    def stop(self) -> None:
        """There is no window to close."""


class Network(nn.Module):
    """Two hidden layers."""

    def __init__(self, input_shape: Any, output_shape: Any, n_features: int, **_: Any) -> None:
        super().__init__()
        sizes = (input_shape[-1], n_features, n_features, output_shape[0])
        first, second, last = (nn.Linear(*pair) for pair in pairwise(sizes))
        self.layers = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), last)

    def forward(self, state: Any, **_: Any) -> Any:
        """Return the means of actions, or a value."""
        return self.layers(torch.squeeze(state, 1).float())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    kind: type[Any] = PPO
    """The library's algorithm, or a fork of it."""
    after: Callable[[Any], None] = lambda _agent: None
    """What the user does to the agent between making and training it."""

    @property
    def told(self) -> dict[str, Any]:
        """The settings, as the script writes them down."""
        return {**SETTINGS, **self.settings, "seed": self.seed}

    def train(self, folder: Path) -> None:
        """Train for some epochs, each ended by an evaluation."""
        torch.set_num_threads(1)
        register()
        told = self.told
        write_settings(folder, told)
        random.seed(self.seed)
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        task = Task(told)
        agent = self._agent(task, told)
        self.after(agent)
        logger = Logger("PPO", results_dir=folder / "logs", log_console=True, seed=self.seed)
        logger.strong_line()
        logger.info("Experiment Algorithm: PPO")
        agent.set_logger(logger)
        core = Core(agent, task)
        evaluate(core, logger, told, 0)
        for epoch in range(1, told["n_epochs"] + 1):
            core.learn(n_steps=told["n_steps"], n_steps_per_fit=told["n_steps_per_fit"], quiet=True)
            evaluate(core, logger, told, epoch)

    def _agent(self, task: Task, told: Mapping[str, Any]) -> Any:
        seen, act = task.info.observation_space.shape, task.info.action_space.shape
        wide = {"n_features": told["n_features"]}
        policy = GaussianTorchPolicy(Network, seen, act, std_0=told["std_0"], **wide)
        critic = {"network": Network, "loss": nn.functional.mse_loss, "input_shape": seen, "output_shape": (1,), **wide}
        critic |= {"optimizer": _adam(told["critic_lr"]), "batch_size": 64}
        given = {name: told[name] for name in ("n_epochs_policy", "batch_size", "eps_ppo", "lam", "ent_coeff")}
        given |= {"critic_params": critic, "critic_fit_params": told["critic_fit"]}
        return self.kind(task.info, policy, actor_optimizer=_adam(told["actor_lr"]), **given)


def _adam(rate: float) -> dict[str, Any]:
    return {"class": torch.optim.Adam, "params": {"lr": rate}}


def evaluate(core: Any, logger: Any, told: Mapping[str, Any], epoch: int) -> None:
    """Run some episodes, and log what MushroomRL's examples log of them."""
    dataset = core.evaluate(n_episodes=told["n_episodes_test"], quiet=True)
    discounted, plain = np.mean(compute_J(dataset, told["gamma"])), np.mean(compute_J(dataset))
    logger.epoch_info(epoch, J=discounted, R=plain, entropy=core.agent.policy.entropy())


def _runs() -> Iterator[tuple[str, str, str, Recipe]]:
    """Yield (cause, name, how it is made, recipe)."""
    longer = {"n_epochs": 14, "n_steps": 1000, "n_steps_per_fit": 500, "critic_fit": {"n_epochs": 5, "batch_size": 64}}
    yield "healthy", "mass", "settings of a common kind", Recipe(seed=1, settings=longer)
    slow = {"env": PENDULUM, "horizon": 200, "gamma": 0.99, "n_epochs": 20, "n_steps": 3000, "n_steps_per_fit": 1500}
    slow |= {"n_episodes_test": 3, "actor_lr": 3e-4, "critic_fit": longer["critic_fit"]}
    yield "healthy", "pendulum", "the settings of MushroomRL's example, in fewer steps", Recipe(seed=1, settings=slow)
    yield "lr-too-small", "1", "a rate of 1e-10 for the actor", Recipe(seed=2, settings={"actor_lr": 1e-10})
    orphan = Recipe(seed=3, after=faults.orphan)
    yield "optimizer-orphaned-params", "1", "the optimizer was made for copies of the tensors", orphan
    yield "advantage-sign-flipped", "1", "values minus returns", Recipe(seed=4, kind=faults.Flipped)
    yield "lr-too-high", "1", "a rate of 0.3 for the actor", Recipe(seed=5, settings={"actor_lr": 0.3})
    bonus = Recipe(seed=6, settings={"ent_coeff": 5.0, "actor_lr": 3e-3})
    yield "entropy-explosion", "1", "an entropy bonus of 5", bonus
    yield "critic-not-learning", "1", "a rate of 0 for the critic", Recipe(seed=7, settings={"critic_lr": 0.0})
    yield "clip-range-too-small", "1", "a clip of 1e-6", Recipe(seed=8, settings={"eps_ppo": 1e-6})


def cases() -> Iterator[Case]:
    """Yield every run."""
    for fault, name, made, recipe in _runs():
        daily = name == "mass" or fault in ("lr-too-high", "entropy-explosion")
        told = {"name": f"{fault}/{name}", "fault": fault, "made": made, "seed": recipe.seed}
        yield Case(**told, task=recipe.told["env"].split("/")[-1], train=recipe.train, daily=daily)


if __name__ == "__main__":
    main("mushroom_rl", cases(), forks=True)
