"""What judges in processes that end, hang or fail, as the names of units say."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ppo_doctor.fleets.row import Row
from ppo_doctor.fleets.unit import Unit


def unit(name):
    return Unit(name, None, f"fingerprint of {name}", 0.0, 1)


def judge(unit):
    """End this process for some units: "kills" always, "once:FILE" the first time."""
    word, _, file = unit.key.partition(":")
    if word.startswith("kills"):
        os._exit(3)
    if word == "once" and not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "slow":
        time.sleep(0.2)
    return [
        Row(
            key=unit.key,
            run=unit.key,
            source=unit.key,
            fingerprint=unit.fingerprint,
            status="judged",
            modified=0,
            size=1,
        )
    ]


class Unreadable:
    """Cannot be taken from its pickle, as an object of a module that only one process has."""

    def __reduce__(self):
        return os._exit, (1,)


def _deaf(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)


class Hanging:
    """Judges for ever in code that lets no signal through."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, unit):
        from ppo_doctor.fleets import work

        work.judge_unit = _deaf
        return work.Judge(None, None, self.seconds)(unit)
