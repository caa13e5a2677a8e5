"""TRL's GRPOTrainer on a tiny decoder: sound runs of several kinds, and a fault each."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer

from lab import language as tiny
from lab.cases import write_settings

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


def untouched(_: Any) -> None:
    """Do nothing to what was just made."""


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


class BreaksLater(GRPOTrainer):
    """A loss that overflows once, after a good while."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        return loss * float("nan") if self.state.global_step == 100 else loss


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=learning_rate)
