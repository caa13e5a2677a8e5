"""XuanCe's PPO on classic control and the lab's tasks: sound runs of several kinds, and a fault each."""

# ruff: noqa: E402 - the stand-in for wandb must be there first

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch._dynamo  # which the first optimizer would import, in every process of its own

# XuanCe imports it whatever the logger is; with TensorBoard it never calls it.
sys.modules.setdefault("wandb", ModuleType("wandb"))

from xuance.engine import RunnerDRL
from xuance.environment import REGISTRY_ENV

from lab.cases import Case, main, write_settings
from lab.tasks import BreaksLater, BrokenObservation, Scaled, register

from . import xuance_faults as faults

#: The options of XuanCe's own files for classic control, under their names.
OPTIONS: Mapping[str, Any] = {
    "dl_toolbox": "torch",
    "project_name": "XuanCe_Benchmark",
    "logger": "tensorboard",
    "wandb_user_name": "your_user_name",
    "render": False,
    "render_mode": "rgb_array",
    "fps": 50,
    "device": "cpu",
    "distributed_training": False,
    "agent": "PPO",
    "env_name": "lab",
    "vectorize": "DummyVecEnv",
    "representation": "Basic_MLP",
    "learner": "PPO_Learner",
    "runner": "DRL",
    "activation": "leaky_relu",
    "activation_action": "tanh",
    "vf_coef": 0.25,
    "ent_coef": 0.01,
    "clip_range": 0.2,
    "use_gae": True,
    "gae_lambda": 0.95,
    "use_advnorm": True,
    "use_grad_clip": True,
    "grad_clip_norm": 0.5,
    "use_actions_mask": False,
    "use_obsnorm": True,
    "use_rewnorm": True,
    "obsnorm_range": 5,
    "rewnorm_range": 5,
    "test_episode": 2,
    "log_dir": "logs/ppo/",
    "model_dir": "models/ppo/",
    "result_dir": "results/ppo/",
}
#: Sizes of run: rollouts of parallels * horizon_size steps.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"parallels": 16, "horizon_size": 32, "n_epochs": 5, "n_minibatch": 4, "learning_rate": 1e-3},
    "few": {"parallels": 32, "horizon_size": 24, "n_epochs": 8, "n_minibatch": 2, "learning_rate": 2e-3},
    "wide": {"parallels": 32, "horizon_size": 16, "n_epochs": 8, "n_minibatch": 1, "learning_rate": 2e-3},
    "many": {"parallels": 8, "horizon_size": 16, "n_epochs": 4, "n_minibatch": 2, "learning_rate": 7e-4},
    "mid": {"parallels": 16, "horizon_size": 48, "n_epochs": 5, "n_minibatch": 6, "learning_rate": 8e-4},
}
#: How many rollouts there are, and after how many of them there is a test, if at all.
LENGTHS: Mapping[str, Mapping[str, int]] = {
    "plain": {"updates": 24, "tested": 6, "hidden": 64},
    "few": {"updates": 12, "tested": 2, "hidden": 128},
    "wide": {"updates": 32, "tested": 0, "hidden": 32},
    "many": {"updates": 60, "tested": 10, "hidden": 64},
    "mid": {"updates": 16, "tested": 2, "hidden": 32},
}
CARTPOLE, CHAIN, REACH = "CartPole-v1", "lab/Chain-v0", "lab/Reach-v0"
GAMMAS = {CARTPOLE: 0.98, CHAIN: 0.97, REACH: 0.9}
DISCRETE = {CARTPOLE, CHAIN}
#: Shorter episodes, which keep the tests short.
TASKS = {CARTPOLE: {"max_episode_steps": 120}}


def same(given: Any) -> Any:
    """Change nothing."""
    return given


def nothing() -> None:
    """Change no source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    env: str = CARTPOLE
    scale: str = "plain"
    task: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the script's configuration does not tell the truth about."""
    wrap: Callable[[Any], Any] = same
    fork: Callable[[], None] = nothing
    """What the user changed in the library."""
    after: Callable[[Any], Any] = same
    """What the user does to the agent between making and training it."""

    def train(self, folder: Path, seed: int) -> None:
        """Train, with tests in between or without, as XuanCe's runner does both."""
        torch.set_num_threads(1)
        np.seterr(all="ignore")
        register()
        REGISTRY_ENV["lab"] = partial(faults.Task, wrap=self.wrap, **TASKS.get(self.env, {}), **self.task)
        told = self._told(seed)
        write_settings(folder, told)
        self.fork()
        runner = RunnerDRL(Namespace(**{**told, **self.hidden}))
        self.after(runner.agent)
        try:
            runner.run(mode="benchmark" if told["eval_interval"] else "train")
        finally:
            runner.agent.writer.close()
            _stable_names(folder)

    def _told(self, seed: int) -> dict[str, Any]:
        """Return the options as a user's file holds them."""
        lengths = {**LENGTHS[self.scale], **self.lengths}
        told = {**OPTIONS, **SCALES[self.scale], "gamma": GAMMAS.get(self.env, 0.99), "env_id": self.env}
        sizes = {f"{part}_hidden_size": [lengths["hidden"]] for part in ("representation", "actor", "critic")}
        told |= {"policy": "Categorical_AC" if self.env in DISCRETE else "Gaussian_AC", **sizes, **self.settings}
        batch = told["parallels"] * told["horizon_size"]
        told |= {"running_steps": batch * lengths["updates"], "eval_interval": batch * lengths["tested"]}
        return told | {"seed": seed, "env_seed": seed}


def _stable_names(folder: Path) -> None:
    """Take time, host and process out of the names of folders and event files; drop the weights."""
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        path.rename(path.with_name("events.out.tfevents.0.host.1.0"))
    for path in folder.glob("logs/ppo/seed_*"):
        path.rename(path.with_name("run"))
    for path in folder.rglob("*.pth"):
        path.unlink()


def scaled(factor: float) -> Callable[[Any], Any]:
    """Return a wrapper that multiplies rewards."""
    return partial(Scaled, factor=factor)


def _set(env: str, scale: str, /, **settings: Any) -> Recipe:
    return Recipe(env=env, scale=scale, settings=settings)


def _sound() -> Iterator[tuple[str, str, Recipe]]:
    yield "plain", "settings of a common kind", Recipe()
    yield "annealed", "a linear schedule of the learning rate to 0", _set(CARTPOLE, "many", end_factor_lr_decay=0.0)
    yield "reach-tested", "continuous actions, with test runs", _set(REACH, "plain", learning_rate=2e-3)
    yield "reach", "continuous actions, no test runs", Recipe(env=REACH, scale="wide")
    yield "single-update", "one epoch over one minibatch", _set(CHAIN, "wide", n_epochs=1, learning_rate=5e-3)
    yield (
        "solved",
        "a small task that is solved soon and stays so",
        Recipe(env=CHAIN, scale="few", lengths={"updates": 28, "tested": 4}),
    )
    yield "entropy-bonus", "a large entropy bonus that does no harm", _set(CHAIN, "mid", ent_coef=0.1)
    yield (
        "tiny-clip",
        "a clip range of 0.05 that is enough",
        Recipe(env=CHAIN, scale="few", lengths={"updates": 24, "tested": 4}, settings={"clip_range": 0.05}),
    )
    yield "raw", "no normalisation of advantages or rewards", _set(CHAIN, "mid", use_advnorm=False, use_rewnorm=False)
    yield "clipped", "a gradient clip that cuts every step", _set(CARTPOLE, "many", grad_clip_norm=0.05)
    yield "large-reward", "rewards times 1000, normalised", Recipe(env=REACH, scale="few", wrap=scaled(1000.0))
    yield "slow", "a careful learning rate", _set(REACH, "plain", learning_rate=1e-4)
    yield "layer-norm", "layer norm, in rollout and update", _set(CARTPOLE, "few", normalize="LayerNorm")


#: A fault: its cause, how it is made, and a recipe per run: two of one kind of task, two of another.
Fault = tuple[str, str, list[Recipe]]


def _settings_faults() -> Iterator[Fault]:
    yield (
        "lr-too-high",
        "a learning rate far above what the task bears",
        [
            _set(CARTPOLE, "plain", learning_rate=0.1),
            _set(CHAIN, "many", learning_rate=0.05),
            _set(REACH, "mid", learning_rate=0.03),
            _set(REACH, "wide", learning_rate=0.1),
        ],
    )
    yield (
        "clip-range-too-small",
        "a clip range a hundredth of the usual or less",
        [
            _set(CARTPOLE, "plain", clip_range=0.0005),
            _set(CHAIN, "few", clip_range=0.001),
            _set(REACH, "wide", clip_range=0.0003),
            _set(REACH, "mid", clip_range=0.001),
        ],
    )
    yield (
        "entropy-explosion",
        "an entropy bonus that outweighs the advantages",
        [
            _set(CARTPOLE, "plain", ent_coef=2.0),
            _set(CHAIN, "mid", ent_coef=2.0),
            _set(REACH, "few", ent_coef=0.5),
            _set(REACH, "wide", ent_coef=1.0),
        ],
    )
    yield (
        "dropout-or-train-mode",
        "batch norm, which XuanCe leaves in training mode while it samples from a few environments",
        [
            _set(CARTPOLE, "plain", normalize="BatchNorm"),
            _set(CHAIN, "many", normalize="BatchNorm"),
            _set(REACH, "mid", normalize="BatchNorm"),
            _set(REACH, "many", normalize="BatchNorm"),
        ],
    )
    yield (
        "critic-not-learning",
        "no weight for the critic's loss, or values that were detached",
        [
            _set(CARTPOLE, "plain", vf_coef=0.0),
            Recipe(fork=faults.detach_values, env=CHAIN, scale="mid"),
            _set(REACH, "many", vf_coef=0.0),
            Recipe(fork=faults.detach_values, env=REACH, scale="few"),
        ],
    )


def _forked(cause: str, made: str, forks: tuple[Callable[[], None], Callable[[], None]], **settings: Any) -> Fault:
    """Return a fault of two forks, each on two tasks."""
    one, two = forks
    places = [(CARTPOLE, "plain", one), (CHAIN, "few", two), (REACH, "mid", one), (REACH, "many", two)]
    return cause, made, [Recipe(env=env, scale=scale, fork=fork, settings=settings) for env, scale, fork in places]


def _source_faults() -> Iterator[Fault]:
    yield _forked("advantage-sign-flipped", "a minus lost", (faults.flip_surrogate, faults.flip_advantages))
    yield _forked("old-policy-aliased", "the old log-prob is the current one", (faults.alias, faults.alias))
    yield _forked("entropy-collapse", "the entropy is punished", (faults.flip_entropy,) * 2, ent_coef=0.5)
    once = (faults.return_early, faults.return_early)
    made = "one epoch is run, whatever is configured"
    yield _forked("epochs-not-executed", made, once, end_factor_lr_decay=0.0)
    short = (faults.count_rollouts, faults.count_rollouts)
    made = "the schedule counts rollouts and is stepped in minibatches"
    yield _forked("lr-schedule-horizon-wrong", made, short, end_factor_lr_decay=0.0)
    yield (
        "optimizer-orphaned-params",
        "the optimizer was made for other tensors than are used",
        [
            Recipe(after=faults.swap_all),
            Recipe(after=faults.swap_actor, env=CHAIN, scale="few", settings={"representation": "Basic_Identical"}),
            Recipe(after=faults.swap_all, env=REACH, scale="wide"),
            Recipe(after=faults.swap_actor, env=REACH, scale="mid", settings={"representation": "Basic_Identical"}),
        ],
    )
    yield (
        "staleness-async",
        "a copy of the policy samples, which is synchronised too rarely",
        [
            Recipe(after=faults.sampled_by_stale(8)),
            Recipe(after=faults.sampled_by_stale(4), env=CHAIN, scale="mid"),
            Recipe(after=faults.sampled_by_stale(12), env=REACH, scale="wide"),
            Recipe(after=faults.sampled_by_stale(6), env=REACH, scale="plain"),
        ],
    )
    yield (
        "nan-inf",
        "a reward or a sensor that yields NaN after a good while",
        [
            Recipe(wrap=partial(BreaksLater, after=450)),
            Recipe(wrap=partial(BrokenObservation, after=700), env=CHAIN, scale="many"),
            Recipe(wrap=partial(BrokenObservation, after=560), env=REACH, scale="mid"),
            Recipe(wrap=partial(BreaksLater, after=350), env=REACH, scale="wide"),
        ],
    )


def cases() -> Iterator[Case]:
    """Yield every run."""
    cheap = {"plain", "reach", "single-update"}
    for seed, (name, made, recipe) in enumerate(_sound(), start=11):
        yield _case("healthy", name, made, recipe, seed, name in cheap)
    lost = Recipe(env=CHAIN, scale="plain", task={"length": 48, "sparse": True})
    yield _case("reward-too-sparse", "Chain", "a long chain that pays at its end alone", lost, 30, False)
    quick = {"lr-too-high", "clip-range-too-small", "old-policy-aliased", "advantage-sign-flipped", "nan-inf"}
    for fault, made, recipes in (*_settings_faults(), *_source_faults()):
        for seed, recipe in enumerate(recipes, start=1):
            task = recipe.env.split("/")[-1]
            yield _case(fault, f"{task}/{seed}", made, recipe, seed, fault in quick and seed == 1)


def _case(fault: str, name: str, made: str, recipe: Recipe, seed: int, daily: bool) -> Case:
    run, task = partial(recipe.train, seed=seed), recipe.env.split("/")[-1]
    return Case(name=f"{fault}/{name}", fault=fault, made=made, task=task, seed=seed, train=run, daily=daily)


if __name__ == "__main__":
    main("xuance", cases(), forks=True)
