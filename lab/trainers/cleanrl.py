"""A single file in the style of CleanRL (`cleanrl_ppo.py`): sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.cases import Case, main, write_settings
from lab.tasks import Scaled, register

from .cleanrl_ppo import Args, run

CARTPOLE, CHAIN, REACH = "CartPole-v1", "lab/Chain-v0", "lab/Reach-v0"

#: Settings per size of batch: 64 to 768 steps, 1 to 4 minibatches, 10 to 60 iterations.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "c64": {"num_envs": 8, "num_steps": 8, "num_minibatches": 1, "update_epochs": 4, "iterations": 60},
    "c128": {"num_envs": 8, "num_steps": 16, "num_minibatches": 2, "update_epochs": 3, "iterations": 40},
    "c256": {"num_envs": 16, "num_steps": 16, "num_minibatches": 2, "update_epochs": 4, "iterations": 22},
    "c512": {"num_envs": 16, "num_steps": 32, "num_minibatches": 4, "update_epochs": 3, "iterations": 12},
    "c384": {"num_envs": 16, "num_steps": 24, "num_minibatches": 3, "update_epochs": 4, "iterations": 10},
    "c768": {"num_envs": 16, "num_steps": 48, "num_minibatches": 3, "update_epochs": 4, "iterations": 10},
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    CARTPOLE: {"gamma": 0.98, "learning_rate": 2.5e-3, "clip_vloss": False},
    CHAIN: {"gamma": 0.95, "learning_rate": 2.5e-3},
    REACH: {"gamma": 0.9, "learning_rate": 3e-3},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    env: str = CARTPOLE
    scale: str = "c512"
    settings: Mapping[str, Any] = field(default_factory=dict)
    forks: frozenset[str] = frozenset()
    """What lines of the script were changed."""
    inner: Callable[[Any], Any] | None = None
    task: Mapping[str, Any] = field(default_factory=dict)

    def train(self, folder: Path, seed: int) -> None:
        """Run the script in the folder; every other seed's script has lost the line that writes its settings."""
        torch.set_num_threads(1)
        np.seterr(all="ignore")
        register()
        told = {**SCALES[self.scale], **TASKS[self.env], **self.settings}
        total = told.pop("iterations") * told["num_envs"] * told["num_steps"]
        args = Args(env_id=self.env, seed=seed, total_timesteps=total, exp_name=_name(self.env), **told)
        forks = self.forks | ({"no-table"} if seed % 2 else set())
        run(args, frozenset(forks), self.inner or _same, self.task, partial(_tell, folder))
        for events in folder.glob("events.out.tfevents.*"):  # a name that does not tell time and machine
            events.rename(folder / "events.out.tfevents.1.host.1.0")


def _tell(folder: Path, args: Args) -> None:
    write_settings(folder, vars(args))


def _same(env: Any) -> Any:
    return env


def _name(env: str) -> str:
    return "ppo" if env in (CARTPOLE, CHAIN) else "ppo_continuous_action"


def scaled(factor: float) -> Callable[[Any], Any]:
    """Return a wrapper that multiplies rewards."""
    return partial(Scaled, factor=factor)


def _set(env: str, scale: str, /, **settings: Any) -> Recipe:
    return Recipe(env=env, scale=scale, settings=settings)


def _sound() -> Iterator[tuple[str, str, Recipe]]:
    yield "cartpole", "settings of a common kind", _set(CARTPOLE, "c512", update_epochs=4, iterations=22)
    whole = {"num_minibatches": 1, "update_epochs": 8, "learning_rate": 5e-3, "iterations": 14}
    yield "large-batch", "the whole batch at once", _set(CARTPOLE, "c512", **whole)
    yield "reach", "continuous actions", _set(REACH, "c512", update_epochs=4, iterations=20)
    yield "small", "settings of a common kind, in small batches", _set(CHAIN, "c64")
    yield "annealed", "the script's own schedule to 0", _set(CHAIN, "c256", anneal_lr=True, iterations=36)
    yield "reach-annealed", "the same with continuous actions", _set(REACH, "c768", anneal_lr=True, iterations=14)
    stops = {"target_kl": 0.01, "update_epochs": 6, "iterations": 14}
    yield "target-kl", "target_kl stops now and then", _set(CARTPOLE, "c768", **stops)
    single = {"update_epochs": 1, "num_minibatches": 1, "learning_rate": 1e-2}
    yield "single-update", "one epoch over one minibatch", _set(CHAIN, "c256", **single, iterations=40)
    yield "bonus", "a large entropy bonus that does no harm", _set(CHAIN, "c512", ent_coef=0.1, iterations=16)
    yield (
        "tiny-clip",
        "a clip of 0.03 that is enough",
        _set(REACH, "c512", clip_coef=0.03, clip_vloss=False, iterations=14),
    )
    odd = {"norm_adv": False, "max_grad_norm": 0.02, "iterations": 16}
    yield "odd", "no whitening, a gradient clip that cuts every step, which Adam undoes", _set(CHAIN, "c512", **odd)
    bf16 = {"dtype": "bfloat16", "learning_rate": 1e-2, "iterations": 22}
    yield "bf16", "weights in bf16 under steps that are large enough for them", _set(CHAIN, "c256", **bf16)
    yield (
        "large-reward",
        "rewards times 1000 under NormalizeReward",
        Recipe(env=REACH, scale="c256", settings={"iterations": 22}, inner=scaled(1000.0)),
    )


def _four(env: str, other: str, *forks: str, **settings: Any) -> list[Recipe]:
    """Return the runs of a fault: two of a task, two of another kind, of four sizes."""
    sizes = [(env, "c512"), (env, "c128"), (other, "c384"), (other, "c256")]
    return [Recipe(env=one, scale=scale, forks=frozenset(forks), settings=settings) for one, scale in sizes]


def _faulty() -> Iterator[tuple[str, str, list[Recipe]]]:
    yield "lr-too-high", "a rate of another optimizer", _four(CHAIN, REACH, learning_rate=0.1)
    yield (
        "old-logp-resynced-per-minibatch",
        "the fork computes the old log-probs anew in each minibatch",
        _four(CHAIN, REACH, "resynced"),
    )
    yield "stuck-batch", "the fork flattens the first batch alone", _four(CARTPOLE, REACH, "stuck")
    yield (
        "staleness-async",
        "the fork's sampler has weights of its own, which are copied every sixth iteration",
        _four(CARTPOLE, REACH, "stale"),
    )
    yield "token-misalignment", "log-probs are stored one step late", _four(CHAIN, REACH, "shifted")
    yield (
        "temperature-mismatch",
        "actions are sampled at a temperature of 0.5, updates are made at 1",
        _four(CARTPOLE, REACH, "temperature"),
    )
    one = {"update_epochs": 1, "num_envs": 8, "num_steps": 8, "num_minibatches": 64, "iterations": 12}
    bonus, guarded = {**one, "ent_coef": 0.01}, frozenset({"population"})
    yield (
        "minibatch-of-one",
        "as many minibatches as steps, whose spread a fork keeps from being NaN",
        [
            Recipe(env=CARTPOLE, settings=one, forks=guarded),
            Recipe(env=CHAIN, settings=bonus, forks=guarded),
            Recipe(env=REACH, settings={**one, "num_steps": 4, "num_minibatches": 32, "iterations": 20}, forks=guarded),
            Recipe(env=REACH, settings=bonus, forks=guarded),
        ],
    )
    yield (
        "bf16-swallowed-update",
        "weights in bf16, whose last place is larger than a step",
        _four(CHAIN, REACH, dtype="bfloat16", learning_rate=3e-6),
    )
    yield "kl-penalty-too-strong", "a fork's penalty with too large a weight", _four(CHAIN, REACH, kl_coef=1e4)
    yield (
        "grad-clip-starves",
        "a gradient clip for another loss, under SGD",
        _four(CHAIN, REACH, optimizer="sgd", learning_rate=0.02, max_grad_norm=1e-5),
    )
    yield (
        "lr-schedule-horizon-wrong",
        "the schedule counts minibatches, the run iterations",
        _four(CHAIN, REACH, "horizon", anneal_lr=True, num_minibatches=8),
    )
    yield "advantage-sign-flipped", "the minus of the loss was lost", _four(CHAIN, REACH, "flipped")


def cases() -> Iterator[Case]:
    """Yield every run."""
    cheap = {"cartpole", "single-update", "reach"}
    for number, (name, made, recipe) in enumerate(_sound()):
        seed = 81 + number
        go = partial(recipe.train, seed=seed)
        task, title = recipe.env.split("/")[-1], f"healthy/{name}"
        yield Case(name=title, fault="healthy", made=made, task=task, seed=seed, train=go, daily=name in cheap)
    made = "a long chain whose only reward is at its end, which chance never meets"
    go = partial(Recipe(env=CHAIN, scale="c512", task={"length": 60, "sparse": True}).train, seed=99)
    yield Case(name="sparse/Chain", fault="reward-too-sparse", made=made, task="Chain-v0", seed=99, train=go)
    quick = {"lr-too-high", "temperature-mismatch", "stuck-batch", "minibatch-of-one", "kl-penalty-too-strong"}
    for fault, made, recipes in _faulty():
        for seed, recipe in enumerate(recipes, start=1):
            task = recipe.env.split("/")[-1]
            go = partial(recipe.train, seed=seed)
            name, daily = f"{fault}/{task}/{seed}", fault in quick and seed == 1
            yield Case(name=name, fault=fault, made=made, task=task, seed=seed, train=go, daily=daily)


if __name__ == "__main__":
    main("cleanrl", cases(), forks=True)
