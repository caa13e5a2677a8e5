"""What becomes of weights that no hook can watch: those of NumPy and JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ppo_doctor.record import measures
from ppo_doctor.record.kinds import Array, Tensor
from ppo_doctor.record.memory import held_share
from ppo_doctor.record.tally import of_weights
from ppo_doctor.record.transfer import Parcel
from ppo_doctor.record.weights import LEAST, ONE_IN, SEED

Arrays = Callable[[], Iterable[Any]]


class ArrayWeights:
    """Looks at a policy's arrays before and after an update; the loop itself tells of steps and gradients.

    Args:
        model: returns the policy's arrays as they are now, always in the same order.
        optimizer: returns the arrays that the optimizer steps, if that can be told.
    """

    def __init__(self, model: Arrays, optimizer: Arrays | None = None) -> None:
        self.model, self._held = model, optimizer
        self.parameters: list[Any] = []
        self.optimizer = None
        self.executed = 0
        self._before: list[Any] = []

    def close(self) -> None:
        """There are no hooks to take away."""

    def start(self) -> None:
        """Remember the watched coordinates."""
        self._before = [_watched(array, place) for place, array in enumerate(self.model())]

    def own(self, log_prob: Tensor) -> None:
        """All arrays are the policy's: there is no graph to walk."""

    def discard_step(self) -> None:
        """There are no gradients to forget."""

    def finish(self, parcel: Parcel, loss_scale: Tensor = None) -> None:  # noqa: ARG002 - gradients are told unscaled
        """Add the movement of every array."""
        before, self._before = self._before, []
        now = list(self.model()) if before else []
        moved = [_moved(old, _watched(new, n), new.size) for n, (old, new) in enumerate(zip(before, now, strict=True))]
        for row in moved:
            parcel.add("moved", row)

    def movement(self, rows: Array) -> dict[str, float]:
        """Return norm and share of the change, from the rows of `finish`."""
        return of_weights(rows, range(len(rows)))

    def matched(self) -> float | None:
        """Return the share of the policy's arrays that the optimizer steps, by identity."""
        if self._held is None:
            return None
        held = {id(array) for array in self._held()}
        policy = list(self.model())
        return held_share(policy, (array for array in policy if id(array) in held))

    def learning_rate(self) -> None:
        """The loop tells it."""


def _watched(array: Tensor, place: int) -> Tensor:
    """Return a copy of the fixed coordinates to watch; of a small array, all."""
    flat = array.reshape(-1)
    wanted = max(LEAST, array.size // ONE_IN)
    if array.size <= wanted:
        return flat.copy()
    return flat[np.random.default_rng(SEED + place).integers(array.size, size=wanted)]


def _moved(before: Tensor, after: Tensor, size: int) -> Tensor:
    """Return [squared change, changed weights, weights] of an array, scaled up from the watched coordinates."""
    xp = measures.namespace(after)
    scale = size / max(before.size, 1)
    change = after.astype(xp.float32) - before.astype(xp.float32)
    changed = xp.sum(xp.where(after != before, 1.0, 0.0)) * scale
    return xp.stack([xp.sum(change**2) * scale, changed, xp.asarray(float(size))])
