"""What a plain install brings: packages and megabytes, against the bare environment that `venv` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Line, Unmeasured

ROOT = Path(__file__).resolve().parent.parent
MOST_PACKAGES, MOST_MB = 22, 220


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:  # noqa: ARG001 (one form for all)
    """Install into a new environment and count."""
    if quick:
        return [Unmeasured(task="install without extras", why="it takes minutes; the whole form does it")]
    place = scratch / "plain"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    before = _size(place)
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, str(ROOT)], check=True)
    packages = len(list(_site(place).glob("*.dist-info"))) - 2  # pip and setuptools come with the environment
    size = _size(place) - before
    return [
        _row("packages installed, ours included", packages, MOST_PACKAGES, "packages"),
        _row("size of the install", size, MOST_MB, "MB"),
    ]


def _row(task: str, value: float, limit: float, unit: str) -> Line:
    ratio = value / limit
    return Line(
        task=task,
        peer=f"{limit:g} {unit}",
        clock="peak_mb",
        ratio=ratio,
        low=ratio,
        high=ratio,
        bound=1.0,
        ours=f"{value:.0f} {unit}",
        theirs=f"{limit:g} {unit}",
    )


def _site(place: Path) -> Path:
    return next(place.glob("lib/python*/site-packages"))


def _size(place: Path) -> float:
    return sum(file.stat().st_size for file in _site(place).rglob("*") if file.is_file()) / 1e6
