"""Passes over a batch that a log hides: left out between its records, or rounded away."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, median
from ppo_doctor.derive.counters import marked
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: What is 0 in each record where the policy of every pass is the stored one.
DEPARTURES = ("ratio_departure", "clip_fraction", "clip_fraction_low", "clip_fraction_high")
#: Share of passes from which on a loss seems to repeat in all of them.
REPEATS = 0.9


def passes_hidden(observations: Observations) -> Fact | None:
    """Return the passes over a batch where the log hides all but the first, else None.

    Of several passes that are configured, or that the spacing of generations shows, none may have been executed, or
    each may have been compared with itself: a ratio of 1 and a loss that repeats show only where no step is left out
    and nothing is rounded away. None where a ratio or a clipped sample shows that later passes meet another policy
    than the stored one.
    """
    generation = marked(observations, "generation_marker")
    every = observations.run.series.get("loss") or observations.run.series.get("grad_norm")
    if generation is None or every is None or len(every) < 3:
        return None
    says = _left_out(observations, generation, every) or _rounded_away(observations)
    if not says or any(map(partial(_departs, observations), DEPARTURES)):
        return None
    return Fact(name="passes_hidden", value=1.0, how="observed", source=every.source(), says=says)


def _left_out(observations: Observations, generation: Series, every: Series) -> str:
    apart, configured = median(np.diff(every.axis.steps)), observations.fact("updates_planned")
    spaced = len(generation) > 2 and median(np.diff(generation.axis.steps)) > apart
    several = spaced or (configured is not None and float(str(configured.value)) > 1)
    if apart <= 1 or not several or observations.fact("updates_observed") is not None:
        return ""
    return f"records are {apart:g} optimizer steps apart and show no ratio but 1: log each step, or the ratio"


def _rounded_away(observations: Observations) -> str:
    """Tell where a loss seems to repeat from pass to pass, and is printed too coarsely to say so."""
    change = observations.series("loss_change_within_batch")
    if change is None or change.resolution.exact or not len(change):
        return ""
    if mean_of(change.values <= change.resolution.absolute) < REPEATS:
        return ""
    return f"{change.raw} is less than the log prints, and no ratio is but 1: log more digits, or the ratio"


def _departs(observations: Observations, name: str) -> bool:
    series = observations.series(name)
    return series is not None and bool(np.any(finite_of(series.values) > series.resolution.absolute))
