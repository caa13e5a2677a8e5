"""TRL's RLOOTrainer on tiny decoders of four families: sound runs of several kinds, and a fault each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trl import RLOOConfig, RLOOTrainer

from lab.cases import main
from lab.edits import edited

from . import trl_groups_faults as faults
from .trl_groups import (
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

#: From 12 to 80 records; what is made of a generation: iterations, minibatches, both, or a single update.
SIZES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "plain": (16, {"per_device_train_batch_size": 64, "num_iterations": 3, "learning_rate": 3e-3}),
    "pairs": (14, {"per_device_train_batch_size": 32, "steps_per_generation": 4, "learning_rate": 4e-3}),
    "averaged": (
        18,
        {
            "per_device_train_batch_size": 40,
            "num_generations": 4,
            "steps_per_generation": 2,
            "num_iterations": 2,
            "logging_steps": 4,
            "learning_rate": 3e-3,
        },
    ),
    "wide": (
        18,
        {"per_device_train_batch_size": 96, "num_generations": 16, "num_iterations": 2, "learning_rate": 5e-3},
    ),
    "small": (40, {"per_device_train_batch_size": 32, "num_iterations": 2, "learning_rate": 2e-3}),
    "few": (12, {"per_device_train_batch_size": 64, "num_iterations": 3, "logging_steps": 3, "learning_rate": 4e-3}),
    "once": (24, {"per_device_train_batch_size": 64, "learning_rate": 1e-2}),
    "accumulated": (20, {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4, "learning_rate": 1e-2}),
}
SHARED = {
    "num_generations": 8,
    "num_iterations": 1,
    "logging_steps": 1,
    "gradient_checkpointing": False,
    "beta": 0.0,
}
LIBRARY = Library(
    trainer=RLOOTrainer,
    config=RLOOConfig,
    scales={name: Scale(generations=count, settings={**SHARED, **told}) for name, (count, told) in SIZES.items()},
)


def _sound() -> Iterator[tuple[str, str, Recipe]]:
    """Yield (name, what is special, run) of the sound runs."""
    yield "plain", "settings of a common kind", Recipe()
    yield "ref", "the default KL penalty", Recipe(task="singing", scale="wide", kind="qwen2", settings={"beta": 0.05})
    yield (
        "linear",
        "the default schedule: linear to 0",
        Recipe(kind="neox", settings={"lr_scheduler_type": "linear", "learning_rate": 6e-3}),
    )
    yield "pairs", "four minibatches, each once", Recipe(task="singing", scale="pairs", kind="gpt2")
    yield "once", "one update for each generation, TRL's default", Recipe(scale="once", settings={"beta": 0.02})
    yield (
        "accumulated",
        "one update for each generation, accumulated",
        Recipe(task="singing", scale="accumulated", kind="llama"),
    )
    yield (
        "dropout",
        "dropout on both sides, small steps",
        Recipe(scale="once", kind="gpt2", model={"resid_pdrop": 0.02, "embd_pdrop": 0.02}),
    )
    yield (
        "normalised",
        "advantages normalised over the batch",
        Recipe(task="singing", scale="averaged", kind="neox", settings={"normalize_advantages": True}),
    )
    yield (
        "bounded",
        "rewards clipped to a range that few leave",
        Recipe(task="singing", scale="plain", kind="qwen2", settings={"reward_clip_range": (-2.5, 2.5)}),
    )
    yield (
        "capped",
        "a small gradient cap, with Adam",
        Recipe(scale="few", kind="gpt2", settings={"max_grad_norm": 0.005}),
    )
    yield (
        "solved",
        "an easy task that is solved early",
        Recipe(scale="wide", rewards=[letters_only, ends], settings={"learning_rate": 1e-2}, generations=30),
    )
    yield "hopeless", exact_answer.__doc__ or "", Recipe(scale="averaged", rewards=[exact_answer])
    yield "bf16", "weights in bf16, steps that they hold", Recipe(scale="few", initial=faults.to_bf16)
    yield (
        "units",
        "rewards in thousands, normalised over the batch",
        Recipe(
            scale="wide",
            kind="llama",
            rewards=[times(spelling_reward, 1000.0)],
            settings={"normalize_advantages": True},
        ),
    )
    yield "slow", "a small learning rate", Recipe(scale="small", settings={"learning_rate": 6e-4})


class AliasedOldPolicy:
    """The fork takes the old log-prob from the policy that it is updating."""

    _compute_loss = edited(RLOOTrainer._compute_loss, {'old_logps = inputs["old_logps"]': "old_logps = logps.detach()"})


class OtherOldLogProbs:
    """Old log-probs are those of the neighbour in the batch."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        return {**output, "old_logps": output["old_logps"].roll(1)}


REUSED = ("plain", "averaged", "wide", "pairs")
MIXED = ("once", "averaged", "wide", "pairs")


def _faulty() -> Iterator[Run]:
    """Yield the runs with a fault each."""
    yield from runs(
        "lr-too-high", "far above what Adam bears", MIXED, settings=each("learning_rate", 0.5, 0.2, 0.5, 0.2)
    )
    yield from runs(
        "clip-range-too-small", "far below a step", REUSED, settings=each("epsilon", 1e-4, 1e-5, 1e-4, 1e-6)
    )
    yield from runs("old-policy-aliased", AliasedOldPolicy.__doc__, REUSED, fork=AliasedOldPolicy)
    yield from runs("advantage-sign-flipped", faults.FlippedAdvantages.__doc__, MIXED, fork=faults.FlippedAdvantages)
    yield from runs("token-misalignment", OtherOldLogProbs.__doc__, MIXED, fork=OtherOldLogProbs)
    yield from runs("staleness-async", faults.StaleSampler.__doc__, MIXED, fork=faults.StaleSampler)
    yield from runs("weights-not-synced", faults.NeverSynced.__doc__, MIXED, fork=faults.NeverSynced)
    stuck = (faults.StuckBatch, faults.CachedCompletions, faults.CachedCompletions, faults.StuckBatch)
    yield from runs("stuck-batch", "the same completions again and again", REUSED, fork=stuck)
    yield from runs("duplicate-generations", "greedy decoding", MIXED, settings={"top_k": 1})
    wrong = each("initializer_range", 0.15, 0.1, 0.15, 0.1)
    yield from runs("ref-model-wrong", "a path to another model", MIXED, reference=wrong, settings={"beta": 0.05})
    late = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 5000}
    yield from runs(
        "lr-schedule-horizon-wrong",
        "a schedule for another length of run",
        MIXED,
        optimizer=(faults.short_schedule, faults.short_schedule, None, None),
        settings=({}, {}, late, late),
    )
    yield from runs(
        "bf16-swallowed-update",
        "a learning rate for float32, weights in bf16",
        REUSED,
        initial=faults.to_bf16,
        settings=each("learning_rate", 1e-6, 2e-6, 1e-6, 5e-7),
    )
    yield from runs(
        "grad-clip-starves",
        "a gradient cap of almost nothing",
        MIXED,
        optimizer=(faults.plain_sgd, None, faults.plain_sgd, None),
        settings=each("max_grad_norm", 1e-4, 1e-9, 1e-3, 1e-9),
    )
    yield from runs("length-hacking", faults.longer_is_better.__doc__, MIXED, rewards=[faults.longer_is_better])
    yield from runs("nan-inf", faults.BreaksLater.__doc__, ("plain", "pairs"), fork=faults.BreaksLater)
    yield from runs(
        "loss-mask-empty",
        "truncated completions are masked, and all are truncated",
        ("plain", "once"),
        settings=tuple(
            {"mask_truncated_completions": True, "generation_kwargs": {"min_new_tokens": length}} for length in (10, 16)
        ),
    )
    yield from runs(
        "temperature-mismatch",
        "a temperature in the generation's own settings",
        ("averaged", "once"),
        settings={"generation_kwargs": {"temperature": 3.0}},
    )
    tiny = ([times(spelling_reward, 1e-9)], [times(singing_reward, 1e-10)])
    yield from runs("reward-scale-off", "rewards in the wrong unit", ("plain", "once"), rewards=tiny)


DAILY = {
    *("healthy/once/1", "healthy/plain/1", "healthy/capped/1"),
    *("lr-too-high/spelling/1", "old-policy-aliased/spelling/1", "duplicate-generations/spelling/1"),
    *("staleness-async/spelling/2", "bf16-swallowed-update/spelling/1"),
}


if __name__ == "__main__":
    main("trl_rloo", cases_of(LIBRARY, _sound(), _faulty(), DAILY), forks=True)
