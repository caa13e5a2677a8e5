"""Steps are divided into updates by the rollouts between them."""

from __future__ import annotations

import pytest

from ppo_doctor.record.script.steps import Inputs, Step
from ppo_doctor.record.script.updates import starts

ENTRY = 1


def steps(*passes, sampled=()):
    """Return steps with a training pass and so many passes before it; those at some places drew samples."""
    found = []
    for number, count in enumerate(passes):
        step = Step(number, sampled=number in sampled)
        step.inputs = [Inputs(ENTRY, None, graded, (), tokens=False) for graded in [True] + [False] * count]
        found.append(step)
    return found


@pytest.mark.parametrize(
    ("seen", "draws", "expected"),
    [
        ([], False, []),
        # draws tell rollouts from training
        (steps(8, 0, 0, 8, 0, sampled=(0, 3)), False, [0, 3]),
        (steps(8, 0, 0, 0, sampled=(0,)), True, [0]),
        # rollouts in NumPy or another process: by passes
        (steps(8, 0, 0, 8, 0, 0), False, [0, 3]),
        # samples are drawn in every step, as dropout does
        (steps(8, 0, 0, 8, 0, 0, sampled=range(6)), False, [0, 3]),
        # one step per rollout
        (steps(4, 4, 4, sampled=range(3)), False, [0, 1, 2]),
        (steps(4, 4, 4), False, [0, 1, 2]),
        # nothing seen of the rollouts: one update
        (steps(0, 0, 0), False, [0]),
    ],
)
def test_an_update_begins_after_a_rollout(seen, draws, expected):
    begins = starts(seen, {ENTRY}, draws=draws)
    assert [number for number, begin in enumerate(begins) if begin] == expected
