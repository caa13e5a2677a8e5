"""sb3-contrib's RecurrentPPO and MaskablePPO: sound runs of several kinds, and a fault each; half of each trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from sb3_contrib import MaskablePPO, RecurrentPPO

from lab.cases import Case, main
from lab.tasks import Scaled

from . import sb3_contrib_faults as faults
from .sb3 import Recipe, Wrap, same, scaled

CARTPOLE, RECALL, CHAIN, MASKED = "CartPole-v1", "lab/Recall-v0", "lab/Chain-v0", "lab/Masked-v0"
MYOPIC = {"gamma": 0.1, "gae_lambda": 0.1}
SMALL = {"lstm_hidden_size": 16, "net_arch": [32], "enable_critic_lstm": False}

#: Sound settings per size of run: rollouts from 128 to 2048 steps, 1 or 2 minibatches, 10 to 24 records.
SCALES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"n_envs": 16, "n_steps": 24, "batch_size": 192, "n_epochs": 3, "learning_rate": 5e-3, "updates": 12},
    "few": {"n_envs": 32, "n_steps": 30, "batch_size": 480, "n_epochs": 3, "learning_rate": 6e-3, "updates": 10},
    "wide": {"n_envs": 16, "n_steps": 16, "batch_size": 256, "n_epochs": 4, "learning_rate": 6e-3, "updates": 14},
    "many": {"n_envs": 8, "n_steps": 16, "batch_size": 64, "n_epochs": 2, "learning_rate": 5e-3, "updates": 24},
}
TASKS: Mapping[str, Mapping[str, Any]] = {
    CARTPOLE: {"gamma": 0.97},
    RECALL: {"gamma": 0.95},
    CHAIN: {"gamma": 0.95},
    MASKED: {"gamma": 0.97},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrib(Recipe):
    """How one run of a trainer of sb3-contrib differs from a sound one."""

    scales: ClassVar[Mapping[str, Mapping[str, Any]]] = SCALES
    tasks: ClassVar[Mapping[str, Mapping[str, Any]]] = TASKS


def recurrent(env: str = RECALL, scale: str = "plain", **more: Any) -> Contrib:
    """Return a run of RecurrentPPO with a small LSTM."""
    settings = {"policy_kwargs": SMALL, **more.pop("settings", {})}
    trainer = more.pop("trainer", RecurrentPPO)
    return Contrib(env=env, scale=scale, trainer=trainer, policy="MlpLstmPolicy", settings=settings, **more)


def maskable(env: str = MASKED, scale: str = "plain", **more: Any) -> Contrib:
    """Return a run of MaskablePPO; tasks without masks of their own get some."""
    masks: Mapping[str, Wrap] = {CHAIN: faults.no_step_left, CARTPOLE: faults.all_allowed}
    wrap = more.pop("inside", same)
    hides = masks.get(env, same)
    return Contrib(
        env=env, scale=scale, trainer=more.pop("trainer", MaskablePPO), inside=lambda task: wrap(hides(task)), **more
    )


def _sound() -> Iterator[tuple[str, str, Contrib]]:
    yield "recall", "a memory task", recurrent(scale="few", settings={"updates": 16})
    yield "cartpole", "a recurrent policy on a classic task", recurrent(CARTPOLE, "wide", settings={"updates": 24})
    yield (
        "recall-annealed",
        "a linear learning-rate schedule to 0",
        recurrent(
            scale="wide", settings={"learning_rate": faults.lin_8e3, "n_steps": 24, "batch_size": 384, "updates": 18}
        ),
    )
    yield "recall-target-kl", "target_kl stops now and then", recurrent(settings={"target_kl": 0.02, "n_epochs": 6})
    yield (
        "chain-single-update",
        "one epoch over one minibatch",
        maskable(CHAIN, "wide", settings={"n_epochs": 1, "learning_rate": 1e-2, "updates": 44}),
    )
    yield (
        "recall-bonus",
        "a large entropy bonus that slows and does no harm",
        recurrent(scale="few", settings={"ent_coef": 0.05, "updates": 16}),
    )
    yield "masked", "settings of a common kind", maskable()
    yield "chain", "a chain that is solved, and stays so", maskable(CHAIN, "few", settings={"updates": 20})
    yield (
        "masked-tiny-clip",
        "a clip range of 0.03 that is enough",
        maskable(scale="few", settings={"clip_range": 0.03}),
    )
    yield (
        "masked-annealed",
        "learning rate and clip range go to 0",
        maskable(scale="wide", settings={"learning_rate": faults.lin_8e3, "clip_range": faults.lin_clip}),
    )
    yield (
        "masked-large-batch",
        "a whole rollout of 2048 steps as a minibatch, with a gradient clip that cuts every step, which Adam undoes",
        maskable(
            scale="few", settings={"n_steps": 64, "batch_size": 2048, "max_grad_norm": 0.02, "learning_rate": 1e-2}
        ),
    )
    yield (
        "chain-value-clip",
        "a clipped critic without whitening",
        maskable(CHAIN, "many", settings={"clip_range_vf": 0.5, "normalize_advantage": False}),
    )
    yield (
        "recall-small-gamma",
        "a discount of 0.1 where the action that counts is paid at once",
        recurrent(settings=MYOPIC),
    )
    yield "masked-small-gamma", "the same where greed is right", maskable(scale="few", settings=MYOPIC)


Both = Callable[[type[Any]], type[Any]]


def _set(**settings: Any) -> list[Contrib]:
    """Return the four runs of a fault that is a setting."""
    told = {"settings": settings}
    return [
        recurrent(scale="plain", **told),
        recurrent(CARTPOLE, "many", **told),
        maskable(scale="few", **told),
        maskable(CHAIN, "wide", **told),
    ]


def _fork(fork: Both, **settings: Any) -> list[Contrib]:
    """Return the four runs of a fault in the trainer."""
    memory, masks, told = fork(RecurrentPPO), fork(MaskablePPO), {"settings": settings}
    return [
        recurrent(scale="few", trainer=memory, **told),
        recurrent(CARTPOLE, "wide", trainer=memory, **told),
        maskable(scale="plain", trainer=masks, **told),
        maskable(CHAIN, "few", trainer=masks, **told),
    ]


def _on(outer: str, wrap: Any) -> list[Contrib]:
    """Return the four runs of a fault in the task, inside or outside Monitor, or in the model."""
    return [
        recurrent(scale="wide", **{outer: wrap}),
        recurrent(CARTPOLE, "wide", **{outer: wrap}),
        maskable(scale="many", **{outer: wrap}),
        maskable(CHAIN, "few", **{outer: wrap}),
    ]


def _of_inputs() -> list[Contrib]:
    forgets, unmasked = faults.forgets_episodes(), faults.unmasked()
    return [
        recurrent(scale="few", trainer=forgets),
        recurrent(CARTPOLE, "wide", trainer=forgets),
        maskable(scale="plain", trainer=unmasked),
        maskable(CHAIN, "wide", trainer=unmasked),
    ]


def _faulty() -> Iterator[tuple[str, str, list[Contrib]]]:
    yield "lr-too-high", "a learning rate far above what the task bears", _set(learning_rate=0.1)
    yield "old-logp-resynced-per-epoch", faults.resynced.__doc__ or "", _fork(faults.resynced)
    yield (
        "advantage-misaligned",
        "advantages in the reverse order, or of the neighbouring environment",
        [
            *_fork(lambda base: faults.touched(base, faults.backwards))[:1],
            *_fork(lambda base: faults.touched(base, faults.neighbours))[1:3],
            *_fork(lambda base: faults.touched(base, faults.backwards))[3:],
        ],
    )
    yield "optimizer-orphaned-params", faults.replace_actor.__doc__ or "", _on("before", faults.replace_actor)
    yield (
        "obs-transform-mismatch",
        "the update does not reset the recurrent state at an episode's start, or does not apply the masks",
        _of_inputs(),
    )
    yield "entropy-collapse", "a sign lost in the entropy coefficient", _set(ent_coef=-0.5)
    yield "entropy-explosion", "an entropy bonus that outweighs the advantages", _set(ent_coef=2.0)
    yield (
        "gamma-lambda-mismatch",
        "a discount of 0.1 where rewards are late",
        [
            recurrent(CARTPOLE, "wide", settings=MYOPIC),
            recurrent(CARTPOLE, "many", settings=MYOPIC),
            maskable(CHAIN, "wide", settings=MYOPIC),
            maskable(CHAIN, "few", settings=MYOPIC),
        ],
    )
    yield (
        "reward-pipeline-broken",
        "a reward function that fails and falls back to a constant",
        _on("inside", partial(Scaled, factor=0.0, offset=0.0)),
    )
    yield (
        "critic-not-learning",
        "no weight for the value loss, or values that were detached",
        [*_set(vf_coef=0.0)[::2], *_fork(faults.detached_values)[1::2]],
    )
    yield (
        "value-clip-starves",
        "a value clip for another scale of returns",
        [
            replace(one, inside=_larger(one.inside), settings={**one.settings, "clip_range_vf": 1e-3})
            for one in _set(ent_coef=0.0)
        ],
    )
    yield "grad-clip-starves", "a gradient clip far below Adam's epsilon", _set(max_grad_norm=1e-8)
    yield (
        "gae-boundary-bug",
        faults.over_the_end.__doc__ or "",
        _fork(lambda base: faults.touched(base, faults.over_the_end), gamma=0.99),
    )


def _larger(inside: Wrap) -> Wrap:
    """Return a wrapper that makes returns larger, too."""
    return lambda task: scaled(20.0)(inside(task))


def cases() -> Iterator[Case]:
    """Yield every run."""
    cheap = {"masked", "chain", "recall-target-kl"}
    for number, (name, made, recipe) in enumerate(_sound()):
        seed = 51 + number
        run = partial(recipe.train, seed=seed)
        task, title = recipe.env.split("/")[-1], f"healthy/{name}"
        yield Case(name=title, fault="healthy", made=made, task=task, seed=seed, train=run, daily=name in cheap)
    made = "a long chain whose only reward is at its end, which chance never meets"
    run = partial(maskable(CHAIN, task={"length": 60, "sparse": True}).train, seed=70)
    yield Case(name="sparse/Chain", fault="reward-too-sparse", made=made, task="Chain-v0", seed=70, train=run)
    quick = {"lr-too-high", "obs-transform-mismatch", "advantage-misaligned", "grad-clip-starves", "entropy-collapse"}
    for fault, made, recipes in _faulty():
        for seed, recipe in enumerate(recipes, start=1):
            task = recipe.env.split("/")[-1]
            run = partial(recipe.train, seed=seed)
            name, daily = f"{fault}/{task}/{seed}", fault in quick and seed == 3
            yield Case(name=name, fault=fault, made=made, task=task, seed=seed, train=run, daily=daily)


if __name__ == "__main__":
    main("sb3_contrib", cases(), forks=True)
