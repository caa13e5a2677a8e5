"""An environment for each trainer, with the versions that its requirements pin, out of the package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
BUILD = ROOT.parent / "build" / "lab"
REQUIREMENTS = ROOT / "trainers"


def trainers() -> list[str]:
    """Return the trainers that there are."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def python_of(trainer: str) -> Path:
    """Return the interpreter of a trainer's environment, which is made, or made again when its requirements changed."""
    folder, wanted = BUILD / "environments" / trainer, (REQUIREMENTS / f"{trainer}.txt").read_text(encoding="utf-8")
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        for each in _steps(wanted):
            subprocess.run([str(python), "-m", "pip", "install", *quiet, *each], check=True)
        installed.write_text(wanted, encoding="utf-8")
    return python


def _steps(wanted: str) -> list[list[str]]:
    """Return what pip installs, in order: torch comes first, so that nothing that needs it draws another build."""
    lines = [line.split("#")[0].strip() for line in wanted.splitlines()]
    first = [line for line in lines if line.startswith(("torch==", "setuptools", "wheel"))]
    rest = [line for line in lines if line and line not in first]
    return [part for part in (first, rest) if part]
