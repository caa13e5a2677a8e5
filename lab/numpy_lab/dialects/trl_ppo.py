"""TRL's new PPOTrainer: one record per rollout batch; KL (k2), entropy and ratio are unmasked means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..records import Completions, MinibatchRecord, RunRecord, UpdateRecord
from ..settings import TrainConfig
from .averages import mean_all, mean_effective_clip
from .files import write_config
from .hugging_face import DATASET_PROMPTS, hand_set, write_trainer_state

_INVALID_LOG_PROB = 1.0


def write(record: RunRecord, directory: Path) -> Path:
    config = record.config
    write_config(directory, _config(config))
    history: list[dict[str, Any]] = []
    elapsed = 0.0
    for update in record.updates:
        elapsed += update.work
        row = {"eps": int(update.global_step / elapsed), **_objective(update, config), **_trained(update)}
        position = {"episode": update.global_step, "epoch": update.global_step / DATASET_PROMPTS}
        history.append({**row, "lr": update.learning_rate, **position, "step": update.update + 1})
    return write_trainer_state(directory, [*history], batch_size=config.minibatch_size, global_step=len(record.updates))


def _objective(update: UpdateRecord, config: TrainConfig) -> dict[str, Any]:
    completions = update.rollout.completions
    if completions is None:
        raise ValueError("a TRL PPO log needs completions")
    penalty = -config.kl_coef * completions.ref_kl_sum
    return {
        "objective/kl": completions.ref_kl_sum,
        "objective/entropy": completions.neg_log_prob_sum - _INVALID_LOG_PROB * _pads(completions, config),
        "objective/non_score_reward": penalty,
        "objective/rlhf_reward": completions.score_mean + penalty,
        "objective/scores": completions.score_mean,
        "val/num_eos_tokens": completions.num_eos,
    }


def _pads(completions: Completions, config: TrainConfig) -> float:
    return config.max_tokens - completions.mean_length


def _trained(update: UpdateRecord) -> dict[str, Any]:
    ratios = np.array([_diluted_ratio(minibatch) for minibatch in update.minibatches])
    return {
        "policy/approxkl_avg": float(np.mean([m.k2 * m.mask_fraction for m in update.minibatches])),
        "policy/clipfrac_avg": mean_effective_clip(update),
        "loss/policy_avg": mean_all(update, "policy_loss"),
        "loss/value_avg": mean_all(update, "value_loss"),
        "val/clipfrac_avg": mean_all(update, "value_clip_fraction"),
        "policy/entropy_avg": mean_all(update, "entropy_unmasked"),
        "val/ratio": float(ratios.mean()),
        "val/ratio_var": float(ratios.var(ddof=1)) if ratios.size > 1 else float("nan"),
    }


def _diluted_ratio(minibatch: MinibatchRecord) -> float:
    """The unmasked mean: padding counts as ratio 1."""
    return 1.0 + (minibatch.ratio_mean - 1.0) * minibatch.mask_fraction


def _config(config: TrainConfig) -> dict[str, Any]:
    return {
        "num_ppo_epochs": config.epochs,
        "num_mini_batches": config.num_minibatches,
        "per_device_train_batch_size": config.minibatch_size,
        "gradient_accumulation_steps": 1,
        "batch_size": config.rollout_size,
        "mini_batch_size": config.minibatch_size,
        "local_rollout_forward_batch_size": config.rollout_size,
        "cliprange": config.clip_range,
        **hand_set(config),
        "cliprange_value": config.clip_range_vf,
        "vf_coef": config.vf_coef,
        "kl_coef": config.kl_coef,
        "kl_estimator": "k1",
        "gamma": config.gamma,
        "lam": config.gae_lambda,
        "whiten_rewards": False,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "response_length": config.max_tokens,
        "temperature": 1.0,
        "total_episodes": config.updates * config.rollout_size,
        "bf16": False,
    }
