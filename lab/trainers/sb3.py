"""Stable-Baselines3's PPO on classic control and the lab's tasks: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from lab.cases import Case, main, write_settings
from lab.tasks import BreaksLater, BrokenObservation, Scaled, register

from . import sb3_faults as faults

Wrap = Callable[[Any], Any]

#: Sound settings per size of run: rollouts from 64 to 2048 steps, 1 to 4 minibatches, 10 to 160 records.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"n_envs": 8, "n_steps": 64, "batch_size": 256, "n_epochs": 4, "learning_rate": 2e-3, "updates": 24},
    "few": {"n_envs": 32, "n_steps": 64, "batch_size": 512, "n_epochs": 5, "learning_rate": 3e-3, "updates": 12},
    "wide": {"n_envs": 16, "n_steps": 16, "batch_size": 256, "n_epochs": 6, "learning_rate": 3e-3, "updates": 40},
    "many": {"n_envs": 8, "n_steps": 8, "batch_size": 64, "n_epochs": 3, "learning_rate": 2e-3, "updates": 100},
    "mid": {"n_envs": 16, "n_steps": 64, "batch_size": 256, "n_epochs": 4, "learning_rate": 1.5e-3, "updates": 18},
    "single": {"n_envs": 1, "n_steps": 256, "batch_size": 64, "n_epochs": 4, "learning_rate": 1e-3, "updates": 12},
    "s64": {"n_envs": 8, "n_steps": 8, "batch_size": 64, "n_epochs": 3, "learning_rate": 3e-3, "updates": 60},
    "s256": {"n_envs": 16, "n_steps": 16, "batch_size": 256, "n_epochs": 5, "learning_rate": 3e-3, "updates": 25},
    "s512": {"n_envs": 16, "n_steps": 32, "batch_size": 256, "n_epochs": 4, "learning_rate": 2e-3, "updates": 20},
    "s768": {"n_envs": 16, "n_steps": 48, "batch_size": 256, "n_epochs": 4, "learning_rate": 2e-3, "updates": 14},
    "s1536": {"n_envs": 32, "n_steps": 48, "batch_size": 512, "n_epochs": 4, "learning_rate": 3e-3, "updates": 10},
}
#: What a task asks for, whatever the size.
TASKS: Mapping[str, Mapping[str, Any]] = {
    "CartPole-v1": {"gamma": 0.98},
    "Pendulum-v1": {"gamma": 0.9},
    "MountainCar-v0": {"gamma": 0.99},
    "lab/Chain-v0": {"gamma": 0.95},
    "lab/Reach-v0": {"gamma": 0.8},
    "lab/Contextual-v0": {"gamma": 0.9},
}


def same(given: Any) -> Any:
    """Change nothing."""
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    env: str = "CartPole-v1"
    scale: str = "s512"
    task: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the script's configuration does not tell the truth about."""
    trainer: type[Any] = PPO
    inside: Wrap = same
    """Between the task and Monitor: what is logged as the episode's return is changed with it."""
    outside: Wrap = same
    vector: Wrap = same
    before: Callable[[Any], Any] = same
    """What the user does to the model between making and training it."""
    policy: str = "MlpPolicy"
    scales: ClassVar[Mapping[str, Mapping[str, Any]]] = SCALES
    tasks: ClassVar[Mapping[str, Mapping[str, Any]]] = TASKS

    def train(self, folder: Path, seed: int) -> None:
        """Train with the logger's four usual formats."""
        torch.set_num_threads(1)
        np.seterr(all="ignore")
        register()
        told = {"gae_lambda": 0.95, **self.scales[self.scale], **self.tasks[self.env], **self.settings}
        envs, updates = told.pop("n_envs"), told.pop("updates")
        given = {**told, **self.hidden}
        model = self.trainer(self.policy, self._envs(envs, seed), seed=seed, device="cpu", verbose=1, **given)
        model.set_logger(configure(str(folder), ["stdout", "csv", "json", "tensorboard"]))
        total = updates * envs * told["n_steps"]
        plain = {name: value for name, value in told.items() if isinstance(value, int | float | str | None)}
        script = {"algo": "ppo", "env_id": self.env, "policy": self.policy, "n_envs": envs, "seed": seed}
        write_settings(folder, {**script, "total_timesteps": total, **plain})
        self.before(model)
        try:
            model.learn(total_timesteps=total)
        finally:
            model.logger.close()
            for events in folder.glob("events.out.tfevents.*"):  # a name that does not tell time and machine
                events.rename(folder / "events.out.tfevents.1.host.1.0")

    def _envs(self, count: int, seed: int) -> Any:
        def one() -> Any:
            return self.outside(Monitor(self.inside(gymnasium.make(self.env, disable_env_checker=True, **self.task))))

        vector = DummyVecEnv([one] * count)
        vector.seed(seed)
        return self.vector(vector)


def scaled(factor: float) -> Wrap:
    """Return a wrapper that multiplies rewards."""
    return partial(Scaled, factor=factor)


CHAIN, CONTEXTUAL, REACH, PENDULUM = "lab/Chain-v0", "lab/Contextual-v0", "lab/Reach-v0", "Pendulum-v1"


def _sound() -> Iterator[tuple[str, str, Recipe]]:
    yield "plain", "settings of a common kind", Recipe(scale="plain")
    yield (
        "annealed",
        "a linear learning-rate schedule to 0",
        Recipe(env=CHAIN, scale="many", settings={"learning_rate": faults.lin_1e3}),
    )
    yield (
        "annealed-clip",
        "learning rate and clip range go to 0",
        Recipe(
            env=REACH,
            scale="plain",
            settings={"learning_rate": faults.lin_2e3, "clip_range": faults.lin_clip, "n_epochs": 8},
        ),
    )
    yield (
        "target-kl",
        "target_kl stops now and then",
        Recipe(scale="plain", settings={"target_kl": 0.007, "n_epochs": 10}),
    )
    yield "bandit", "episodes of one step", Recipe(env=CONTEXTUAL, scale="s256")
    yield (
        "one-env",
        "one environment and the library's minibatch of 64",
        Recipe(scale="single", settings={"n_steps": 512, "updates": 10}),
    )
    yield (
        "single-update",
        "one epoch over one minibatch",
        Recipe(env=CONTEXTUAL, scale="wide", settings={"n_epochs": 1, "learning_rate": 5e-3}),
    )
    yield (
        "solved",
        "a small task that is solved soon and stays so, in 160 small rollouts",
        Recipe(env=CONTEXTUAL, scale="s64", settings={"n_epochs": 2, "updates": 160}),
    )
    yield (
        "entropy-bonus",
        "a large entropy bonus that slows and does no harm",
        Recipe(env=CHAIN, scale="mid", settings={"ent_coef": 0.1}),
    )
    yield (
        "tiny-clip",
        "a clip range of 0.02 that is enough",
        Recipe(env=CHAIN, scale="few", settings={"clip_range": 0.02, "updates": 16}),
    )
    yield (
        "odd",
        "a clipped critic, no whitening, and a gradient clip that cuts every step, which Adam undoes",
        Recipe(
            scale="mid",
            settings={"clip_range_vf": 5.0, "normalize_advantage": False, "max_grad_norm": 0.05, "ent_coef": 0.005},
        ),
    )
    yield (
        "large-reward",
        "rewards times 1000 under VecNormalize",
        Recipe(env=REACH, scale="mid", inside=scaled(1000.0), vector=faults.normalised),
    )
    yield "slow", "a careful learning rate", Recipe(scale="s1536", settings={"learning_rate": 4e-4})
    yield "small", "settings of a common kind, in a few records", Recipe(env=CHAIN)
    yield "wide", "a minibatch per epoch", Recipe(env=REACH, scale="s256")
    yield "sde", "state-dependent exploration", Recipe(env=REACH, scale="few", settings={"use_sde": True})


#: A fault: its cause, how it is made, and a recipe per run: two of one kind of task, two of another.
Fault = tuple[str, str, list[Recipe]]


def _set(env: str, scale: str, /, **settings: Any) -> Recipe:
    return Recipe(env=env, scale=scale, settings=settings)


def _faulty() -> Iterator[Fault]:
    cartpole = "CartPole-v1"
    yield (
        "lr-too-high",
        "a learning rate far above what the task bears",
        [
            _set(cartpole, "s512", learning_rate=0.1),
            _set(cartpole, "s64", learning_rate=0.05),
            _set(REACH, "s768", learning_rate=0.06),
            _set(REACH, "s256", learning_rate=0.1),
        ],
    )
    yield (
        "lr-too-small",
        "an exponent mistyped",
        [
            _set(CHAIN, "s256", learning_rate=1e-8),
            _set(CHAIN, "s1536", learning_rate=3e-7),
            _set(REACH, "s512", learning_rate=1e-9),
            _set(REACH, "s64", learning_rate=1e-7),
        ],
    )
    yield (
        "clip-range-too-small",
        "a clip range a hundredth of the usual or less",
        [
            _set(cartpole, "s512", clip_range=0.0005),
            _set(cartpole, "s1536", clip_range=0.001),
            _set(REACH, "s256", clip_range=0.0003),
            _set(REACH, "s768", clip_range=0.001),
        ],
    )
    yield (
        "target-kl-stops-early",
        "a target for another estimator of KL",
        [
            _set(cartpole, "s512", target_kl=1e-6, n_epochs=10),
            _set(cartpole, "s768", target_kl=1e-5, n_epochs=10),
            _set(REACH, "s1536", target_kl=1e-6),
            _set(REACH, "s256", target_kl=1e-5, batch_size=128),
        ],
    )
    yield (
        "epochs-not-executed",
        "one epoch is run, whatever is configured",
        [
            Recipe(trainer=faults.EpochsIgnored, settings={"n_epochs": 10}),
            Recipe(trainer=faults.EpochsIgnoredCounted, scale="s256"),
            Recipe(trainer=faults.EpochsIgnored, env=REACH, scale="s768", settings={"n_epochs": 10}),
            Recipe(trainer=faults.EpochsIgnoredCounted, env=REACH, settings={"n_epochs": 10}),
        ],
    )
    yield (
        "old-policy-aliased",
        "the old log-prob is the current one",
        [
            Recipe(trainer=faults.AliasedOldPolicy),
            Recipe(trainer=faults.RatioOnlyAliased, scale="s1536"),
            Recipe(trainer=faults.AliasedOldPolicy, env=REACH, scale="s768"),
            Recipe(trainer=faults.RatioOnlyAliased, env=REACH, scale="s64"),
        ],
    )
    yield (
        "adv-exactly-zero",
        "advantages are returns minus returns",
        [
            Recipe(trainer=faults.ZeroAdvantages),
            Recipe(trainer=faults.ZeroAdvantages, scale="s1536", settings={"ent_coef": 0.01}),
            Recipe(trainer=faults.ZeroAdvantages, env=REACH, scale="s768"),
            Recipe(trainer=faults.ZeroAdvantages, env=REACH, scale="s64", settings={"ent_coef": 0.005}),
        ],
    )
    yield (
        "advantage-sign-flipped",
        "a minus too many in the loss, or costs given as rewards behind Monitor",
        [
            Recipe(trainer=faults.FlippedAdvantages),
            Recipe(outside=scaled(-1.0), env=CHAIN, scale="s768"),
            Recipe(trainer=faults.FlippedAdvantages, env=REACH, scale="s1536"),
            Recipe(outside=scaled(-1.0), env=REACH, scale="s64"),
        ],
    )
    yield (
        "no-grad-path",
        "the actor was frozen for a warm start, or its log-prob detached",
        [
            Recipe(before=faults.freeze_actor),
            Recipe(trainer=faults.DetachedLogProb, env=CHAIN, scale="s1536", settings={"ent_coef": 0.01}),
            Recipe(before=faults.freeze_actor, env=REACH, scale="s256"),
            Recipe(trainer=faults.DetachedLogProb, env=REACH, scale="s768"),
        ],
    )
    dropped = {"policy_kwargs": {"features_extractor_class": faults.Dropped}}
    normed = {"policy_kwargs": {"features_extractor_class": faults.Normed}}
    yield (
        "dropout-or-train-mode",
        "dropout or batch norm in the features, which is off in the rollout and on in the update",
        [
            Recipe(settings=dropped),
            Recipe(settings=normed, scale="s1536"),
            Recipe(settings=dropped, env=REACH, scale="s768"),
            Recipe(settings=normed, env=REACH, scale="s64"),
        ],
    )
    yield (
        "reward-scale-off",
        "rewards of another unit, with nothing that normalises them",
        [
            Recipe(inside=scaled(1e3)),
            Recipe(outside=scaled(1e5), env=CHAIN, scale="s1536"),
            Recipe(inside=scaled(1e4), env=REACH, scale="s768"),
            Recipe(outside=scaled(1e5), env=PENDULUM, scale="s768", settings={"updates": 20}),
        ],
    )
    yield (
        "nan-inf",
        "a reward or a sensor that yields NaN after a good while",
        [
            Recipe(inside=partial(BreaksLater, after=400)),
            Recipe(inside=partial(BrokenObservation, after=250), before=faults.unchecked, scale="s256"),
            Recipe(inside=partial(BrokenObservation, after=400), env=REACH, scale="s768"),
            Recipe(outside=partial(BreaksLater, after=300), before=faults.unchecked, env=REACH, scale="s64"),
        ],
    )


def cases() -> Iterator[Case]:
    """Yield every run."""
    cheap = {"plain", "solved", "single-update"}
    for number, (name, made, recipe) in enumerate(_sound()):
        run = partial(recipe.train, seed=11 + number)
        task = recipe.env.split("/")[-1]
        yield Case(
            name=f"healthy/{name}",
            fault="healthy",
            made=made,
            task=task,
            seed=11 + number,
            train=run,
            daily=name in cheap,
        )
    sparse = Recipe(env="MountainCar-v0", scale="mid")
    made = "MountainCar, whose goal is never met by chance"
    run = partial(sparse.train, seed=30)
    yield Case(name="sparse/MountainCar", fault="reward-too-sparse", made=made, task=sparse.env, seed=30, train=run)
    quick = {"lr-too-high", "clip-range-too-small", "old-policy-aliased", "adv-exactly-zero", "no-grad-path"}
    for fault, made, recipes in _faulty():
        for seed, recipe in enumerate(recipes, start=1):
            task = recipe.env.split("/")[-1]
            run = partial(recipe.train, seed=seed)
            name, daily = f"{fault}/{task}/{seed}", fault in quick and seed == 1
            yield Case(name=name, fault=fault, made=made, task=task, seed=seed, train=run, daily=daily)


if __name__ == "__main__":
    main("sb3", cases(), forks=True)
