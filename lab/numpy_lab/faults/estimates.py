"""What is known of returns: trajectories that leak into each other, critics that start over or may not move."""

from __future__ import annotations

import numpy as np

from ..advantages import gae
from ..agent import Agent
from ..nets import F32, MLP, Adam
from ..settings import Progress, Setup
from .registry import fault


def _control(setup: Setup) -> Setup:
    if setup.config.task != "control":
        raise ValueError("needs episodes")
    return setup


@fault(
    "gae-boundary-bug",
    description="advantages leak over the ends of episodes: a fall costs nothing, the next episode goes on paying",
    severities="gamma 0.98, 0.99, 0.995",
    level_with={"*": ("advantage-misaligned", "reward-too-sparse")},
)
def gae_boundary_bug(setup: Setup, severity: int) -> Setup:
    def endless(rewards: F32, values: F32, next_values: F32, cut: F32, gamma: float, gae_lambda: float) -> F32:
        following = np.concatenate([values[1:], next_values[-1:]])
        return gae(rewards, values, following, np.zeros_like(cut), gamma, gae_lambda)

    return _control(setup).with_config(gamma={1: 0.98, 2: 0.99, 3: 0.995}[severity]).with_stages(estimator=endless)


@fault(
    "trajectory-interleaving",
    description="rows of the buffer that follow each other belong to different environments, and GAE runs along them",
    severities="4, 8, 16 environments",
    level_with={"*": ("critic-not-learning", "advantage-misaligned")},
)
def trajectory_interleaving(setup: Setup, severity: int) -> Setup:
    def along_rows(rewards: F32, values: F32, next_values: F32, cut: F32, gamma: float, gae_lambda: float) -> F32:
        rows = values.reshape(-1, 1)
        following = np.concatenate([rows[1:], next_values[-1:, -1:]])
        ends = cut.reshape(-1, 1)
        following = following * (1 - ends)
        return gae(rewards.reshape(-1, 1), rows, following, ends, gamma, gae_lambda).reshape(values.shape)

    envs = {1: 4, 2: 8, 3: 16}[severity]
    steps = setup.config.num_envs * setup.config.num_steps // envs
    return _control(setup).with_config(num_envs=envs, num_steps=steps).with_stages(estimator=along_rows)


@fault(
    "value-clip-starves",
    description="the value clip range is far below the scale of the returns, so that the critic crawls",
    severities="range 0.003, 0.001, 0.0003",
    level_with={"*": ("critic-not-learning",)},
)
def value_clip_starves(setup: Setup, severity: int) -> Setup:
    return _control(setup).with_config(clip_range_vf={1: 3e-3, 2: 1e-3, 3: 3e-4}[severity])


@fault(
    "critic-cold-start",
    description="training resumes with the policy's weights and a critic with a random head",
    severities="at 35 % of the run, head × 30, 100, 300; lambda 0.5, which reaches as far in 8 tokens as 0.95 in 100",
)
def critic_cold_start(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm != "ppo" or setup.config.task != "language":
        raise ValueError("needs a critic of completions")
    gain = {1: 30.0, 2: 100.0, 3: 300.0}[severity]

    def lose_critic(agent: Agent, progress: Progress) -> None:
        critic = agent.critic
        if critic is None or progress.update != round(0.35 * progress.updates):
            return
        sizes = [param.shape[0] for param in critic.params[::2]] + [1]
        agent.critic = MLP(sizes, np.random.default_rng(severity), output_gain=0.1 * gain)
        agent.critic_optimizer = Adam(setup.config.adam_eps, setup.config.max_grad_norm)

    return setup.with_config(gae_lambda=0.5).with_stages(before_rollout=lose_critic)
