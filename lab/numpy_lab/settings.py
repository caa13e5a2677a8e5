"""What a run is asked to do: hyper-parameters, progress, and the stages that a fault may replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .nets import F32

if TYPE_CHECKING:
    from .agent import Agent, Batch
    from .records import RolloutRecord

Task = Literal["control", "language"]
Algorithm = Literal["ppo", "grpo"]
StopRule = Literal["sb3", "trl-legacy", "cleanrl"]
Normalize = Literal["minibatch", "batch", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The configuration as the user wrote it (and as the log's config repeats it)."""

    task: Task
    algorithm: Algorithm = "ppo"
    updates: int
    epochs: int = 4
    num_minibatches: int = 4
    shuffle: bool = True
    learning_rate: float = 1e-3
    anneal_lr: bool = False
    adam_eps: float = 1e-5
    optimizer: Literal["adam", "sgd"] = "adam"
    precision: str | None = None
    desired_kl: float | None = None
    critic_warmup: int = 0
    adaptive_kl_coef: bool = False
    loss_type: str | None = None
    max_grad_norm: float | None = 0.5
    clip_range: float = 0.2
    clip_range_vf: float | None = None
    target_kl: float | None = None
    stop_rule: StopRule = "sb3"
    normalize: Normalize = "minibatch"
    gamma: float = 0.99
    gae_lambda: float = 0.95
    ent_coef: float = 0.0
    vf_coef: float = 0.5  # times half the squared error
    kl_coef: float = 0.0
    hidden: tuple[int, ...] = (32, 32)
    num_envs: int = 8
    num_steps: int = 64
    reward_scale: float = 0.1  # what the learner sees of the environment's reward; episode returns stay raw
    num_prompts: int = 8
    num_generations: int = 8
    max_tokens: int = 8
    token_budget: int | None = None  # completions are cut here; None: at max_tokens
    episode_limit: int = 500
    continuous: bool = False  # control: the force is a real number, and the policy a Gaussian
    log_std_init: float = 0.0
    log_decimals: int | None = None  # the logger rounds to so many; None: written in full

    @property
    def rollout_size(self) -> int:
        """Units that minibatches are made of: environment steps, or sequences."""
        if self.task == "control":
            return self.num_envs * self.num_steps
        return self.num_prompts * self.num_generations

    @property
    def minibatch_size(self) -> int:
        return self.rollout_size // self.num_minibatches


@dataclass(frozen=True, slots=True)
class Progress:
    update: int
    updates: int

    def reached(self, fraction: float) -> bool:
        return self.update >= fraction * self.updates


def scheduled_learning_rate(config: TrainConfig, progress: Progress) -> float:
    if not config.anneal_lr:
        return config.learning_rate
    return config.learning_rate * (1.0 - progress.update / progress.updates)


def configured_epochs(config: TrainConfig) -> int:
    return config.epochs


def unchanged(values: F32, _progress: Progress) -> F32:
    return values


def guarded_std(std: F32, eps: float, _progress: Progress) -> F32:
    return std + eps


def stored_old_log_prob(batch: Batch, rows: Any, _agent: Agent) -> F32:
    stored: F32 = batch.old_log_prob[rows]
    return stored


def leave_alone(_batch: Batch, _agent: Agent) -> None:
    return None


def own_logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
    """What the sampler computes: the policy's own logits, rows of actions."""
    logits, _ = agent.actor.forward(inputs)
    return logits


def as_computed(log_prob: F32, _mask: F32) -> F32:
    return log_prob


def same_reference(_agent: Agent, _progress: Progress) -> None:
    return None


def true_clip_metric(ratio: F32, clip_range: float) -> F32:
    """Which samples the logged clip fraction counts: those outside the range on either side."""
    beyond: F32 = (np.abs(ratio - 1) > clip_range).astype(np.float32)
    return beyond


def whole_mask(mask: F32) -> F32:
    return mask


def as_backpropagated(grads: list[F32]) -> list[F32]:
    return grads


def own_parameters(agent: Agent) -> list[F32]:
    return agent.actor.params


def no_scaler() -> tuple[bool, float | None]:
    """Whether the loss scaler skips this step, and its scale."""
    return False, None


def after_nothing(_agent: Agent) -> None:
    return None


def configured_kl_coef(config: TrainConfig, _last_kl: float) -> float:
    return config.kl_coef


def paid_by_task(rewards: F32, _ages: Any, _progress: Progress) -> F32:
    """What the environment pays for a step, given the age of its episode in steps; episode returns add it up."""
    return rewards


def scored_by_verifier(scores: F32, _mask: F32, _prompts: Any, _progress: Progress) -> F32:
    return scores


def one_reward(_scores: F32, _mask: F32, _progress: Progress) -> dict[str, F32]:
    """The parts whose sum is the reward, by name; none where there is only one reward function."""
    return {}


def policy_rate(learning_rate: float) -> float:
    return learning_rate


def as_collected(batch: Batch, rollout: RolloutRecord, _progress: Progress) -> tuple[Batch, RolloutRecord]:
    """The batch that is trained on, and what is told of it."""
    return batch, rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The steps of training that faults replace; the defaults are correct PPO."""

    learning_rate: Callable[[TrainConfig, Progress], float] = scheduled_learning_rate
    observation: Callable[[F32, Progress], F32] = unchanged
    reward: Callable[[F32, Progress], F32] = unchanged
    advantages: Callable[[F32, Progress], F32] = unchanged
    group_scale: Callable[[F32, float, Progress], F32] = guarded_std
    epochs: Callable[[TrainConfig], int] = configured_epochs
    old_log_prob: Callable[[Batch, Any, Agent], F32] = stored_old_log_prob
    before_epoch: Callable[[Batch, Agent], None] = leave_alone
    before_minibatch: Callable[[Batch, Agent], None] = leave_alone
    rollout_logits: Callable[[Agent, F32, Progress], F32] = own_logits
    stored_logits: Callable[[Agent, F32, Progress], F32] | None = None  # None: the sampler's own
    stored_log_prob: Callable[[F32, F32], F32] = as_computed
    before_rollout: Callable[[Agent, Progress], None] = same_reference
    clip_metric: Callable[[F32, float], F32] = true_clip_metric
    loss_mask: Callable[[F32], F32] = whole_mask
    gradients: Callable[[list[F32]], list[F32]] = as_backpropagated
    trained: Callable[[Agent], list[F32]] = own_parameters
    held: Callable[[Agent], list[F32]] = own_parameters  # what the optimizer was given
    scaler: Callable[[], tuple[bool, float | None]] = no_scaler
    after_step: Callable[[Agent], None] = after_nothing
    kl_coef: Callable[[TrainConfig, float], float] = configured_kl_coef
    step_reward: Callable[[F32, Any, Progress], F32] = paid_by_task
    answer_parts: Callable[[F32, F32, Progress], dict[str, F32]] = one_reward
    answer_score: Callable[[F32, F32, Any, Progress], F32] = scored_by_verifier
    values: Callable[[F32, Progress], F32] = unchanged
    critic_rate: Callable[[float], float] = policy_rate
    batch: Callable[[Batch, RolloutRecord, Progress], tuple[Batch, RolloutRecord]] = as_collected
    estimator: Callable[..., F32] | None = None  # None: generalised advantage estimation
    judged: bool = False  # somebody looks at what the environment itself would have paid, and logs it
    guard_single: bool = True  # whitening leaves a single element as it is


@dataclass(frozen=True, slots=True)
class Setup:
    """What a fault receives and returns."""

    config: TrainConfig
    stages: Stages

    def with_config(self, **changes: Any) -> Setup:
        return replace(self, config=replace(self.config, **changes))

    def with_stages(self, **changes: Any) -> Setup:
        return replace(self, stages=replace(self.stages, **changes))
