"""Tianshou's PPO on classic control and the lab's tasks: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pprint import pprint
from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy, ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils import TensorboardLogger
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from lab.cases import Case, main, write_settings
from lab.tasks import BreaksLater, Scaled, register

from . import tianshou_faults as faults

Change = Callable[[Any], Any]

#: The options of Tianshou's own example scripts, under their names.
OPTIONS: Mapping[str, Any] = {
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "vf_coef": 0.5,
    "ent_coef": 0.0,
    "eps_clip": 0.2,
    "dual_clip": None,
    "value_clip": False,
    "advantage_normalization": True,
    "recompute_adv": False,
    "return_scaling": False,
    "max_grad_norm": 0.5,
    "lr_decay": False,
    "num_test_envs": 2,
}
#: Sizes of run: steps of a rollout, of a minibatch, repetitions; `updates` rollouts in `epoch` epochs.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"num_training_envs": 10, "steps": 200, "batch_size": 50, "repeat": 4, "lr": 2e-3, "updates": 20},
    "few": {"num_training_envs": 16, "steps": 512, "batch_size": 256, "repeat": 8, "lr": 3e-3, "updates": 10},
    "wide": {"num_training_envs": 16, "steps": 320, "batch_size": 320, "repeat": 8, "lr": 4e-3, "updates": 20},
    "many": {"num_training_envs": 8, "steps": 64, "batch_size": 32, "repeat": 2, "lr": 1e-3, "updates": 80},
    "mid": {"num_training_envs": 10, "steps": 240, "batch_size": 80, "repeat": 5, "lr": 2e-3, "updates": 24},
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    "CartPole-v1": {"hidden_sizes": [64, 64], "gamma": 0.98},
    "Pendulum-v1": {"hidden_sizes": [64, 64], "gamma": 0.9},
    "MountainCar-v0": {"hidden_sizes": [32, 32]},
    "lab/Chain-v0": {"hidden_sizes": [32], "gamma": 0.97},
    "lab/Reach-v0": {"hidden_sizes": [32, 32], "gamma": 0.9},
    "lab/Contextual-v0": {"hidden_sizes": [32], "gamma": 0.9},
}
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
CHAIN, CONTEXTUAL, REACH = "lab/Chain-v0", "lab/Contextual-v0", "lab/Reach-v0"


def same(given: Any) -> Any:
    """Change nothing."""
    return given


def normal(loc_scale: tuple[Any, Any]) -> Any:
    """Return a Gaussian with independent dimensions, as Tianshou's examples do."""
    return torch.distributions.Independent(torch.distributions.Normal(*loc_scale), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    task: str = CARTPOLE
    scale: str = "plain"
    settings: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the script's configuration does not tell the truth about."""
    algorithm: type[Any] = PPO
    wrap: Change = same
    body: Change = same
    """What is done to the hidden layers of the actor."""
    after: Change = same
    """What the user does to the algorithm after it was made."""
    sampler: Change = same
    """The policy that collects, given the one that is trained."""

    def train(self, folder: Path, seed: int) -> None:
        """Train with the logger for TensorBoard, and the trainer's progress on the console."""
        torch.set_num_threads(1)
        np.seterr(all="ignore")
        register()
        told = self._told(seed)
        write_settings(folder, told)
        # Tianshou draws minibatches from the global generator.
        np.random.seed(seed)
        torch.manual_seed(seed)
        training, test = self._envs(told["num_training_envs"], seed), self._envs(told["num_test_envs"], seed + 1000)
        given = {**told, **self.hidden}
        algorithm = self.after(self._algorithm(given))
        buffer = VectorReplayBuffer(told["buffer_size"], told["num_training_envs"])
        sampling = Collector[CollectStats](self.sampler(algorithm.policy), training, buffer)
        writer = SummaryWriter(str(folder))
        params = OnPolicyTrainerParams(
            training_collector=sampling,
            test_collector=Collector[CollectStats](algorithm.policy, test),
            max_epochs=told["epoch"],
            epoch_num_steps=told["epoch_num_steps"],
            collection_step_num_env_steps=told["collection_step_num_env_steps"],
            update_step_num_repetitions=given["update_step_num_repetitions"],
            batch_size=given["batch_size"],
            test_step_num_episodes=told["num_test_envs"],
            logger=TensorboardLogger(writer, training_interval=1, update_interval=1),
        )
        try:
            pprint(algorithm.run_training(params))
        finally:
            writer.close()
            for events in folder.glob("events.out.tfevents.*"):  # a name that does not tell time and machine
                events.rename(folder / "events.out.tfevents.1.host.1.0")

    def _told(self, seed: int) -> dict[str, Any]:
        """Return the options as a script of Tianshou's examples holds them."""
        told = {"task": self.task, "seed": seed, **OPTIONS, **SCALES[self.scale], **TASKS[self.task], **self.settings}
        updates, steps, epochs = told.pop("updates"), told.pop("steps"), told.pop("epoch", 4)
        told["update_step_num_repetitions"] = told.pop("repeat")
        told |= {"collection_step_num_env_steps": steps, "buffer_size": 4 * steps}
        return told | {"epoch": epochs, "epoch_num_steps": updates * steps // epochs}

    def _envs(self, count: int, seed: int) -> Any:
        vector = DummyVectorEnv([lambda: self.wrap(gymnasium.make(self.task))] * count)
        vector.seed(seed)
        return vector

    def _algorithm(self, given: Mapping[str, Any]) -> Any:
        one = gymnasium.make(self.task)
        seen, acts = one.observation_space.shape, one.action_space
        nets = [Net(state_shape=seen, hidden_sizes=given["hidden_sizes"], activation=nn.Tanh) for _ in range(2)]
        nets[0] = self.body(nets[0])
        policy: Any
        critic: Any
        if isinstance(acts, gymnasium.spaces.Discrete):
            actor = DiscreteActor(preprocess_net=nets[0], action_shape=acts.n, softmax_output=False)
            policy = DiscreteActorPolicy(actor=actor, action_space=acts)
            critic = DiscreteCritic(preprocess_net=nets[1])
        else:
            mean = ContinuousActorProbabilistic(preprocess_net=nets[0], action_shape=acts.shape, unbounded=True)
            nn.init.constant_(mean.sigma_param, -0.5)
            policy = ProbabilisticActorPolicy(actor=mean, dist_fn=normal, action_space=acts)
            critic = ContinuousCritic(preprocess_net=nets[1])
        return self.algorithm(
            policy=policy,
            critic=critic,
            optim=_optimizer(given),
            recompute_advantage=given["recompute_adv"],
            **{name: given[name] for name in PASSED},
        )


PASSED = (
    *("gamma", "gae_lambda", "vf_coef", "ent_coef", "eps_clip", "dual_clip", "value_clip"),
    *("advantage_normalization", "return_scaling", "max_grad_norm"),
)


def _optimizer(given: Mapping[str, Any]) -> Any:
    optim = AdamOptimizerFactory(lr=given["lr"], eps=1e-5)
    if given["lr_decay"]:
        steps = given["epoch_num_steps"], given["collection_step_num_env_steps"]
        optim.with_lr_scheduler_factory(LRSchedulerFactoryLinear(given.get("lr_decay_epochs", given["epoch"]), *steps))
    return optim


def scaled(factor: float, offset: float = 0.0) -> Change:
    """Return a wrapper that multiplies rewards and adds to them."""
    return partial(Scaled, factor=factor, offset=offset)


def _sound() -> Iterator[tuple[str, Recipe]]:
    yield "settings of a common kind", Recipe(scale="mid", settings={"updates": 36, "lr": 3e-3})
    yield (
        "a small task that is solved soon and stays so",
        Recipe(task=CONTEXTUAL, settings={"steps": 100, "lr": 1e-2, "updates": 28}),
    )
    yield "continuous actions", Recipe(task=REACH, scale="mid", settings={"updates": 32, "lr": 3e-3})
    yield (
        "a slow task, with scaled returns and recomputed advantages",
        Recipe(task=PENDULUM, scale="few", settings={"return_scaling": True, "recompute_adv": True, "updates": 16}),
    )
    yield (
        "a learning rate that falls linearly to 0",
        Recipe(task=REACH, settings={"lr_decay": True, "lr": 4e-3}),
    )
    yield (
        "one pass over the whole batch",
        Recipe(task=CONTEXTUAL, scale="many", settings={"repeat": 1, "batch_size": None, "lr": 2e-2, "updates": 60}),
    )
    yield "advantages as they are", Recipe(task=CHAIN, settings={"advantage_normalization": False, "lr": 3e-3})
    yield (
        "a large rollout and large minibatches",
        Recipe(task=REACH, scale="few", settings={"steps": 1280, "batch_size": 640, "lr": 4e-3}),
    )
    yield "an entropy bonus that slows and does no harm", Recipe(task=CHAIN, scale="wide", settings={"ent_coef": 0.05})
    yield (
        "clips of every kind",
        Recipe(scale="mid", settings={"value_clip": True, "dual_clip": 3.0, "eps_clip": 0.3, "return_scaling": True}),
    )
    yield (
        "gradients cut to a tenth, which Adam undoes",
        Recipe(scale="mid", settings={"max_grad_norm": 0.02, "lr": 3e-3}),
    )
    yield (
        "large rewards, whose returns are scaled",
        Recipe(task=REACH, wrap=scaled(200.0), settings={"return_scaling": True, "lr": 2e-3}),
    )
    yield (
        "a narrow clip range, many small rollouts",
        Recipe(task=CHAIN, scale="many", settings={"eps_clip": 0.05, "updates": 120, "lr": 3e-3}),
    )
    yield "hidden layers in bfloat16", Recipe(task=CONTEXTUAL, body=faults.Half, settings={"lr": 3e-3})
    yield "no clip of gradients, a small rate: slow", Recipe(scale="wide", settings={"max_grad_norm": None, "lr": 1e-3})


#: (fault, how it is made, the recipe for two tasks); each is trained with two seeds.
Fault = tuple[str, str, Recipe, Recipe]


def _faults() -> Iterator[Fault]:
    yield (
        "lr-too-high",
        "a learning rate a hundred times too large",
        Recipe(task=CHAIN, settings={"lr": 0.2}),
        Recipe(task=REACH, scale="mid", settings={"lr": 0.1}),
    )
    yield (
        "lr-too-small",
        "a learning rate a hundred thousand times too small",
        Recipe(scale="mid", settings={"lr": 1e-8}),
        Recipe(task=REACH, scale="many", settings={"lr": 1e-7}),
    )
    yield (
        "clip-range-too-small",
        "a clip range of a thousandth of what is usual",
        Recipe(scale="wide", settings={"eps_clip": 2e-4}),
        Recipe(task=REACH, settings={"eps_clip": 1e-4}),
    )
    yield (
        "entropy-explosion",
        "an entropy bonus that outweighs the advantages",
        Recipe(task=CONTEXTUAL, scale="plain", settings={"ent_coef": 5.0, "lr": 3e-3}),
        Recipe(task=REACH, scale="wide", settings={"ent_coef": 0.5, "lr": 4e-3}),
    )
    yield (
        "epochs-not-executed",
        faults.OneEpoch.__doc__ or "",
        Recipe(algorithm=faults.forked(epochs="for step in range(1):"), settings={"repeat": 10}),
        Recipe(task=REACH, scale="few", algorithm=faults.OneEpoch),
    )
    yield (
        "old-policy-aliased",
        "the old log-prob is that of the policy that is being updated",
        Recipe(algorithm=faults.Aliased, scale="wide"),
        Recipe(task=REACH, algorithm=faults.Aliased),
    )
    yield (
        "adv-exactly-zero",
        "returns minus returns instead of returns minus values",
        Recipe(task=CHAIN, algorithm=faults.ZeroAdvantages),
        Recipe(task=REACH, scale="mid", algorithm=faults.ZeroAdvantages, settings={"ent_coef": 0.002}),
    )
    yield (
        "advantage-sign-flipped",
        "a minus too many",
        Recipe(task=CONTEXTUAL, scale="wide", algorithm=faults.Flipped),
        Recipe(task=REACH, algorithm=faults.Flipped),
    )
    yield (
        "no-grad-path",
        "the actor is frozen, or its log-prob is detached",
        Recipe(scale="mid", after=faults.frozen),
        Recipe(task=REACH, algorithm=faults.Detached, settings={"ent_coef": 0.01}),
    )
    yield (
        "weights-not-synced",
        "the collector holds a copy of the policy",
        Recipe(task=CHAIN, sampler=faults.unsynced),
        Recipe(task=REACH, scale="wide", sampler=faults.unsynced),
    )
    yield (
        "lr-schedule-horizon-wrong",
        "the schedule is made for fewer epochs than are run: its learning rate falls below 0",
        Recipe(task=CHAIN, scale="mid", settings={"lr_decay": True, "lr_decay_epochs": 1, "updates": 32}),
        Recipe(task=REACH, settings={"lr_decay": True, "lr": 3e-3, "updates": 32}, hidden={"lr_decay_epochs": 2}),
    )
    yield (
        "critic-not-learning",
        "the loss of the values has no weight",
        Recipe(scale="mid", settings={"vf_coef": 0.0}),
        Recipe(task=REACH, scale="wide", settings={"vf_coef": 0.0}),
    )


def _more() -> Iterator[Fault]:
    """Yield faults of one seed only."""
    yield (
        "over-reuse",
        "a hundred passes over a small batch",
        Recipe(task=CHAIN, settings={"repeat": 60, "steps": 80, "lr": 5e-3}),
        Recipe(task=REACH, scale="many", settings={"repeat": 60, "updates": 12, "steps": 96, "lr": 3e-3}),
    )
    yield (
        "minibatch-of-one",
        "a batch size of 1",
        Recipe(task=CHAIN, settings={"batch_size": 1}),
        Recipe(
            task=REACH,
            algorithm=faults.PopulationStd,
            settings={"batch_size": 1, "steps": 40, "repeat": 1, "updates": 12},
        ),
    )
    yield (
        "nan-inf",
        BreaksLater.__doc__ or "",
        Recipe(wrap=partial(BreaksLater, after=500)),
        Recipe(task=REACH, wrap=partial(BreaksLater, after=300)),
    )
    yield (
        "reward-pipeline-broken",
        faults.Constant.__doc__ or "",
        Recipe(task=CONTEXTUAL, wrap=faults.Constant),
        Recipe(task=REACH, scale="wide", wrap=partial(faults.Constant, value=-1.0)),
    )
    yield (
        "optimizer-orphaned-params",
        faults.replaced.__doc__ or "",
        Recipe(task=CHAIN, after=faults.replaced),
        Recipe(task=REACH, scale="few", after=faults.replaced),
    )
    yield (
        "value-clip-starves",
        "values may move by 0.05 at once, and returns are in the tens",
        Recipe(scale="mid", settings={"value_clip": True, "eps_clip": 0.05}),
        Recipe(task=PENDULUM, scale="wide", settings={"value_clip": True, "eps_clip": 0.1}),
    )


DAILY_SOUND = {0, 1, 5}
DAILY = {"lr-too-high", "old-policy-aliased", "adv-exactly-zero", "entropy-explosion", "epochs-not-executed"}


def _case(fault: str, made: str, recipe: Recipe, seed: int, name: str, *, daily: bool) -> Case:
    return Case(
        name=name,
        fault=fault,
        made=made,
        task=recipe.task,
        seed=seed,
        train=partial(recipe.train, seed=seed),
        daily=daily,
    )


def cases() -> Iterator[Case]:
    """Yield every run."""
    for place, (made, recipe) in enumerate(_sound()):
        yield _case("healthy", made, recipe, place + 1, f"healthy/{place}", daily=place in DAILY_SOUND)
    sparse = Recipe(task="MountainCar-v0", scale="wide")
    yield _case("reward-too-sparse", "the goal is never met by chance", sparse, 1, "sparse/1", daily=False)
    for seed, kinds in ((1, _faults()), (3, _more()), (2, _faults())):
        for fault, made, *recipes in kinds:
            for recipe in recipes:
                daily = fault in DAILY and seed == 1 and recipe is recipes[0]
                yield _case(fault, made, recipe, seed, f"{fault}/{recipe.task}/{seed}", daily=daily)


if __name__ == "__main__":
    # The first optimizer imports much of torch; here it does so once for the runs of a process.
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    main("tianshou", cases(), forks=True)
