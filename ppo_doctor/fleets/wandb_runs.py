"""Find and fetch runs that W&B keeps, with W&B's own client.

A URL is `wandb://ENTITY/PROJECT/RUN`, or `wandb://ENTITY/PROJECT` for all runs of a project. Credentials, and the
server where it is not W&B's own, are those of the client. The whole history of a run becomes JSON lines below its
configuration.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from ppo_doctor import __version__
from ppo_doctor.fleets.unit import StorageError, Unit
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.trainers.configuration import redact_text

#: Environment variables of the client, unless the user has set them: it prints nothing, and reports its own errors to
#: nobody.
SETTINGS = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
#: Seconds that the client waits for an answer, and runs that one request asks for.
PATIENCE, RUNS = 30, 100
#: Steps that one request for history covers, at least and at most, and records that it should bring.
FEWEST_STEPS, MOST_STEPS, RECORDS = 1_000, 20_000, 1_000
#: Values that are named which only the summary has, and the longest reason of the client that is passed on.
MOST_NAMED, LONGEST = 5, 300
_MEDIA = "_type"
_T = TypeVar("_T")


def units_at(url: str) -> Iterator[Unit]:
    """Yield the run that a URL names, or each run of the project, the oldest first.

    Raises:
        DoctorError: the URL means nothing, or W&B's client is not installed (exit code 2); nobody is logged in, the
            server does not answer, or there is no such run that this user may see (exit code 3).
    """
    entity, project, run_id = _parts(url)
    api = _api(url)
    if run_id:
        yield _unit(url, _asked(url, lambda: api.run(f"{entity}/{project}/{run_id}")))
        return
    found = False
    runs = _asked(url, lambda: iter(api.runs(f"{entity}/{project}", order="+created_at", per_page=RUNS)))
    for run in _each(url, runs):
        found = True
        yield _unit(url, run)
    if not found:
        raise DoctorError(f"{url}: no run there")


def fetch(url: str, folder: Path, most: int) -> tuple[Path, tuple[str, ...]]:
    """Write the configuration and the whole history of a run to a file; return its path, and remarks on the run.

    Raises:
        DoctorError: the history is larger than `most` bytes, or as `units_at`.
    """
    run = _asked(url, lambda: _api(url).run("/".join(_parts(url))))
    path = folder / "history.jsonl"
    seen: set[str] = set()
    with path.open("w", encoding="utf-8") as file:
        size = file.write(f"{_as_json({'config': dict(run.config)})}\n")
        for row in _each(url, _asked(url, lambda: iter(run.scan_history(page_size=_page_size(run))))):
            seen |= row.keys()
            size += file.write(f"{_as_json(_without_media(row))}\n")
            if size > most:
                hint = "export its history to a file and name that"
                raise DoctorError(f"{url}: more than {most >> 20:,} MiB of history are not fetched", hint=hint)
    return path, (f"run “{run.name}” of W&B, {run.state}", *_of_summary(run, seen))


def _as_json(value: Mapping[str, Any]) -> str:
    """Return one line; keys in order, because the client varies it, and each order would be another layout."""
    return json.dumps(value, sort_keys=True, default=str)


def _without_media(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without histograms, images and tables, and without the places of values that are not there."""
    media = {key for key, value in row.items() if isinstance(value, Mapping) and _MEDIA in value}
    return {key: value for key, value in row.items() if key not in media and value is not None}


def _of_summary(run: Any, seen: set[str]) -> Iterator[str]:  # noqa: ANN401 - W&B's own
    """Yield a sentence on numbers of the summary that the history does not have."""
    summary = {key: value for key, value in dict(run.summary_metrics).items() if key not in seen}
    numbers = [f"{key} = {value:.4g}" for key, value in sorted(summary.items()) if type(value) in (int, float)]
    if numbers:
        more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
        yield f"in W&B's summary alone: {', '.join(numbers[:MOST_NAMED])}{more}"


def _page_size(run: Any) -> int:  # noqa: ANN401 - W&B's own
    """Return how many steps to ask for at once: the client pages by steps, of which few may have a record."""
    lines = getattr(run, "historyLineCount", None) or 1
    steps: int = run.lastHistoryStep + 1
    return max(FEWEST_STEPS, min(MOST_STEPS, RECORDS * steps // lines))


def _parts(url: str) -> tuple[str, str, str]:
    """Return the entity, the project and the run that a URL names, "" for every run; it may have the path of a page.

    Raises:
        DoctorError: it names neither a run nor a project (exit code 2).
    """
    parts = [unquote(part) for part in url.partition("://")[2].split("/") if part]
    if len(parts) > 3 and parts[2] == "runs":
        del parts[2]
    if not 2 <= len(parts) <= 3 or "@" in parts[0]:
        hint = "wandb://entity/project/run, or wandb://entity/project for each of its runs"
        raise DoctorError("a URL of W&B names an entity, a project and perhaps a run", hint=hint, code=ExitCode.USAGE)
    entity, project, run = [*parts, ""][:3]
    return entity, project, run


def _api(url: str) -> Any:  # noqa: ANN401 - W&B's own, without types where it is not installed
    """Return the client, without what it remembers of earlier calls."""
    api = _client(url)
    api.flush()
    return api


@lru_cache(maxsize=1)
def _client(url: str) -> Any:  # noqa: ANN401 - as `_api`
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import wandb
    except ImportError as error:
        hint = "pip install 'ppo-doctor[wandb]'"
        raise DoctorError(f"W&B's client is not installed: {error}", hint=hint, code=ExitCode.USAGE) from error
    with _unasked():
        return _asked(url, lambda: wandb.Api(timeout=PATIENCE))


@contextmanager
def _unasked() -> Iterator[None]:
    """Let the client find no terminal, where it would ask for a key and keep it."""
    before = sys.stdin
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


def _unit(url: str, run: Any) -> Unit:  # noqa: ANN401 - W&B's own
    """Return the unit of a run; what tells a change is its state, its last sign of life and its number of records."""
    entity, project, _ = _parts(url)
    key = "wandb://" + "/".join(quote(part, safe="") for part in (entity, project, run.id))
    beat = str(getattr(run, "heartbeatAt", None) or getattr(run, "createdAt", None) or "")
    told = (__version__, key, run.state, beat, getattr(run, "historyLineCount", None))
    digest = hashlib.sha256(repr(told).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Unit(key, None, digest, _seconds(beat), 0, url=key)


def _seconds(text: str) -> float:
    """Return a time of W&B's, which is of UTC, in seconds since 1970; 0 where it is none."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _each(url: str, items: Iterator[_T]) -> Iterator[_T]:
    """Yield what the client yields, as `_asked`."""
    while True:
        item = _asked(url, lambda: next(items, None))
        if item is None:
            return
        yield item


def _asked(url: str, action: Callable[[], _T]) -> _T:
    """Return what the client returns.

    Raises:
        DoctorError: there is no such thing, or this user may not see it.
        StorageError: nobody is logged in, the server does not answer, or fails.
    """
    from wandb.errors import AuthenticationError, Error, UsageError

    try:
        return action()
    except (Error, ValueError, OSError, TimeoutError) as error:
        reason = redact_text(" ".join(str(error).split()))[:LONGEST]
        if "could not find" in reason.lower():
            hint = "check the URL, and that `wandb login` has a key of an account that may see it"
            raise DoctorError(f"{url}: no such run or project: {reason}", hint=hint) from error
        hint = "log in by `wandb login` or WANDB_API_KEY; WANDB_BASE_URL names a server of your own"
        if not isinstance(error, AuthenticationError | UsageError):
            hint = "try again later; WANDB_BASE_URL names a server of your own"
        raise StorageError(f"{url} cannot be read: {reason}", hint=hint) from error
