"""PFRL's PPO on a corridor, a mass and CartPole: sound runs of several kinds, and a fault each."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pfrl
import torch
from pfrl import experiments
from torch import nn

from lab.cases import Case, main, write_settings
from lab.tasks import BrokenObservation, register

from . import pfrl_faults as faults

CARTPOLE, CORRIDOR, MASS = "CartPole-v1", "lab/Corridor-v0", "lab/Mass-v0"
#: What a user's script takes on its command line, after PFRL's examples.
SETTINGS: Mapping[str, Any] = {
    "env": CORRIDOR,
    "steps": 4096,
    "lr": 1e-3,
    "update_interval": 512,
    "batch_size": 64,
    "epochs": 5,
    "gamma": 0.99,
    "lambd": 0.95,
    "clip_eps": 0.2,
    "clip_eps_vf": None,
    "entropy_coef": 0.0,
    "value_func_coef": 1.0,
    "standardize_advantages": True,
    "max_grad_norm": 0.5,
    "eval_interval": 512,
    "eval_n_runs": 2,
    "lr_decay_steps": None,
    "hidden": 64,
}
#: What of them the agent takes under the same name.
OF_AGENT = ("gamma", "lambd", "value_func_coef", "entropy_coef", "update_interval", "epochs", "clip_eps")
OF_AGENT = (*OF_AGENT, "clip_eps_vf", "standardize_advantages", "max_grad_norm")
#: How many values the statistics are means of.
WINDOWS = {"entropy": 1000, "value": 1000, "value_loss": 100, "policy_loss": 100}


def same(given: Any) -> Any:
    """Change nothing."""
    return given


class OldApi:
    """A task of gymnasium's as PFRL takes it: a step has one end, and tells elsewhere that it was cut."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self.seed: int | None = seed
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.continuous = isinstance(self.action_space, gymnasium.spaces.Box)

    def reset(self) -> Any:
        """Begin an episode; only the first is seeded."""
        seen, _ = self.env.reset(seed=self.seed)
        self.seed = None
        return np.asarray(seen, np.float32)

    def step(self, action: Any) -> Any:
        """Do an action."""
        done = np.clip(action, -1, 1) * self.action_space.high if self.continuous else int(action)
        seen, reward, terminated, truncated, _ = self.env.step(done)
        return np.asarray(seen, np.float32), float(reward), bool(terminated), {"needs_reset": bool(truncated)}


def _linear(inputs: int, outputs: int, gain: float) -> Any:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _layers(inputs: int, hidden: int, outputs: int, gain: float) -> list[Any]:
    first, second = _linear(inputs, hidden, 2**0.5), _linear(hidden, hidden, 2**0.5)
    return [first, nn.Tanh(), second, nn.Tanh(), _linear(hidden, outputs, gain)]


def model_for(env: OldApi, hidden: int) -> Any:
    """Return a policy and a value function with nothing in common."""
    inputs = env.observation_space.shape[0]
    if env.continuous:
        outputs = env.action_space.shape[0]
        head: Any = pfrl.policies.GaussianHeadWithStateIndependentCovariance(
            action_size=outputs, var_type="diagonal", var_func=lambda x: torch.exp(2 * x), var_param_init=0
        )
    else:
        outputs, head = int(env.action_space.n), pfrl.policies.SoftmaxCategoricalHead()
    policy = nn.Sequential(*_layers(inputs, hidden, outputs, 1e-2), head)
    return pfrl.nn.Branched(policy, nn.Sequential(*_layers(inputs, hidden, 1, 1.0)))


def _set_rate(_env: Any, agent: Any, value: float) -> None:
    for group in agent.optimizer.param_groups:
        group["lr"] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = same
    """What the environment to learn from is wrapped in."""
    wrap_all: Callable[[Any], Any] = same
    """What the environments to learn from and to evaluate in are wrapped in."""
    fork: Callable[[], None] = lambda: None
    """What the user changed in the library."""
    trained: Callable[[Any], Any] = same
    """What of the model the optimizer is given."""

    @property
    def told(self) -> dict[str, Any]:
        """The settings, as the script writes them down."""
        return {**SETTINGS, **self.settings, "seed": self.seed}

    def train(self, folder: Path) -> None:
        """Train, with evaluations in between."""
        torch.set_num_threads(1)
        register()
        told = self.told
        write_settings(folder, told)
        logging.basicConfig(level=logging.INFO, filename=folder / "train.log")
        pfrl.utils.set_random_seed(self.seed)
        self.fork()
        env, eval_env = self._env(self.wrap, self.seed), self._env(same, self.seed + 100)
        agent, hooks = self._agent(env, told), []
        if told["lr_decay_steps"]:
            hooks.append(experiments.LinearInterpolationHook(told["lr_decay_steps"], told["lr"], 0, _set_rate))
        evaluated = {
            "eval_n_steps": None,
            "eval_n_episodes": told["eval_n_runs"],
            "eval_interval": told["eval_interval"],
        }
        experiments.train_agent_with_evaluation(
            agent, env, told["steps"], **evaluated, outdir=".", eval_env=eval_env, save_best_so_far_agent=False,
            step_hooks=hooks,
        )  # fmt: skip
        for weights in folder.glob("*_finish"):
            shutil.rmtree(weights)

    def _env(self, wrap: Callable[[Any], Any], seed: int) -> OldApi:
        return OldApi(wrap(self.wrap_all(gymnasium.make(self.told["env"]))), seed)

    def _agent(self, env: OldApi, told: Mapping[str, Any]) -> Any:
        model = model_for(env, told["hidden"])
        optimizer = torch.optim.Adam(self.trained(model).parameters(), lr=told["lr"], eps=1e-5)
        windows = {f"{name}_stats_window": count for name, count in WINDOWS.items()}
        given = {name: told[name] for name in OF_AGENT}
        return pfrl.agents.PPO(model, optimizer, minibatch_size=told["batch_size"], **given, **windows)


def _runs() -> Iterator[tuple[str, str, str, Recipe]]:
    """Yield (cause, name, how it is made, recipe)."""
    cartpole = {"env": CARTPOLE, "steps": 8192}
    yield "healthy", "cartpole", "settings of a common kind", Recipe(seed=0, settings=cartpole)
    long = {"env": CARTPOLE, "steps": 20000, "lr": 3e-4, "update_interval": 1024, "epochs": 10}
    long |= {"eval_interval": 2000, "eval_n_runs": 3}
    yield "healthy", "long", "the learning rate of PFRL's examples", Recipe(seed=0, settings=long)
    solved = Recipe(seed=8, settings={"lr": 2e-3, "lr_decay_steps": 4096})
    yield "healthy", "solved", "a small task, the learning rate goes to 0 at the end", solved
    alone = Recipe(seed=2, trained=lambda model: model.child_modules[1])
    yield "optimizer-orphaned-params", "1", "the optimizer has the value function alone", alone
    once = Recipe(seed=3, settings={"env": MASS, "gamma": 0.95}, fork=faults.one_epoch)
    yield "epochs-not-executed", "1", "one epoch is run, whatever is configured", once
    short = Recipe(seed=4, settings={"lr_decay_steps": 600})
    yield "lr-schedule-horizon-wrong", "1", "the schedule counts a seventh of the steps", short
    bonus = Recipe(seed=5, settings={"env": MASS, "entropy_coef": 5.0, "lr": 3e-3})
    yield "entropy-explosion", "1", "an entropy bonus of 5", bonus
    zero = Recipe(seed=6, fork=faults.zero_advantages)
    yield "adv-exactly-zero", "1", "advantages are values minus themselves", zero
    broken = Recipe(seed=7, settings={"env": MASS}, wrap=partial(BrokenObservation, after=2200))
    yield "nan-inf", "1", "a sensor that yields NaN after a good while", broken
    lost = Recipe(seed=9, wrap_all=faults.Unpaid)
    yield "reward-pipeline-broken", "1", "rewards are 0, also in evaluations", lost


def cases() -> Iterator[Case]:
    """Yield every run."""
    for fault, name, made, recipe in _runs():
        daily = name == "solved" or fault in ("adv-exactly-zero", "nan-inf")
        told = {"name": f"{fault}/{name}", "fault": fault, "made": made, "seed": recipe.seed}
        yield Case(**told, task=recipe.told["env"].split("/")[-1], train=recipe.train, daily=daily)


if __name__ == "__main__":
    main("pfrl", cases(), forks=True)
