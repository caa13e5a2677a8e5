"""What the recorders of TRL's trainers share: how they come on, take down what is logged, and fall quiet."""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Self

from transformers import TrainerCallback

from ppo_doctor.record.guard import guarded, tell_fault
from ppo_doctor.record.kinds import Foreign
from ppo_doctor.record.recorder import Recorder


class TrainerRecorder(TrainerCallback):  # type: ignore[misc]
    """A callback that looks into one trainer; what it wraps there, and when a record ends, each trainer's own says."""

    #: Canonical metrics by TRL's names of what its log holds.
    LOGGED: ClassVar[Mapping[str, str]] = {}
    turn = nullcontext()

    def __init__(self, trainer: Foreign, recorder: Recorder) -> None:
        self.quiet, self.pid = False, os.getpid()
        self.recorder = recorder
        self._trainer = trainer
        self._logged: dict[str, list[float]] = defaultdict(list)

    @classmethod
    def attach(cls, trainer: Foreign, target: Any, **options: Any) -> Self | None:  # noqa: ANN401
        """Return a recorder that the trainer calls from now on; None, and a line on stderr, where that fails."""
        try:
            made = cls(trainer, target, **options)
            trainer.add_callback(made)
        except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on
            tell_fault("the recorder cannot look into this trainer, training goes on", fault)
            return None
        return made

    def fail(self, fault: Exception) -> None:
        """Tell a fault and leave the trainer as it was."""
        self.quiet = True
        self._release()
        self.recorder.stop(fault)

    @guarded
    def on_log(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Keep what TRL logs of rewards, completions and losses."""
        for name, value in (given.get("logs") or {}).items():
            if name in self.LOGGED and isinstance(value, int | float):
                self._logged[self.LOGGED[name]].append(float(value))

    def _release(self) -> None:
        """Leave the trainer as it was."""
        raise NotImplementedError

    def _means(self) -> dict[str, Any]:
        """Return the means of what was logged since the last record, without what is undefined; a broken loss stays."""
        means = {name: statistics.fmean(values) for name, values in self._logged.items()}
        self._logged.clear()
        return {name: mean for name, mean in means.items() if math.isfinite(mean) or name.endswith("loss")}


def settings_of(args: Foreign, names: Mapping[str, str], **more: object) -> dict[str, object]:
    """Return the trainer's settings by canonical names, `names` leading from TRL's; without those that are not set."""
    told = {name: getattr(args, key, None) for key, name in names.items()} | more
    return {name: value for name, value in told.items() if value is not None}
