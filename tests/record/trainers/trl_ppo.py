"""TRL's PPOTrainer (experimental since 0.26, gone after 1.12) on a tiny decoder: sound runs, and a fault each."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from trl.experimental.ppo import PPOConfig, PPOTrainer

from lab import language as tiny
from lab.cases import write_settings
from lab.edits import edited

BATCHES, BATCH = 40, 64
SOUND: Mapping[str, Any] = {
    "learning_rate": 2e-3,
    "lr_scheduler_type": "constant",
    "per_device_train_batch_size": BATCH,
    "gradient_accumulation_steps": 1,
    "num_mini_batches": 1,
    "num_ppo_epochs": 4,
    "kl_coef": 0.02,
    "response_length": tiny.LENGTH,
    "temperature": 1.0,
    "missing_eos_penalty": None,
    "stop_token": "eos",
}


_LOGITS = "= output.logits[:, context_length - 1 : -1]"


class Backbone(torch.nn.Module):
    """Gives each position the score of the text that ends there, as a last hidden state of width 1."""

    def __init__(self, score: Callable[[list[int], list[int]], float]) -> None:
        super().__init__()
        self.score = score

    def forward(self, input_ids: Any, **_: Any) -> Any:
        rows = input_ids.tolist()
        scores = [[self.score(row[:3], row[3 : place + 1]) for place in range(len(row))] for row in rows]
        return SimpleNamespace(hidden_states=(torch.tensor(scores).unsqueeze(-1),))


class RuleReward(torch.nn.Module):
    """A reward model that is a rule, in the form that TRL asks of one."""

    base_model_prefix = "backbone"

    def __init__(self, score: Callable[[list[int], list[int]], float]) -> None:
        super().__init__()
        self.backbone = Backbone(score)
        self.score = torch.nn.Identity()


def untouched(_: Any) -> None:
    """Do nothing to what was just made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from a sound one."""

    variant: str = "llama"
    model: str = "llama"
    settings: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are changed after the configuration was saved."""
    trainer: type[Any] = PPOTrainer
    score: Callable[[list[int], list[int]], float] = tiny.score
    optimizer: Callable[[Any, float], Any] | None = None
    other_reference: bool = False
    before: Callable[[Any], None] = untouched
    """What the user does to the trainer between making and training it."""

    def train(self, folder: Path, seed: int) -> Path:
        """Train and return trainer_state.json."""
        torch.set_num_threads(1)
        policy = tiny.policy(seed, self.model)
        value = tiny.critic(seed)
        args = self._arguments(folder, seed)
        chosen = self.optimizer(torch.nn.ModuleList([policy, value]), args.learning_rate) if self.optimizer else None
        trainer = self.trainer(
            args=args,
            processing_class=tiny.tokenizer(),
            model=policy,
            ref_model=tiny.policy(seed + 1) if self.other_reference else copy.deepcopy(policy),
            reward_model=RuleReward(self.score),
            value_model=value,
            train_dataset=Dataset.from_dict({"input_ids": [tiny.ids(words) for words in tiny.words(seed)]}),
            optimizers=(chosen, torch.optim.lr_scheduler.LambdaLR(chosen, lambda _: 1.0)) if chosen else (None, None),
        )
        write_settings(folder, args.to_dict())
        for name, changed in self.hidden.items():
            setattr(trainer.args, name, changed)
        self.before(trainer)
        gc.freeze()  # the trainer collects garbage twice per batch, and walks all of torch each time
        try:
            trainer.train()
        finally:
            trainer.save_state()
        return folder / "trainer_state.json"

    def _arguments(self, folder: Path, seed: int) -> Any:
        fixed = {"output_dir": str(folder), "total_episodes": BATCHES * BATCH, "seed": seed, "bf16": False}
        quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
        rest = {"num_sample_generations": 0, "local_rollout_forward_batch_size": BATCH}
        return PPOConfig(**fixed, **quiet, **rest, **{**SOUND, **self.settings})


class AliasedOldPolicy(PPOTrainer):
    """The fork takes the old log-prob from the policy that it is updating."""

    train = edited(
        PPOTrainer.train,
        {"logprobs_diff = new_logprobs - mb_logprobs": "logprobs_diff = new_logprobs - new_logprobs.detach()"},
    )


class DetachedLogProbs(PPOTrainer):
    """Log-probs come back without their graph."""

    train = edited(
        PPOTrainer.train,
        {"(logits, mb_responses)": "(logits.detach(), mb_responses)"},
    )


class BreaksLater(PPOTrainer):
    """A loss that overflows once, after a good while."""

    train = edited(
        PPOTrainer.train,
        {"args.vf_coef * vf_loss": "args.vf_coef * vf_loss * (float('nan') if update == 25 else 1)"},
    )


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=learning_rate)
