"""TRL's GRPOTrainer on a tiny decoder: sound runs of several kinds, and a fault each."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from trl import GRPOConfig, GRPOTrainer

from . import tiny
from .cases import Plan, plans_of, write_settings
from .edits import untouched

TRAINER = f"TRL {trl.__version__} GRPO, transformers {transformers.__version__}"
GENERATIONS = 40
SOUND: Mapping[str, Any] = {
    "learning_rate": 4e-3,
    "lr_scheduler_type": "constant",
    "num_generations": 8,
    "per_device_train_batch_size": 64,
    "gradient_accumulation_steps": 1,
    "num_iterations": 4,
    "max_completion_length": tiny.LENGTH,
    "logging_steps": 1,
}

Reward = Callable[..., list[float]]


def match_reward(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Return the task's reward."""
    return [tiny.score(tiny.ids(p), c) for p, c in zip(prompts, completion_ids, strict=True)]


def constant_reward(prompts: list[str], **_: Any) -> list[float]:
    """A parser that fails on every answer and falls back to 0."""
    return [0.0 for _prompt in prompts]


def sparse_reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Only one exact answer of eight letters counts, which nobody finds by chance."""
    answer = [tiny.FIRST] * 8 + [tiny.EOS]
    return [float(completion == answer) for completion in completion_ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    variant: str = "llama"
    model: str = "llama"
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    trainer: type[Any] = GRPOTrainer
    reward: Reward = match_reward
    optimizer: Callable[[Any, float], Any] | None = None
    before: Callable[[Any], None] = untouched
    """What the user does to the trainer between making and training it."""

    def train(self, folder: Path, seed: int) -> Path:
        """Train and return trainer_state.json."""
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as home:
            return self._train(folder, seed, Path(home))

    def _train(self, folder: Path, seed: int, home: Path) -> Path:
        model = tiny.policy(seed, self.model, **self.model_settings)
        model.save_pretrained(home)  # where TRL takes the reference model from
        model.config._name_or_path = str(home)
        args = self._arguments(folder, seed)
        chosen = (self.optimizer(model, args.learning_rate), None) if self.optimizer else (None, None)
        trainer = self.trainer(
            model=model,
            args=args,
            reward_funcs=self.reward,
            train_dataset=tiny.prompts(seed),
            processing_class=tiny.tokenizer(),
            optimizers=chosen,
        )
        write_settings(folder, args.to_dict())
        self.before(trainer)
        try:
            trainer.train()
        finally:
            trainer.save_state()
        return folder / "trainer_state.json"

    def _arguments(self, folder: Path, seed: int) -> Any:
        told = {**SOUND, **self.settings}
        per_generation = told["num_iterations"] * told.get("steps_per_generation", 1)
        fixed = {"output_dir": str(folder), "max_steps": GENERATIONS * per_generation, "seed": seed, "bf16": False}
        quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        return GRPOConfig(**fixed, **quiet, **told)


class AliasedOldPolicy(GRPOTrainer):
    """The stored old log-probs are lost on the way: the trainer falls back to the current ones, detached."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        return super()._compute_loss(model, {k: v for k, v in inputs.items() if k != "old_per_token_logps"})


class FlippedAdvantages(GRPOTrainer):
    """A minus too many."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        return {**output, "advantages": -output["advantages"]}


class BreaksLater(GRPOTrainer):
    """A loss that overflows once, after a good while."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        return loss * float("nan") if self.state.global_step == 100 else loss


class MisalignedOldLogProbs(GRPOTrainer):
    """Old log-probs shifted by one token against the new ones."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        return {**output, "old_per_token_logps": output["old_per_token_logps"].roll(1, dims=1)}


def forget_iterations(trainer: Any) -> None:
    """An override that sets the trainer's own count back after the configuration was saved."""
    trainer.num_iterations = 1


def sample_hotter(trainer: Any) -> None:
    """A generation setting of the model that the trainer does not know of."""
    trainer.generation_config.temperature = 2.0


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=learning_rate)


def freeze_most(trainer: Any) -> None:
    """All but the first norm frozen, as adapters that match no module leave a model."""
    for name, weight in trainer.model.named_parameters():
        weight.requires_grad_("layers.0.input_layernorm" in name)


def _healthy() -> Iterator[tuple[str, Recipe]]:
    yield "the plain run", Recipe()
    yield "Qwen2, a KL to the reference", Recipe(variant="qwen2 beta", model="qwen2", settings={"beta": 0.02})
    yield (
        "cosine schedule with warm-up",
        Recipe(variant="cosine", settings={"lr_scheduler_type": "cosine", "warmup_steps": 8}),
    )
    yield (
        "two minibatches, two iterations",
        Recipe(
            variant="minibatches",
            settings={"per_device_train_batch_size": 32, "steps_per_generation": 2, "num_iterations": 2},
        ),
    )
    yield (
        "sequence-level ratios, not scaled by the group",
        Recipe(
            variant="gspo",
            settings={
                "importance_sampling_level": "sequence",
                "scale_rewards": "none",
                "loss_type": "grpo",
                "epsilon": 0.2,
            },
        ),
    )


def _faulty() -> Iterator[tuple[str, str, Recipe]]:
    single = {"num_iterations": 1, "learning_rate": 1e-2}
    yield "benign-single-update", "TRL's default, one iteration", Recipe(settings=single)
    yield (
        "benign-single-update",
        "accumulation over the whole generation",
        Recipe(
            variant="accumulated",
            settings={**single, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 4},
        ),
    )
    yield "lr-zero", "learning_rate 0", Recipe(settings={"learning_rate": 0.0})
    yield "lr-too-small", "1e-9 instead of 4e-3", Recipe(settings={"learning_rate": 1e-9})
    yield "lr-too-high", "0.3 instead of 4e-3", Recipe(settings={"learning_rate": 0.3})
    yield "adv-exactly-zero", constant_reward.__doc__ or "", Recipe(reward=constant_reward)
    yield "reward-too-sparse", sparse_reward.__doc__ or "", Recipe(reward=sparse_reward)
    yield "clip-range-too-small", "epsilon 1e-4", Recipe(settings={"epsilon": 1e-4})
    yield "advantage-sign-flipped", FlippedAdvantages.__doc__ or "", Recipe(trainer=FlippedAdvantages)
    yield "old-policy-aliased", AliasedOldPolicy.__doc__ or "", Recipe(trainer=AliasedOldPolicy)
    yield "epochs-not-executed", forget_iterations.__doc__ or "", Recipe(before=forget_iterations)
    yield (
        "dropout-or-train-mode",
        "attention dropout 0.3, left on in both passes",
        Recipe(model_settings={"attention_dropout": 0.3}),
    )
    yield "temperature-mismatch", sample_hotter.__doc__ or "", Recipe(before=sample_hotter)
    yield "token-misalignment", MisalignedOldLogProbs.__doc__ or "", Recipe(trainer=MisalignedOldLogProbs)
    yield "optimizer-orphaned-params", optimizer_of_copy.__doc__ or "", Recipe(optimizer=optimizer_of_copy)
    yield "no-grad-path", freeze_most.__doc__ or "", Recipe(before=freeze_most)
    yield "nan-inf", BreaksLater.__doc__ or "", Recipe(trainer=BreaksLater)
    yield (
        "loss-mask-empty",
        "truncated completions are masked, and all are truncated",
        Recipe(settings={"mask_truncated_completions": True, "generation_kwargs": {"min_new_tokens": tiny.LENGTH}}),
    )
    yield "kl-penalty-too-strong", "beta 100", Recipe(settings={"beta": 100.0})


def plans() -> Iterator[Plan]:
    """Yield every run."""
    return plans_of("trl-grpo", _healthy, _faulty)
