"""Judge several runs, in one process or several; an unreadable run does not stop the others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from ppo_doctor.cli.output import print_error, working_folder_exists
from ppo_doctor.model.errors import DoctorError, ExitCode, worst

if TYPE_CHECKING:
    from rich.progress import Progress

    from ppo_doctor.checks.rulepack import Pack
    from ppo_doctor.diagnosis.attempt import Attempt
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.request import Request
    from ppo_doctor.model.run import Run
    from ppo_doctor.runs.layouts import RunSource

#: Seconds that judging takes on one processor, for each run and for each byte of its logs (measured: 250 tables of
#: 0.4 MB take 6 s, 24 take 0.6 s). They only decide whether several processes are used.
PER_RUN, PER_BYTE = 0.02, 1 / 40e6
#: Without --jobs several processes are used when the work would take longer than this, in seconds: each takes 0.3 s to
#: start, and handing runs over costs a quarter of the work once more.
WORTH_PROCESSES = 5.0
MOST_JOBS = 64
#: Runs that each process may be ahead of the one that is yielded next.
AHEAD = 4
#: Files without a run that are named; further ones are counted.
MOST_NAMES = 5
#: Seconds of work before a progress bar is shown, and characters of its label.
PATIENCE, WIDTH = 1.0, 40


def judge_runs(
    sources: Sequence[RunSource],
    errors: list[DoctorError],
    request: Request,
    pack: Pack,
    *,
    jobs: int | None = 1,
    shown: bool = True,
) -> Iterator[tuple[Run, Diagnosis]]:
    """Yield every run with its diagnosis, in the order of the sources, and keep none of those that were yielded.

    Errors of single sources are added to `errors`, which starts with the missing sources, and printed on stderr.
    `jobs` is the number of processes; None uses all processors if there is enough work. `shown` allows a progress bar.

    Raises:
        DoctorError: the only source cannot be read, or none can.
    """
    from ppo_doctor.diagnosis.attempt import attempt

    alone = len(sources) == 1 and not errors
    not_runs: list[str] = []
    count = 0
    processes = 1 if request.debug else process_count(sources, jobs)  # a traceback is that of this process
    attempts = (
        _in_processes(sources, request, pack, processes)
        if processes > 1
        else (attempt(source, request, pack, alone=alone) for source in sources)
    )
    with progress([source.named(source.log) for source in sources], shown=shown) as advance:
        for each in attempts:
            errors += each.errors
            not_runs += each.not_runs
            count += len(each.judged)
            while each.judged:
                yield each.judged.pop(0)
            advance()
    _print_errors(errors, not_runs)
    if not count:
        codes = [error.code for error in errors] or [ExitCode.NOTHING_TO_JUDGE]
        raise DoctorError("none of the runs could be judged", code=worst(codes))


def _print_errors(errors: Sequence[DoctorError], not_runs: Sequence[str]) -> None:
    """Print the errors, each hint once, and the files that are no runs."""
    hints: set[str] = set()
    for error in errors:
        print_error(error if error.hint not in hints else DoctorError(error.message))
        hints.add(error.hint)
    if not_runs:
        more = f" and {len(not_runs) - MOST_NAMES} more" if len(not_runs) > MOST_NAMES else ""
        print_error(DoctorError(f"no run was found in {', '.join(not_runs[:MOST_NAMES])}{more}"))


def process_count(sources: Sequence[RunSource], jobs: int | None) -> int:
    """Return the number of processes to use: 1 for stdin, and without a working directory to start others in."""
    if any(source.log == "-" for source in sources) or len(sources) < 2 or not working_folder_exists():
        return 1
    if jobs is None:
        from ppo_doctor.diagnosis.processes import processors

        sizes = (Path(log).stat().st_size for source in sources for log in source.logs if Path(log).is_file())
        worth = PER_RUN * len(sources) + PER_BYTE * sum(sizes) > WORTH_PROCESSES
        jobs = processors() if worth else 1
    return max(1, min(jobs, len(sources), MOST_JOBS))


def _in_processes(sources: Sequence[RunSource], request: Request, pack: Pack, processes: int) -> Iterator[Attempt]:
    """Yield the attempts in the order of the sources, though processes end them in any order."""
    from ppo_doctor.diagnosis.attempt import Attempt
    from ppo_doctor.diagnosis.processes import ENDED, in_processes

    done: dict[int, Attempt] = {}
    act, most = partial(_attempted, request, pack), AHEAD * processes
    results = in_processes(enumerate(sources), act, processes, shard=1, has_room=lambda: len(done) < most)
    with closing(results):
        for number in range(len(sources)):
            while number not in done:
                (at, found), result = next(results)
                lost = DoctorError(f"{found.named(found.log)}: {ENDED}", hint="try --jobs 1", code=ExitCode.BUG)
                done[at] = result if result is not None else Attempt(errors=[lost])
            yield done.pop(number)


def _attempted(request: Request, pack: Pack, numbered: tuple[int, RunSource]) -> Attempt:
    from ppo_doctor.diagnosis.attempt import attempt

    return attempt(numbered[1], request, pack)


@contextmanager
def progress(names: Sequence[str], patience: float = PATIENCE, *, shown: bool = True) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr; yield a function to call after each run.

    Nothing is shown, and rich not imported, if stderr is no terminal or the work takes less than `patience` seconds.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    done = 0
    bar: Progress | None = None

    def start() -> None:
        nonlocal bar
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        # Not by way of stderr: reports may be written while the bar is shown.
        made = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        made.add_task(_label(names, done), total=len(names) if len(names) > 1 else None, completed=done)
        made.start()
        bar = made

    def advance() -> None:
        nonlocal done
        done += 1
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, description=_label(names, done))

    timer = Timer(patience, start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()
        if bar is not None:
            bar.stop()


def _label(names: Sequence[str], done: int) -> str:
    from ppo_doctor.report.escape import plain

    name = names[min(done, len(names) - 1)] if names else ""
    short = plain("/".join(Path(name).parts[-2:]))
    return short if len(short) <= WIDTH else f"{short[: WIDTH - 1]}…"
