"""The configured number of epochs is found in the variables of a script."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import pytest

from ppo_doctor.record.script.settings import passes_configured


@dataclass
class Config:
    update_epochs: int = 4
    clip: float = 0.2


class Options(NamedTuple):
    epochs: int = 3
    target_kl: float = 0.01


@dataclass(slots=True)
class Slotted:
    n_epochs: int = 2


class Trainer:
    def __init__(self, config):
        self.config = config

    def train(self):
        return passes_configured([sys._getframe()])


def of_local():
    n_epochs = 5
    return passes_configured([sys._getframe()]), n_epochs


def of_variable(dist):  # noqa: ARG001 - it is found in the frame
    return passes_configured([sys._getframe()])


def test_the_number_is_found_where_scripts_keep_it():
    assert of_local()[0] == {"n_epochs": 5}
    assert Trainer(Config()).train() == {"n_epochs": 4}
    assert Trainer(argparse.Namespace(ppo_epochs=6, lr=0.1)).train() == {"n_epochs": 6}
    assert Trainer({"K_epochs": 7}).train() == {"n_epochs": 7}
    assert of_variable(Options()) == {"n_epochs": 3, "target_kl": 0.01}
    assert of_variable(Slotted()) == {"n_epochs": 2}
    assert of_variable([Slotted, Options]) == {}


@pytest.mark.parametrize("values", [{"n_epochs": True}, {"n_epochs": 0}, {"n_epochs": 0.5}, {"epoch": 3}, {1: 2}])
def test_other_values_are_no_number_of_epochs(values):
    assert Trainer(values).train() == {}


def test_two_numbers_are_none_and_an_early_stop_is_told():
    assert Trainer({"n_epochs": 4, "num_epochs": 8}).train() == {}
    assert Trainer({"n_epochs": 4, "ppo_epochs": 4}).train() == {"n_epochs": 4}
    assert Trainer({"n_epochs": 4, "target_kl": 0.01}).train() == {"n_epochs": 4, "target_kl": 0.01}
    assert Trainer({"target_kl": 0.01}).train() == {"target_kl": 0.01}
    assert Trainer({"n_epochs": 4, "target_kl": None}).train() == {"n_epochs": 4}


class Deprecated:
    """Like `torch.distributed.reduce_op`, which warns when its class is asked for."""

    @property
    def __class__(self):
        raise AssertionError("looked at")


@pytest.mark.parametrize(("file", "found"), [("/env/site-packages/dist/__init__.py", {}), ("conf.py", {"n_epochs": 3})])
def test_variables_of_a_library_are_not_looked_at(file, found):
    dist = ModuleType("dist")
    dist.__file__, dist.n_epochs = file, 3
    if not found:
        dist.reduce_op = Deprecated()
    assert of_variable(dist) == found
