"""RLlib's PPO on classic control and the lab's tasks: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pprint import pprint
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback

from lab.cases import Case, main
from lab.tasks import BreaksLater, Scaled, register

from . import rllib_faults as faults

Change = Callable[[Any], Any]

#: Sizes of run, in RLlib's names; `iterations` are the records.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"envs": 8, "batch": 256, "minibatch_size": 64, "num_epochs": 5, "lr": 2e-3, "iterations": 22},
    "few": {"envs": 16, "batch": 768, "minibatch_size": 256, "num_epochs": 8, "lr": 3e-3, "iterations": 12},
    "wide": {"envs": 16, "batch": 400, "minibatch_size": 400, "num_epochs": 8, "lr": 4e-3, "iterations": 20},
    "many": {"envs": 8, "batch": 96, "minibatch_size": 48, "num_epochs": 3, "lr": 2e-3, "iterations": 48},
}
COMMON: Mapping[str, Any] = {"lambda_": 0.95, "vf_clip_param": 1e4, "log_gradients": True, "hidden": [32, 32]}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "CartPole-v1": {"gamma": 0.98},
    "Pendulum-v1": {"gamma": 0.9},
    "MountainCar-v0": {"gamma": 0.99},
    "lab/Chain-v0": {"gamma": 0.97, "hidden": [32]},
    "lab/Reach-v0": {"gamma": 0.9},
    "lab/Contextual-v0": {"gamma": 0.9, "hidden": [32]},
}
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
CHAIN, CONTEXTUAL, REACH = "lab/Chain-v0", "lab/Contextual-v0", "lab/Reach-v0"


def same(given: Any) -> Any:
    """Change nothing."""
    return given


def as_it_is() -> None:
    """Leave the library as it is."""


class Run:
    """What Tune's loggers ask of a trial: its folder and its settings."""

    checkpoint = None
    evaluated_params: Mapping[str, Any] = {}

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.local_path, self.config = str(folder), config

    def init_local_path(self) -> None:
        """Do nothing: the folder is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    task: str = CARTPOLE
    scale: str = "plain"
    settings: Mapping[str, Any] = field(default_factory=dict)
    wrap: Change = same
    fork: faults.Fork = as_it_is

    def train(self, folder: Path, seed: int) -> None:
        """Train, and write what Tune writes: result.json, progress.csv, events and params.json."""
        torch.set_num_threads(1)
        np.seterr(all="ignore")
        # One process does everything here, so that what is "put" need not go to another: no cluster is started.
        ray.put = same
        register()
        self.fork()
        told = {**COMMON, **SCALES[self.scale], **TASKS[self.task], **self.settings}
        iterations = told.pop("iterations")
        config = self._config(told, seed)
        run = Run(folder, config.to_dict())
        loggers = [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
        loggers[0].log_trial_start(run)
        (folder / "params.pkl").unlink()
        algorithm = config.build_algo()
        try:
            for iteration in range(1, iterations + 1):
                result = algorithm.train()
                for logger in loggers:
                    logger.log_trial_result(iteration, run, result)
                result.pop("config")
                pprint(result)
        finally:
            for logger in loggers:
                logger.log_trial_end(run)
            for events in folder.glob("events.out.tfevents.*"):  # a name that does not tell time and machine
                events.rename(folder / "events.out.tfevents.1.host")
            algorithm.stop()

    def _config(self, told: Mapping[str, Any], seed: int) -> Any:
        given = dict(told)
        shape = {"fcnet_hiddens": given.pop("hidden"), "vf_share_layers": given.pop("vf_share_layers", False)}
        envs, batch, gradients = given.pop("envs"), given.pop("batch"), given.pop("log_gradients")
        return (
            PPOConfig()
            .environment(self._env())
            .env_runners(num_env_runners=0, num_envs_per_env_runner=envs)
            .learners(num_learners=0)
            .training(train_batch_size_per_learner=batch, **given)
            .rl_module(model_config={**shape, "head_fcnet_hiddens": []})
            .reporting(min_time_s_per_iteration=0, log_gradients=gradients)
            .debugging(seed=seed, log_sys_usage=False)
        )

    def _env(self) -> str:
        """Return the task's name, or that of its wrapped form."""
        if self.wrap is same:
            return self.task
        name = f"custom/{self.task.split('/')[-1]}"
        gymnasium.register(name, entry_point=lambda: self.wrap(gymnasium.make(self.task)))
        return name


def scaled(factor: float) -> Change:
    """Return a wrapper that multiplies rewards."""
    return partial(Scaled, factor=factor)


def falls(start: float, steps: int) -> list[list[float]]:
    """Return RLlib's way of writing a value that falls linearly to 0."""
    return [[0, start], [steps, 0.0]]


def _sound() -> Iterator[tuple[str, Recipe]]:
    yield "settings of a common kind", Recipe(scale="few")
    yield "a small task that is solved soon and stays so", Recipe(task=CONTEXTUAL, settings={"lr": 1e-2})
    yield "continuous actions", Recipe(task=REACH, scale="few")
    yield "a learning rate that falls to 0", Recipe(task=CHAIN, settings={"lr": falls(3e-3, 256 * 22)})
    yield (
        "one pass over the whole batch",
        Recipe(task=CONTEXTUAL, scale="wide", settings={"num_epochs": 1, "minibatch_size": None, "lr": 2e-2}),
    )
    yield (
        "an entropy bonus that is withdrawn, and rollouts that are small",
        Recipe(task=CONTEXTUAL, scale="many", settings={"entropy_coeff": falls(0.1, 4000), "lr": 5e-3}),
    )
    yield "no KL term, a narrow clip", Recipe(task=CHAIN, settings={"use_kl_loss": False, "clip_param": 0.1})
    yield "large rewards, values not clipped", Recipe(task=REACH, scale="few", wrap=scaled(20.0), settings={"lr": 4e-3})
    yield "gradients cut to a fraction, which Adam undoes", Recipe(scale="wide", settings={"grad_clip": 0.05})
    yield (
        "layers shared with the critic, whose loss has little weight",
        Recipe(task=CHAIN, scale="wide", settings={"vf_share_layers": True, "vf_loss_coeff": 0.05}),
    )
    yield (
        "the library's rate, epochs and coefficients, in a small batch: slow",
        Recipe(scale="plain", settings={"lr": 3e-4, "num_epochs": 8, "lambda_": 1.0, "log_gradients": False}),
    )
    yield "a slow task", Recipe(task=PENDULUM, scale="few", settings={"lr": 1e-3, "num_epochs": 6})


#: (fault, how it is made, the recipe for two tasks); each is trained with two seeds.
Fault = tuple[str, str, Recipe, Recipe]


def _faults() -> Iterator[Fault]:
    yield (
        "lr-too-high",
        "a learning rate a hundred times too large",
        Recipe(task=CHAIN, settings={"lr": 0.3}),
        Recipe(task=REACH, scale="few", settings={"lr": 0.2, "log_gradients": False}),
    )
    yield (
        "lr-too-small",
        "a learning rate a hundred thousand times too small",
        Recipe(scale="wide", settings={"lr": 1e-8}),
        Recipe(task=REACH, settings={"lr": 1e-7, "log_gradients": False}),
    )
    yield (
        "kl-coef-runaway",
        "a KL target that no step can meet: its coefficient grows by half at every update",
        Recipe(task=CHAIN, settings={"kl_target": 1e-7, "kl_coeff": 1.0, "iterations": 28}),
        Recipe(task=REACH, scale="wide", settings={"kl_target": 1e-8, "kl_coeff": 20.0, "iterations": 26}),
    )
    yield (
        "clip-range-too-small",
        "a clip range of a thousandth of what is usual",
        Recipe(task=CONTEXTUAL, scale="wide", settings={"clip_param": 2e-4, "use_kl_loss": True}),
        Recipe(task=REACH, scale="many", settings={"clip_param": 1e-4}),
    )
    yield (
        "entropy-explosion",
        "an entropy bonus that outweighs the advantages",
        Recipe(task=CONTEXTUAL, settings={"entropy_coeff": 5.0, "lr": 5e-3, "use_kl_loss": False}),
        Recipe(task=REACH, scale="wide", settings={"entropy_coeff": 0.7, "lr": 5e-3}),
    )
    yield (
        "epochs-not-executed",
        faults.one_epoch.__doc__ or "",
        Recipe(settings={"num_epochs": 10}, fork=faults.one_epoch),
        Recipe(task=REACH, scale="few", fork=faults.one_epoch),
    )
    yield (
        "old-policy-aliased",
        "the old log-prob of the ratio is that of the policy that is being updated",
        Recipe(task=CONTEXTUAL, scale="wide", fork=faults.aliased),
        Recipe(task=REACH, fork=faults.aliased, settings={"use_kl_loss": False}),
    )
    yield (
        "adv-exactly-zero",
        "targets minus targets instead of targets minus values",
        Recipe(task=CHAIN, fork=faults.zero, settings={"entropy_coeff": 0.01}),
        Recipe(task=REACH, scale="many", fork=faults.zero),
    )
    yield (
        "advantage-sign-flipped",
        "the surrogate is minimised",
        Recipe(task=CONTEXTUAL, scale="wide", fork=faults.flipped),
        Recipe(task=REACH, fork=faults.flipped),
    )
    yield (
        "weights-not-synced",
        faults.unsynced.__doc__ or "",
        Recipe(task=CHAIN, fork=faults.unsynced),
        Recipe(task=REACH, scale="wide", fork=faults.unsynced, settings={"log_gradients": False}),
    )
    yield (
        "value-clip-starves",
        "errors of values above a tenth or less are clipped away, as RLlib's default does with large returns",
        Recipe(settings={"vf_clip_param": 0.05}),
        Recipe(task=REACH, scale="few", settings={"vf_clip_param": 0.02}),
    )
    yield (
        "lr-schedule-horizon-wrong",
        "a schedule in iterations where RLlib counts steps",
        Recipe(task=CHAIN, settings={"lr": falls(2e-3, 700)}),
        Recipe(task=REACH, scale="few", settings={"lr": falls(3e-3, 1600)}),
    )


def _more() -> Iterator[Fault]:
    """Yield faults of one seed only."""
    yield (
        "staleness-async",
        faults.seldom_synced.__doc__ or "",
        Recipe(task=CONTEXTUAL, scale="wide", fork=faults.seldom_synced, settings={"iterations": 30}),
        Recipe(task=REACH, fork=faults.seldom_synced),
    )
    yield (
        "no-grad-path",
        "the new log-prob is detached, and the term of the KL has no weight",
        Recipe(task=CHAIN, scale="wide", fork=faults.detached),
        Recipe(task=REACH, fork=faults.detached, settings={"log_gradients": False}),
    )
    yield (
        "reward-pipeline-broken",
        faults.Constant.__doc__ or "",
        Recipe(task=CONTEXTUAL, wrap=faults.Constant),
        Recipe(task=REACH, scale="wide", wrap=partial(faults.Constant, value=-1.0)),
    )
    yield (
        "nan-inf",
        BreaksLater.__doc__ or "",
        Recipe(wrap=partial(BreaksLater, after=260)),
        Recipe(task=REACH, wrap=partial(BreaksLater, after=300)),
    )
    yield (
        "grad-clip-starves",
        "gradients are cut to a norm that is below Adam's epsilon",
        Recipe(task=CHAIN, settings={"grad_clip": 1e-9}),
        Recipe(task=REACH, scale="wide", settings={"grad_clip": 1e-10}),
    )


DAILY_SOUND = {1, 3, 4}
DAILY = {"lr-too-high", "lr-schedule-horizon-wrong", "adv-exactly-zero", "entropy-explosion", "value-clip-starves"}


def _case(fault: str, made: str, recipe: Recipe, seed: int, name: str, *, daily: bool) -> Case:
    train = partial(recipe.train, seed=seed)
    return Case(name=name, fault=fault, made=made, task=recipe.task, seed=seed, train=train, daily=daily)


def cases() -> Iterator[Case]:
    """Yield every run."""
    for place, (made, recipe) in enumerate(_sound()):
        yield _case("healthy", made, recipe, place + 1, f"healthy/{place}", daily=place in DAILY_SOUND)
    sparse = Recipe(task="MountainCar-v0", scale="wide", settings={"batch": 800, "iterations": 12})
    yield _case("reward-too-sparse", "the goal is never met by chance", sparse, 1, "sparse/1", daily=False)
    for seed, kinds in ((1, _faults()), (3, _more()), (2, _faults())):
        for fault, made, *recipes in kinds:
            for recipe in recipes:
                daily = fault in DAILY and seed == 1 and recipe is recipes[0]
                yield _case(fault, made, recipe, seed, f"{fault}/{recipe.task}/{seed}", daily=daily)


if __name__ == "__main__":
    # The first optimizer imports much of torch; here it does so once for the runs of a process.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    main("rllib", cases(), forks=True)
