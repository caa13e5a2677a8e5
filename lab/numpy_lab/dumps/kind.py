"""What one kind of dump is, and the list of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .capture import Plan, Update

Shape = Literal["updates", "minibatches", "first", "checkpoints", "logged"]
Form = Literal["npz", "safetensors", "pt", "jsonl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of dump: how the run is made from a seed, what is wrong with it, and how it is written.

    `cause` is "healthy" where nothing is. `level_with` are causes that the same tensors allow. `shape` says whether a
    file holds an update, a minibatch, the first minibatch alone, or weights;
    "logged" has a log beside its updates. `settings` are told with --set. `change`
    works on the tensors that are written.
    """

    name: str
    cause: str
    plan: Callable[[int], Plan]
    shape: Shape = "updates"
    form: Form = "npz"
    level_with: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    change: Callable[[dict[str, object], Update, np.random.Generator], None] | None = None
    #: what the log says of a share that the dump shows
    clip_logged: Callable[[float], float] = float
    #: names of tensors that are left out
    without: tuple[str, ...] = ()
    #: other names for tensors, the type that log-probs are stored in, and whether all updates stand in one file
    keys: Mapping[str, str] = field(default_factory=dict)
    stored: Literal["float32", "float16", "bfloat16"] = "float32"
    stacked: bool = False


KINDS: dict[str, Kind] = {}


def kind(name: str, cause: str, plan: Plan | Callable[[int], Plan], **rest: object) -> None:
    made = plan if callable(plan) else lambda _seed: plan
    KINDS[name] = Kind(name=name, cause=cause, plan=made, **rest)  # type: ignore[arg-type]
