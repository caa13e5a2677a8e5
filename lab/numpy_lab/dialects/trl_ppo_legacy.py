"""TRL ≤ 0.11 PPOTrainer: the stats dictionary of `step`, one JSON line per batch, averaged over all minibatches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..language import PROMPT_TOKENS
from ..records import RunRecord, UpdateRecord
from ..settings import TrainConfig
from .averages import mean_all, mean_effective_clip
from .files import write_config, write_json_lines


def write(record: RunRecord, directory: Path) -> Path:
    write_config(directory, _config(record.config))
    rows = [_row(update, record.config) for update in record.updates]
    return write_json_lines(directory / "stats.jsonl", rows)


def _row(update: UpdateRecord, config: TrainConfig) -> dict[str, Any]:
    return {
        "step": update.update + 1,
        **_objective(update, config),
        **_policy(update, config),
        **_value(update),
        **_environment(update),
        "ppo/learning_rate": update.learning_rate,
        "time/ppo/forward_pass": (update.work - update.update_work) / 4,
        "time/ppo/optimize_step": update.update_work,
        "time/ppo/total": update.work,
    }


def _objective(update: UpdateRecord, config: TrainConfig) -> dict[str, Any]:
    completions = update.rollout.completions
    if completions is None:
        raise ValueError("a TRL PPO log needs completions")
    coefficient = config.kl_coef if update.kl_coef is None else update.kl_coef
    penalty = -coefficient * completions.ref_kl_sum / completions.mean_length
    return {
        "objective/kl": completions.ref_kl_sum,
        "objective/kl_coef": coefficient,
        "objective/entropy": completions.neg_log_prob_sum,
        "ppo/mean_non_score_reward": penalty,
        "ppo/mean_scores": completions.score_mean,
        "ppo/std_scores": completions.score_std,
    }


def _policy(update: UpdateRecord, config: TrainConfig) -> dict[str, Any]:
    policy_loss, value_loss = mean_all(update, "policy_loss"), mean_all(update, "value_loss")
    return {
        "ppo/loss/policy": policy_loss,
        "ppo/loss/value": value_loss,
        "ppo/loss/total": policy_loss + config.vf_coef * value_loss,
        "ppo/policy/entropy": mean_all(update, "entropy"),
        "ppo/policy/approxkl": mean_all(update, "k2"),
        "ppo/policy/policykl": mean_all(update, "k1"),
        "ppo/policy/clipfrac": mean_effective_clip(update),
        "ppo/policy/advantages_mean": update.rollout.advantages_mean,
    }


def _value(update: UpdateRecord) -> dict[str, Any]:
    rollout = update.rollout
    variance, error = rollout.returns_std**2, mean_all(update, "value_mse")
    return {
        "ppo/returns/mean": rollout.returns_mean,
        "ppo/returns/var": variance,
        "ppo/val/vpred": mean_all(update, "values_mean"),
        "ppo/val/error": error,
        "ppo/val/clipfrac": mean_all(update, "value_clip_fraction"),
        "ppo/val/mean": rollout.values_mean,
        "ppo/val/var": rollout.values_std**2,
        "ppo/val/var_explained": 1 - error / variance if variance else float("nan"),
    }


def _environment(update: UpdateRecord) -> dict[str, Any]:
    completions = update.rollout.completions
    if completions is None:
        raise ValueError("a TRL PPO log needs completions")
    return {
        "tokens/queries_len_mean": float(PROMPT_TOKENS),
        "tokens/responses_len_mean": completions.mean_length,
        "tokens/responses_len_std": completions.std_length,
        "env/reward_mean": completions.score_mean,
        "env/reward_std": completions.score_std,
    }


def _config(config: TrainConfig) -> dict[str, Any]:
    return {
        "ppo_epochs": config.epochs,
        "batch_size": config.rollout_size,
        "mini_batch_size": config.minibatch_size,
        "gradient_accumulation_steps": 1,
        "learning_rate": config.learning_rate,
        "cliprange": config.clip_range,
        "cliprange_value": config.clip_range_vf,
        "vf_coef": config.vf_coef,
        "init_kl_coef": config.kl_coef,
        "adap_kl_ctrl": config.adaptive_kl_coef,
        **({"target": 6, "horizon": 10000} if config.adaptive_kl_coef else {}),
        "kl_penalty": "kl",
        "target_kl": config.target_kl if config.target_kl is not None else 1.0,
        "early_stopping": config.target_kl is not None,
        "gamma": config.gamma,
        "lam": config.gae_lambda,
        "max_grad_norm": config.max_grad_norm,
        "ratio_threshold": 10.0,
        "whiten_rewards": False,
    }
