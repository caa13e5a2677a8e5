"""TRL's PPOTrainer of the older generation on tiny decoders: sound runs, and runs with one fault each."""

from __future__ import annotations

import gc

gc.disable()  # the imports make no garbage, and looking for it takes a third of their time

from collections.abc import Iterator  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from lab import language  # noqa: E402
from lab.cases import Case, main  # noqa: E402

from . import trl_ppo_old_faults as faults  # noqa: E402
from .trl_ppo_old_run import Recipe, train  # noqa: E402

gc.enable()

DAILY = {
    "healthy/plain/spelling/1",
    "healthy/schedule/spelling/1",
    "healthy/tight clip/spelling/1",
    "kl-coef-runaway/spelling/1",
    "no-grad-path/spelling/1",
    "reward-pipeline-broken/spelling/1",
    "temperature-mismatch/singing/2",
    "lr-too-high/singing/2",
}
#: Four runs of a fault: two tasks, two seeds (which are of different scales too).
RUNS = [("spelling", 1), ("singing", 2), ("spelling", 2), ("singing", 1)]


def _sound() -> Iterator[tuple[str, str, str, int, Recipe]]:
    """Yield (variant, how it is made, task, seed, recipe) of the sound runs."""
    for task, seed in RUNS:
        yield "plain", "the plain run of its scale", task, seed, Recipe()
    yield "schedule", "the rate falls to 0", "spelling", 1, Recipe(schedule=lambda step, most: 1 - step / most)
    adaptive = {"adap_kl_ctrl": True, "init_kl_coef": 0.05, "target": 2.0, "horizon": 400}
    yield "adaptive", "a coefficient that follows the KL", "spelling", 2, Recipe(settings=adaptive)
    single = {"ppo_epochs": 1, "mini_batch_size": 64, "learning_rate": 6e-3}
    yield "single update", "one epoch, one mini-batch", "spelling", 1, Recipe(settings=single)
    joined = {"mini_batch_size": 16, "gradient_accumulation_steps": 4, "ppo_epochs": 4}
    yield "joined", "accumulation over four mini-batches", "singing", 1, Recipe(settings=joined)
    yield "tight clip", "a clip range of 0.02 that does no harm", "spelling", 1, Recipe(settings={"cliprange": 0.02})
    capped = {"max_grad_norm": 1e-3}
    yield "capped", "a gradient cap that acts in the first step only", "spelling", 2, Recipe(settings=capped)
    matched = {"init_kl_coef": 0.2, "vf_coef": 0.01}
    points = Recipe(settings=matched, handed=faults.times(10))
    yield "points", "rewards of up to ten points, and coefficients that fit them", "spelling", 1, points
    stops = {"early_stopping": True, "target_kl": 0.01}
    yield "stops", "a target KL that is passed now and then", "singing", 1, Recipe(settings=stops)
    near = {"learning_rate": 1e-4}
    yield "solved", "fine-tuned on good answers", "spelling", 1, Recipe(settings=near, warm=faults.fine_tune)
    wide = {"batch_size": 256, "mini_batch_size": 64}
    yield "wide", "256 answers a batch", "spelling", 1, Recipe(settings=wide, batches=10)
    yield "squared", "a squared KL penalty", "spelling", 2, Recipe(settings={"kl_penalty": "mse"})
    yield "whitened", "rewards whitened", "singing", 1, Recipe(settings={"whiten_rewards": True})
    yield "bf16", "weights in bfloat16", "spelling", 1, Recipe(dtype=torch.bfloat16)
    thin = {"batch_size": 16, "mini_batch_size": 16, "learning_rate": 1e-3}
    yield "long", "many small batches", "spelling", 2, Recipe(settings=thin, batches=80)


def _set(*each: Any, name: str) -> list[Recipe]:
    return [Recipe(settings={name: value}) for value in each]


def _faulty() -> Iterator[tuple[str, str, list[Recipe]]]:
    """Yield (cause, how it is made, the recipes of its four runs)."""
    yield "lr-too-high", "a rate 15 to 100 times the sound one", _set(0.3, 0.1, 0.05, 0.2, name="learning_rate")
    runaway = {"adap_kl_ctrl": True, "init_kl_coef": 0.2}
    unruly = [{**runaway, "target": target, "horizon": horizon} for target, horizon in ((0.01, 40), (0.1, 60)) * 2]
    yield "kl-coef-runaway", "a target that is never met, a horizon too short", [Recipe(settings=s) for s in unruly]
    tight = [{"early_stopping": True, "target_kl": bound, "ppo_epochs": 8} for bound in (1e-6, 1e-5, 1e-6, 1e-6)]
    yield "target-kl-stops-early", "a target KL far below a step's", [Recipe(settings=each) for each in tight]
    yield "clip-range-too-small", "the clip range", _set(1e-4, 1e-5, 1e-5, 1e-4, name="cliprange")
    for fault, fork in (
        ("old-policy-aliased", faults.AliasedOldPolicy),
        ("advantage-sign-flipped", faults.FlippedAdvantages),
        ("adv-exactly-zero", faults.LeakyMask),
    ):
        yield fault, fork.__doc__ or "", [Recipe(trainer=fork)] * 4
    shuffled = [Recipe(handed=faults.sorted_rewards)] * 4
    yield "advantage-misaligned", faults.sorted_rewards.__doc__ or "", shuffled
    prompted = [Recipe(handed=faults.with_prompts)] * 4
    yield "tokens-not-policy-in-loss", faults.with_prompts.__doc__ or "", prompted
    charged, short = Recipe(settings={"whiten_rewards": True}), Recipe(score=language.brief)
    collapsing = "each token costs: by the score, or by whiten_rewards, which moves positive rewards' mean"
    yield "length-collapse", collapsing, [charged, short, charged, short]
    scales = [Recipe(handed=faults.times(by)) for by in (1000, 100, 3000, 300)]
    yield "reward-scale-off", "rewards in other units", scales
    orphaned = [Recipe(optimizer=faults.optimizer_of_copy)] * 4
    yield "optimizer-orphaned-params", faults.optimizer_of_copy.__doc__ or "", orphaned
    yield "no-grad-path", faults.freeze.__doc__ or "", [Recipe(before=faults.freeze)] * 4
    yield "reward-pipeline-broken", faults.constant_score.__doc__ or "", [Recipe(score=faults.constant_score)] * 4
    yield "length-hacking", faults.long_winded.__doc__ or "", [Recipe(score=faults.long_winded)] * 4
    yield "stuck-batch", faults.Cached.__doc__ or "", [Recipe(handed=faults.Cached()) for _ in RUNS]
    colder = [{"temperature": 0.5}, {"top_k": 5}, {"temperature": 0.7}, {"temperature": 0.6, "top_p": 0.9}]
    yield "temperature-mismatch", "sampling that `step` does not know of", [Recipe(sampling=each) for each in colder]
    yield "nan-inf", faults.Breaks.__doc__ or "", [Recipe(handed=faults.Breaks(after)) for after in (15, 6, 30, 8)]
    itself, other = Recipe(reference=faults.the_policy_itself), Recipe(reference=faults.another_start)
    yield "ref-model-wrong", "the reference is the policy itself, or another model", [itself, other, other, itself]


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
    main("trl_ppo_old", cases(), forks=True)
