"""The stretches of a run: what the schedules say, and whether the log has holes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import IntArray, Series

#: A distance between records this many times the usual one is a hole in the log.
HOLE = 5


@frozen(kw_only=False)
class Phase:
    """A stretch of steps and what marks it."""

    name: str
    first: int
    last: int
    because: str


def schedule_phases(observations: Observations) -> tuple[Phase, ...]:
    """Return the stretches in which the learning rate rises, holds and falls; a single value is one constant phase."""
    series = observations.run.series.get("learning_rate")
    if series is None or np.isfinite(series.values).sum() < 3:
        return ()
    keep = np.isfinite(series.values)
    values, steps = series.values[keep], series.axis.steps[keep]
    slack = 1e-9 * float(np.abs(values).max())
    direction = np.sign(np.where(np.abs(np.diff(values)) <= slack, 0.0, np.diff(values))).astype(np.int64)
    starts = np.flatnonzero(np.append(True, direction[1:] != direction[:-1]))
    ends = np.append(starts[1:], len(direction))
    if len(starts) > 6:
        return (Phase("controlled", int(steps[0]), int(steps[-1]), f"{series.raw} goes up and down"),)
    return tuple(
        _phase(series, steps, values, int(a), int(b), int(direction[a])) for a, b in zip(starts, ends, strict=True)
    )


def _phase(series: Series, steps: IntArray, values: object, start: int, end: int, direction: int) -> Phase:
    name = {1: "warm-up", 0: "constant", -1: "decay"}[direction]
    held = np.asarray(values)
    because = f"{series.raw} {held[start]:.3g} → {held[end]:.3g}"
    return Phase(name, int(steps[start]), int(steps[end]), because)


def holes(series: Series) -> tuple[tuple[int, int], ...]:
    """Return the (step before, step after) of stretches without a record that are far longer than usual."""
    gaps = np.diff(series.axis.steps)
    if len(gaps) < 3:
        return ()
    usual = max(1.0, median(gaps))
    return tuple(
        (int(series.axis.steps[i]), int(series.axis.steps[i + 1])) for i in np.flatnonzero(gaps > HOLE * usual)
    )
