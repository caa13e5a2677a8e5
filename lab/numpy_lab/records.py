"""Raw records of a run, before any framework's windows and averages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .nets import F32
from .settings import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MinibatchArrays:
    """What the loss was computed from, and its gradient by the new log-probs; one element per token."""

    new_log_prob: F32
    old_log_prob: F32
    advantages: F32
    mask: F32
    gradient: F32


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateArrays:
    """The batch, and the actor's weights before and after; `weights`, `held` and `old_policy` are the live arrays.

    `held` is what the optimizer was given, `old_policy` the weights of a policy kept as the old one, if any.
    """

    raw_advantages: F32
    stored_log_prob: F32
    probe_log_prob: F32
    sampler_log_prob: F32 | None
    mask: F32
    before: list[F32]
    after: list[F32]
    weights: list[F32]
    held: list[F32]
    old_policy: list[F32] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinibatchRecord:
    """One minibatch: statistics before its own step; `stepped` is False when target_kl rejected it."""

    epoch: int
    minibatch: int
    tokens: int
    mask_fraction: float
    ratio_mean: float
    ratio_std: float
    ratio_min: float
    ratio_max: float
    k1: float
    k2: float
    k3: float
    clip_fraction: float
    clip_fraction_low: float
    clip_fraction_high: float
    policy_loss: float
    entropy: float
    entropy_unmasked: float
    ref_kl: float
    value_loss: float
    value_mse: float
    value_clip_fraction: float
    values_mean: float
    loss: float
    grad_norm: float
    value_grad_norm: float
    stepped: bool
    skipped: bool = False
    """The loss scaler threw the step away."""
    loss_scale: float | None = None
    logratio_advantage_corr: float = float("nan")
    arrays: MinibatchArrays | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Episode:
    end_step: int
    episode_return: float
    length: int
    judged: float | None = None
    """What the environment itself pays for the episode, where somebody looks at that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """What generation produced (language task)."""

    mean_length: float
    std_length: float
    min_length: int
    max_length: int
    mean_terminated_length: float
    min_terminated_length: int
    max_terminated_length: int
    truncated_fraction: float
    num_eos: int
    num_tokens: int
    score_mean: float
    score_std: float
    group_std_mean: float
    frac_reward_zero_std: float | None
    """None without groups."""
    ref_kl_sum: float
    neg_log_prob_sum: float
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean and standard deviation of each part of the reward, where it has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecord:
    """The signal side of one update: rewards, advantages, returns, values at rollout time."""

    steps: int
    reward_mean: float
    reward_std: float
    advantages_raw_mean: float
    advantages_raw_std: float
    advantages_mean: float
    advantages_std: float
    advantages_abs_max: float
    returns_mean: float
    returns_std: float
    values_mean: float
    values_std: float
    explained_variance: float
    episodes: tuple[Episode, ...] = ()
    completions: Completions | None = None
    #: mean, least and largest importance ratio of trainer and sampler after a mask, where there is one
    importance: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord:
    update: int
    global_step: int
    learning_rate: float
    clip_range: float
    rollout: RolloutRecord
    minibatches: tuple[MinibatchRecord, ...]
    update_norm: float
    value_update_norm: float | None
    """None without a critic."""
    optimizer_steps: int
    cumulative_epochs: int
    probe_kl: float
    work: float
    """Deterministic seconds at a nominal speed, from the work really executed (sampling + optimizer steps)."""
    update_work: float
    changed_fraction: float = float("nan")
    """Share of the actor's parameters that the update changed."""
    action_std: float | None = None
    """Mean standard deviation of a Gaussian policy after the update."""
    kl_coef: float | None = None
    rollout_kl: float | None = None
    arrays: UpdateArrays | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    fault: str
    task: str
    seed: int
    severity: int
    config: TrainConfig
    updates: tuple[UpdateRecord, ...]
