"""Did the policy move where the reward stopped?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records before the stop whose changes are usual, and the fewest of them.
USUAL, FEWEST = 8, 4
#: Changes of entropy below this share of what it was at most are none.
STILL = 0.01


def entropy_step_at_stop(observations: Observations) -> Fact | None:
    """Return the change of entropy where the reward stopped for good, over the largest of the records before.

    None where the reward did not stop, and where entropy is not known there. Infinite is never returned: a policy whose
    entropy stood still is compared with a hundredth of its largest entropy.
    """
    stopped, entropy = observations.series("reward_stopped"), observations.series("entropy")
    place = _place(stopped, entropy)
    if stopped is None or entropy is None or place is None:
        return None
    changes = np.abs(np.diff(entropy.values[: place + 1]))
    before, change = changes[-1 - USUAL : -1], changes[-1]
    if len(before) < FEWEST or not np.isfinite(changes[-1 - FEWEST :]).all():
        return None
    floor = STILL * float(np.nanmax(np.abs(entropy.values)))
    usual = max(float(np.nanmax(before)), floor)
    if not usual:
        return None
    says = f"{entropy.raw} changes by {change:.2g} where {stopped.raw} stops, and by up to {usual:.2g} before"
    value = float(change) / usual
    return Fact(name="entropy_step_at_stop", value=value, how="computed", source=entropy.source(), says=says)


def kl_at_stop(observations: Observations) -> Fact | None:
    """Return the larger KL of the two updates around the record where the reward stopped for good, in nats.

    0 where none is logged: entropy alone tells then. None where the reward did not stop.
    """
    stopped, kl = observations.series("reward_stopped"), observations.series("update_kl")
    if stopped is None or not (stopped.values > 0).any():
        return None
    place = _place(stopped, kl)
    around: FloatArray = np.zeros(1) if kl is None or place is None else kl.values[place - 1 : place + 1]
    if not np.isfinite(around).any():
        around = np.zeros(1)
    value = float(np.nanmax(around))
    says = f"KL {value:.2g} where {stopped.raw} stops"
    return Fact(name="kl_at_stop", value=value, how="computed", unit="nats", source=stopped.source(), says=says)


def _place(stopped: Series | None, other: Series | None) -> int | None:
    """Return the record of another series at which the reward stopped; None without both, or at the start."""
    if stopped is None or other is None or not (stopped.values > 0).any():
        return None
    step = stopped.axis.steps[int(np.argmax(stopped.values > 0))]
    place = int(np.searchsorted(other.axis.steps, step))
    return place if 1 <= place < len(other) else None
