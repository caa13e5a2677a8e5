"""TRL GRPOTrainer from 0.27 on: `reward_std` over the whole batch, and how long each training step took.

Keys and settings as TRL 1.16 writes them without vLLM; the rest is as in 0.20 to 0.25.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..records import RunRecord, UpdateRecord
from ..settings import TrainConfig
from . import trl_grpo
from .files import write_config


def write(record: RunRecord, directory: Path) -> Path:
    write_config(directory, _config(record.config))
    history = trl_grpo.history(record)
    times = [time for update in record.updates for time in _step_times(update)]
    by_update = [update for update in record.updates for _ in update.minibatches]
    told = [_told(row, update, time) for row, update, time in zip(history, by_update, times, strict=True)]
    return trl_grpo.write_state(record, told, directory)


def _told(row: dict[str, Any], update: UpdateRecord, time: float) -> dict[str, Any]:
    spread = {"reward_std": update.rollout.reward_std} if "reward_std" in row else {}
    return row | spread | {"step_time": time}


def _step_times(update: UpdateRecord) -> list[float]:
    """Generation is part of the step that it happens in."""
    each = update.update_work / len(update.minibatches)
    return [
        each + (update.work - update.update_work if index == 0 else 0.0) for index in range(len(update.minibatches))
    ]


def _config(config: TrainConfig) -> dict[str, Any]:
    """Return the arguments of 1.16 that matter: more of them than 0.20 had, with its defaults."""
    return trl_grpo.settings(config) | {
        "delta": None,
        "disable_dropout": False,
        "entropy_coef": 0.0,
        "ref_model_mixup_alpha": 0.6,
        "ref_model_sync_steps": 512,
        "repetition_penalty": 1.0,
        "shuffle_dataset": True,
        "sync_ref_model": False,
        "top_entropy_quantile": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "use_bias_correction_kl": True,
        "use_liger_kernel": False,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "sequence_mask",
        "weight_decay": 0.0,
    }
