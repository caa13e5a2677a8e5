"""The critic and the sizes of batches: what predicts returns, and what statistics are taken over."""

from __future__ import annotations

import numpy as np

from ..nets import F32
from ..settings import Progress, Setup
from .registry import fault


def _critic(setup: Setup) -> Setup:
    if setup.config.algorithm != "ppo":
        raise ValueError("needs a critic")
    return setup


@fault(
    "critic-not-learning",
    description="the critic is frozen: its parameters get next to no step",
    severities="critic's learning rate × 1e-3, 1e-4, 0",
)
def critic_not_learning(setup: Setup, severity: int) -> Setup:
    share = {1: 1e-3, 2: 1e-4, 3: 0.0}[severity]
    return _critic(setup).with_stages(critic_rate=lambda rate: rate * share)


@fault(
    "critic-worse-than-mean",
    description="dropout is left on in the value head while sampling: predictions are mostly noise",
    severities="noise of 2, 4, 8 (language: 0.8, 1.6, 3.2) in the units of returns",
)
def critic_worse_than_mean(setup: Setup, severity: int) -> Setup:
    rng = np.random.default_rng(severity)
    size = {1: 1.0, 2: 2.0, 3: 4.0}[severity] * (2.0 if setup.config.task == "control" else 0.8)

    def noisy(values: F32, _progress: Progress) -> F32:
        return values + rng.normal(0, size, values.shape).astype(np.float32)

    return _critic(setup).with_stages(values=noisy)


@fault(
    "value-loss-explosion",
    description="one environment's reward term diverges (a body gains speed without bound), and with it the targets",
    severities="× 1.3, 1.6, 2.2 per update from 40 % of the run on",
    level_with={"*": ("nan-inf",)},
)
def value_loss_explosion(setup: Setup, severity: int) -> Setup:
    base = {1: 1.3, 2: 1.6, 3: 2.2}[severity]

    def diverging(rewards: F32, progress: Progress) -> F32:
        beyond = max(0.0, progress.update - 0.4 * progress.updates)
        grown = rewards.copy()
        grown[..., 0] *= np.float32(min(base**beyond, 1e18))
        if setup.config.task == "language":
            grown[0] = rewards[0] + np.float32(min(base**beyond, 1e18) - 1)
        return grown

    return _critic(setup).with_stages(reward=diverging)


@fault(
    "reward-scale-off",
    description="returns are in the hundreds or thousands, and nothing normalises them",
    severities="rewards × 300, 1000, 10000",
    level_with={"*": ("critic-not-learning",)},
)
def reward_scale_off(setup: Setup, severity: int) -> Setup:
    factor = np.float32({1: 300.0, 2: 1000.0, 3: 10000.0}[severity])

    def scaled(rewards: F32, _progress: Progress) -> F32:
        return rewards * factor

    return _critic(setup).with_stages(reward=scaled)


@fault(
    "rollout-too-small",
    description="a rollout of a handful of steps in one environment",
    severities="32, 16, 8 steps",
)
def rollout_too_small(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "control":
        raise ValueError("needs environment steps")
    return setup.with_config(num_envs=1, num_steps={1: 32, 2: 16, 3: 8}[severity], num_minibatches=1)


@fault(
    "minibatch-of-one",
    description="minibatches of one sample: the spread that advantages are divided by does not exist",
    severities="rollouts of 96, 64, 48 steps, as many minibatches",
    level_with={"*": ("nan-inf",)},
)
def minibatch_of_one(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "control":
        raise ValueError("needs whitening per minibatch")
    rows = {1: 24, 2: 16, 3: 12}[severity]
    alone = setup.with_config(num_envs=4, num_steps=rows, num_minibatches=4 * rows, epochs=1, normalize="minibatch")
    return alone.with_stages(guard_single=False)


@fault(
    "benign-converged",
    cause="healthy",
    description="short episodes that the policy soon masters: returns stay at their cap, and nothing is left to learn",
    severities="episodes of 60, 40, 30 steps (all sound)",
    verdict="healthy",
)
def benign_converged(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "control":
        raise ValueError("needs episodes")
    return setup.with_config(episode_limit={1: 60, 2: 40, 3: 30}[severity])
