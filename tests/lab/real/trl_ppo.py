"""TRL's PPOTrainer (experimental since 0.26, gone after 1.12) on a tiny decoder: sound runs, and a fault each."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForSequenceClassification
from trl.experimental.ppo import PPOConfig, PPOTrainer

from . import tiny
from .cases import Plan, plans_of, write_settings
from .edits import edited, untouched

TRAINER = f"TRL {trl.__version__} PPO, transformers {transformers.__version__}"
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


def constant_score(_prompt: list[int], _completion: list[int]) -> float:
    """A reward model that fails on every answer and falls back to 0."""
    return 0.0


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
        value = LlamaForSequenceClassification(LlamaConfig(**tiny.settings(num_labels=1)))
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


class FlippedAdvantages(PPOTrainer):
    """A minus too many."""

    train = edited(
        PPOTrainer.train,
        {"mb_advantage = advantages[micro_batch_inds]": "mb_advantage = -advantages[micro_batch_inds]"},
    )


class ZeroAdvantages(PPOTrainer):
    """Advantages that a mask of the wrong polarity wipes out."""

    train = edited(
        PPOTrainer.train,
        {"torch.masked_fill(advantages, padding_mask, 0)": "torch.zeros_like(advantages)"},
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


class MisalignedOldLogProbs(PPOTrainer):
    """Old log-probs shifted by one token against the new ones."""

    train = edited(
        PPOTrainer.train,
        {"mb_logprobs = logprobs[micro_batch_inds]": "mb_logprobs = logprobs[micro_batch_inds].roll(1, dims=1)"},
    )


class ColderPass(PPOTrainer):
    """The update's pass forgets the sampling temperature."""

    train = edited(
        PPOTrainer.train,
        {_LOGITS: f"{_LOGITS} * args.temperature"},
    )


def dropout_on(trainer: Any) -> None:
    """Dropout put back after TRL had switched it off."""
    for layer in trainer.accelerator.unwrap_model(trainer.model).policy.model.layers:
        layer.mlp.register_forward_hook(lambda module, _, out: torch.nn.functional.dropout(out, 0.2, module.training))


def optimizer_of_copy(model: Any, learning_rate: float) -> Any:
    """An optimizer made before the model was copied (moved, wrapped, quantised)."""
    return torch.optim.AdamW(copy.deepcopy(model).parameters(), lr=learning_rate)


def _healthy() -> Iterator[tuple[str, Recipe]]:
    yield "the plain run", Recipe()
    yield (
        "Qwen2, two minibatches",
        Recipe(variant="qwen2 minibatches", model="qwen2", settings={"num_mini_batches": 2, "num_ppo_epochs": 2}),
    )
    yield (
        "linear schedule, rewards whitened, k3",
        Recipe(
            variant="whitened", settings={"lr_scheduler_type": "linear", "whiten_rewards": True, "kl_estimator": "k3"}
        ),
    )
    yield (
        "accumulation over four micro-batches",
        Recipe(variant="accumulated", settings={"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}),
    )


def _faulty() -> Iterator[tuple[str, str, Recipe]]:
    yield (
        "benign-single-update",
        "one epoch, one mini-batch",
        Recipe(settings={"num_ppo_epochs": 1, "learning_rate": 6e-3}),
    )
    yield (
        "benign-single-update",
        "four mini-batches that accumulation joins again",
        Recipe(
            variant="accumulated",
            settings={
                "num_ppo_epochs": 1,
                "num_mini_batches": 4,
                "per_device_train_batch_size": 16,
                "gradient_accumulation_steps": 4,
                "learning_rate": 6e-3,
            },
        ),
    )
    yield "lr-zero", "learning_rate 0", Recipe(settings={"learning_rate": 0.0})
    yield "lr-too-small", "1e-9 instead of 2e-3", Recipe(settings={"learning_rate": 1e-9})
    yield "lr-too-high", "0.3 instead of 2e-3", Recipe(settings={"learning_rate": 0.3})
    yield "adv-exactly-zero", ZeroAdvantages.__doc__ or "", Recipe(trainer=ZeroAdvantages)
    yield "reward-pipeline-broken", constant_score.__doc__ or "", Recipe(score=constant_score)
    yield "clip-range-too-small", "cliprange 1e-4", Recipe(settings={"cliprange": 1e-4})
    yield "advantage-sign-flipped", FlippedAdvantages.__doc__ or "", Recipe(trainer=FlippedAdvantages)
    yield "old-policy-aliased", AliasedOldPolicy.__doc__ or "", Recipe(trainer=AliasedOldPolicy)
    yield (
        "epochs-not-executed",
        "num_ppo_epochs set back after the configuration was saved",
        Recipe(hidden={"num_ppo_epochs": 1}),
    )
    yield "dropout-or-train-mode", dropout_on.__doc__ or "", Recipe(before=dropout_on)
    yield "temperature-mismatch", ColderPass.__doc__ or "", Recipe(settings={"temperature": 0.6}, trainer=ColderPass)
    yield "token-misalignment", MisalignedOldLogProbs.__doc__ or "", Recipe(trainer=MisalignedOldLogProbs)
    yield "optimizer-orphaned-params", optimizer_of_copy.__doc__ or "", Recipe(optimizer=optimizer_of_copy)
    yield "no-grad-path", DetachedLogProbs.__doc__ or "", Recipe(trainer=DetachedLogProbs)
    yield "nan-inf", BreaksLater.__doc__ or "", Recipe(trainer=BreaksLater)
    yield "kl-penalty-too-strong", "kl_coef 50", Recipe(settings={"kl_coef": 50.0})
    yield "ref-model-wrong", "the reference is another model", Recipe(other_reference=True)


def plans() -> Iterator[Plan]:
    """Yield every run."""
    return plans_of("trl-ppo", _healthy, _faulty)
