"""What a script built is remembered: which code computes rates, when schedules step, what sets layers to training."""

from __future__ import annotations

import functools
import gc
import sys

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from torch.optim.lr_scheduler import LambdaLR, StepLR  # noqa: E402

from ppo_doctor.record.script.built import SCHEDULED, Layers, Schedules  # noqa: E402
from ppo_doctor.record.script.places import Places  # noqa: E402
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


@pytest.fixture
def layers():
    return Layers(Places(__file__.rpartition("/")[0], ()))


def test_only_lines_of_networks_with_such_weights_are_returned_latest_first(layers):
    policy, critic = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    for network in (policy, critic):
        layers.set_to_training(network, sys._getframe())
    layers.set_to_training(policy, sys._getframe())
    weights = {id(policy.weight)}
    lines = [stack[0][1] for stack in layers.training_at(weights)]
    assert len(lines) == 2
    assert lines[0] > lines[1]
    assert layers.training_at(set()) == []
    del policy, critic, network
    gc.collect()
    assert layers.training_at(weights) == []


def test_the_first_layer_that_drops_anything_is_remembered(layers):
    layers.dropout_created(torch.nn.Dropout(0.0), sys._getframe())
    assert layers.dropout_at == ()
    layers.dropout_created(torch.nn.Dropout(0.1), sys._getframe())
    first = layers.dropout_at
    layers.dropout_created(torch.nn.Dropout(0.2), sys._getframe())
    assert layers.dropout_at == first != ()
