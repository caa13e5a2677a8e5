"""How one run of TRL's newer PPOTrainer (`trl.experimental.ppo`) is made: tiny policy, critic, a reward by rule."""

from __future__ import annotations

import copy
import dataclasses
import gc
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from torch.utils import tensorboard  # noqa: F401 - before the runs fork, as are the models
from transformers import GPT2ForSequenceClassification, LlamaForCausalLM, Qwen2ForCausalLM  # noqa: F401
from trl.experimental.ppo import PPOConfig, PPOTrainer

from lab import language
from lab.cases import write_settings

warnings.filterwarnings("ignore")
EVENTS = "runs/events.out.tfevents.0.host.0.0"
LANGUAGES = {"spelling": language.SPELLING, "singing": language.SINGING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is: the model, the batches, and what is set in them unless a case says otherwise."""

    batches: int
    settings: Mapping[str, Any]
    kind: str = "llama"
    model: Mapping[str, Any] = field(default_factory=dict)


def _told(batch: int, epochs: int, rate: float, **more: Any) -> dict[str, Any]:
    return {"per_device_train_batch_size": batch, "num_ppo_epochs": epochs, "learning_rate": rate, **more}


#: Two sizes for each task, the first for the first seed.
SCALES: Mapping[str, tuple[Scale, Scale]] = {
    "spelling": (
        Scale(batches=24, settings=_told(32, 4, 3e-3, kl_coef=0.03)),
        Scale(
            batches=36,
            settings=_told(24, 2, 3e-3, num_mini_batches=2, temperature=0.9, response_length=7),
            model={"hidden_size": 24},
        ),
    ),
    "singing": (
        Scale(
            batches=20,
            settings=_told(32, 2, 5e-3, num_mini_batches=2, kl_coef=0.03, response_length=14),
            kind="qwen2",
        ),
        Scale(
            batches=12,
            settings=_told(24, 3, 6e-3, gradient_accumulation_steps=2, gamma=0.99, response_length=12),
            kind="gpt2",
            model={"hidden_size": 48, "num_attention_heads": 4},
        ),
    ),
}
#: One layer: a run has to take a few seconds.
SHALLOW: Mapping[str, Any] = {"num_hidden_layers": 1}
ALWAYS: Mapping[str, Any] = {
    "lr_scheduler_type": "constant",
    "temperature": 1.0,
    "stop_token": "eos",
    "num_sample_generations": 0,
    "bf16": False,
}


class Backbone(torch.nn.Module):
    """Gives every position of a text the text's score, as a last hidden state of width 1."""

    def __init__(self, score: language.Score, asked: int) -> None:
        super().__init__()
        self.score, self.asked = score, asked

    def forward(self, input_ids: Any, **_: Any) -> Any:
        """Return the scores in the form of a model's hidden states."""
        scores = torch.tensor([float(self.score(row[: self.asked], row[self.asked :])) for row in input_ids.tolist()])
        return SimpleNamespace(hidden_states=(scores[:, None, None].expand(-1, input_ids.shape[1], 1),))


class RuleReward(torch.nn.Module):
    """A reward model that is a rule, in the form that TRL asks of one."""

    base_model_prefix = "backbone"

    def __init__(self, score: language.Score, asked: int) -> None:
        super().__init__()
        self.backbone = Backbone(score, asked)
        self.score = torch.nn.Identity()


def untouched(_: Any) -> None:
    """Leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from the plain one of its scale."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    batches: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    dtype: torch.dtype = torch.float32
    trainer: type[Any] = PPOTrainer
    score: language.Score | None = None
    optimizer: Callable[[Any, Any], Any] | None = None
    """Takes the policy with its critic, and the arguments, and returns what the user hands over as optimizer."""
    warm: Callable[[Any, language.Language], None] | None = None
    """What was done to the policy before, such as fine-tuning."""
    other_reference: bool = False
    before: Callable[[Any], None] = untouched
    """What the user does to the trainer between making and training it."""


def _policy(recipe: Recipe, scale: Scale, task: str, seed: int) -> Any:
    sizes = {**SHALLOW, **scale.model, **recipe.model}
    policy = language.policy(seed, recipe.kind or scale.kind, LANGUAGES[task], **sizes)
    if recipe.warm:
        recipe.warm(policy, LANGUAGES[task])
    return policy.to(recipe.dtype)


def _arguments(recipe: Recipe, scale: Scale, task: str, seed: int) -> PPOConfig:
    told = {**ALWAYS, "response_length": LANGUAGES[task].length, **scale.settings, **recipe.settings}
    batch = told["per_device_train_batch_size"] * told.get("gradient_accumulation_steps", 1)
    told = {"total_episodes": (recipe.batches or scale.batches) * batch, **told}
    quiet = {"report_to": "tensorboard", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return PPOConfig(output_dir=".", seed=seed, **quiet, **told)


def train(recipe: Recipe, task: str, seed: int, folder: Path) -> None:
    """Train in the folder, which is the working directory."""
    torch.set_num_threads(1)
    scale, spoken = SCALES[task][(seed - 1) % 2], LANGUAGES[task]
    policy = _policy(recipe, scale, task, seed)
    sizes = {**SHALLOW, **scale.model, **recipe.model}
    critic = language.critic(seed + 100, recipe.kind or scale.kind, spoken, **sizes).to(recipe.dtype)
    args = _arguments(recipe, scale, task, seed)
    both = torch.nn.ModuleList([policy, critic])
    chosen = recipe.optimizer(both, args) if recipe.optimizer else None
    other = dataclasses.replace(recipe, model={**recipe.model, "initializer_range": 0.3})
    reference = _policy(other, scale, task, seed + 50) if recipe.other_reference else copy.deepcopy(policy)
    asked = [language.ids(text, spoken) for text in language.words(seed, spoken)]
    trainer = recipe.trainer(
        args=args,
        processing_class=language.tokenizer(spoken),
        model=policy,
        ref_model=reference,
        reward_model=RuleReward(recipe.score or spoken.score, spoken.asked),
        value_model=critic,
        train_dataset=Dataset.from_dict({"input_ids": asked}),
        optimizers=(chosen, torch.optim.lr_scheduler.LambdaLR(chosen, lambda _: 1.0)) if chosen else (None, None),
    )
    write_settings(folder, {**args.to_dict(), "model": {**policy.config.to_dict(), "dtype": str(policy.dtype)}})
    recipe.before(trainer)
    gc.freeze()  # the trainer collects garbage twice per batch, and walks all of torch each time
    try:
        trainer.train()
    finally:
        trainer.save_state()
        _rename_events(folder)


def _rename_events(folder: Path) -> None:
    """Give the event file a name without the machine's, the same in every training."""
    (folder / EVENTS).parent.mkdir(exist_ok=True)
    for path in sorted(folder.glob("**/events.out.tfevents.*")):
        path.rename(folder / EVENTS)
        path.parent.rmdir()
