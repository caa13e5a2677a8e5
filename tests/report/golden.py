"""Whole reports, letter by letter; rewritten with UPDATE_GOLDENS=1."""

from __future__ import annotations

import os
from pathlib import Path

GOLDENS = Path(__file__).parent / "goldens"


def check_golden(name: str, text: str, folder: Path = GOLDENS) -> None:
    """Compare a report with the file of that name, or write the file when asked to."""
    path = folder / name
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert path.is_file(), f"{name} is missing: run with UPDATE_GOLDENS=1 and read what it writes"
    assert text == path.read_text(encoding="utf-8")
