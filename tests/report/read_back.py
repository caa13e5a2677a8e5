"""A diagnosis rebuilt from its JSON by the types alone: a field that the JSON leaves out cannot be rebuilt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from ppo_doctor.model import Diagnosis, SourceRef

#: Field of ours → its key in the JSON, where the contract names it otherwise.
RENAMED = {"origin": "from", "witness": "evidence"}
#: The JSON says "path:line"; the key stands beside it as `raw`.
PLACE = SourceRef


def read_back(report: Mapping[str, Any]) -> Diagnosis:
    """Return the diagnosis that a report of one run was made of."""
    return _built(Diagnosis, {**report, "tool_version": report["tool"]["version"]})


def as_written(value: Any) -> Any:
    """Return a diagnosis as JSON can hold it: no NaN, no lone surrogate, whole numbers whole, places without a key."""
    if isinstance(value, SourceRef):
        return replace(value, key=None, path=as_written(value.path))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: as_written(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple):
        return tuple(as_written(inner) for inner in value)
    if isinstance(value, Mapping):
        return {as_written(key): as_written(inner) for key, inner in value.items()}
    if isinstance(value, str) and type(value) is str:
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _built(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        inner = [part for part in parts if part is not type(None)]
        return _built(inner[0], value) if len(inner) == 1 else value
    if kind is PLACE:
        path, _, line = value.rpartition(":")
        return SourceRef(path=path, line=int(line)) if path and line.isdigit() else SourceRef(path=value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        held = {
            f.name: value[RENAMED.get(f.name, f.name)] for f in fields(kind) if RENAMED.get(f.name, f.name) in value
        }
        return kind(**{name: _built(hints[name], inner) for name, inner in held.items()})
    if origin is tuple:
        return tuple(_built(parts[0], inner) for inner in value)
    if isinstance(kind, type) and issubclass(kind, str):
        return kind(value)
    if isinstance(value, dict):
        return {key: _built(parts[1] if parts else Any, inner) for key, inner in value.items()}
    return value
