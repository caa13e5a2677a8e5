"""ppo-doctor's own JSONL: a header with the configuration, then one object per update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..presets import describe
from ..records import RunRecord, UpdateRecord
from ..settings import TrainConfig
from .averages import mean_all, mean_stepped, values
from .files import write_json_lines

_LEAN = (
    "step",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "learning_rate",
    "episode_return",
)


def write(record: RunRecord, directory: Path) -> Path:
    return _write(record, directory, [_row(update, record.config) for update in record.updates])


def write_lean(record: RunRecord, directory: Path) -> Path:
    """The few columns that a hand-written training script logs."""
    full = [_row(update, record.config) for update in record.updates]
    return _write(record, directory, [{key: row[key] for key in _LEAN if key in row} for row in full])


def write_full(record: RunRecord, directory: Path) -> Path:
    """Everything that the recorder can log, with what separates causes that look alike elsewhere."""
    rows = [_row(update, record.config) | _rare(update) for update in record.updates]
    return _write(record, directory, rows)


def _rare(update: UpdateRecord) -> dict[str, Any]:
    starts = [m for m in update.minibatches if m.minibatch == 0 and m.epoch > 0]
    departures = [max(abs(m.ratio_min - 1), abs(m.ratio_max - 1)) for m in starts]
    last = update.minibatches[-1]
    judged = [episode.judged for episode in update.rollout.episodes if episode.judged is not None]
    row: dict[str, Any] = {
        "eval_return": float(np.mean(judged)) if judged else None,
        "epoch_start_ratio_dev": max(departures, default=None),
        "logratio_advantage_corr": last.logratio_advantage_corr,
        "changed_fraction": update.changed_fraction,
        "skipped_steps": sum(m.skipped for m in update.minibatches),
        "loss_scale": last.loss_scale,
        "rollout_kl": update.rollout_kl,
    }
    return {name: value for name, value in row.items() if value is not None}


def _write(record: RunRecord, directory: Path, rows: list[dict[str, Any]]) -> Path:
    header = {"ppo_doctor": 1, "config": describe(record.config)}
    return write_json_lines(directory / "run.jsonl", [header, *rows])


def _row(update: UpdateRecord, config: TrainConfig) -> dict[str, Any]:
    row = {"step": update.update + 1, **_policy(update), **_optimizer(update), **_signal(update), **_task(update)}
    return {**row, "ref_kl": mean_all(update, "ref_kl")} if config.kl_coef else row


def _policy(update: UpdateRecord) -> dict[str, Any]:
    means = ("policy_loss", "entropy", "ratio_mean", "ratio_std", "clip_fraction")
    row: dict[str, Any] = {name: mean_all(update, name) for name in means}
    row["approx_kl"] = mean_all(update, "k3")
    row["ratio_min"] = float(np.min(values(update.minibatches, "ratio_min")))
    row["ratio_max"] = float(np.max(values(update.minibatches, "ratio_max")))
    row["clip_fraction_low"] = mean_all(update, "clip_fraction_low")
    row["clip_fraction_high"] = mean_all(update, "clip_fraction_high")
    row["clip_range"] = update.clip_range
    row["probe_kl"] = update.probe_kl
    return row


def _optimizer(update: UpdateRecord) -> dict[str, Any]:
    return {
        "learning_rate": update.learning_rate,
        "grad_norm": mean_stepped(update, "grad_norm"),
        "update_norm": update.update_norm,
        "optimizer_steps": update.optimizer_steps,
        "tokens_in_loss": sum(minibatch.tokens for minibatch in update.minibatches if minibatch.stepped),
        **({} if update.action_std is None else {"action_std": update.action_std}),
    }


def _signal(update: UpdateRecord) -> dict[str, Any]:
    rollout = update.rollout
    names = ("reward_mean", "reward_std", "advantages_mean", "advantages_std", "advantages_abs_max")
    row: dict[str, Any] = {name: getattr(rollout, name) for name in (*names, "advantages_raw_std")}
    if update.value_update_norm is None:
        return row
    row["value_loss"] = mean_all(update, "value_loss")
    for name in ("returns_mean", "returns_std", "values_mean", "explained_variance"):
        row[name] = getattr(rollout, name)
    return row


def _task(update: UpdateRecord) -> dict[str, Any]:
    completions, episodes = update.rollout.completions, update.rollout.episodes
    if completions is not None:
        row = {"response_length": completions.mean_length, "truncated_fraction": completions.truncated_fraction}
        if completions.frac_reward_zero_std is not None:
            row["frac_reward_zero_std"] = completions.frac_reward_zero_std
        return row
    if not episodes:
        return {}
    returns, lengths = zip(*((episode.episode_return, episode.length) for episode in episodes), strict=True)
    return {"episode_return": float(np.mean(returns)), "episode_length": float(np.mean(lengths))}
