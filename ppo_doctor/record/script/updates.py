"""Divide the optimizer steps of a script into updates, one per rollout batch, and bound what observing them costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ppo_doctor.record.script.steps import Step

#: How many times more often data enter the network in a step with a rollout than in one without.
ROLLOUT = 4
#: How many times shorter than the longest a rollout may be; a pass over the batch that draws as well is shorter.
SHORT = 8
#: Largest share of the time since the first step that observed updates may add.
SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How the first step of an update differs from the others: it alone draws samples, or has more network passes.

    `passes` lies between those of the first step and of the others, `rollout` is those of the first step.
    """

    draws: bool
    passes: float
    rollout: float


def rhythm_of(update: Sequence[Step], entries: set[int]) -> Rhythm | None:
    """Return the rhythm that a whole update shows, None if it has one step or all steps are alike."""
    if len(update) < 2:
        return None
    first, others = update[0], update[1:]
    inner, rollout = median(step.passes(entries) for step in others), first.passes(entries)
    draws = first.sampled and not all(step.sampled for step in others)
    return Rhythm(draws, (rollout + inner) / 2, rollout) if draws or rollout > inner else None


def starts(steps: Sequence[Step], entries: set[int], known: Rhythm | None) -> list[bool]:
    """Return for each step whether it is the first after a rollout.

    Rollouts draw samples. Where no draw was seen (NumPy, another process), or in every step, they are told by how often
    data enter the network: if all steps are alike, each has a rollout of its own. Unless the rhythm of earlier updates
    is known, the first step counts as the first of an update.
    """
    sampled = [step.sampled for step in steps]
    passes = [step.passes(entries) for step in steps]
    if known is not None:
        if known.draws:
            return [drawn and count * SHORT >= known.rollout for drawn, count in zip(sampled, passes, strict=True)]
        return [count > known.passes for count in passes]
    if any(sampled) and not all(sampled[1:]):
        longest = max(count for count, drawn in zip(passes, sampled, strict=True) if drawn)
        return [n == 0 or (drawn and passes[n] * SHORT >= longest) for n, drawn in enumerate(sampled)]
    most, least = max(passes, default=0), min(passes, default=0)
    if all(sampled) and most < ROLLOUT * least:
        return [True] * len(steps)
    if most == least:
        return [n == 0 or least > 1 for n in range(len(steps))]
    return [n == 0 or count > (least + most) / 2 for n, count in enumerate(passes)]


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
