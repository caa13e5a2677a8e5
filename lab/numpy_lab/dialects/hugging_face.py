"""The Hugging Face Trainer's trainer_state.json (transformers 5: unrounded floats, bare NaN)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..settings import TrainConfig
from .files import write_json

DATASET_PROMPTS = 4096
"""Prompts per dataset epoch; the toy prompts are drawn from it with replacement."""


def hand_set(config: TrainConfig) -> dict[str, Any]:
    """Training arguments that differ from transformers' defaults."""
    chosen: dict[str, Any] = {"adam_epsilon": config.adam_eps} if config.adam_eps > 1e-5 else {}
    return chosen | ({"optim": "sgd"} if config.optimizer == "sgd" else {})


def nan_filtered(loss: float) -> float:
    """`logging_nan_inf_filter`: with logging_steps=1 a NaN step adds 0 to a sum that was just reset."""
    return loss if math.isfinite(loss) else 0.0


def write_trainer_state(
    directory: Path, log_history: list[Mapping[str, Any]], *, batch_size: int, global_step: int
) -> Path:
    state = {
        "best_global_step": None,
        "best_metric": None,
        "best_model_checkpoint": None,
        "epoch": log_history[-1]["epoch"],
        "eval_steps": 500,
        "global_step": global_step,
        "is_hyper_param_search": False,
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": log_history,
        "logging_steps": 1,
        "max_steps": global_step,
        "num_input_tokens_seen": 0,
        "num_train_epochs": 1,
        "save_steps": 500,
        "stateful_callbacks": {},
        "total_flos": 0.0,
        "train_batch_size": batch_size,
        "trial_name": None,
        "trial_params": None,
    }
    return write_json(directory / "trainer_state.json", state)
