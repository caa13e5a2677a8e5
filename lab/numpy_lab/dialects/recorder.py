"""What `ppo_doctor.record` writes: the lab's arrays go through the real recorder, and the log is its own.

A run of the control task is told as Stable-Baselines3's callback tells it, one of GRPO as TRL's. The actor's arrays
take the values again that they had around each update, so that movement and ownership are looked at, not told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.record import Recorder

from ..nets import F32
from ..presets import describe
from ..records import MinibatchRecord, RunRecord, UpdateArrays, UpdateRecord
from ..settings import TrainConfig
from .averages import mean_all


def write(record: RunRecord, directory: Path) -> Path:
    """Record a run; return the log."""
    path = directory / "run.jsonl"
    path.unlink(missing_ok=True)
    first = _arrays(record.updates[0])
    held: list[list[F32]] = [first.held]
    kept = next((_arrays(u).old_policy for u in record.updates if _arrays(u).old_policy is not None), None)
    config = record.config
    recorder = Recorder(
        path,
        config=_settings(config),
        clip_range=config.clip_range,
        model=lambda: first.weights,
        optimizer=lambda: held[0],
        old_policy=(lambda: kept) if kept is not None else None,
    )
    # One more step on a policy whose numbers have broken is no warning of ours.
    with np.errstate(all="ignore"):
        for update in record.updates:
            held[0] = _arrays(update).held
            _record(recorder, update, grouped=config.algorithm == "grpo")
    if recorder.quiet or "calls_lost" in path.read_text(encoding="utf-8"):
        raise RuntimeError("the recorder lost what it was told")
    recorder.close()
    return path


def _settings(config: TrainConfig) -> dict[str, Any]:
    """Return the settings in the names that TRL's callback writes."""
    return {"kl_coef" if name == "beta" else name: value for name, value in describe(config).items()}


def _arrays(update: UpdateRecord) -> UpdateArrays:
    if update.arrays is None:
        raise ValueError("the run's arrays were not kept")
    return update.arrays


def _record(recorder: Recorder, update: UpdateRecord, *, grouped: bool) -> None:
    arrays = _arrays(update)
    _put(arrays.weights, arrays.before)
    # TRL normalises rewards by group before anything is seen of them.
    recorder.start_update(advantages=None if grouped else arrays.raw_advantages)
    if arrays.sampler_log_prob is not None:
        stored = arrays.stored_log_prob
        recorder.rollout(sampler_log_prob=arrays.sampler_log_prob, old_log_prob=stored, mask=arrays.mask)
    for minibatch in update.minibatches:
        _minibatch(recorder, minibatch)
    _put(arrays.weights, arrays.after)
    recorder.end_update(
        step=update.global_step,
        probe=lambda: (arrays.probe_log_prob, arrays.stored_log_prob, arrays.mask),
        learning_rate=update.learning_rate,
        clip_range=update.clip_range,
        **(_completions(update) if grouped else _episodes(update)),
    )


def _put(weights: list[F32], values: list[F32]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight[...] = value


def _minibatch(recorder: Recorder, minibatch: MinibatchRecord) -> None:
    arrays = minibatch.arrays
    if arrays is None:
        raise ValueError("the run's arrays were not kept")
    recorder.minibatch(
        new_log_prob=arrays.new_log_prob,
        old_log_prob=arrays.old_log_prob,
        advantages=arrays.advantages,
        mask=arrays.mask,
        epoch=minibatch.epoch,
        log_prob_gradient=arrays.gradient if minibatch.stepped else None,
        policy_loss=minibatch.policy_loss,
        entropy=minibatch.entropy,
    )
    if minibatch.stepped:
        recorder.optimizer_step(grad_norm=minibatch.grad_norm, executed=not minibatch.skipped)


def _episodes(update: UpdateRecord) -> dict[str, Any]:
    """Return what Stable-Baselines3's callback adds, here of the episodes that ended in this rollout."""
    found = {"explained_variance": update.rollout.explained_variance, "value_loss": mean_all(update, "value_loss")}
    episodes = update.rollout.episodes
    if episodes:
        found["episode_return"] = float(np.mean([episode.episode_return for episode in episodes]))
        found["episode_length"] = float(np.mean([episode.length for episode in episodes]))
    return found


def _completions(update: UpdateRecord) -> dict[str, Any]:
    """Return what TRL's callback adds."""
    completions = update.rollout.completions
    if completions is None:
        raise ValueError("a GRPO log needs completions")
    return {
        "reward_mean": update.rollout.reward_mean,
        "reward_std": completions.group_std_mean,
        "frac_reward_zero_std": completions.frac_reward_zero_std,
        "response_length": completions.mean_length,
        "truncated_fraction": completions.truncated_fraction,
        **({} if np.isnan(mean_all(update, "ref_kl")) else {"ref_kl": mean_all(update, "ref_kl")}),
    }
