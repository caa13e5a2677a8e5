"""Diagnose the records of a run while it trains, as `ppo-doctor watch` does, and save the last minibatch."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_doctor.record import measures
from ppo_doctor.record.measures import Array, Tensor
from ppo_doctor.record.values import here, line_of

if TYPE_CHECKING:
    from ppo_doctor.cli.watch.monitor import Monitor
    from ppo_doctor.model.diagnosis import RankedCause

#: Number of records before the first judgement; factor of records until the next one (about twenty for a thousand
#: records); pause until the next one in durations of the last one, which limits judging to 1 % of the time.
FIRST, GROWTH, REST = 8, 1.25, 100.0
#: Names of the tensors in a dump, which `ppo-doctor analyze` knows.
DUMPED = ("log_prob", "old_log_prob", "advantages", "mask")
#: Largest number of dumps of one run; each set of causes gets one.
MOST_DUMPS = 4
#: The severities that may end a run.
STOP_ON = ("critical", "high", "medium", "low")


@dataclass(slots=True)
class Pace:
    """Decides when the next judgement is due; `clock` returns seconds."""

    clock: Callable[[], float] = time.perf_counter
    due: int = FIRST
    rested: float = float("inf")
    judgements: int = 0
    seconds: float = 0.0

    def ready(self, records: int) -> bool:
        """Return whether a judgement is due at this number of records."""
        return records >= self.due or (records >= FIRST and self.clock() >= self.rested)

    def spent(self, records: int, begun: float) -> None:
        """Schedule the next judgement after one of this number of records that started at `begun`."""
        now = self.clock()
        self.judgements, self.seconds = self.judgements + 1, self.seconds + now - begun
        self.due = max(int(records * GROWTH), records + 2)
        self.rested = now + REST * (now - begun)


@dataclass(slots=True)
class Online:
    """Judges the records of one run and dumps its last minibatch.

    `dump_when` is None or "unhealthy"; `stop_on` is None or the least severity that ends the run; `folder` is that of
    dumps, and `name` is the prefix of their names.
    """

    dump_when: str | None
    stop_on: str | None
    folder: Path
    name: str
    reason: str | None = None
    """Why training should end, None while it may go on."""
    pace: Pace = field(default_factory=Pace)
    latest: Mapping[str, Tensor] = field(default_factory=dict)
    dumped: set[frozenset[str]] = field(default_factory=set)
    _log: Any = None
    _judge: Any = None
    _monitor: Monitor | None = None
    _records: int = 0

    def __post_init__(self) -> None:
        if self.stop_on is not None and self.stop_on not in STOP_ON:
            raise ValueError(f"stop_on is one of {', '.join(STOP_ON)}, not {self.stop_on!r}")
        if self.dump_when not in (None, "unhealthy"):
            raise ValueError(f'dump_when is "unhealthy" or None, not {self.dump_when!r}')

    def keep(self, *tensors: Tensor) -> None:
        """Keep references to the tensors of `DUMPED`, without their graphs, until the next minibatch."""
        if self.dump_when is not None:
            named = zip(DUMPED, tensors, strict=True)
            self.latest = {name: measures.plain(tensor) for name, tensor in named if tensor is not None}

    def take(self, record: Mapping[str, Any]) -> list[RankedCause]:
        """Add the record of an update; return the causes that it confirms, if a judgement is due."""
        self._ready()
        self._log.write(line_of(record))
        self._records += "step" in record
        if "step" not in record or not self.pace.ready(self._records):
            return []
        begun = self.pace.clock()
        try:
            return self._judged()
        finally:
            self.pace.spent(self._records, begun)

    def close(self) -> None:
        """Release the log and the minibatch."""
        self.latest = {}
        if self._log is not None:
            self._log.close()

    def dump(self, causes: list[RankedCause], metadata: Mapping[str, object]) -> Path | None:
        """Save the last minibatch once per set of causes; return its path, None if nothing is saved.

        Raises:
            OSError: the file cannot be written.
        """
        names = frozenset(cause.id for cause in causes)
        if self.dump_when is None or not self.latest or names in self.dumped or len(self.dumped) >= MOST_DUMPS:
            return None
        self.dumped.add(names)
        path = self.folder / f"{self.name}.update-{metadata['update']}.safetensors"
        arrays = {name: here(tensor) for name, tensor in self.latest.items()}
        save(path, arrays, {**metadata, "causes": ", ".join(sorted(names))})
        return path

    def _ready(self) -> None:
        """Import the modules that judge, which only this option needs."""
        if self._monitor is not None:
            return
        from ppo_doctor.checks.rulepack import load_pack
        from ppo_doctor.cli.watch.monitor import Monitor
        from ppo_doctor.diagnosis.analyze import diagnose

        self._log = BytesIO()
        self._judge = partial(diagnose, pack=load_pack())
        self._monitor = Monitor(fail_on=self.stop_on or "never")

    def _judged(self) -> list[RankedCause]:
        from ppo_doctor.cli.watch.monitor import cause_says
        from ppo_doctor.diagnosis.analyze import runs_in_stream
        from ppo_doctor.model.errors import DoctorError
        from ppo_doctor.model.request import Request

        if self._monitor is None:
            return []
        self._log.seek(0)
        try:
            run = runs_in_stream(f"{self.name}.jsonl", self._log, Request())[0]
        except DoctorError:  # no metric that a rule knows yet
            return []
        finally:
            self._log.seek(0, os.SEEK_END)
        self._monitor.confirmed.clear()
        self._monitor.take(run, self._judge(run), self._judge)
        failing = self._monitor.failing
        if failing is not None:
            self.reason = f"{failing.severity}: {cause_says(failing)}"
        return [cause for _, cause in self._monitor.confirmed]


def save(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, object]) -> None:
    """Write arrays in float32 with metadata as safetensors; a partly written file is removed.

    Raises:
        OSError: the file cannot be written.
    """
    floats = {name: np.ascontiguousarray(array, dtype="<f4") for name, array in arrays.items()}
    header: dict[str, object] = {"__metadata__": {name: str(value) for name, value in metadata.items()}}
    end = 0
    for name, array in floats.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in floats.values():
                file.write(array.tobytes())
    except OSError:
        path.unlink(missing_ok=True)
        raise
