"""CleanRL's ppo.py, its scalars exported as JSON lines: one line per finished episode, one per update.

Losses and KL are those of the last minibatch; the clip fraction is the mean of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..records import RunRecord, UpdateRecord
from ..settings import TrainConfig
from .averages import mean_all
from .files import write_config, write_json_lines


def write(record: RunRecord, directory: Path) -> Path:
    write_config(directory, _config(record.config, record.seed))
    rows: list[dict[str, Any]] = []
    elapsed = 0.0
    for update in record.updates:
        elapsed += update.work
        rows += [*_episodes(update), _update(update, elapsed)]
    return write_json_lines(directory / "metrics.jsonl", rows)


def _episodes(update: UpdateRecord) -> list[dict[str, Any]]:
    return [
        {
            "global_step": episode.end_step,
            "charts/episodic_return": episode.episode_return,
            "charts/episodic_length": episode.length,
        }
        for episode in update.rollout.episodes
    ]


def _update(update: UpdateRecord, elapsed: float) -> dict[str, Any]:
    last = update.minibatches[-1]
    return {
        "global_step": update.global_step,
        "charts/learning_rate": update.learning_rate,
        "losses/value_loss": last.value_loss,
        "losses/policy_loss": last.policy_loss,
        "losses/entropy": last.entropy,
        "losses/old_approx_kl": last.k1,
        "losses/approx_kl": last.k3,
        "losses/clipfrac": mean_all(update, "clip_fraction"),
        "losses/explained_variance": update.rollout.explained_variance,
        "charts/SPS": int(update.global_step / elapsed),
    }


def _config(config: TrainConfig, seed: int) -> dict[str, Any]:
    same = ("num_envs", "num_steps", "num_minibatches", "learning_rate", "anneal_lr", "gamma", "gae_lambda")
    return {
        "exp_name": "ppo",
        "env_id": "CartPole-v1",
        "seed": seed,
        "total_timesteps": config.updates * config.rollout_size,
        "num_iterations": config.updates,
        "batch_size": config.rollout_size,
        "minibatch_size": config.minibatch_size,
        "update_epochs": config.epochs,
        "norm_adv": config.normalize == "minibatch",
        "clip_coef": config.clip_range,
        "clip_vloss": config.clip_range_vf is not None,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "max_grad_norm": config.max_grad_norm,
        "target_kl": config.target_kl,
        **{name: getattr(config, name) for name in same},
    }
