"""Find two names of one network in the variables of a frame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from ppo_doctor.record.script.places import has_variables, variables

#: Names of a network that should not be the one that is trained.
_OLD = re.compile(
    r"(?i)old|prev|behav|frozen|snapshot|ref|anchor|teacher|sampler|actor_k|lag|base|init|orig|copy|target"
)
_REFERENCE = re.compile(r"(?i)(^|_)ref|anchor|teacher")


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names of networks with the same weights."""

    other: str
    policy: str

    @property
    def reference(self) -> bool:
        """Return whether the first name is one of a reference model."""
        return bool(_REFERENCE.search(self.other))


def alias_in(frame: FrameType) -> Alias | None:
    """Return two names of the same weights in a frame's variables and in the attributes of its objects."""
    named = list(_modules(frame))
    old = [each for each in named if _OLD.search(each[0])]
    for name, module in old:
        weights = {id(p) for p in module.parameters()}
        for other, policy in named:
            if weights and not _OLD.search(other) and _same(module, policy, weights):
                return Alias(name, other)
    return None


def _same(module: torch.nn.Module, policy: torch.nn.Module, weights: set[int]) -> bool:
    """Return whether two networks are one, or have the same weights without one being a part of the other."""
    if module is policy:
        return True
    apart = all(each is not module for each in policy.modules()) and all(
        each is not policy for each in module.modules()
    )
    return apart and {id(p) for p in policy.parameters()} == weights


def _modules(frame: FrameType) -> Iterable[tuple[str, torch.nn.Module]]:
    local = variables(frame)
    spaces: list[dict[str, Any]] = [local, frame.f_globals]
    spaces += [vars(each) for each in local.values() if has_variables(each)][:20]
    for each in list(spaces[2:]):
        inner = each.get("_modules")
        if isinstance(inner, dict):
            spaces.append(inner)
    for space in spaces:
        for name, each in list(space.items()):
            if isinstance(each, torch.nn.Module):
                yield name, each
