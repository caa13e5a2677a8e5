"""Where a recorder's records go: files, loggers and the judge, none of which takes another along when it fails."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppo_doctor.record.guard import tell, tell_fault
from ppo_doctor.record.kinds import Foreign
from ppo_doctor.record.online import Online
from ppo_doctor.record.sinks import Log, Sink, forward

_PATH = (str, os.PathLike)
#: Stands in every line, so that no other trainer's names are seen in a part of the file.
MARK = {"ppo_doctor": 1}


class Outlets:
    """Takes records, once it is open; `online` judges them where that is asked for."""

    def __init__(self, target: Foreign, online: Online | None) -> None:
        self.online = online
        self._target = target
        self._files: list[Log] = []
        self._sinks: list[Sink] = []

    def open(self, config: Mapping[str, Any]) -> bool:
        """Open what can be opened, and write the settings; return whether not all of them failed."""
        settings = {**MARK, "config": config}
        targets = self._target if isinstance(self._target, list | tuple) else [self._target]
        for target in targets:
            try:
                if isinstance(target, _PATH):
                    self._files.append(Log(Path(target), settings))
                else:
                    self._sinks.append(forward(target))
            except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on, and so do the others
                name = str(target) if isinstance(target, _PATH) else f"a {type(target).__name__}"
                tell_fault(f"nothing is recorded into {name}, training goes on", fault)
        self._judge(settings)
        return bool(self._files or self._sinks or not targets)

    def take(self, step: float, numbers: Mapping[str, float], marks: Mapping[str, float]) -> None:
        """Hand on a record; `marks` stand in files alone, before its numbers."""
        record = {**MARK, "step": step, **marks, **numbers}
        for file in self._files:
            file.write(record)
        for sink in tuple(self._sinks):
            try:
                sink(step, numbers)
            except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on, and so does the file
                tell_fault("a logger gets no more records, training goes on", fault)
                self._sinks.remove(sink)
        self._judge(record)

    def close(self) -> None:
        """Close files, and end the judging."""
        for file in self._files:
            file.close()
        self._files, self._sinks = [], []
        if self.online is not None:
            self.online.close()

    def _judge(self, record: Mapping[str, Any]) -> None:
        """Let the record be judged; what goes wrong there ends the judging, not the recording."""
        if self.online is None:
            return
        try:
            causes = self.online.take(record)
            saved = self.online.dump(causes, _told(record)) if causes else None
            if saved is not None:
                tell(f"{', '.join(cause.id for cause in causes)}: the last minibatch is in {saved}")
        except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on, and so do the records
            tell_fault("records are no longer judged, training goes on", fault)
            online, self.online = self.online, None
            online.close()


def judge_of(target: Foreign, dump_when: str | None, folder: Foreign, stop_on: str | None) -> Online | None:
    """Return what judges the records, where that is asked for.

    Raises:
        ValueError: what is asked for does not exist.
    """
    if dump_when is None and stop_on is None:
        return None
    if folder is not None and not isinstance(folder, _PATH):
        raise ValueError(f"dump_folder is a path, not {folder!r}")
    named = [each for each in (target if isinstance(target, list | tuple) else [target]) if isinstance(each, _PATH)]
    log = Path(named[0]) if named else Path("run.jsonl")
    return Online(dump_when, stop_on, Path(folder) if folder is not None else log.parent, log.stem)


def _told(record: Mapping[str, Any]) -> dict[str, object]:
    """Return what a dump says of itself beside its tensors."""
    return {name: record[name] for name in ("step", "update", "clip_range") if name in record}
