"""Values that are not finite, or equal to their mean, are noted with the line that made them first."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.odd_values import OddValues, has_nan  # noqa: E402
from ppo_doctor.record.script.steps import Step  # noqa: E402

FIRST, SECOND, THIRD = (((compile(name, name, "exec"), 1),) for name in "abc")


def test_no_number_is_traced_to_infinities_through_what_passes_them_on():
    odd = OddValues()
    masked = torch.tensor([0.0, -torch.inf])
    odd.see_not_finite("masked_fill", (torch.zeros(2),), masked, -torch.inf, FIRST, 7)
    stacked = torch.stack([masked])
    odd.see_passed_on(([masked],), stacked)
    result = stacked.exp() * stacked
    odd.see_not_finite("mul", (stacked.exp(), stacked), result, torch.nan, SECOND, 7)
    odd.see_not_finite("mul", (result,), result * 2, torch.nan, THIRD, 7)
    assert (odd.not_finite, odd.infinite, odd.of_one) == (SECOND, FIRST, False)


@pytest.mark.parametrize(("values", "of_one"), [([1.0], True), ([1.0, torch.inf], False)])
def test_the_deviation_of_a_single_value_is_told_from_others(values, of_one):
    odd = OddValues()
    given = torch.tensor(values)
    odd.see_not_finite("std", (given,), torch.tensor(torch.nan), torch.nan, FIRST, 7)
    assert (odd.not_finite, odd.of_one) == (FIRST, of_one)


@pytest.mark.parametrize(("groups", "alone"), [(torch.ones(2, 3), False), (torch.rand(6, 1), True)])
def test_values_that_equal_their_mean_are_noted(groups, alone):
    odd, step = OddValues(), Step(0)
    mean = groups.mean(1, keepdim=True)
    odd.see_mean("mean", (groups,), mean, FIRST, step)
    odd.see_mean("sub", (groups, mean), groups - mean, SECOND, step)
    assert (step.zeroed, step.zeroed_alone) == (SECOND, alone)


def test_equal_values_without_a_mean_are_not():
    odd, step = OddValues(), Step(0)
    odd.see_mean("sub", (torch.ones(4), torch.ones(4)), torch.zeros(4), FIRST, step)
    assert step.zeroed == ()


def test_gradients_that_are_no_numbers_name_the_steep_operation():
    odd, step = OddValues(), Step(0, steep=FIRST)
    weight = torch.nn.Parameter(torch.zeros(1))
    odd.see_gradients([weight], step)
    assert odd.not_finite == ()
    weight.grad = torch.tensor([torch.nan])
    odd.see_gradients([weight], step)
    assert odd.not_finite == FIRST
    assert has_nan(weight.grad)


def test_what_rounding_leaves_of_equal_values_is_followed():
    odd, step = OddValues(), Step(0)
    rewards = torch.full((2, 3), 0.7)
    mean = (rewards.mean(1) + 6e-8).repeat_interleave(3).reshape(2, 3)
    odd.see_mean("mean", (rewards,), mean, FIRST, step)
    left = rewards - mean
    odd.see_mean("sub", (rewards, mean), left, SECOND, step)
    assert step.zeroed == SECOND
    scaled = left / 1e-7
    odd.see_rounding("div", (left, 1e-7), scaled)
    both = scaled + rewards
    odd.see_rounding("add", (scaled, rewards), both)
    assert odd.is_rounding(scaled)
    assert not odd.is_rounding(both)


def test_no_numbers_from_outside_are_noted_at_their_first_operation():
    odd = OddValues()
    given = torch.tensor([torch.nan])
    odd.see_not_finite("mul", (given, 2), given * 2, torch.nan, FIRST, 7)
    assert (odd.not_finite, odd.arrived, odd.step) == ((), FIRST, 7)
