"""TRL's GRPOTrainer on tiny decoders of four families: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trl import GRPOConfig, GRPOTrainer

from lab.cases import main

from . import trl_groups_faults as faults
from .trl_groups import (
    DROPOUT,
    Library,
    Recipe,
    Run,
    Scale,
    cases_of,
    each,
    ends,
    exact_answer,
    letters_only,
    runs,
    singing_reward,
    spelling_reward,
    times,
)

#: From 12 to 100 records; what is made of a generation: iterations, minibatches, both, or a single update.
SIZES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "plain": (16, {"per_device_train_batch_size": 64, "num_iterations": 4, "learning_rate": 5e-3}),
    "pairs": (14, {"per_device_train_batch_size": 32, "steps_per_generation": 4, "learning_rate": 5e-3}),
    "averaged": (
        16,
        {
            "per_device_train_batch_size": 48,
            "num_generations": 4,
            "steps_per_generation": 2,
            "num_iterations": 2,
            "logging_steps": 4,
            "learning_rate": 5e-3,
        },
    ),
    "wide": (
        18,
        {"per_device_train_batch_size": 128, "num_generations": 16, "num_iterations": 2, "learning_rate": 8e-3},
    ),
    "small": (50, {"per_device_train_batch_size": 32, "num_iterations": 2, "learning_rate": 3e-3}),
    "few": (12, {"per_device_train_batch_size": 64, "num_iterations": 3, "logging_steps": 3, "learning_rate": 8e-3}),
    "once": (24, {"per_device_train_batch_size": 64, "learning_rate": 1e-2}),
    "accumulated": (20, {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4, "learning_rate": 1e-2}),
}
SHARED = {"num_generations": 8, "num_iterations": 1, "logging_steps": 1, "gradient_checkpointing": False}
LIBRARY = Library(
    trainer=GRPOTrainer,
    config=GRPOConfig,
    scales={name: Scale(generations=count, settings={**SHARED, **told}) for name, (count, told) in SIZES.items()},
)


def _sound() -> Iterator[tuple[str, str, Recipe]]:
    """Yield (name, what is special, run) of the sound runs."""
    yield "plain", "settings of a common kind", Recipe()
    yield (
        "ref",
        "a KL to the reference",
        Recipe(task="singing", scale="wide", kind="qwen2", settings={"beta": 0.02}),
    )
    yield (
        "cosine",
        "cosine schedule with warm-up",
        Recipe(settings={"lr_scheduler_type": "cosine", "warmup_steps": 8, "learning_rate": 8e-3}, kind="qwen2"),
    )
    yield (
        "linear",
        "the default schedule: linear to 0",
        Recipe(
            task="singing", scale="plain", kind="neox", settings={"lr_scheduler_type": "linear", "learning_rate": 8e-3}
        ),
    )
    yield "pairs", "four minibatches, each once", Recipe(task="singing", scale="pairs", kind="gpt2")
    yield (
        "gspo",
        "sequence-level ratios, not scaled by the group",
        Recipe(
            scale="averaged",
            settings={
                "importance_sampling_level": "sequence",
                "scale_rewards": "none",
                "loss_type": "grpo",
                "epsilon": 0.05,
            },
        ),
    )
    yield "once", "one update for each generation, TRL's default", Recipe(scale="once")
    yield (
        "accumulated",
        "one update for each generation, accumulated",
        Recipe(task="singing", scale="accumulated", kind="llama"),
    )
    yield (
        "dropout",
        "dropout on both sides, one update for each generation",
        Recipe(scale="once", kind="gpt2", model={"resid_pdrop": 0.1, "embd_pdrop": 0.1}),
    )
    yield "bonus", "an entropy bonus", Recipe(scale="wide", settings={"entropy_coef": 0.02})
    yield "tight", "a small clip range, for small steps", Recipe(settings={"epsilon": 0.05, "learning_rate": 1.5e-3})
    yield (
        "capped",
        "a small gradient cap, with Adam",
        Recipe(scale="few", kind="gpt2", settings={"max_grad_norm": 0.02}),
    )
    yield (
        "solved",
        "an easy task that is solved early",
        Recipe(scale="wide", rewards=[letters_only, ends], settings={"learning_rate": 1e-2}, generations=30),
    )
    yield (
        "hopeless",
        exact_answer.__doc__ or "",
        Recipe(task="singing", scale="few", rewards=[exact_answer]),
    )
    yield "bf16", "weights in bf16, steps that they hold", Recipe(scale="wide", initial=faults.to_bf16)
    yield (
        "dr",
        "Dr. GRPO: neither lengths nor groups scale",
        Recipe(task="singing", scale="averaged", settings={"loss_type": "dr_grpo", "scale_rewards": "none"}),
    )
    yield (
        "cispo",
        "a loss without a clipped surrogate",
        Recipe(scale="pairs", settings={"loss_type": "cispo", "epsilon_high": 5.0}),
    )
    yield (
        "two",
        "two rewards with weights, and a higher upper clip",
        Recipe(
            scale="small",
            rewards=[spelling_reward, ends],
            settings={"reward_weights": [1.0, 0.2], "epsilon_high": 0.28},
        ),
    )
    yield (
        "units",
        "rewards in thousands, scaled by their groups",
        Recipe(task="singing", scale="wide", kind="llama", rewards=[times(singing_reward, 1000.0)]),
    )
    yield "slow", "a small learning rate", Recipe(scale="small", settings={"learning_rate": 6e-4})


class AliasedOldPolicy:
    """The stored old log-probs are lost on the way: the trainer falls back to the current ones, detached."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        kept = {name: value for name, value in inputs.items() if name != "old_per_token_logps"}
        return super()._compute_loss(model, kept)  # type: ignore[misc]


class ShiftedOldLogProbs:
    """Old log-probs shifted by one token against the new ones."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**output, "old_per_token_logps": output["old_per_token_logps"].roll(1, dims=1)}


REUSED = ("plain", "averaged", "wide", "pairs")
ITERATED = ("plain", "averaged", "wide", "plain")


def _faulty() -> Iterator[Run]:
    """Yield the runs with a fault each."""
    mixed = ("once", "averaged", "wide", "pairs")
    yield from runs(
        "lr-too-high", "far above what Adam bears", mixed, settings=each("learning_rate", 0.5, 0.2, 0.5, 0.2)
    )
    yield from runs("lr-too-small", "forgot the scale", mixed, settings=each("learning_rate", 1e-9, 1e-8, 3e-9, 1e-7))
    yield from runs("lr-zero", "learning_rate 0", ("plain", "few", "once", "averaged"), settings={"learning_rate": 0.0})
    yield from runs(
        "clip-range-too-small", "far below a step", REUSED, settings=each("epsilon", 1e-4, 1e-5, 1e-4, 1e-6)
    )
    yield from runs("kl-penalty-too-strong", "a huge beta", REUSED, settings=each("beta", 100.0, 30.0, 100.0, 300.0))
    yield from runs("old-policy-aliased", AliasedOldPolicy.__doc__, REUSED, fork=AliasedOldPolicy)
    yield from runs(
        "epochs-not-executed",
        faults.forget_iterations.__doc__,
        ITERATED,
        before=faults.forget_iterations,
    )
    yield from runs("advantage-sign-flipped", faults.FlippedAdvantages.__doc__, REUSED, fork=faults.FlippedAdvantages)
    yield from runs("advantage-misaligned", faults.ShuffledAdvantages.__doc__, mixed, fork=faults.ShuffledAdvantages)
    yield from runs("adv-exactly-zero", faults.ZeroAdvantages.__doc__, mixed, fork=faults.ZeroAdvantages)
    later = ([faults.FailsLater(spelling_reward, 8)], [faults.FailsLater(singing_reward, 8)])
    constant = [faults.constant_reward]
    yield from runs(
        "reward-pipeline-broken", constant[0].__doc__, REUSED, rewards=(constant, later[0], constant, later[1])
    )
    yield from runs("dropout-or-train-mode", "dropout, left on in both passes", REUSED, model=DROPOUT)
    yield from runs("token-misalignment", ShiftedOldLogProbs.__doc__, REUSED, fork=ShiftedOldLogProbs)
    yield from runs(
        "optimizer-orphaned-params", faults.optimizer_of_copy.__doc__, mixed, optimizer=faults.optimizer_of_copy
    )
    yield from runs("no-grad-path", faults.freeze_most.__doc__, REUSED, before=faults.freeze_most)
    yield from runs("entropy-explosion", "a huge bonus", mixed, settings=each("entropy_coef", 3.0, 1.0, 10.0, 5.0))
    yield from runs(
        "entropy-collapse", "a bonus of the wrong sign", ("wide", "plain"), settings=each("entropy_coef", -1.0, -0.5)
    )
    yield from runs("nan-inf", faults.BreaksLater.__doc__, ("plain", "pairs"), fork=faults.BreaksLater)
    yield from runs(
        "over-reuse", "64 iterations", ("plain", "wide"), settings=each("num_iterations", 24, 20), generations=3
    )
    yield from runs(
        "loss-mask-empty",
        "truncated completions are masked, and all are truncated",
        ("plain", "once"),
        settings=tuple(
            {"mask_truncated_completions": True, "generation_kwargs": {"min_new_tokens": length}} for length in (10, 16)
        ),
    )
    yield from runs(
        "temperature-mismatch", faults.sample_hotter.__doc__, ("averaged", "once"), before=faults.sample_hotter
    )


DAILY = {
    *("healthy/once/1", "healthy/plain/1", "healthy/capped/1"),
    *("lr-too-high/spelling/1", "old-policy-aliased/spelling/1", "clip-range-too-small/spelling/2"),
    *("optimizer-orphaned-params/spelling/1", "advantage-sign-flipped/spelling/1"),
}


if __name__ == "__main__":
    main("trl_grpo", cases_of(LIBRARY, _sound(), _faulty(), DAILY), forks=True)
