"""TRL's PPOTrainer of the newer generation on tiny decoders: sound runs, and runs with one fault each."""

from __future__ import annotations

import gc

gc.disable()  # the imports make no garbage, and looking for it takes a third of their time

from collections.abc import Iterator  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from lab.cases import Case, main  # noqa: E402

from . import trl_ppo_faults as faults  # noqa: E402
from .trl_ppo_run import Recipe, train  # noqa: E402

gc.enable()

DAILY = {
    "healthy/plain/spelling/1",
    "healthy/bf16/spelling/1",
    "healthy/single update/spelling/1",
    "lr-too-high/spelling/1",
    "old-policy-aliased/spelling/2",
    "advantage-sign-flipped/spelling/1",
    "no-grad-path/singing/2",
    "temperature-mismatch/spelling/2",
}
#: Four runs of a fault: two tasks, two seeds (which are of different scales too).
RUNS = [("spelling", 1), ("singing", 2), ("spelling", 2), ("singing", 1)]


def _sound() -> Iterator[tuple[str, str, str, int, Recipe]]:
    """Yield (variant, how it is made, task, seed, recipe) of the sound runs."""
    for task, seed in RUNS:
        yield "plain", "the plain run of its scale", task, seed, Recipe()
    yield "slow", "learning rate 5e-4", "spelling", 2, Recipe(settings={"learning_rate": 5e-4})
    yield "schedule", "the rate falls to 0", "singing", 1, Recipe(settings={"lr_scheduler_type": "linear"})
    single = {"num_ppo_epochs": 1, "learning_rate": 8e-3}
    yield "single update", "one epoch, one mini-batch", "spelling", 1, Recipe(settings=single)
    joined = {"num_mini_batches": 2, "gradient_accumulation_steps": 2, "num_ppo_epochs": 4, "learning_rate": 3e-3}
    many = {**joined, "per_device_train_batch_size": 16}
    yield "joined", "accumulation joins the mini-batches again", "spelling", 1, Recipe(settings=many)
    rough = {"learning_rate": 4e-3}
    yield "bf16", "weights in bfloat16", "spelling", 1, Recipe(settings=rough, dtype=torch.bfloat16)
    dropped = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}
    yield "dropout", "dropout that TRL switches off", "spelling", 2, Recipe(kind="gpt2", model=dropped)
    near = {"learning_rate": 3e-4}
    yield "solved", "fine-tuned on good answers", "spelling", 1, Recipe(settings=near, warm=faults.fine_tune)
    white = {"whiten_rewards": True, "kl_estimator": "k3"}
    yield "whitened", "rewards whitened, k3", "spelling", 2, Recipe(settings=white)
    yield "tight clip", "a clip range of 0.02 that does no harm", "spelling", 1, Recipe(settings={"cliprange": 0.02})
    held = {"kl_coef": 0.3}
    yield "held", "a KL penalty that slows", "singing", 2, Recipe(settings=held)
    wide = {"per_device_train_batch_size": 128, "local_rollout_forward_batch_size": 128}
    yield "wide", "128 answers a batch", "spelling", 1, Recipe(settings=wide, batches=10)
    thin = {"per_device_train_batch_size": 16, "num_mini_batches": 1, "learning_rate": 1e-3}
    yield "long", "many small batches", "spelling", 2, Recipe(settings=thin, batches=80, model={"hidden_size": 16})
    yield "unclipped", "a gradient cap that TRL ignores", "spelling", 1, Recipe(settings={"max_grad_norm": 1e-7})
    ends = {"missing_eos_penalty": 1.0}
    yield "ends", "answers without an end cost 1", "singing", 2, Recipe(settings=ends)


def _set(*each: Any, name: str) -> list[Recipe]:
    return [Recipe(settings={name: value}) for value in each]


def _forked(kind: type[Any], **settings: Any) -> list[Recipe]:
    return [Recipe(trainer=kind, settings=settings)] * 4


def _faulty() -> Iterator[tuple[str, str, list[Recipe]]]:
    """Yield (cause, how it is made, the recipes of its four runs)."""
    yield "lr-too-high", "a rate 15 to 100 times the sound one", _set(0.2, 0.03, 0.1, 0.3, name="learning_rate")
    yield "lr-too-small", "a rate that is taken from larger models", _set(3e-6, 1e-7, 1e-6, 1e-8, name="learning_rate")
    yield "clip-range-too-small", "the clip range", _set(1e-4, 1e-5, 1e-4, 1e-6, name="cliprange")
    yield "kl-penalty-too-strong", "kl_coef", _set(20.0, 5.0, 50.0, 10.0, name="kl_coef")
    yield "epochs-not-executed", faults.one_epoch.__doc__ or "", [Recipe(before=faults.one_epoch)] * 4
    yield "old-policy-aliased", faults.AliasedOldPolicy.__doc__ or "", _forked(faults.AliasedOldPolicy)
    yield "adv-exactly-zero", faults.ZeroAdvantages.__doc__ or "", _forked(faults.ZeroAdvantages)
    yield "advantage-sign-flipped", faults.FlippedAdvantages.__doc__ or "", _forked(faults.FlippedAdvantages)
    yield "no-grad-path", faults.DetachedLogProbs.__doc__ or "", _forked(faults.DetachedLogProbs)
    yield "dropout-or-train-mode", faults.dropout_on.__doc__ or "", [Recipe(before=faults.dropout_on)] * 4
    yield "temperature-mismatch", faults.ColderPass.__doc__ or "", _forked(faults.ColderPass, temperature=0.6)
    yield "token-misalignment", faults.MisalignedOldLogProbs.__doc__ or "", _forked(faults.MisalignedOldLogProbs)
    rounded = [Recipe(settings={"learning_rate": rate}, dtype=torch.bfloat16) for rate in (1e-5, 3e-6, 1e-5, 5e-6)]
    yield "bf16-swallowed-update", "weights in bfloat16, small steps", rounded
    yield "ref-model-wrong", "the reference is another model", [Recipe(other_reference=True)] * 4
    yield "nan-inf", faults.BreaksLater.__doc__ or "", _forked(faults.BreaksLater)


def _case(name: str, fault: str, made: str, task: str, seed: int, recipe: Recipe) -> Case:
    run = partial(train, recipe, task, seed)
    return Case(name=name, fault=fault, made=made, task=task, seed=seed, train=run, daily=name in DAILY)


def cases() -> Iterator[Case]:
    """Yield every run."""
    for variant, made, task, seed, recipe in _sound():
        yield _case(f"healthy/{variant}/{task}/{seed}", "healthy", made, task, seed, recipe)
    for place, (task, seed) in enumerate(RUNS):
        for fault, made, recipes in _faulty():
            yield _case(f"{fault}/{task}/{seed}", fault, made, task, seed, recipes[place])


if __name__ == "__main__":
    main("trl_ppo", cases(), forks=True)
