"""What broke first in a run whose numbers stop being finite, and what had grown before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.evidence import drawn
from ppo_doctor.story.model import Broken, Course

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model import Finding, Run, Series

#: What overflows: it grows until it is no longer finite.
OVERFLOWS = (
    *("grad_norm", "value_loss", "policy_loss", "loss", "ratio_max"),
    *("approx_kl", "approx_kl_k1", "approx_kl_k2", "ref_kl", "update_norm"),
)
#: The last records before the break in which growth shows, and how many come before them at least.
LAST, EARLIER = 3, 5
#: Growth: the largest of the last records, against the median of all before them.
GREW = 10


def broken(run: Run, shown: Iterable[Finding]) -> Broken | None:
    """Return which metrics of some checks were not finite first; None where these checks are of finite numbers."""
    spoken = dict.fromkeys(name for f in shown if f.link == "numerics" for e in f.evidence for name in drawn(e, run))
    ends = {name: place for name in spoken if (place := _end(run.series[name])) is not None}
    if not ends:
        return None
    steps = {name: int(run.series[name].axis.steps[place]) for name, place in ends.items()}
    step = min(steps.values())
    first = [run.series[name] for name in ends if steps[name] == step]
    logged = [run.series[name] for name in OVERFLOWS if name in run.series]
    grown = [found for series in logged for found in _growth(series, step)]
    return Broken(
        step=step,
        keys=tuple(series.raw for series in first),
        value=float(first[0].values[ends[first[0].name]]),
        grew=max(grown, key=lambda pair: pair[0])[1] if grown else None,
    )


def _end(series: Series) -> int | None:
    """Return the place of the first number that is not finite."""
    places = np.flatnonzero(~np.isfinite(series.values))
    return int(places[0]) if len(places) else None


def _growth(series: Series, step: int) -> Iterable[tuple[float, Course]]:
    """Yield how many times larger a metric was right before a step than before that, if it had grown."""
    before = np.abs(series.values[(series.axis.steps < step) & np.isfinite(series.values)])
    if len(before) < LAST + EARLIER:
        return
    usual, last = float(np.median(before[:-LAST])), float(before[-LAST:].max())
    if last >= GREW * usual > 0:
        yield last / usual, Course(word=series.name, key=series.raw, first=usual, last=last)
