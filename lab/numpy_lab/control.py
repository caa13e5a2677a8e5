"""Control task: vectorised CartPole with a step limit, rollouts with bootstrapped truncation, GAE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .advantages import explained_variance, gae
from .agent import Agent, Batch
from .nets import F32, Int
from .records import Episode, RolloutRecord
from .settings import Progress, Setup

F64 = npt.NDArray[np.float64]
FEATURES, ACTIONS = 4, 2

_GRAVITY, _MASS_POLE, _MASS_TOTAL, _HALF_LENGTH, _FORCE, _DT = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02
_X_LIMIT, _ANGLE_LIMIT = 2.4, 12 * np.pi / 180


@dataclass(frozen=True, slots=True)
class Transition:
    rewards: F32
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    last_observation: F32
    """What the step led to, before the automatic reset."""


class CartPole:
    """The classic dynamics (Euler, 0.02 s); an episode ends by falling, leaving the track, or at `limit` steps.

    A step earns 1, less up to a half for leaning, so that rewards vary within an episode.
    """

    def __init__(self, num_envs: int, rng: np.random.Generator, limit: int = 500) -> None:
        self.rng, self.limit, self.global_step = rng, limit, 0
        self.state: F64 = rng.uniform(-0.05, 0.05, (num_envs, FEATURES))
        self.age: Int = np.zeros(num_envs, np.int64)
        self.total: F64 = np.zeros(num_envs)
        self.earned: F64 = np.zeros(num_envs)
        self.judged = False
        self.finished: list[Episode] = []
        self.pay: Callable[[F32, Int], F32] = lambda rewards, _ages: rewards

    @property
    def observation(self) -> F32:
        return self.state.astype(np.float32)

    def step(self, actions: Any) -> Transition:
        self.state = _euler(self.state, _force(actions))
        self.age += 1
        earned = (1 - 0.5 * np.square(self.state[:, 2] / _ANGLE_LIMIT)).astype(np.float32)
        rewards = self.pay(earned, self.age)
        self.total += rewards
        self.earned += earned
        self.global_step += len(self.state)
        terminated = (np.abs(self.state[:, 0]) > _X_LIMIT) | (np.abs(self.state[:, 2]) > _ANGLE_LIMIT)
        truncated = ~terminated & (self.age >= self.limit)
        transition = Transition(rewards, terminated, truncated, self.observation)
        self._reset(np.flatnonzero(terminated | truncated))
        return transition

    def _reset(self, ended: npt.NDArray[np.intp]) -> None:
        for index in ended:
            judged = float(self.earned[index]) if self.judged else None
            self.finished.append(Episode(self.global_step, float(self.total[index]), int(self.age[index]), judged))
        self.state[ended] = self.rng.uniform(-0.05, 0.05, (len(ended), FEATURES))
        self.age[ended] = 0
        self.total[ended] = self.earned[ended] = 0.0

    def pop_finished(self) -> tuple[Episode, ...]:
        episodes, self.finished = tuple(self.finished), []
        return episodes


def _force(actions: Any) -> F64:
    """Newtons: full force to the left or right, or (real numbers) a share of it, cut off at ±1."""
    if actions.dtype.kind == "f":
        share: F64 = np.clip(actions[:, 0], -1, 1).astype(np.float64)
        return _FORCE * share
    return np.where(actions == 1, _FORCE, -_FORCE)


def _euler(state: F64, force: F64) -> F64:
    x, x_dot, theta, theta_dot = state.T
    sin, cos = np.sin(theta), np.cos(theta)
    pole = _MASS_POLE * _HALF_LENGTH
    push = (force + pole * theta_dot**2 * sin) / _MASS_TOTAL
    theta_acc = (_GRAVITY * sin - cos * push) / (_HALF_LENGTH * (4 / 3 - _MASS_POLE * cos**2 / _MASS_TOTAL))
    x_acc = push - pole * theta_acc * cos / _MASS_TOTAL
    moved = (x + _DT * x_dot, x_dot + _DT * x_acc, theta + _DT * theta_dot, theta_dot + _DT * theta_acc)
    return np.stack(moved, axis=1)


@dataclass(slots=True)
class _Trace:
    """Time × environments."""

    inputs: F32
    actions: Any
    rewards: F32
    terminated: F32
    truncated: F32
    landings: F32

    @classmethod
    def empty(cls, steps: int, envs: int, *, continuous: bool) -> _Trace:
        actions: Any = np.zeros((steps, envs, 1), np.float32) if continuous else np.zeros((steps, envs), np.int64)
        zeros = np.zeros((4, steps, envs), np.float32)
        wide = np.zeros((2, steps, envs, FEATURES), np.float32)
        return cls(wide[0], actions, zeros[0], zeros[1], zeros[2], wide[1])


class ControlTask:
    features = FEATURES

    def __init__(self, setup: Setup, rng: np.random.Generator) -> None:
        self.setup, self.rng = setup, rng
        self.actions = 1 if setup.config.continuous else ACTIONS
        self.envs = CartPole(setup.config.num_envs, rng, setup.config.episode_limit)
        self.envs.judged = setup.stages.judged

    @property
    def global_step(self) -> int:
        return self.envs.global_step

    def rollout(self, agent: Agent, progress: Progress) -> tuple[Batch, RolloutRecord]:
        trace = self._collect(agent, progress)
        config = self.setup.config
        values = self.setup.stages.values(agent.value(trace.inputs), progress)
        next_values = np.concatenate([values[1:], agent.value(self._observe(progress))[None]])
        cut = np.maximum(trace.terminated, trace.truncated)
        bootstrap = np.where(trace.truncated > 0, agent.value(trace.landings), np.float32(0))
        next_values = np.where(cut > 0, bootstrap, next_values)
        rewards = self.setup.stages.reward(trace.rewards * np.float32(config.reward_scale), progress)
        estimate = self.setup.stages.estimator or gae
        raw = estimate(rewards, values, next_values, cut, config.gamma, config.gae_lambda)
        old_log_prob = self._stored_log_prob(agent, trace, progress)
        advantages = self.setup.stages.advantages(raw, progress)
        batch = self._batch(trace, old_log_prob, values, advantages, raw + values)
        return batch, self._record(batch, rewards)

    def _observe(self, progress: Progress) -> F32:
        return self.setup.stages.observation(self.envs.observation, progress)

    def _collect(self, agent: Agent, progress: Progress) -> _Trace:
        config = self.setup.config
        trace = _Trace.empty(config.num_steps, config.num_envs, continuous=config.continuous)
        self.envs.pay = lambda rewards, ages: self.setup.stages.step_reward(rewards, ages, progress)
        for t in range(config.num_steps):
            trace.inputs[t] = self._observe(progress)
            logits = self.setup.stages.rollout_logits(agent, trace.inputs[t], progress)
            trace.actions[t] = agent.distribution.sample(logits, self.rng)
            step = self.envs.step(trace.actions[t])
            trace.rewards[t], trace.landings[t] = step.rewards, step.last_observation
            trace.terminated[t], trace.truncated[t] = step.terminated, step.truncated
        return trace

    def _stored_log_prob(self, agent: Agent, trace: _Trace, progress: Progress) -> F32:
        stages = self.setup.stages
        logits = (stages.stored_logits or stages.rollout_logits)(agent, trace.inputs.reshape(-1, FEATURES), progress)
        actions = trace.actions.reshape(-1, *trace.actions.shape[2:])
        log_prob = agent.distribution.log_prob(logits, actions)[:, None]
        return self.setup.stages.stored_log_prob(log_prob, np.ones(log_prob.shape, np.float32))

    @staticmethod
    def _batch(trace: _Trace, old_log_prob: F32, values: F32, advantages: F32, returns: F32) -> Batch:
        def units(array: Any) -> Any:
            return array.reshape(-1, 1, *array.shape[2:])

        inputs, actions = units(trace.inputs), units(trace.actions)
        return Batch(
            inputs=inputs,
            actions=actions,
            mask=np.ones(old_log_prob.shape, np.float32),
            old_log_prob=old_log_prob,
            sampled_log_prob=old_log_prob.copy(),
            ref_log_prob=None,
            values=units(values),
            advantages=units(advantages),
            returns=units(returns),
        )

    def _record(self, batch: Batch, rewards: F32) -> RolloutRecord:
        raw = batch.advantages
        scale = raw.std() + np.float32(1e-8)
        used = (raw - raw.mean()) / scale if self.setup.config.normalize != "none" else raw
        return RolloutRecord(
            steps=rewards.size,
            reward_mean=float(rewards.mean()),
            reward_std=float(rewards.std()),
            advantages_raw_mean=float(raw.mean()),
            advantages_raw_std=float(raw.std()),
            advantages_mean=float(used.mean()),
            advantages_std=float(used.std()),
            advantages_abs_max=float(np.abs(used).max()),
            returns_mean=float(batch.returns.mean()),
            returns_std=float(batch.returns.std()),
            values_mean=float(batch.values.mean()),
            values_std=float(batch.values.std()),
            explained_variance=explained_variance(batch.values, batch.returns),
            episodes=self.envs.pop_finished(),
        )
