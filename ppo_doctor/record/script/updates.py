"""Divide the optimizer steps of a script into updates, one per rollout batch."""

from __future__ import annotations

from collections.abc import Sequence

from ppo_doctor.record.script.steps import Step

#: How many times more often data enter the network in a step with a rollout than in one without.
ROLLOUT = 4


def starts(steps: Sequence[Step], entries: set[int], *, draws: bool) -> list[bool]:
    """Return for each step whether it is the first after a rollout; the first step counts as one.

    `draws` tells that rollouts of this run are known to draw samples, and other steps not to.

    Rollouts draw samples. Where no draw was seen (NumPy, another process), or in every step, they are told by how often
    data enter the network: if all steps are alike, each has a rollout of its own.
    """
    if not steps:
        return []
    sampled = [step.sampled for step in steps]
    calls = [step.passes(entries) for step in steps]
    if draws or any(sampled) and not all(sampled[1:]):
        return [n == 0 or drawn for n, drawn in enumerate(sampled)]
    most, least = max(calls), min(calls)
    if all(sampled) and most < ROLLOUT * least:
        return [True] * len(steps)
    if most == least:
        return [n == 0 or least > 1 for n in range(len(steps))]
    return [n == 0 or count > (least + most) / 2 for n, count in enumerate(calls)]
