"""Sound hyper-parameters per task, and the training conventions of the framework that a dialect imitates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .settings import Task, TrainConfig

CONTROL = TrainConfig(task="control", updates=80, learning_rate=1e-3, gamma=0.98, max_grad_norm=0.5)

GRPO = TrainConfig(
    task="language",
    algorithm="grpo",
    updates=60,
    epochs=4,
    num_minibatches=1,
    shuffle=False,
    learning_rate=6e-3,
    adam_eps=1e-8,
    max_grad_norm=1.0,
    normalize="none",
    hidden=(48,),
    num_prompts=12,
)

LANGUAGE_PPO = replace(
    GRPO,
    algorithm="ppo",
    shuffle=True,
    max_grad_norm=None,
    normalize="batch",
    gamma=1.0,
    vf_coef=0.1,
    clip_range_vf=0.2,
    kl_coef=0.01,
    num_prompts=64,
    num_generations=1,
)

_CONVENTIONS: Mapping[str, TrainConfig] = {
    "canonical": CONTROL,
    "canonical-lean": CONTROL,
    "canonical-full": CONTROL,
    "recorder": CONTROL,
    "recorder-grpo": GRPO,
    "sb3": replace(CONTROL, vf_coef=1.0),
    "cleanrl": replace(CONTROL, stop_rule="cleanrl", anneal_lr=True, ent_coef=0.01),
    "trl-grpo": GRPO,
    "trl-grpo-027": GRPO,
    "trl-ppo": LANGUAGE_PPO,
    "trl-ppo-legacy": replace(LANGUAGE_PPO, num_minibatches=4, learning_rate=3e-3, stop_rule="trl-legacy"),
}

LANGUAGE_DIALECTS = frozenset({"recorder-grpo", "trl-grpo", "trl-grpo-027", "trl-ppo", "trl-ppo-legacy"})
TASK_FREE_DIALECTS = frozenset({"canonical", "canonical-lean", "canonical-full"})


def dialect_task(dialect: str) -> Task:
    return "language" if dialect in LANGUAGE_DIALECTS else "control"


def base_config(task: Task, dialect: str | None) -> TrainConfig:
    if dialect is None or dialect in TASK_FREE_DIALECTS:
        return CONTROL if task == "control" else GRPO
    if task != dialect_task(dialect):
        raise ValueError(f"{dialect} logs are of the {dialect_task(dialect)} task, not of {task}")
    return _CONVENTIONS[dialect]


def describe(config: TrainConfig) -> dict[str, Any]:
    """The configuration in canonical names: the header of a canonical log."""
    batch = {"ppo_epochs": config.epochs, "num_minibatches": config.num_minibatches}
    sizes = {"rollout_size": config.rollout_size, "minibatch_size": config.minibatch_size}
    names = ("learning_rate", "clip_range", "target_kl", "gamma", "gae_lambda", "max_grad_norm", "ent_coef")
    rest = {name: getattr(config, name) for name in names}
    grouped = {"num_generations": config.num_generations, "beta": config.kl_coef} if config.algorithm == "grpo" else {}
    whitened = {"normalize_advantages": config.algorithm == "grpo" or config.normalize != "none"}
    return {"algorithm": config.algorithm, **batch, **sizes, **rest, **whitened, **grouped, **set_by_hand(config)}


def set_by_hand(config: TrainConfig) -> dict[str, Any]:
    """Settings that few people touch: a configuration names them only where somebody did."""
    usual = TrainConfig(task=config.task, updates=config.updates)
    names = ("optimizer", "precision", "desired_kl", "critic_warmup", "loss_type", "clip_range_vf")
    chosen = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(usual, name)}
    return chosen | ({"adam_eps": config.adam_eps} if config.adam_eps > 1e-5 else {})
