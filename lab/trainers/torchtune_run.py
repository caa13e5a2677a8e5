"""How one run of torchtune's PPO recipe is made: tiny decoders, a reward by rule, the recipe's own loop and loggers."""

from __future__ import annotations

import gc
import importlib.util
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.utils.tensorboard
import torchtune
from omegaconf import OmegaConf
from torchtune import config
from torchtune.models import llama2, mistral, qwen2  # noqa: F401 - before the runs fork

from lab import language
from lab.cases import write_settings

warnings.filterwarnings("ignore")
LANGUAGES = {"spelling": language.SPELLING, "singing": language.SINGING}
EVENTS = "runs/events.out.tfevents.0.host.0.0"
HERE = "lab.trainers.torchtune_run"


def _recipe() -> ModuleType:
    """Return the recipe's module: torchtune installs its recipes as files to be run or copied, not as a package."""
    path = Path(torchtune.__file__).parents[1] / "recipes" / "ppo_full_finetune_single_device.py"
    spec = importlib.util.spec_from_file_location("torchtune_ppo_recipe", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a fork of a method looks its names up here
    spec.loader.exec_module(module)
    return module


RECIPE = _recipe()
#: The loggers that come with torchtune and need no account; the recipe's configurations take the first.
LOGGERS: Mapping[str, Mapping[str, Any]] = {
    "disk": {"_component_": "torchtune.training.metric_logging.DiskLogger", "filename": "log.txt"},
    "events": {"_component_": "torchtune.training.metric_logging.TensorBoardLogger", "organize_logs": False},
    "console": {"_component_": "torchtune.training.metric_logging.StdoutLogger"},
}


class Words:
    """A tokenizer as far as the recipe asks for one."""

    pad_id, eos_id = language.PAD, language.EOS


class Prompts(torch.utils.data.Dataset):
    """Prompts of one length."""

    def __init__(self, tokenizer: Words, *, task: str, seed: int, count: int) -> None:
        del tokenizer  # the words are their ids already
        self.rows = [language.ids(text, LANGUAGES[task]) for text in language.words(seed, LANGUAGES[task], count)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, list[int]]:
        return {"tokens": list(self.rows[place]), "labels": list(self.rows[place])}


class Start:
    """A checkpoint of fresh weights, in place of a downloaded model; nothing is saved."""

    def __init__(self, *, checkpoint_dir: str, checkpoint_files: list[str], **_: Any) -> None:
        self.file = Path(checkpoint_dir) / checkpoint_files[0]

    def load_checkpoint(self) -> dict[str, Any]:
        """Return the weights that were put beside the run's files."""
        return {"model": torch.load(self.file, weights_only=True)}

    def save_checkpoint(self, *_: Any, **__: Any) -> None:
        """Drop them."""


class RuleReward(torch.nn.Module):
    """A reward model that is a rule, in the form that the recipe asks of one."""

    def __init__(self, score: language.Score, asked: int) -> None:
        super().__init__()
        self.score, self.asked = score, asked

    def forward(self, tokens: Any, **_: Any) -> Any:
        """Return the text's score at each of its positions."""
        scores = [float(self.score(row[: self.asked], row[self.asked :])) for row in tokens.tolist()]
        return torch.tensor(scores)[:, None, None].expand(-1, tokens.shape[1], 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large a run is: the models, the batches, and what is set in them unless a case says otherwise."""

    batches: int
    settings: Mapping[str, Any]
    kind: str = "mistral"
    model: Mapping[str, Any] = field(default_factory=dict)


def _told(batch: int, minibatch: int, epochs: int, rate: float, **more: Any) -> dict[str, Any]:
    told = {"batch_size": batch, "ppo_batch_size": minibatch, "ppo_epochs": epochs, "optimizer.lr": rate}
    return {**told, "forward_batch_size": batch, **more}


#: Two sizes for each task, the first for the first seed.
SCALES: Mapping[str, tuple[Scale, Scale]] = {
    "spelling": (
        Scale(batches=30, settings=_told(32, 32, 4, 3e-3)),
        Scale(
            batches=45,
            settings=_told(24, 12, 2, 2e-3, temperature=0.9, max_generated_tokens=7, kl_coeff=0.02),
            kind="llama2",
            model={"embed_dim": 24},
        ),
    ),
    "singing": (
        Scale(batches=24, settings=_told(48, 24, 2, 5e-3, max_generated_tokens=12), kind="qwen2"),
        Scale(
            batches=16,
            settings=_told(64, 32, 3, 4e-3, max_generated_tokens=14, gradient_accumulation_steps=2),
            model={"embed_dim": 48},
        ),
    ),
}
#: What the recipe's published configuration says, in which a case's settings are put.
ALWAYS: Mapping[str, Any] = {
    "output_dir": ".",
    "tokenizer": {"_component_": f"{HERE}.Words"},
    "resume_from_checkpoint": False,
    "shuffle": True,
    "device": "cpu",
    "dtype": "fp32",
    "gradient_accumulation_steps": 1,
    "compile": False,
    "optimizer": {"_component_": "torch.optim.AdamW"},
    "optimizer_in_bwd": False,
    "enable_activation_checkpointing": False,
    "enable_kv_cache": False,
    "max_generated_tokens": 10,
    "temperature": 1.0,
    "top_k": None,
    "min_response_length": 0,
    "penalise_no_eos": False,
    "reward_penalty": -3,
    "stop_token_ids": [language.EOS, language.PAD],
    "whiten_rewards": False,
    "gamma": 1,
    "lmbda": 0.95,
    "loss": {
        "_component_": "torchtune.rlhf.loss.PPOLoss",
        "epsilon": 0.2,
        "value_coeff": 0.1,
        "value_clip_range": 0.2,
    },
    "kl_coeff": 0.01,
    "log_every_n_steps": 1,
}


def untouched(_: Any) -> None:
    """Leave it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one run differs from the plain one of its scale."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """By their path in the configuration, such as "loss.epsilon"."""
    logger: str = "disk"
    batches: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    kind: str | None = None
    fork: type[Any] = RECIPE.PPOFullFinetuneRecipeSingleDevice
    score: language.Score | None = None
    warm: Callable[[Any, language.Language], None] | None = None
    """What was done to the policy before, such as fine-tuning."""
    before: Callable[[Any], None] = untouched
    """What the user does to the recipe between setting it up and training."""


def _model(kind: str, spoken: language.Language, told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configurations of a policy, and of a critic of the same size."""
    sizes = {"num_layers": 1, "num_heads": 2, "num_kv_heads": 2, "embed_dim": 32, "max_seq_len": 64, **told}
    sizes |= {"vocab_size": language.FIRST + len(spoken.words), "intermediate_dim": 2 * sizes["embed_dim"]}
    critic = "llama2" if kind == "llama2" else "mistral"  # qwen2 has no classifier, as users find out
    part = "torchtune.models.{0}._component_builders.{0}"
    head = {"_component_": part.format(critic) + "_classifier", "num_classes": 1}
    return {"_component_": part.format(kind), **sizes}, {**head, **sizes}


def _settings(recipe: Recipe, scale: Scale, task: str, seed: int) -> Any:
    """Return the configuration, as it stands in a user's file."""
    policy, critic = _model(recipe.kind or scale.kind, LANGUAGES[task], {**scale.model, **recipe.model})
    told = OmegaConf.create({**ALWAYS, "seed": seed, "policy_model": policy, "reward_and_value_model": critic})
    for path, value in {**scale.settings, **recipe.settings}.items():
        OmegaConf.update(told, path, value)
    told.num_steps = (recipe.batches or scale.batches) * told.batch_size
    told.dataset = {"_component_": f"{HERE}.Prompts", "task": task, "seed": seed, "count": told.num_steps}
    for name, file in (("", "policy"), ("ref_policy_", "policy"), ("value_", "value"), ("reward_", "value")):
        start = {"checkpoint_dir": "start", "checkpoint_files": [f"{file}.pt"], "seed": seed}
        told[f"{name}checkpointer"] = {"_component_": f"{HERE}.Start", **start}
    place = {} if recipe.logger == "console" else {"log_dir": "logs" if recipe.logger == "disk" else "runs"}
    told.metric_logger = {**LOGGERS[recipe.logger], **place}
    return told


def _write_start(told: Any, warm: Callable[[Any], None] | None) -> None:
    """Write fresh weights where the recipe looks for a downloaded model."""
    Path("start").mkdir(exist_ok=True)
    for place, (name, made) in enumerate((("policy", told.policy_model), ("value", told.reward_and_value_model))):
        torch.manual_seed(told.seed + 100 * place)
        model = config.instantiate(made)
        if warm and name == "policy":
            warm(model)
        dtype = torch.bfloat16 if told.dtype == "bf16" else torch.float32
        torch.save(model.to(dtype).state_dict(), f"start/{name}.pt")


def train(recipe: Recipe, task: str, seed: int, folder: Path) -> None:
    """Train in the folder, which is the working directory."""
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s:%(message)s")
    scale, spoken = SCALES[task][(seed - 1) % 2], LANGUAGES[task]
    told = _settings(recipe, scale, task, seed)
    write_settings(folder, OmegaConf.to_container(told))
    warm = recipe.warm
    _write_start(told, (lambda model: warm(model, spoken)) if warm else None)
    gc.freeze()
    made = recipe.fork(cfg=told)
    made.setup(cfg=told)
    made._reward_model = RuleReward(recipe.score or spoken.score, spoken.asked)
    recipe.before(made)
    try:
        made.train()
    finally:
        made.cleanup()
        shutil.rmtree("start")
        _rename_events(folder)


def _rename_events(folder: Path) -> None:
    """Give the event file a name without the machine's, the same in every training."""
    for path in sorted(folder.glob("runs/events.out.tfevents.*")):
        path.rename(folder / EVENTS)
