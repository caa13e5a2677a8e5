"""Find two names of one network in the variables of a frame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

#: Names of a network that should not be the one that is trained.
_OLD = re.compile(
    r"(?i)old|prev|behav|frozen|snapshot|ref|anchor|teacher|sampler|actor_k|lag|base|init|orig|copy|target"
)


@dataclass(frozen=True, slots=True)
class Alias:
    """Two names of networks with the same weights; `reference` if the first names a reference model."""

    other: str
    policy: str


def alias_in(frame: FrameType) -> Alias | None:
    """Return two names of the same weights in a frame's variables and in the attributes of its objects."""
    first: dict[tuple[int, ...], str] = {}
    for name, module in _modules(frame):
        weights = tuple(map(id, module.parameters()))
        if not weights or name == "self":
            continue
        known = first.setdefault(weights, name)
        if known != name and bool(_OLD.search(known)) != bool(_OLD.search(name)):
            return Alias(known, name) if _OLD.search(known) else Alias(name, known)
    return None


def _modules(frame: FrameType) -> Iterable[tuple[str, torch.nn.Module]]:
    spaces: list[dict[str, Any]] = [dict(frame.f_locals), frame.f_globals]
    spaces += [
        vars(each) for each in frame.f_locals.values() if hasattr(each, "__dict__") and not isinstance(each, type)
    ][:20]
    for each in list(spaces[2:]):
        inner = each.get("_modules")
        if isinstance(inner, dict):
            spaces.append(inner)
    for space in spaces:
        for name, each in list(space.items()):
            if isinstance(each, torch.nn.Module):
                yield name, each
