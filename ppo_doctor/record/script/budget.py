"""Bound the time that observation takes from the training."""

from __future__ import annotations

#: Largest share of the time since the first step that observed updates may add.
SHARE = 0.05


class Budget:
    """What observed steps have added to the time of a run, against steps that were not observed."""

    def __init__(self) -> None:
        self._latest: float | None = None
        self._seconds = {False: 0.0, True: 0.0}
        self._steps = {False: 0, True: 0}

    def step(self, now: float, *, observed: bool) -> None:
        """Add the time since the step before, in seconds, to that of observed or of other steps."""
        if self._latest is not None:
            self._seconds[observed] += now - self._latest
            self._steps[observed] += 1
        self._latest = now

    def affords(self, updates: int) -> bool:
        """Return whether one more observed update, after so many, keeps the added time within its share."""
        if not self._steps[False]:
            return False
        added = self._seconds[True] - self._steps[True] * self._seconds[False] / self._steps[False]
        return added * (updates + 1) / max(updates, 1) <= SHARE * sum(self._seconds.values())
