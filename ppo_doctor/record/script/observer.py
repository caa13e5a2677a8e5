"""Observe PPO in a running script from start to end."""

from __future__ import annotations

import os
from typing import Any

from ppo_doctor.record.script.log import RunLog
from ppo_doctor.record.script.options import WatchOptions


class Observer:
    """Observes one training script from `start` to `finish`; a fault of its own ends the observation only."""

    def __init__(self, options: WatchOptions) -> None:
        self.options = options
        self._log = RunLog(options.out)
        self._pid = os.getpid()
        self._finished = False
        self._session: Any = None

    @property
    def done(self) -> bool:
        """Return whether everything wanted was observed, or the observation failed."""
        return self._finished or (self._session is not None and self._session.done)

    def start(self) -> None:
        """Install the hooks; the script has imported torch."""
        from ppo_doctor.record.script.session import Session  # imports torch

        self._session = Session(self.options, self._log)
        self._session.call(self._session.start)

    def finish(self) -> None:
        """Remove all hooks, write what is left and close the file; only in the process that called `start`."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        if self._session is not None:
            self._session.see_failure()
            self._session.call(self._session.finish)
        self._log.close()
