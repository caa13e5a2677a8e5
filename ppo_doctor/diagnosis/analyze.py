"""Load, normalise, check and diagnose one source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ppo_doctor import readers
from ppo_doctor.checks.engine import run_rules
from ppo_doctor.checks.rulepack import Pack, load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.diagnosis import assemble
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from ppo_doctor.readers.source import Source
from ppo_doctor.runs.log_runs import runs_in
from ppo_doctor.runs.reading import collect, read_file
from ppo_doctor.runs.sections import logs_in
from ppo_doctor.trainers import configuration

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.rules import Rule
    from ppo_doctor.model.run import Run
    from ppo_doctor.readers import Item
    from ppo_doctor.runs.joining import ReadFile
    from ppo_doctor.runs.layouts import RunSource

__all__ = ["Request", "analyze", "diagnose", "load_run", "read_run", "read_runs", "runs_in_stream", "runs_of"]


def load_run(source: object, *, settings: Mapping[str, object] | None = None, framework: str | None = None) -> Run:
    """Read one log into a `Run`; see `ppo_doctor.load_run`."""
    return read_run(source, request_of(settings, framework=framework))


def analyze(source: object, *, settings: Mapping[str, object] | None = None, framework: str | None = None) -> Diagnosis:
    """Diagnose one run with the built-in rules; see `ppo_doctor.analyze`."""
    request = request_of(settings, framework=framework)
    return diagnose(read_run(source, request), load_pack(), request)


def request_of(settings: Mapping[str, object] | None, **others: Any) -> Request:  # noqa: ANN401 - fields of a request
    """Return a request with nested settings, and with further fields as they are."""
    return Request(settings=configuration.flatten(settings or {}), **others)


def diagnose(run: Run, pack: Pack, request: Request | None = None) -> Diagnosis:
    """Judge a run by the rules and causes of a pack."""
    request = request or Request()
    view = RunView(run)
    chosen: Sequence[Rule] = pack.rules
    if request.select or request.ignore:
        chosen = [rule for rule in pack.rules if _chosen(rule.name, rule.code, request)]
    # Logs hold NaN and infinity; what they make of a sum is judged by the rules, not warned of on stderr.
    with np.errstate(all="ignore"):
        findings = run_rules(view, chosen, debug=request.debug)
        names = {rule.name for rule in chosen}
        suppressed = tuple(rule.name for rule in pack.rules if rule.name not in names)
        return assemble(view, pack, findings, suppressed, request.target_return)


def _chosen(name: str, code: str, request: Request) -> bool:
    if request.select and not {name, code} & set(request.select):
        return False
    return not {name, code} & set(request.ignore)


def runs_in_stream(name: str, stream: BinaryIO, request: Request) -> list[Run]:
    """Return the runs in a log that an open file holds, from its present place on; `name` is what notes call it.

    Raises:
        DoctorError: no record, no metric that we know, or not a run of the PPO family (exit code 3).
    """
    return _runs_of_items(name, *readers.read_source(Source(name, stream)), request)


def _runs_of_items(name: str, container: str, items: Iterable[Item], request: Request) -> list[Run]:
    logs = logs_in(collect(name, container, items, (), request), request.framework)
    return [run for log in logs for run in runs_in(log, request)]


def read_run(source: object, request: Request) -> Run:
    """Read one log that holds one run: a path or a URL, or an object that `readers.objects.find` knows.

    Raises:
        DoctorError: as `read_runs`; also when there are several runs, or no such object can be read (exit code 2).
    """
    if isinstance(source, str | Path):
        if not str(source):  # the working directory would be read
            raise DoctorError("the path of the log is empty", hint="name a log or a run folder")
        try:
            runs = read_runs(str(source), request)
        except OSError as error:
            raise DoctorError(f"{source} cannot be read: {error.strerror}", hint="check the path") from error
        return only_of(str(source), runs, "ppo-doctor analyze judges each")
    from ppo_doctor.readers.objects import find

    held = find(source)
    if isinstance(held, str):
        return read_run(held, request)
    return only_of(held.name, _runs_of_items(held.name, held.container, held.items, request), "give one of them")


def only_of(source: str, runs: Sequence[Run], hint: str) -> Run:
    """Return the only one of the runs of a source.

    Raises:
        DoctorError: there are several (exit code 2).
    """
    if len(runs) > 1:
        raise DoctorError(f"{source} holds {len(runs)} runs", hint=hint, code=ExitCode.USAGE)
    return runs[0]


def read_runs(path: str, request: Request) -> list[Run]:
    """Read every run in a log or a run folder, each with its configuration.

    Raises:
        DoctorError: unreadable or empty, no metric that we know, or not a run of the PPO family (exit code 3).
    """
    from ppo_doctor.runs.discover import is_dump, sources_in
    from ppo_doctor.runs.layouts import RunSource

    if path == "-" or not Path(path).is_dir():
        named = Path(path)
        source = RunSource(logs=(), tensors=(named,)) if is_dump(named) else RunSource(logs=(path,))
        return runs_of(source, request)
    return [run for source in sources_in(Path(path)) for run in runs_of(source, request)]


def runs_of(source: RunSource, request: Request, read: ReadFile = read_file) -> list[Run]:
    """Read the runs of one source that `gather` found, the files of each merged; a doubtful source may hold none.

    `read` reads one file; by default `reading.read_file` does.

    Raises:
        DoctorError: as `read_runs`.
    """
    from ppo_doctor.runs.merging import read_source

    try:
        return read_source(source, replace(request, configs=(*request.configs, *source.config)), read).runs
    except DoctorError as error:
        if source.doubtful and error.code == ExitCode.NOTHING_TO_JUDGE:
            return []
        raise
