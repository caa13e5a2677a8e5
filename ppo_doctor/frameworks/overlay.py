"""A version of a profile laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TABLES = frozenset({"axis", "metrics", "config", "defaults", "facts", "components"})
LISTS = frozenset({"traps", "ignore", "unset"})


def overlaid(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile with a version (or heir) over it: tables are merged, lists grow, everything else is replaced."""
    out: dict[str, Any] = dict(base) | {key: value for key, value in change.items() if key not in TABLES | LISTS}
    for table in sorted(TABLES & set(change)):
        out[table] = dict(base.get(table, {})) | dict(change[table])
    for metric, fields in change.get("metrics", {}).items():
        out["metrics"][metric] = dict(base.get("metrics", {}).get(metric, {})) | dict(fields)
    for growing in sorted(LISTS & set(change)):
        out[growing] = [*base.get(growing, ()), *change[growing]]
    return out
