"""Curves as TensorBoard downloads them, and frames as pandas writes them: names stand apart from their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppo_doctor.table import Table

#: The columns of a curve that was downloaded as CSV; the last is what the name of the file says.
_CURVE = frozenset({"Wall time", "Step", "Value"})
_VALUE = "Value"
#: "run-PPO_1-tag-train_approx_kl.csv": slashes of the tag are written as underscores.
_TAG = re.compile(r"(?:.*[-_])?tag-(.+)")
#: What a browser adds to a second download.
_AGAIN = re.compile(r" ?\(\d+\)$")
#: First words of tags that are the group and not the name.
_GROUPS = frozenset(
    {
        *("train", "training", "rollout", "eval", "evaluation", "test", "val", "time", "charts", "losses", "loss"),
        *("policy", "environment", "env", "perf", "completions", "objective", "actor", "critic", "info", "ray"),
        *("reward", "rewards", "global", "learner", "update", "stats", "metrics"),
    }
)
_ROW = ("columns", "data")


def tag_of(path: str) -> str:
    """Return the name of the one curve in a file: its tag, with the slash behind its group, or the name of the file."""
    stem = _AGAIN.sub("", PurePath(path.replace("\\", "/")).name.partition(".csv")[0].partition(".json")[0])
    found = _TAG.fullmatch(stem)
    group, mark, name = (found[1] if found else stem).partition("_")
    return f"{group}/{name}" if found and mark and name and group.lower() in _GROUPS else group + mark + name


def named_curve(table: Table) -> Table:
    """Return the table of a downloaded curve with its values under the name of the curve, any other as it is."""
    if not table.columns.keys() <= _CURVE or _VALUE not in table.columns:
        return table
    names = {_VALUE: tag_of(table.path)}
    return replace(
        table,
        columns={names.get(key, key): values for key, values in table.columns.items()},
        decimals={names.get(key, key): places for key, places in table.decimals.items()},
    )


def is_frame(document: Mapping[str, object]) -> bool:
    """Tell whether an object is a frame: columns of values by their rows, or names beside rows."""
    if set(_ROW) <= document.keys():
        return True
    inner = list(document.values())
    by_row = [set(value) for value in inner if isinstance(value, dict) and value and all(map(_is_row, value))]
    return len(by_row) == len(inner) > 0 and all(rows == by_row[0] for rows in by_row)


def _is_row(key: object) -> bool:
    return isinstance(key, str) and key.isdecimal()


def framed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the columns of a frame as lists (`to_json` with "split" or "columns"), any other object as it is."""
    names, rows = document.get(_ROW[0]), document.get(_ROW[1])
    if isinstance(names, list) and isinstance(rows, list):
        return columns_of(names, rows) or document
    if not is_frame(document):
        return document
    return {key: list(values.values()) for key, values in document.items()}


def columns_of(names: Sequence[object], rows: Sequence[object]) -> dict[str, list[Any]]:
    """Return rows as columns under their names; nothing where a row is not as wide as the names are many."""
    held = [row for row in rows if isinstance(row, list) and len(row) == len(names)]
    if len(held) < len(rows) or not all(isinstance(name, str) for name in names):
        return {}
    return {str(name): [row[i] for row in held] for i, name in enumerate(names)}
