"""Stable-Baselines3 ≥ 2: progress.csv.

`dump` runs before `train`: row i has rollout i and the training of update i-1, and the last update is never logged.
"""

from __future__ import annotations

import csv
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from ..records import RunRecord, UpdateRecord
from ..settings import TrainConfig
from .averages import last_epoch, mean_all, values
from .files import write_config

_WINDOW = 100
_COLUMNS = (
    "time/iterations",
    "rollout/ep_rew_mean",
    "time/fps",
    "time/total_timesteps",
    "time/time_elapsed",
    "rollout/ep_len_mean",
    "train/policy_gradient_loss",
    "train/n_updates",
    "train/clip_fraction",
    "train/entropy_loss",
    "train/explained_variance",
    "train/learning_rate",
    "train/approx_kl",
    "train/clip_range",
    "train/loss",
    "train/value_loss",
)


def write(record: RunRecord, directory: Path) -> Path:
    write_config(directory, _config(record.config))
    path = directory / "progress.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _columns(record), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_rows(record))
    return path


def _columns(record: RunRecord) -> tuple[str, ...]:
    """Return the columns in SB3's order; a Gaussian policy has one for its standard deviation."""
    return (*_COLUMNS, "train/std") if record.config.continuous else _COLUMNS


def _rows(record: RunRecord) -> list[dict[str, Any]]:
    window: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
    trained: dict[str, Any] = {}
    elapsed = 0.0
    rows = []
    for update in record.updates:
        window.extend((episode.episode_return, episode.length) for episode in update.rollout.episodes)
        elapsed += update.work - update.update_work
        rows.append({**_progress(update, elapsed), **_episodes(window), **trained})
        elapsed += update.update_work
        trained = _trained(update)
    return rows


def _progress(update: UpdateRecord, elapsed: float) -> dict[str, Any]:
    return {
        "time/iterations": update.update + 1,
        "time/total_timesteps": update.global_step,
        "time/time_elapsed": int(elapsed),
        "time/fps": int(update.global_step / max(elapsed, 1e-9)),
    }


def _episodes(window: deque[tuple[float, int]]) -> dict[str, Any]:
    if not window:
        return {}
    returns, lengths = np.array(window).T
    return {"rollout/ep_rew_mean": float(returns.mean()), "rollout/ep_len_mean": float(lengths.mean())}


def _trained(update: UpdateRecord) -> dict[str, Any]:
    final = np.array(values(last_epoch(update), "k3"), np.float32)
    return {
        "train/policy_gradient_loss": mean_all(update, "policy_loss"),
        "train/value_loss": mean_all(update, "value_mse"),
        "train/entropy_loss": -mean_all(update, "entropy"),
        "train/approx_kl": np.mean(final),
        "train/clip_fraction": mean_all(update, "clip_fraction"),
        "train/clip_range": update.clip_range,
        "train/loss": update.minibatches[-1].loss,
        "train/explained_variance": update.rollout.explained_variance,
        "train/learning_rate": update.learning_rate,
        "train/n_updates": update.cumulative_epochs,
        **({} if update.action_std is None else {"train/std": update.action_std}),
    }


def _config(config: TrainConfig) -> dict[str, Any]:
    same = ("gamma", "gae_lambda", "clip_range", "target_kl", "ent_coef", "max_grad_norm", "learning_rate")
    return {
        "policy": "MlpPolicy",
        "n_envs": config.num_envs,
        "n_steps": config.num_steps,
        "batch_size": config.minibatch_size,
        "n_epochs": config.epochs,
        **({"policy_kwargs": {"optimizer_kwargs": {"eps": config.adam_eps}}} if config.adam_eps > 1e-5 else {}),
        "clip_range_vf": config.clip_range_vf,
        "vf_coef": config.vf_coef / 2,  # SB3 leaves out the half of the squared error
        "normalize_advantage": config.normalize == "minibatch",
        "total_timesteps": config.updates * config.rollout_size,
        **{name: getattr(config, name) for name in same},
    }
