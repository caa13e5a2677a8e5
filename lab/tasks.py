"""Small gymnasium tasks of our own: bandits, chains, contexts, continuous actions with a cost, and wrappers for them.

Only numpy and gymnasium are imported. `register()` makes them known as `lab/Chain-v0` and so on.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Contextual(gymnasium.Env[Any, Any]):
    """One step: of several arms the one that the context names pays 1 (a contextual bandit)."""

    def __init__(self, arms: int = 6, noise: float = 0.1) -> None:
        self.arms, self.noise = arms, noise
        self.observation_space = spaces.Box(0.0, 1.0, (arms,), np.float32)
        self.action_space = spaces.Discrete(arms)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.right = int(self.np_random.integers(self.arms))
        return np.eye(self.arms, dtype=np.float32)[self.right], {}

    def step(self, action: Any) -> Step:
        pays = float(int(action) == self.right) + self.noise * float(self.np_random.normal())
        return np.zeros(self.arms, np.float32), pays, True, False, {}


class Chain(gymnasium.Env[Any, Any]):
    """Walk right along a chain; a step costs, the end pays. With `sparse`, only the end pays."""

    def __init__(self, length: int = 12, sparse: bool = False) -> None:
        self.length, self.sparse = length, sparse
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _seen(self) -> Any:
        return np.eye(self.length, dtype=np.float32)[self.place]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self.time += 1
        self.place = int(np.clip(self.place + int(action) - 1, 0, self.length - 1))
        arrived = self.place == self.length - 1
        pays = 1.0 if arrived else 0.0 if self.sparse else -0.02
        return self._seen(), pays, arrived, not arrived and self.time >= 4 * self.length, {}


class Reach(gymnasium.Env[Any, Any]):
    """Push a point to a goal in two dimensions; distance and force cost. Continuous actions."""

    def __init__(self, steps: int = 40, cost: float = 0.05) -> None:
        self.steps, self.cost = steps, cost
        self.observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _seen(self) -> Any:
        return np.concatenate([self.place, self.speed, self.goal]).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed = self.np_random.uniform(-1, 1, 2), np.zeros(2)
        self.goal, self.time = self.np_random.uniform(-1, 1, 2), 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        force = np.clip(np.asarray(action, dtype=float).reshape(2), -1, 1)
        self.time += 1
        self.speed = 0.8 * self.speed + 0.15 * force
        self.place = np.clip(self.place + self.speed, -2, 2)
        pays = -float(np.linalg.norm(self.place - self.goal)) - self.cost * float(force @ force)
        return self._seen(), pays, False, self.time >= self.steps, {}


class Recall(gymnasium.Env[Any, Any]):
    """The sign shown in the first step is asked for in the last: a task for recurrent policies."""

    def __init__(self, delay: int = 5) -> None:
        self.delay = delay
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _seen(self) -> Any:
        shown = (2.0 * self.sign - 1.0) if self.time == 0 else 0.0
        return np.array([shown, self.time / self.delay, float(self.time == self.delay)], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.time = int(self.np_random.integers(2)), 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        ends = self.time == self.delay
        pays = float(int(action) == self.sign) if ends else 0.0
        self.time = min(self.time + 1, self.delay)
        return self._seen(), pays, ends, False, {}


class Masked(gymnasium.Env[Any, Any]):
    """Collect the numbered items in any order that is still allowed; `action_masks` says which are left."""

    def __init__(self, items: int = 6) -> None:
        self.items = items
        self.observation_space = spaces.Box(0.0, 1.0, (2 * items,), np.float32)
        self.action_space = spaces.Discrete(items)

    def action_masks(self) -> Any:
        return self.left.astype(bool)

    def _seen(self) -> Any:
        return np.concatenate([self.left, self.worth]).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.worth, self.time = np.ones(self.items), self.np_random.uniform(0, 1, self.items), 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self.time += 1
        pays = float(self.worth[int(action)] * self.left[int(action)]) / self.time
        self.left[int(action)] = 0.0
        return self._seen(), pays, self.time >= self.items, False, {}


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the right end of a corridor, left or right at each step; only the end pays."""

    def __init__(self, length: int = 8) -> None:
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _seen(self) -> Any:
        return np.eye(self.length, dtype=np.float32)[self.place]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self.time += 1
        self.place = int(np.clip(self.place + (1 if action else -1), 0, self.length - 1))
        arrived = self.place == self.length - 1
        return self._seen(), float(arrived), arrived, self.time >= 5 * self.length, {}


class Mass(gymnasium.Env[Any, Any]):
    """Drive a mass to the origin of a line: one continuous action, and the square of the distance costs."""

    def __init__(self, steps: int = 50) -> None:
        self.steps = steps
        self.observation_space = spaces.Box(-5.0, 5.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _seen(self) -> Any:
        return np.array([self.place, self.speed], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.speed, self.time = float(self.np_random.uniform(-2, 2)), 0.0, 0
        return self._seen(), {}

    def step(self, action: Any) -> Step:
        self.time += 1
        self.speed += 0.1 * float(np.asarray(action).reshape(1)[0])
        self.place = float(np.clip(self.place + 0.1 * self.speed, -5, 5))
        self.speed = float(np.clip(self.speed, -3, 3))
        return self._seen(), -(self.place**2) - 0.1 * self.speed**2, False, self.time >= self.steps, {}


class Scaled(gymnasium.RewardWrapper[Any, Any]):
    """Rewards times a factor, plus a constant."""

    def __init__(self, env: Any, factor: float = 1.0, offset: float = 0.0) -> None:
        super().__init__(env)
        self.factor, self.offset = factor, offset

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor + self.offset


class BreaksLater(gymnasium.RewardWrapper[Any, Any]):
    """A reward that is NaN from some step on, as of a normaliser that divides 0 by 0."""

    def __init__(self, env: Any, after: int = 1500) -> None:
        super().__init__(env)
        self.after, self.seen = after, 0

    def reward(self, reward: Any) -> float:
        self.seen += 1
        return float("nan") if self.seen > self.after else float(reward)


class BrokenObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A sensor that yields NaN from some step on."""

    def __init__(self, env: Any, after: int) -> None:
        super().__init__(env)
        self.after, self.seen = after, 0

    def observation(self, observation: Any) -> Any:
        self.seen += 1
        return observation * float("nan") if self.seen > self.after else observation


KINDS = (Contextual, Chain, Reach, Recall, Masked, Corridor, Mass)
TASKS = {kind.__name__: kind for kind in KINDS}


def register() -> None:
    """Make every task known to gymnasium.make as `lab/NAME-v0`; doing so twice changes nothing."""
    for name, made in TASKS.items():
        if f"lab/{name}-v0" not in gymnasium.registry:
            gymnasium.register(f"lab/{name}-v0", entry_point=made)
