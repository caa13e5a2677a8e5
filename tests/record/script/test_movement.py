"""How far weights move, and which steps round away."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.movement import Movement  # noqa: E402


def step(parameters, movement, change):
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, change)
    movement.before_step(parameters)
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(change)
    return movement.after_step()


def test_the_change_of_an_update_is_the_norm_over_its_steps():
    weights, movement = [torch.nn.Parameter(torch.zeros(3, 3))], Movement()
    assert movement.end(at_latest_step=False) == {}
    assert [step(weights, movement, 0.1) for _ in range(3)] == [None] * 3
    assert movement.end(at_latest_step=True)["update_norm"] == pytest.approx(0.6)
    end = movement.end(at_latest_step=False)
    assert end == {"update_norm": pytest.approx(0.9), "changed_fraction": 1.0}
    movement.begin()
    assert movement.end(at_latest_step=False)["update_norm"] == pytest.approx(0.3)


def test_frozen_parameters_are_left_out():
    weights, frozen = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    movement = Movement()
    movement.before_step([weights, frozen])
    with torch.no_grad():
        weights += 1
    assert movement.end(at_latest_step=False) == {"update_norm": pytest.approx(2.0), "changed_fraction": 1.0}


@pytest.mark.parametrize(("change", "share"), [(1e-4, 1.0), (0.5, 0.0)])
def test_steps_of_bfloat16_that_round_away_are_counted(change, share):
    weights = [torch.nn.Parameter(torch.ones(8, dtype=torch.bfloat16))]
    assert step(weights, Movement(), change) == share


def test_weights_without_a_gradient_do_not_count_as_rounded_away():
    weights = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    weights.grad = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.bfloat16)
    movement = Movement()
    movement.before_step([weights])
    with torch.no_grad():
        weights[2] += 1
    assert movement.after_step() == 0.5
