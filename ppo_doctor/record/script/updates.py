"""Divide the optimizer steps of a script into updates, one per rollout batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ppo_doctor.record.script.steps import Step

#: How many times more often data enter the network in a step with a rollout than in one without.
ROLLOUT = 4


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How the first step of an update differs from the others: it alone draws samples, or has more network passes."""

    draws: bool
    passes: float


def rhythm_of(update: Sequence[Step], entries: set[int]) -> Rhythm | None:
    """Return the rhythm that a whole update shows, None if it has one step or all steps are alike."""
    if len(update) < 2:
        return None
    first, others = update[0], update[1:]
    inner = median(step.passes(entries) for step in others)
    draws = first.sampled and not any(step.sampled for step in others)
    return Rhythm(draws, (first.passes(entries) + inner) / 2) if draws or first.passes(entries) > inner else None


def starts(steps: Sequence[Step], entries: set[int], known: Rhythm | None) -> list[bool]:
    """Return for each step whether it is the first after a rollout.

    Rollouts draw samples. Where no draw was seen (NumPy, another process), or in every step, they are told by how often
    data enter the network: if all steps are alike, each has a rollout of its own. Unless the rhythm of earlier updates
    is known, the first step counts as the first of an update.
    """
    sampled = [step.sampled for step in steps]
    passes = [step.passes(entries) for step in steps]
    if known is not None:
        return sampled if known.draws else [count > known.passes for count in passes]
    if any(sampled) and not all(sampled[1:]):
        return [n == 0 or drawn for n, drawn in enumerate(sampled)]
    most, least = max(passes, default=0), min(passes, default=0)
    if all(sampled) and most < ROLLOUT * least:
        return [True] * len(steps)
    if most == least:
        return [n == 0 or least > 1 for n in range(len(steps))]
    return [n == 0 or count > (least + most) / 2 for n, count in enumerate(passes)]
