"""Schedules tell the code that computes their rates, and whether they are stepped at each optimizer step."""

from __future__ import annotations

import functools
import sys

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from torch.optim.lr_scheduler import LambdaLR, StepLR  # noqa: E402

from ppo_doctor.record.script.places import Places  # noqa: E402
from ppo_doctor.record.script.schedules import SCHEDULED, Schedules  # noqa: E402
from ppo_doctor.record.script.steps import Step  # noqa: E402

STACK = ((compile("pass", "train.py", "exec"), 1),)


@pytest.fixture
def schedules():
    return Schedules(Places(__file__.rpartition("/")[0], ()))


def steps(scheduled: list[bool], rates: list[float]) -> list[Step]:
    found = []
    for n, (called, rate) in enumerate(zip(scheduled, rates, strict=True)):
        found.append(Step(n, learning_rate=rate, events=[(SCHEDULED, STACK)] if called else []))
    return found


def test_the_functions_of_rates_are_found_in_partial_functions_and_objects(schedules):
    class Rate:
        def __call__(self, _: int) -> float:
            return 1.0

    def rate(_: int, factor: float) -> float:
        return factor

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    made = [LambdaLR(optimizer, functools.partial(rate, factor=1.0)), LambdaLR(optimizer, Rate()), StepLR(optimizer, 1)]
    for schedule in made:
        schedules.created(schedule, sys._getframe())
    assert schedules.functions() == [Rate.__call__.__code__, rate.__code__]
    assert schedules.built_at()[0][0] is sys._getframe().f_code


@pytest.mark.parametrize(
    ("scheduled", "rates", "each_step", "varied"),
    [
        ([False, True, True, True], [0.4, 0.3, 0.2, 0.1], True, True),
        ([True, False, False, False], [0.1] * 4, False, False),
        ([False] * 4, [0.4, 0.4, 0.2, 0.1], False, True),
        ([True], [0.1], False, False),
    ],
)
def test_schedules_at_each_step_are_told_from_those_at_each_update(schedules, scheduled, rates, each_step, varied):
    schedules.note(steps(scheduled, rates))
    assert (schedules.each_step, schedules.varied) == (each_step, varied)
    schedules.note(steps([False], [0.1]))
    assert (schedules.each_step, schedules.varied) == (each_step, varied)
