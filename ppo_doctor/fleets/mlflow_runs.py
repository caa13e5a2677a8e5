"""Find and fetch runs that an MLflow tracking server keeps, with MLflow's own client.

A URL is `mlflow://HOST:PORT/EXPERIMENT/RUN`, `mlflow+https://…` for HTTPS, or `mlflow:///EXPERIMENT/RUN` for whatever
MLFLOW_TRACKING_URI names. Credentials are those of the client. The values of a run are put into a database with
MLflow's tables, which `readers.sqlite_log` reads.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from ppo_doctor import __version__
from ppo_doctor.fleets.unit import StorageError, Unit
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.trainers.configuration import redact_text

#: Environment variables of the client, unless the user has set them: no statistics go to third parties, and a server
#: that does not answer is given up after half a minute.
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
#: Runs and experiments that one request asks for.
PAGE = 200
#: Bytes that a value of a metric takes in the database, about.
OF_A_VALUE = 64
#: Longest reason of the client that is passed on, in characters.
LONGEST = 300
_TABLES = """
    CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, lifecycle_stage TEXT);
    CREATE TABLE params (run_uuid TEXT, key TEXT, value TEXT);
    CREATE TABLE fetched (key TEXT, value REAL, timestamp INTEGER, step INTEGER, is_nan INTEGER);
    CREATE TABLE metrics (run_uuid TEXT, key TEXT, value REAL, timestamp INTEGER, step INTEGER, is_nan INTEGER);
"""
#: In the order in which they were logged, as MLflow's own tables have them.
_IN_ORDER = "INSERT INTO metrics SELECT ?, key, value, timestamp, step, is_nan FROM fetched ORDER BY timestamp, rowid"
#: What the client says after its last try.
_UNANSWERED = "Max retries exceeded"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Place:
    """What a URL names: a server, perhaps an experiment of it (its name or ID), perhaps a run of that."""

    base: str
    tracking: str
    experiment: str
    run: str


def units_at(url: str) -> Iterator[Unit]:
    """Yield the run that a URL names, or each run of the experiment, or of all experiments of the server.

    Raises:
        DoctorError: the URL means nothing, or MLflow is not installed (exit code 2); the server does not answer,
            refuses, or has no such run (exit code 3).
    """
    place = _place(url)
    client = _client(place.tracking)
    if place.run:
        yield _unit(place, place.experiment, _asked(url, lambda: client.get_run(place.run)))
        return
    found = False
    for experiment in _experiments(url, place, client):
        for run in _pages(url, lambda token, e=experiment: client.search_runs([e.experiment_id], **token)):  # type: ignore[misc]
            found = True
            yield _unit(place, experiment.name, run)
    if not found:
        raise DoctorError(f"{url}: no run there")


def fetch(url: str, folder: Path, most: int) -> tuple[Path, tuple[str, ...]]:
    """Write the parameters and the whole history of a run into a database; return its path, and remarks on the run.

    Raises:
        DoctorError: the history is larger than `most` bytes, or as `units_at`.
    """
    place = _place(url)
    client = _client(place.tracking)
    run = _asked(url, lambda: client.get_run(place.run))
    path = folder / "run.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_TABLES)
        database.execute("INSERT INTO runs VALUES (?, ?, ?, 'active')", (place.run, run.info.run_name, run.info.status))
        rows = ((place.run, key, value) for key, value in run.data.params.items())
        database.executemany("INSERT INTO params VALUES (?, ?, ?)", rows)
        count = 0
        for key in run.data.metrics:
            history = _asked(url, lambda key=key: client.get_metric_history(place.run, key))  # type: ignore[misc]
            count += len(history)
            if count * OF_A_VALUE > most:
                text = f"{url}: more than {most // OF_A_VALUE:,} values are not fetched"
                raise DoctorError(text, hint="export the run to a file and name that")
            values = ((key, each.value, each.timestamp, each.step, each.value != each.value) for each in history)
            database.executemany("INSERT INTO fetched VALUES (?, ?, ?, ?, ?)", values)
        database.execute(_IN_ORDER, (place.run,))
        database.execute("DROP TABLE fetched")
    return path, (f"run “{run.info.run_name}” of MLflow, {str(run.info.status).lower()}",)


def _place(url: str) -> _Place:
    """Return what a URL names; it may have the path that MLflow's pages show in a browser.

    Raises:
        DoctorError: it names no run or holds credentials (exit code 2).
    """
    protocol, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    parts = [unquote(part) for part in path.removeprefix("#/").split("/") if part]
    if parts[:1] == ["experiments"]:
        parts = [part for n, part in enumerate(parts) if n != 0 and (n, part) != (2, "runs")]
    if "@" in host:
        hint = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        raise DoctorError("credentials do not belong into a URL of MLflow", hint=hint, code=ExitCode.USAGE)
    if len(parts) > 2:
        hint = "mlflow://host:port/experiment/run_id; quote a / in a name as %2F"
        raise DoctorError(f"{url} names no run of MLflow", hint=hint, code=ExitCode.USAGE)
    scheme = protocol.lower().partition("+")[2] or "http"
    experiment, run = [*parts, "", ""][:2]
    return _Place(f"{protocol.lower()}://{host}", f"{scheme}://{host}" if host else "", experiment, run)


@lru_cache(maxsize=8)
def _client(tracking: str) -> Any:  # noqa: ANN401 - MLflow's own, without types where it is not installed
    """Return the client of a server, or of the one that MLFLOW_TRACKING_URI names."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        hint = "pip install 'ppo-doctor[mlflow]'"
        raise DoctorError(f"MLflow's client is not installed: {error}", hint=hint, code=ExitCode.USAGE) from error
    if not tracking and not os.environ.get("MLFLOW_TRACKING_URI"):
        hint = "mlflow://host:port/experiment, or set MLFLOW_TRACKING_URI"
        raise DoctorError("mlflow:/// names no server", hint=hint, code=ExitCode.USAGE)
    return _asked(tracking, lambda: MlflowClient(tracking_uri=tracking or None))


def _experiments(url: str, place: _Place, client: Any) -> Iterator[Any]:  # noqa: ANN401 - MLflow's own
    """Yield the experiment with this name or ID, or all of them."""
    if not place.experiment:
        yield from _pages(url, lambda token: client.search_experiments(**token))
        return
    found = _asked(url, lambda: client.get_experiment_by_name(place.experiment))
    if found is None and not place.experiment.isdecimal():
        hint = "it is the name of an experiment or its ID; mlflow://host:port names all of them"
        raise DoctorError(f"{url}: no experiment “{place.experiment}” there", hint=hint)
    yield found or _asked(url, lambda: client.get_experiment(place.experiment))


def _pages(url: str, page: Callable[[dict[str, Any]], Any]) -> Iterator[Any]:
    """Yield the entries of all pages of a search."""
    token = None
    while True:
        found = _asked(url, lambda token=token: page({"max_results": PAGE, "page_token": token}))  # type: ignore[misc]
        yield from found
        token = found.token
        if not token:
            return


def _unit(place: _Place, experiment: str, run: Any) -> Unit:  # noqa: ANN401 - MLflow's own
    """Return the unit of a run; what tells a change is its status, and the last value of each metric and its time."""
    info, data = run.info, run.data
    key = "/".join((place.base, quote(experiment, safe=""), quote(info.run_id, safe="")))
    # The public values lack the step and the time, by which a constant metric that goes on is told.
    last = sorted((m.key, m.step, m.timestamp, repr(m.value)) for m in getattr(data, "_metric_objs", ()))
    logged = sorted(data.params.items()), sorted(map(repr, data.metrics.items()))
    told = (__version__, key, info.status, info.end_time, last, logged)
    times = [info.start_time or 0, info.end_time or 0, *(timestamp for _, _, timestamp, _ in last)]
    digest = hashlib.sha256(repr(told).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Unit(key, None, digest, max(times) / 1000, 0, url=key)


def _asked(url: str, action: Callable[[], _T]) -> _T:
    """Return what the client returns.

    Raises:
        DoctorError: there is no such thing, or this user may not see it.
        StorageError: the server does not answer, or fails.
    """
    from mlflow.exceptions import MlflowException

    try:
        return action()
    except MlflowException as error:
        code = str(getattr(error, "error_code", ""))
        reason = redact_text(" ".join(str(error).split()))[:LONGEST]
        if "SSLError" in str(error):
            reason = "no HTTPS there, or its certificate is not trusted"
        elif _UNANSWERED in str(error):
            reason = "the server does not answer, or not in time"
        if code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "ENDPOINT_NOT_FOUND"):
            raise DoctorError(f"{url}: no such run or experiment: {reason}", hint="check the URL") from error
        if code in ("PERMISSION_DENIED", "UNAUTHENTICATED") or _refused(error):
            hint = "MLflow's client takes credentials from MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN"
            raise DoctorError(f"{url}: the server refuses: {reason}", hint=hint) from error
        raise StorageError(
            f"{url} cannot be read: {reason}", hint="is this the address of a tracking server?"
        ) from error


def _refused(error: Exception) -> bool:
    return any(status in str(error) for status in ("error code 401", "error code 403"))
