"""Lines that set a network to training are remembered by the weights that the network has."""

from __future__ import annotations

import gc
import sys

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.layers import Layers  # noqa: E402
from ppo_doctor.record.script.places import Places  # noqa: E402


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
