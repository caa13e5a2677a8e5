"""Write observations as the recorder's JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppo_doctor.record.outlets import MARK, LineFile
from ppo_doctor.record.script.places import Place


class RunLog:
    """A file of observations: settings, places, what was not seen, and a record per update; made at the first line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: LineFile | None = None
        self._written: dict[str, object] = {}
        self.records = 0

    def settings(self, config: Mapping[str, Any]) -> None:
        """Write settings that were found, if they are new."""
        self._once("config", config, {"observed": True})

    def places(self, places: Mapping[str, Place]) -> None:
        """Write the lines of metrics, if they are new."""
        here = {
            name: {"file": _short(each.file), "line": each.line, "function": each.function, "text": each.text()}
            for name, each in places.items()
        }
        self._once("places", here, {})

    def unseen(self, reasons: Mapping[str, str]) -> None:
        """Write what could not be observed, and why."""
        self._once("unseen", reasons, {})

    def record(self, step: int, update: int, numbers: Mapping[str, float]) -> None:
        """Write the metrics of one update."""
        self._write({**MARK, "step": step, "update": update, **numbers})
        self.records += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _once(self, what: str, content: Mapping[str, Any], marks: Mapping[str, Any]) -> None:
        new = {name: each for name, each in content.items() if self._written.get(f"{what} {name}") != each}
        if new:
            self._written.update({f"{what} {name}": each for name, each in new.items()})
            self._write({**MARK, **marks, what: new})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = LineFile(Path(self._path))
        self._file.write(line)


def _short(path: str) -> str:
    """Return a path relative to the working directory if the file is below it."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith("..") else relative
