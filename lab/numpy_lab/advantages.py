"""Advantages: GAE, group normalisation, whitening; explained variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from .nets import F32
from .settings import Progress, Stages

GROUP_EPS = 1e-4
WHITEN_EPS = 1e-8


def gae(rewards: F32, values: F32, next_values: F32, cut: F32, gamma: float, gae_lambda: float) -> F32:
    """Time runs along axis 0. `cut` is 1 where the trajectory ends at this step (next_values is 0 if terminal)."""
    advantages = np.zeros_like(rewards)
    running = np.zeros_like(rewards[0])
    deltas = rewards + np.float32(gamma) * next_values - values
    for t in range(len(rewards) - 1, -1, -1):
        running = deltas[t] + np.float32(gamma * gae_lambda) * (1 - cut[t]) * running
        advantages[t] = running
    return advantages


def group_advantages(rewards: F32, stages: Stages, progress: Progress) -> tuple[F32, F32]:
    """Centred and normalised rewards; `rewards` is groups × generations."""
    centred: F32 = rewards - rewards.mean(axis=1, keepdims=True)
    std: F32 = rewards.std(axis=1, keepdims=True, ddof=1)
    return centred, centred / stages.group_scale(std, GROUP_EPS, progress)


def normalized(advantages: F32, mask: F32, *, guard: bool = True) -> F32:
    """Whitened over the tokens of the mask; a single token is left as it is, or NaN without the guard."""
    chosen = advantages[mask > 0]
    if chosen.size == 1 and not guard:
        return advantages * np.float32("nan")
    if chosen.size < 2:
        return advantages
    whitened: F32 = (advantages - chosen.mean()) / (chosen.std(ddof=1) + np.float32(WHITEN_EPS))
    return whitened


def explained_variance(values: F32, returns: F32) -> float:
    """NaN when the returns don't vary, as every framework writes it."""
    variance: Any = returns.var()
    return float("nan") if variance == 0 else float(1 - (returns - values).var() / variance)
