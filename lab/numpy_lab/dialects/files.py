"""Shared file forms: JSON lines, JSON documents, config.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """One object per line; NaN and Infinity stay bare, as Python's json writes them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_json(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path


def write_config(directory: Path, config: Mapping[str, Any]) -> Path:
    return write_json(directory / "config.json", config)
