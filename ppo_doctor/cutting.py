"""Parts of a run: the records between two steps, under the same configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import Fact, Run, Series

if TYPE_CHECKING:
    from ppo_doctor.model import Axis, IntArray

#: The fact that a run is the later part of a longer one.
CONTINUES = "continues"
#: First and last step to keep; None is open.
Steps = tuple[int | None, int | None]


def cut(series: Mapping[str, Series], steps: Steps) -> dict[str, Series]:
    """Return the records of each series within some steps; a series without any is left out.

    Series of one axis have one axis afterwards: that is how quantities of the same records are known.
    """
    if steps == (None, None):
        return dict(series)
    axes = {id(s.axis): s.axis for s in series.values()}
    parts = {key: _part(axis, steps) for key, axis in axes.items()}
    cut_off = {name: _taken(s, *parts[id(s.axis)]) for name, s in series.items()}
    return {name: kept for name, kept in cut_off.items() if len(kept)}


def since(run: Run, step: int) -> Run:
    """Return the run from a step on; its facts and its configuration hold for each part of it.

    A fact of its own says that something came before, for what lags behind: returns, and their moving averages.
    """
    before = Fact(name=CONTINUES, value=True, how="computed", says=f"the part from step {step} on")
    return replace(run, series=cut(run.series, (step, None)), facts={**run.facts, CONTINUES: before})


def until(run: Run, step: int) -> Run:
    """Return the run before a step, under the same configuration."""
    return replace(run, series=cut(run.series, (None, step - 1)))


def within(series: Series, steps: Steps) -> Series:
    """Return the records of one series within some steps."""
    return _taken(series, *_part(series.axis, steps))


def _part(axis: Axis, steps: Steps) -> tuple[Axis, IntArray]:
    """Return the part of an axis within some steps, and the places of its records."""
    low, high = steps
    held = axis.steps
    after = held >= (low if low is not None else held.min(initial=0))
    keep = np.flatnonzero(after & (held <= (high if high is not None else held.max(initial=0))))
    return axis.take(keep), keep


def _taken(series: Series, axis: Axis, keep: IntArray) -> Series:
    return replace(series, axis=axis, values=series.values[keep])
