"""Write observations as the recorder's JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_doctor.record.outlets import MARK, LineFile
from ppo_doctor.record.script.places import Place


class RunLog:
    """A file of observations: settings, places, what was not seen, and a record per update.

    The first process that has a record makes the file; those of other processes are dropped.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: LineFile | None = None
        self._waiting: list[Mapping[str, Any]] = []
        self._others = self._configured = False
        self._written: dict[str, object] = {}

    def settings(self, config: Mapping[str, Any]) -> None:
        """Write the settings, once: a second line of them would begin another run."""
        if not self._configured:
            self._configured = True
            self._write({**MARK, "config": dict(config)})

    def places(self, places: Mapping[str, Sequence[Place]]) -> None:
        """Write the lines of metrics, if they are new: the first of each with the others under "also"."""
        here = {}
        for name, (first, *others) in places.items():
            here[name] = {**_line(first), "also": [_line(each) for each in others]} if others else _line(first)
        self._once("places", here)

    def unseen(self, reasons: Mapping[str, str]) -> None:
        """Write what could not be observed, and why."""
        self._once("unseen", reasons)

    def record(self, step: int, update: int, numbers: Mapping[str, float]) -> None:
        """Write the metrics of one update."""
        self._open()
        self._write({**MARK, "step": step, "update": update, **numbers})

    def close(self) -> None:
        """Write what is waiting, and close the file."""
        if self._waiting:
            self._open()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        """Make the file, unless another process has."""
        if self._file is not None or self._others:
            return
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            self._others = True
            return
        self._file = LineFile(Path(self._path))
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._write(line)

    def _once(self, what: str, content: Mapping[str, Any]) -> None:
        new = {name: each for name, each in content.items() if self._written.get(f"{what} {name}") != each}
        if new:
            self._written.update({f"{what} {name}": each for name, each in new.items()})
            self._write({**MARK, what: new})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(line)
        elif not self._others:
            self._waiting.append(line)


def _line(place: Place) -> dict[str, Any]:
    line = {"file": _short(place.file), "line": place.line, "function": place.function, "text": place.text()}
    return {**line, "role": place.role} if place.role else line


def _short(path: str) -> str:
    """Return a path relative to the working directory if the file is below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def line_of(update: int, step: int, numbers: Mapping[str, float]) -> str:
    """Return the measures of one update as a line for people."""
    parts = [f"update {update}, step {step}"]
    if "ratio_min" in numbers:
        parts.append(f"ratio {numbers['ratio_min']:.3g} to {numbers['ratio_max']:.3g}")
    if "clip_fraction" in numbers:
        parts.append(f"clipped {numbers['clip_fraction']:.1%}")
    if "policy_pull" in numbers:
        parts.append(f"pull {numbers['policy_pull']:+.2f}")
    if "learning_rate" in numbers:
        parts.append(f"learning rate {numbers['learning_rate']:.3g}")
    return ", ".join(parts)
