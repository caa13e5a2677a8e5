"""Do episodes still go on where nothing is paid for them any more?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import median, same
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Fewest records at the end that have one return, and of those before; how much the lengths of episodes differ there.
FEWEST, VARIED = 8, 0.1


def returns_stopped(observations: Observations) -> Fact | None:
    """Return the share of the run, at its end, in which the return is exactly its least while their lengths differ.

    0 where returns go on varying, where the last is not the least, where episodes are alike there, or where hardly more
    was earned before: an episode's return is a sum over its steps.
    """
    returns, lengths = observations.run.series.get("episode_return"), observations.run.series.get("episode_length")
    if returns is None or lengths is None or returns.axis is not lengths.axis:
        return None
    known = np.isfinite(returns.values) & np.isfinite(lengths.values)
    values, sizes = returns.values[known], lengths.values[known]
    if len(values) < 2 * FEWEST:
        return None
    other = np.flatnonzero(~same(values, values[-1]))
    begins = int(other[-1]) + 1 if len(other) else 0
    tail = sizes[begins:]
    stopped = (
        begins >= FEWEST
        and len(tail) >= FEWEST
        and bool(same(values[-1:], values.min()).all())
        and float((~same(values[:begins], values[-1])).mean()) > 1 - VARIED
        and float(np.ptp(tail)) > VARIED * median(tail)
    )
    value = len(tail) / len(values) if stopped else 0.0
    span = f"{lengths.raw} {tail.min():g} to {tail.max():g}"
    says = f"{returns.raw} is {values[-1]:g} in the last {len(tail)} records, {span}"
    return Fact(name="returns_stopped", value=value, how="computed", source=returns.source(), says=says)
