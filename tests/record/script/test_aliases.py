"""Two names of one network are found in the variables of a script."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="the group real-sb3 is not installed")

from ppo_doctor.record.script.aliases import Alias, alias_in  # noqa: E402


def net():
    return torch.nn.Linear(2, 2)


def local_names():
    policy = net()
    old_policy = policy
    return alias_in(sys._getframe()), old_policy


class Agent:
    def __init__(self, *, shared):
        self.actor = net()
        self.actor_old = self.actor if shared else net()

    def update(self):
        return alias_in(sys._getframe())


class Algorithm(torch.nn.Module):
    def __init__(self, *, shared):
        super().__init__()
        self.reference = net()
        self.policy = self.reference if shared else net()

    def update(self):
        return alias_in(sys._getframe())


def test_names_of_variables_attributes_and_submodules_are_found():
    assert local_names()[0] == Alias("old_policy", "policy")
    assert Agent(shared=True).update() == Alias("actor_old", "actor")
    assert Algorithm(shared=True).update() == Alias("reference", "policy")


def test_networks_of_their_own_and_two_names_of_the_policy_are_none():
    assert Agent(shared=False).update() is None
    assert Algorithm(shared=False).update() is None
    policy = net()
    model = policy
    empty = torch.nn.Identity()
    assert alias_in(sys._getframe()) is None
    assert (model, empty) != (None, None)
