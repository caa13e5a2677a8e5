"""The clipped surrogate and the value loss on one minibatch: losses, statistics and gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .distributions import distribution
from .nets import F32
from .settings import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A minibatch, flattened to tokens."""

    inputs: F32
    actions: Any
    mask: F32
    old_log_prob: F32
    ref_log_prob: F32 | None
    advantages: F32
    values: F32
    returns: F32

    def mean(self, x: F32) -> float:
        return float((x * self.mask).sum() / np.maximum(self.mask.sum(), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTerms:
    new_log_prob: F32
    d_log_prob: F32
    log_ratio: F32
    ratio: F32
    clipped_low: F32
    clipped_high: F32
    policy_loss: float
    entropy: float
    entropy_unmasked: float
    ref_kl: float
    d_outputs: F32


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTerms:
    loss: float
    mse: float
    clip_fraction: float
    mean: float
    d_values: F32


def policy_terms(outputs: F32, rows: Rows, config: TrainConfig) -> PolicyTerms:
    taken = distribution(continuous=config.continuous).evaluate(outputs, rows.actions)
    entropies, new = taken.entropy, taken.log_prob
    log_ratio = new - rows.old_log_prob
    ratio = np.exp(log_ratio)
    low, high = effective_clip(ratio, rows.advantages, config.clip_range)
    clipped = np.clip(ratio, np.float32(1 - config.clip_range), np.float32(1 + config.clip_range))
    surrogate = np.minimum(ratio * rows.advantages, clipped * rows.advantages)
    ref_kl, d_ref = reference_penalty(new, rows, config)
    alive = (low == 0) & (high == 0)
    d_log_prob = d_ref - np.where(alive, ratio * rows.advantages, np.float32(0))
    return PolicyTerms(
        new_log_prob=new,
        d_log_prob=d_log_prob * rows.mask / np.maximum(rows.mask.sum(), 1),
        log_ratio=log_ratio,
        ratio=ratio,
        clipped_low=low,
        clipped_high=high,
        policy_loss=-rows.mean(surrogate),
        entropy=rows.mean(entropies),
        entropy_unmasked=float(entropies.mean()),
        ref_kl=ref_kl,
        d_outputs=taken.pull(d_log_prob, config.ent_coef) * _weight(rows)[:, None],
    )


def effective_clip(ratio: F32, advantages: F32, clip_range: float) -> tuple[F32, F32]:
    """Tokens whose gradient the clip really cuts, below and above (as TRL and verl count them)."""
    low = (ratio < 1 - clip_range) & (advantages < 0)
    high = (ratio > 1 + clip_range) & (advantages > 0)
    return low.astype(np.float32), high.astype(np.float32)


def reference_penalty(new: F32, rows: Rows, config: TrainConfig) -> tuple[float, F32]:
    """k3 to the reference; its gradient enters the loss in GRPO only (PPO has it in the reward)."""
    if rows.ref_log_prob is None:
        return float("nan"), np.zeros_like(new)
    delta = rows.ref_log_prob - new
    kl = rows.mean(np.exp(delta) - 1 - delta)
    weight = np.float32(config.kl_coef if config.algorithm == "grpo" else 0.0)
    return kl, weight * (1 - np.exp(delta))


def _weight(rows: Rows) -> F32:
    weight: F32 = rows.mask / np.maximum(rows.mask.sum(), 1)
    return weight


def value_terms(values: F32, rows: Rows, config: TrainConfig) -> ValueTerms:
    """0.5 · mean squared error, with the pessimistic value clip where configured."""
    error = values - rows.returns
    chosen, gradient = np.square(error), error
    clip_fraction = 0.0
    if config.clip_range_vf is not None:
        limit = np.float32(config.clip_range_vf)
        clipped_error = rows.values + np.clip(values - rows.values, -limit, limit) - rows.returns
        worse = np.square(clipped_error) > chosen
        inside = np.abs(values - rows.values) <= limit
        gradient = np.where(worse & ~inside, np.float32(0), error)
        chosen = np.maximum(chosen, np.square(clipped_error))
        clip_fraction = rows.mean(worse.astype(np.float32))
    weight = np.float32(config.vf_coef) * rows.mask / np.maximum(rows.mask.sum(), 1)
    return ValueTerms(
        loss=0.5 * rows.mean(chosen),
        mse=rows.mean(np.square(error)),
        clip_fraction=clip_fraction,
        mean=rows.mean(values),
        d_values=gradient * weight,
    )
