"""Judge one unit of a fleet, in whichever process it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleet.row import Row, failed, judged

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.fleet.unit import Unit
    from ppo_doctor.model.request import Request


def judge_unit(unit: Unit, request: Request, pack: Pack) -> list[Row]:
    """Return a row for each run of a unit, and one for each file of it that could not be read.

    There is none for files that turn out to hold no run.
    """
    begun = time.perf_counter()
    result = attempt(unit.source, request, pack)
    each = (time.perf_counter() - begun) / max(1, len(result.judged))
    rows = [judged(unit, run, diagnosis, each) for run, diagnosis in result.judged]
    return rows + [failed(unit, error.message, run=_named(n, unit)) for n, error in enumerate(result.errors)]


def _named(number: int, unit: Unit) -> str:
    """Return a name for a part of a unit that failed: that of the unit for the first one."""
    return unit.key if not number else f"{unit.key}#{number + 1}"
