"""Parts of a run: the records between two steps, under the same configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ppo_doctor.model import Fact, Run, Series

#: The fact that a run is the later part of a longer one.
CONTINUES = "continues"
#: First and last step to keep; None is open.
Steps = tuple[int | None, int | None]


def cut(series: Mapping[str, Series], steps: Steps) -> dict[str, Series]:
    """Return the records of each series within some steps; a series without any is left out."""
    if steps == (None, None):
        return dict(series)
    return {name: kept for name, s in series.items() if len(kept := within(s, steps))}


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
    low, high = steps
    held = series.axis.steps
    after = held >= (low if low is not None else held.min(initial=0))
    keep = np.flatnonzero(after & (held <= (high if high is not None else held.max(initial=0))))
    return replace(series, axis=series.axis.take(keep), values=series.values[keep])
