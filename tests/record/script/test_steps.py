"""What a step keeps of the inputs of network passes."""

from __future__ import annotations

import pytest

from ppo_doctor.record.script.steps import Inputs, Step

ENTRY, INNER = 1, 2


def inputs(weight, *, graded):
    return Inputs(weight, None, graded, (), tokens=False, width=1, memory=(0, 0))


@pytest.mark.parametrize(
    ("graded", "rollout", "passes"),
    [(1, 0, 1), (1, 9, 10), (2, 2, 2), (0, 3, 3)],
)
def test_passes_are_counted_per_training_pass_at_the_entry(graded, rollout, passes):
    step = Step(0)
    step.inputs = [inputs(ENTRY, graded=True)] * graded + [inputs(ENTRY, graded=False)] * rollout
    step.inputs += [inputs(INNER, graded=False)] * 7
    assert step.passes({ENTRY}) == passes
    assert len(step.trained) == graded
