"""How one run of TRL's older PPOTrainer (to 0.11) is made: generate, score, `step`, `log_stats`, as a script does."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # before the runs fork: a third of a run's time
from datasets import Dataset
from torch.utils import tensorboard  # noqa: F401 - before the runs fork, as are the models
from transformers import LlamaForCausalLM, Qwen2ForCausalLM  # noqa: F401
from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

from lab import language
from lab.cases import write_settings

warnings.filterwarnings("ignore")
EVENTS = "logs/trl/events.out.tfevents.0.host.0.0"
LANGUAGES = {"spelling": language.SPELLING, "singing": language.SINGING}
#: What the script prints of the statistics after each batch.
PRINTED = ("objective/kl", "objective/kl_coef", "objective/entropy", "ppo/mean_scores", "ppo/std_scores")
PRINTED += ("ppo/loss/policy", "ppo/loss/value", "ppo/policy/entropy", "ppo/policy/approxkl", "ppo/policy/policykl")
PRINTED += ("ppo/policy/clipfrac", "ppo/returns/mean", "ppo/val/var_explained", "ppo/learning_rate")

Batch = tuple[list[Any], list[Any], list[Any]]
"""Queries, responses and rewards: what `step` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is: the model, the batches, and what is set in them unless a case says otherwise."""

    batches: int
    settings: Mapping[str, Any]
    kind: str = "llama"
    model: Mapping[str, Any] = field(default_factory=dict)


#: Two sizes for each task, the first for the first seed.
SCALES: Mapping[str, tuple[Scale, Scale]] = {
    "spelling": (
        Scale(batches=30, settings={"batch_size": 64, "mini_batch_size": 64, "learning_rate": 3e-3}),
        Scale(
            batches=36,
            settings={"batch_size": 32, "mini_batch_size": 16, "ppo_epochs": 3, "learning_rate": 2e-3},
            model={"hidden_size": 24},
        ),
    ),
    "singing": (
        Scale(
            batches=20,
            settings={"batch_size": 64, "mini_batch_size": 16, "ppo_epochs": 2, "learning_rate": 4e-3},
            kind="qwen2",
        ),
        Scale(
            batches=12,
            settings={"batch_size": 96, "mini_batch_size": 48, "ppo_epochs": 4, "learning_rate": 6e-3, "gamma": 0.99},
            model={"hidden_size": 48, "num_attention_heads": 4},
        ),
    ),
}
#: One layer: a run has to take a few seconds.
SHALLOW: Mapping[str, Any] = {"num_hidden_layers": 1}
#: Sampling as the library's documents ask for it: from the policy as it is.
SAMPLING: Mapping[str, Any] = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "min_length": -1}
ALWAYS: Mapping[str, Any] = {"init_kl_coef": 0.02, "adap_kl_ctrl": False}


def as_they_are(batch: Batch, _: int) -> Batch:
    """Hand the batch over unchanged."""
    return batch


def untouched(_: Any) -> None:
    """Leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from the plain one of its scale."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    batches: int | None = None
    dtype: torch.dtype = torch.float32
    trainer: type[Any] = PPOTrainer
    score: language.Score | None = None
    handed: Callable[[Batch, int], Batch] = as_they_are
    """What the script does to a batch before the trainer gets it; it knows the number of the batch."""
    optimizer: Callable[[Any, float], Any] | None = None
    schedule: Callable[[int, int], float] | None = None
    """The learning rate's factor by batch and number of batches."""
    warm: Callable[[Any, language.Language], None] | None = None
    reference: Callable[[Any, int], Any] | None = None
    """Takes the policy and the seed, and returns the reference model if it is not the policy's copy."""
    before: Callable[[Any], None] = untouched
    """What the user does to the trainer between making and training it."""


def train(recipe: Recipe, task: str, seed: int, folder: Path) -> None:
    """Train in the folder, which is the working directory."""
    torch.set_num_threads(1)
    scale, spoken = SCALES[task][(seed - 1) % 2], LANGUAGES[task]
    batches = recipe.batches or scale.batches
    config = PPOConfig(
        exp_name="ppo",
        model_name="tiny",
        seed=seed,
        log_with="tensorboard",
        project_kwargs={"logging_dir": "logs"},
        **{**ALWAYS, **scale.settings, **recipe.settings},
    )
    trainer = _trainer(recipe, scale, task, seed, config, batches)
    sampling = {**SAMPLING, "max_new_tokens": spoken.length, "pad_token_id": language.PAD, **recipe.sampling}
    model = trainer.accelerator.unwrap_model(trainer.model).pretrained_model.config.to_dict()
    write_settings(folder, {**config.to_dict(), "generation_kwargs": sampling, "batches": batches, "model": model})
    recipe.before(trainer)
    try:
        _loop(trainer, recipe, spoken, batches, sampling)
    finally:
        trainer.accelerator.end_training()
        _rename_events(folder)


def _trainer(recipe: Recipe, scale: Scale, task: str, seed: int, config: PPOConfig, batches: int) -> Any:
    spoken = LANGUAGES[task]
    policy = language.policy(seed, scale.kind, spoken, **{**SHALLOW, **scale.model})
    if recipe.warm:
        recipe.warm(policy, spoken)
    model = AutoModelForCausalLMWithValueHead(policy.to(recipe.dtype))
    model.is_peft_model = False
    reference = recipe.reference(model, seed) if recipe.reference else copy.deepcopy(model)
    optimizer = (recipe.optimizer or _adam)(model, config.learning_rate)
    plan = recipe.schedule
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: plan(step, batches)) if plan else None
    asked = [torch.tensor(language.ids(text, spoken)) for text in language.words(seed, spoken)]
    data = Dataset.from_dict({"input_ids": asked}).with_format("torch")
    return recipe.trainer(
        config,
        model,
        reference,
        language.tokenizer(spoken),
        dataset=data,
        data_collator=lambda rows: {key: [row[key] for row in rows] for key in rows[0]},
        optimizer=optimizer,
        lr_scheduler=schedule,
    )


def _adam(model: Any, learning_rate: float) -> Any:
    return torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=learning_rate)


def _loop(trainer: Any, recipe: Recipe, spoken: language.Language, batches: int, sampling: Mapping[str, Any]) -> None:
    """Generate, score, step and log, as the library's examples do."""
    score, passed = recipe.score or spoken.score, 0
    while passed < batches:
        for batch in trainer.dataloader:
            queries = batch["input_ids"]
            responses = trainer.generate(queries, batch_size=len(queries), return_prompt=False, **sampling)
            pairs = zip(queries, responses, strict=True)
            rewards = [torch.tensor(float(score(query.tolist(), said.tolist()))) for query, said in pairs]
            queries, responses, rewards = recipe.handed((queries, responses, rewards), passed)
            stats = trainer.step(queries, responses, rewards)
            trainer.log_stats(stats, {"query": queries, "response": responses}, rewards)
            print(f"batch {passed}:", {key: float(stats[key]) for key in PRINTED}, flush=True)
            passed += 1
            if passed == batches:
                return


def _rename_events(folder: Path) -> None:
    """Give the event file a name without the machine's; the tracker's copies of the settings are dropped."""
    for path in sorted((folder / "logs" / "trl").iterdir()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.rename(folder / EVENTS)
