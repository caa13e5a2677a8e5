"""TRL GRPOTrainer 0.2x: one record per optimizer step, generation keys only on the steps that generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..records import Completions, MinibatchRecord, RolloutRecord, RunRecord
from ..settings import TrainConfig
from .averages import effective_clip
from .files import write_config
from .hugging_face import DATASET_PROMPTS, hand_set, nan_filtered, write_trainer_state

_REWARD = "match_reward"


def write(record: RunRecord, directory: Path) -> Path:
    write_config(directory, settings(record.config))
    return write_state(record, history(record), directory)


def history(record: RunRecord) -> list[dict[str, Any]]:
    """Return one record per optimizer step."""
    config = record.config
    rows: list[dict[str, Any]] = []
    tokens = 0
    for update in record.updates:
        completions = _completions_of(update.rollout)
        tokens += completions.num_tokens
        epoch = update.global_step / config.num_generations / DATASET_PROMPTS
        for index, minibatch in enumerate(update.minibatches):
            generated = _generation(update.rollout, completions, tokens) if index == 0 else {}
            step = {**generated, **_step(minibatch, config, update.learning_rate)}
            rows.append({**step, "epoch": epoch, "step": len(rows) + 1})
    return rows


def write_state(record: RunRecord, rows: list[dict[str, Any]], directory: Path) -> Path:
    """Write trainer_state.json: the records, and the summary that ends them."""
    config, steps = record.config, len(rows)
    work = sum(update.work for update in record.updates)
    return write_trainer_state(
        directory, [*rows, _summary(rows, work, config)], batch_size=config.minibatch_size, global_step=steps
    )


def _completions_of(rollout: RolloutRecord) -> Completions:
    if rollout.completions is None:
        raise ValueError("a GRPO log needs completions")
    return rollout.completions


def _generation(rollout: RolloutRecord, completions: Completions, tokens: int) -> dict[str, Any]:
    return {
        "num_tokens": float(tokens),
        "completions/mean_length": completions.mean_length,
        "completions/min_length": float(completions.min_length),
        "completions/max_length": float(completions.max_length),
        "completions/clipped_ratio": completions.truncated_fraction,
        "completions/mean_terminated_length": completions.mean_terminated_length,
        "completions/min_terminated_length": float(completions.min_terminated_length),
        "completions/max_terminated_length": float(completions.max_terminated_length),
        **_functions(completions),
        "reward": rollout.reward_mean,
        "reward_std": completions.group_std_mean,
        "frac_reward_zero_std": completions.frac_reward_zero_std,
        **_importance(rollout),
    }


def _importance(rollout: RolloutRecord) -> dict[str, float]:
    """Return the importance ratios of trainer and sampler, which only a run with a sampling engine logs."""
    names = (f"sampling/importance_sampling_ratio/{which}" for which in ("mean", "min", "max"))
    return {} if rollout.importance is None else dict(zip(names, rollout.importance, strict=True))


def _functions(completions: Completions) -> dict[str, float]:
    """Return mean and deviation of each reward function."""
    parts = completions.parts or {_REWARD: (completions.score_mean, completions.score_std)}
    named = {name: dict(zip(("mean", "std"), part, strict=True)) for name, part in parts.items()}
    return {f"rewards/{name}/{which}": value for name, part in named.items() for which, value in part.items()}


def _step(minibatch: MinibatchRecord, config: TrainConfig, learning_rate: float) -> dict[str, Any]:
    low, high = minibatch.clip_fraction_low, minibatch.clip_fraction_high
    reference = {"kl": minibatch.ref_kl} if config.kl_coef else {}
    return {
        "loss": nan_filtered(minibatch.loss),
        "grad_norm": minibatch.grad_norm,
        "learning_rate": learning_rate,
        "entropy": minibatch.entropy,
        "clip_ratio/low_mean": low,
        "clip_ratio/low_min": low,
        "clip_ratio/high_mean": high,
        "clip_ratio/high_max": high,
        "clip_ratio/region_mean": effective_clip(minibatch),
        **reference,
    }


def _summary(history: list[dict[str, Any]], work: float, config: TrainConfig) -> dict[str, Any]:
    steps = len(history)
    return {
        "train_runtime": round(work, 4),
        "train_samples_per_second": round(steps * config.minibatch_size / work, 3),
        "train_steps_per_second": round(steps / work, 3),
        "total_flos": 0.0,
        "train_loss": sum(record["loss"] for record in history) / steps,
        "epoch": history[-1]["epoch"],
        "step": steps,
    }


def settings(config: TrainConfig) -> dict[str, Any]:
    """Return the training arguments that matter, under TRL's names."""
    return {
        "num_iterations": config.epochs,
        "num_generations": config.num_generations,
        "per_device_train_batch_size": config.minibatch_size,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": config.num_minibatches,
        "generation_batch_size": config.rollout_size,
        "epsilon": config.clip_range,
        **hand_set(config),
        "epsilon_high": None,
        "beta": config.kl_coef,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "max_grad_norm": config.max_grad_norm,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "importance_sampling_level": "token",
        "temperature": 1.0,
        "max_completion_length": config.max_tokens,
        "mask_truncated_completions": False,
        "logging_steps": 1,
        "bf16": False,
        "use_vllm": False,
    }
