"""Key numbers of a run, for the self-check and for the eye."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .records import MinibatchRecord, RunRecord, UpdateRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    score_first: float
    score_last: float
    k3: float
    k3_max: float
    ratio_deviation_max: float
    clip_fraction: float
    policy_loss_max: float
    grad_norm: float
    update_norm: float
    probe_kl: float
    steps_mean: float
    entropy_first: float
    entropy_last: float

    def line(self) -> str:
        return (
            f"score {self.score_first:7.3f} → {self.score_last:7.3f}  k3 {self.k3:.1e} (max {self.k3_max:.1e})  "
            f"clip {self.clip_fraction:.3f}  gn {self.grad_norm:.2g}  dθ {self.update_norm:.2g}  "
            f"probe {self.probe_kl:.1e}  steps {self.steps_mean:.1f}  "
            f"H {self.entropy_first:.2f} → {self.entropy_last:.2f}"
        )


def score(updates: Iterable[UpdateRecord]) -> float:
    """Mean episode return (control) or mean reward (language)."""
    updates = list(updates)
    returns = [episode.episode_return for update in updates for episode in update.rollout.episodes]
    if returns:
        return float(np.mean(returns))
    return float(np.mean([update.rollout.reward_mean for update in updates]))


def cells(record: RunRecord) -> list[MinibatchRecord]:
    return [minibatch for update in record.updates for minibatch in update.minibatches]


def measure(record: RunRecord) -> Measures:
    updates, all_cells = record.updates, cells(record)
    k3 = np.array([cell.k3 for cell in all_cells])
    deviation = [max(abs(cell.ratio_min - 1), abs(cell.ratio_max - 1)) for cell in all_cells]
    edge = max(len(updates) // 10, 1)
    return Measures(
        score_first=score(updates[:edge]),
        score_last=score(updates[-edge:]),
        k3=float(np.nanmean(k3)),
        k3_max=float(np.nanmax(k3)),
        ratio_deviation_max=float(np.nanmax(deviation)),
        clip_fraction=float(np.nanmean([cell.clip_fraction for cell in all_cells])),
        policy_loss_max=float(np.nanmax(np.abs([cell.policy_loss for cell in all_cells]))),
        grad_norm=float(np.nanmean([cell.grad_norm for cell in all_cells if cell.stepped])),
        update_norm=float(np.nanmean([update.update_norm for update in updates])),
        probe_kl=float(np.nanmean([update.probe_kl for update in updates])),
        steps_mean=float(np.mean([update.optimizer_steps for update in updates])),
        entropy_first=all_cells[0].entropy,
        entropy_last=all_cells[-1].entropy,
    )
