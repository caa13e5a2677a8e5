"""Judge the runs of one source, and keep what went wrong instead of raising it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.runs.merging import read_source
from ppo_doctor.runs.reading import read_file

if TYPE_CHECKING:
    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.runs.joining import ReadFile
    from ppo_doctor.runs.layouts import RunSource


@dataclass(slots=True, repr=False, eq=False)
class Attempt:
    """The result of judging one source: its runs, its errors, and files that turned out to be no run."""

    judged: list[tuple[Run, Diagnosis]] = field(default_factory=list)
    errors: list[DoctorError] = field(default_factory=list)
    not_runs: list[str] = field(default_factory=list)


def attempt(
    source: RunSource, request: Request, pack: Pack, *, alone: bool = False, read: ReadFile = read_file
) -> Attempt:
    """Judge one source and collect its errors; with only one source, errors propagate. `read` reads one file."""
    result = Attempt()
    try:
        outcome = read_source(source, replace(request, configs=(*request.configs, *source.config)), read)
        result.errors += outcome.broken
        result.judged += [(run, diagnose(run, pack, request)) for run in outcome.runs]
    except DoctorError as error:
        if alone:
            raise
        if source.doubtful and error.code == ExitCode.NOTHING_TO_JUDGE:
            result.not_runs.append(source.named(source.log))
        else:
            result.errors.append(error)
    except Exception as error:
        if alone or request.debug:
            raise
        text = source.named(f"{source.log}: a bug of ours: {type(error).__name__}: {error}")
        result.errors.append(DoctorError(text, hint="--debug shows the traceback", code=ExitCode.BUG))
    return result
