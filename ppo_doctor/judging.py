"""Many runs judged, one after the other or side by side; what cannot be read is told and counted, and stops nothing."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ppo_doctor import inputs
from ppo_doctor.errors import DoctorError, ExitCode, worst
from ppo_doctor.output import complain
from ppo_doctor.progress import progress

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor

    from ppo_doctor.model import Diagnosis, Run
    from ppo_doctor.pipeline import Request
    from ppo_doctor.rulepack import Pack
    from ppo_doctor.sources import RunSource

_T = TypeVar("_T")
#: What judging costs on one processor: seconds for each run, and for each byte of its logs (measured: 250 tables of
#: 0.4 MB take 6 s, 24 take 0.6 s). Only whether several processes pay depends on it.
PER_RUN, PER_BYTE = 0.02, 1 / 40e6
#: Several processes are used by themselves when the work would take longer than this: each takes 0.3 s to start, and
#: handing runs over costs a quarter of the work once more.
WORTH_PROCESSES = 5.0
MOST_JOBS = 64
#: Runs that each process may be ahead of the one that is taken next.
AHEAD = 4
#: Files that were passed over, told by name.
MOST_NAMES = 5


@dataclass(slots=True, repr=False, eq=False)
class Attempt:
    """What came of one source: its runs, judged, what could not be, and what turned out to be no run."""

    judged: list[tuple[Run, Diagnosis]] = field(default_factory=list)
    errors: list[DoctorError] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    #: files that another process opened for it
    read: tuple[str, ...] = ()


def judge(source: RunSource, request: Request, pack: Pack) -> list[tuple[Run, Diagnosis]]:
    """Judge every run in one source.

    Raises:
        DoctorError: nothing in it can be judged.
    """
    from ppo_doctor.pipeline import diagnose, runs_of

    return [(run, diagnose(run, pack, request)) for run in runs_of(source, request)]


def judge_all(
    runs: Sequence[RunSource],
    missing: Sequence[DoctorError],
    request: Request,
    pack: Pack,
    *,
    jobs: int | None = 1,
) -> tuple[list[tuple[Run, Diagnosis]], list[ExitCode]]:
    """Judge every run, and return them with the exit codes of what could not be; see `judge_each`.

    Raises:
        DoctorError: as `judge_each`.
    """
    errors = list(missing)
    judged = list(judge_each(runs, errors, request, pack, jobs=jobs))
    return judged, [error.code for error in errors]


def judge_each(
    runs: Sequence[RunSource],
    errors: list[DoctorError],
    request: Request,
    pack: Pack,
    *,
    jobs: int | None = 1,
    shown: bool = True,
) -> Iterator[tuple[Run, Diagnosis]]:
    """Yield every run, judged; of several logs one that cannot be read is named on stderr and joins the errors.

    `errors` begins with what is missing. `jobs` is the number of processes; None takes as many as there are processors
    when the work is worth it. Runs come in the order of the sources, and nothing is kept of those that were taken.
    `shown` allows a progress bar.

    Raises:
        DoctorError: the only source cannot be read, or none can.
    """
    alone = len(runs) == 1 and not errors
    passed_over: list[str] = []
    count = 0
    with progress([source.log for source in runs], shown=shown) as advance:
        for attempt in _attempts(runs, request, pack, _processes(runs, jobs), alone=alone):
            errors += attempt.errors
            passed_over += attempt.passed_over
            count += len(attempt.judged)
            while attempt.judged:
                yield attempt.judged.pop(0)
            advance()
    _tell(errors, passed_over)
    if not count:
        codes = [error.code for error in errors] or [ExitCode.NOTHING_TO_JUDGE]
        raise DoctorError("none of the runs could be judged", code=worst(codes))


def _tell(errors: Sequence[DoctorError], passed_over: Sequence[str]) -> None:
    """Print what could not be judged; a hint that stands there already is not repeated."""
    hints: set[str] = set()
    for error in errors:
        complain(error if error.hint not in hints else DoctorError(error.message))
        hints.add(error.hint)
    if passed_over:
        more = f" and {len(passed_over) - MOST_NAMES} more" if len(passed_over) > MOST_NAMES else ""
        complain(DoctorError(f"passed over, for no run was found in it: {', '.join(passed_over[:MOST_NAMES])}{more}"))


def _processes(runs: Sequence[RunSource], jobs: int | None) -> int:
    """Return how many processes to use; stdin can be read by this one alone, and others start where this one is."""
    if any(source.log == "-" for source in runs) or len(runs) < 2 or not inputs.somewhere():
        return 1
    if jobs is None:
        jobs = _processors() if _seconds(runs) > WORTH_PROCESSES else 1
    return max(1, min(jobs, len(runs), MOST_JOBS))


def _processors() -> int:
    """Return how many processors we may use, which in a container are fewer than there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _seconds(runs: Sequence[RunSource]) -> float:
    sizes = (Path(log).stat().st_size for source in runs for log in source.logs if Path(log).is_file())
    return PER_RUN * len(runs) + PER_BYTE * sum(sizes)


def _attempts(
    runs: Sequence[RunSource], request: Request, pack: Pack, processes: int, *, alone: bool
) -> Iterator[Attempt]:
    if processes > 1:
        yield from _side_by_side(runs, request, pack, processes)
    else:
        yield from (_attempt(source, request, pack, alone=alone) for source in runs)


def _attempt(source: RunSource, request: Request, pack: Pack, *, alone: bool = False) -> Attempt:
    """Judge what can be judged of one source; the only source there is may fail as it likes."""
    from ppo_doctor.merging import read_source
    from ppo_doctor.pipeline import diagnose

    attempt = Attempt()
    try:
        outcome = read_source(source, replace(request, configs=(*request.configs, *source.config)))
        attempt.errors += outcome.broken
        attempt.judged += [(run, diagnose(run, pack, request)) for run in outcome.runs]
    except DoctorError as error:
        if alone:
            raise
        if source.doubtful and error.code == ExitCode.NOTHING_TO_JUDGE:
            attempt.passed_over.append(source.log)
        else:
            attempt.errors.append(error)
    except Exception as error:
        if alone or request.debug:
            raise
        text = f"{source.log}: a bug of ours: {type(error).__name__}: {error}"
        attempt.errors.append(DoctorError(text, hint="--debug shows the traceback", code=ExitCode.BUG))
    return attempt


def _side_by_side(runs: Sequence[RunSource], request: Request, pack: Pack, processes: int) -> Iterator[Attempt]:
    """Judge in processes that are started afresh, so that no lock or thread of ours is copied into them."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin, initargs=(request, pack)
    ) as pool:
        submitted = ((source, _submitted(pool, source)) for source in runs)
        for source, future in _ahead(submitted, AHEAD * processes):
            try:
                attempt = future.result()
                inputs.add(attempt.read)
                yield attempt
            except BrokenProcessPool:
                text = f"{source.log}: the process that judged it ended, perhaps for want of memory"
                yield Attempt(errors=[DoctorError(text, hint="try --jobs 1", code=ExitCode.BUG)])


def _ahead(items: Iterable[_T], most: int) -> Iterator[_T]:
    """Yield items, of which up to `most` were drawn before they are asked for."""
    further = iter(items)
    waiting = deque(islice(further, most))
    while waiting:
        yield waiting.popleft()
        waiting.extend(islice(further, 1))


def _submitted(pool: ProcessPoolExecutor, source: RunSource) -> Future[Attempt]:
    """Hand a run to a pool; one whose processes have ended answers as they would."""
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool

    try:
        return pool.submit(_in_process, source)
    except BrokenProcessPool as error:
        broken: Future[Attempt] = Future()
        broken.set_exception(error)
        return broken


#: What a process judges with, set once when it starts.
_judge_here: Callable[[RunSource], Attempt] | None = None


def _begin(request: Request, pack: Pack) -> None:
    global _judge_here  # noqa: PLW0603 - a process gets its rules once, not with every run
    inputs.keep_track()
    _judge_here = lambda source: _attempt(source, request, pack)  # noqa: E731


def _in_process(source: RunSource) -> Attempt:
    if _judge_here is None:
        raise RuntimeError("a process was given work before its rules")
    attempt = _judge_here(source)
    attempt.read = inputs.taken()
    return attempt
