"""torchtune's PPO recipe on tiny decoders: sound runs, and runs with one fault each."""

from __future__ import annotations

import gc

gc.disable()  # the imports make no garbage, and looking for it takes a third of their time

import dataclasses  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

from lab.cases import Case, main  # noqa: E402

from . import torchtune_faults as faults  # noqa: E402
from .torchtune_run import LOGGERS, Recipe, train  # noqa: E402

gc.enable()

DAILY = {
    "healthy/plain/spelling/1",
    "healthy/bf16/spelling/1",
    "healthy/single update/spelling/1",
    "lr-too-high/spelling/1",
    "old-policy-aliased/spelling/1",
    "advantage-sign-flipped/spelling/1",
    "no-grad-path/singing/2",
    "temperature-mismatch/spelling/1",
}
#: The two runs of a fault: two tasks, and two seeds (which are of different scales too).
RUNS = (("spelling", 1), ("singing", 2))
#: Those of every other fault, so that all scales are met.
OTHERS = (("spelling", 2), ("singing", 1))


def _sound() -> Iterator[tuple[str, str, str, int, Recipe]]:
    """Yield (variant, how it is made, task, seed, recipe) of the sound runs."""
    for task, seed in RUNS + OTHERS:
        yield "plain", "the plain run of its scale", task, seed, Recipe()
    yield "slow", "learning rate 3e-4", "spelling", 2, Recipe(settings={"optimizer.lr": 3e-4})
    single = {"ppo_epochs": 1, "optimizer.lr": 8e-3, "loss.epsilon": 0.1}
    yield "single update", "one epoch, one mini-batch", "spelling", 1, Recipe(settings=single)
    joined = {"ppo_batch_size": 32, "gradient_accumulation_steps": 4, "enable_kv_cache": True}
    yield "joined", "accumulation of four, a key-value cache", "spelling", 1, Recipe(settings=joined, kind="llama2")
    rough = {"dtype": "bf16", "optimizer.lr": 4e-3}
    yield "bf16", "weights in bfloat16", "spelling", 1, Recipe(settings=rough, batches=20)
    near = {"optimizer.lr": 3e-4}
    yield "solved", "fine-tuned on good answers", "spelling", 1, Recipe(settings=near, warm=faults.fine_tune)
    yield "tight clip", "a clip range of 0.02 that does no harm", "spelling", 1, Recipe(settings={"loss.epsilon": 0.02})
    yield "held", "a KL penalty that slows", "singing", 1, Recipe(settings={"kl_coeff": 0.2})
    wide = {"batch_size": 128, "forward_batch_size": 64, "ppo_batch_size": 64}
    yield "wide", "128 answers a batch", "spelling", 1, Recipe(settings=wide, batches=10)
    thin = {"batch_size": 16, "forward_batch_size": 16, "ppo_batch_size": 16, "optimizer.lr": 1e-3}
    yield "long", "many small batches", "spelling", 2, Recipe(settings=thin, batches=80, model={"embed_dim": 16})
    ends = {"penalise_no_eos": True, "reward_penalty": -3}
    yield "ends", "answers without an end count -3", "singing", 2, Recipe(settings=ends)
    heavy = {"loss.value_coeff": 1.0, "loss.value_clip_range": 5.0, "gamma": 0.99, "optimizer.lr": 4e-3}
    yield "heavy critic", "the critic's loss counts fully", "singing", 1, Recipe(settings=heavy, kind="mistral")


def _set(name: str, *each: Any) -> list[Recipe]:
    return [Recipe(settings={name: value}) for value in each]


def _forked(*kinds: type[Any], **settings: Any) -> list[Recipe]:
    return [Recipe(fork=kind, settings=settings) for kind in (kinds * 2)[:2]]


def _faulty() -> Iterator[tuple[str, str, list[Recipe]]]:
    """Yield (cause, how it is made, the recipes of its two runs)."""
    yield "lr-too-high", "a rate 30 to 100 times the sound one", _set("optimizer.lr", 0.3, 0.1)
    yield "lr-too-small", "the published rate of a model of 7B", _set("optimizer.lr", 3e-6, 1e-7)
    yield "clip-range-too-small", "the clip range", _set("loss.epsilon", 1e-4, 1e-5)
    yield "kl-penalty-too-strong", "kl_coeff", _set("kl_coeff", 5.0, 20.0)
    yield "kl-loss-sign-flipped", "kl_coeff with the sign of another library", _set("kl_coeff", -0.3, -0.5)
    yield "epochs-not-executed", faults.one_epoch.__doc__ or "", [Recipe(before=faults.one_epoch)] * 2
    yield "old-policy-aliased", faults.AliasedOldPolicy.__doc__ or "", _forked(faults.AliasedOldPolicy)
    yield "adv-exactly-zero", faults.ZeroAdvantages.__doc__ or "", _forked(faults.ZeroAdvantages)
    yield "advantage-sign-flipped", faults.FlippedAdvantages.__doc__ or "", _forked(faults.FlippedAdvantages)
    yield "no-grad-path", faults.DetachedLogProbs.__doc__ or "", _forked(faults.DetachedLogProbs)
    yield "temperature-mismatch", faults.ColderPass.__doc__ or "", _forked(faults.ColderPass, temperature=0.6)
    shifted = (faults.MisalignedOldLogProbs, faults.ShiftedLogits)
    yield "token-misalignment", faults.MisalignedOldLogProbs.__doc__ or "", _forked(*shifted)
    yield "critic-not-learning", faults.OrphanedCritic.__doc__ or "", _forked(faults.OrphanedCritic)
    yield "ref-model-wrong", faults.other_reference.__doc__ or "", [Recipe(before=faults.other_reference)] * 2
    yield "nan-inf", faults.BreaksLater.__doc__ or "", _forked(faults.BreaksLater)
    yield "reward-pipeline-broken", faults.constant.__doc__ or "", [Recipe(score=faults.constant)] * 2
    # The recipe switches nn.Dropout off; torchtune's attention has a number instead, which stays.
    dropped = [Recipe(model={"attn_dropout": 0.2}), Recipe(model={"attn_dropout": 0.1})]
    yield "dropout-or-train-mode", "dropout in the model's configuration", dropped


def _runs() -> Iterator[tuple[str, str, str, str, int, Recipe]]:
    """Yield (name, fault, how it is made, task, seed, recipe) of every run."""
    for variant, made, task, seed, recipe in _sound():
        yield f"healthy/{variant}/{task}/{seed}", "healthy", made, task, seed, recipe
    for place, (fault, made, recipes) in enumerate(_faulty()):
        for (task, seed), recipe in zip(OTHERS if place % 2 else RUNS, recipes, strict=True):
            yield f"{fault}/{task}/{seed}", fault, made, task, seed, recipe


def cases() -> Iterator[Case]:
    """Yield every run; the loggers take turns, as a user has one of them."""
    turns = ("disk", "events", "disk", "console", "events")
    if set(turns) != set(LOGGERS):
        raise ValueError(turns)
    for place, (name, fault, made, task, seed, recipe) in enumerate(_runs()):
        run = partial(train, dataclasses.replace(recipe, logger=turns[place % len(turns)]), task, seed)
        yield Case(name=name, fault=fault, made=made, task=task, seed=seed, train=run, daily=name in DAILY)


if __name__ == "__main__":
    main("torchtune", cases(), forks=True)
