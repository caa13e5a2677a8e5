"""Several runs judged one after the other; what cannot be read is told and counted, and stops nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppo_doctor.errors import DoctorError, ExitCode, worst
from ppo_doctor.output import complain

if TYPE_CHECKING:
    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.pipeline import Request
    from ppo_doctor.rulepack import Pack
    from ppo_doctor.sources import RunSource


def judge(source: RunSource, request: Request, pack: Pack) -> list[tuple[Run, Diagnosis]]:
    """Judge every run in one source."""
    from ppo_doctor.pipeline import diagnose, runs_of

    return [(run, diagnose(run, pack, request)) for run in runs_of(source, request)]


def judge_all(
    runs: Sequence[RunSource], missing: Sequence[DoctorError], request: Request, pack: Pack
) -> tuple[list[tuple[Run, Diagnosis]], list[ExitCode]]:
    """Judge every run; of several logs one that cannot be read is named on stderr and counts with its exit code.

    Raises:
        DoctorError: the only source cannot be read, or none can.
    """
    judged: list[tuple[Run, Diagnosis]] = []
    codes = [error.code for error in missing]
    for error in missing:
        complain(error)
    for source in runs:
        try:
            judged += judge(source, request, pack)
        except DoctorError as error:
            if len(runs) == 1 and not missing:
                raise
            complain(error)
            codes.append(error.code)
    if not judged:
        raise DoctorError("none of the runs could be judged", code=worst(codes))
    return judged, codes
