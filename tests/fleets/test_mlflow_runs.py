"""Runs of MLflow: read by its own client from a tracking server, judged as the same log on a disk."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleets import mlflow_runs
from ppo_doctor.fleets.remote import opened, units_at
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from tests.fleets.fleets import analyzed, judged, told_of
from tests.runs.folders import sb3_rows

pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("ignore")  # the client's own


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a tracking server until the tests of this module end; return its host and port."""
    pytest.importorskip("flask", reason="the package mlflow-skinny has no server")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    host, port = place.split(":")
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    process = subprocess.Popen(
        [*command, *store],
        env={**os.environ, **mlflow_runs.SETTINGS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait(f"http://{place}/health", process)
        yield place
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(url, process, seconds=120.0):
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - of our own
                return
        except OSError:
            if time.monotonic() > end or process.poll() is not None:
                raise
            time.sleep(0.2)


@pytest.fixture(scope="module")
def client(server):
    os.environ.update(mlflow_runs.SETTINGS)
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"http://{server}")


@pytest.fixture
def experiment(client, request):
    name = request.node.name
    return name, client.create_experiment(name)


def log(client, experiment, rows, settings=(), *, name="a run", status="FINISHED"):
    """Log rows one after the other; return the ID of the run."""
    from mlflow.entities import Metric, Param

    run = client.create_run(experiment, run_name=name).info.run_id
    client.log_batch(run, params=[Param(key, str(value)) for key, value in dict(settings).items()])
    values = [
        Metric(key, float(value), 1_700_000_000_000 + 1000 * number, step)
        for number, (step, held) in enumerate(rows)
        for key, value in held.items()
    ]
    for first in range(0, len(values), 1000):
        client.log_batch(run, metrics=values[first : first + 1000])
    if status != "RUNNING":
        client.set_terminated(run, status)
    return run


def found(url):
    """Return what `analyze URL` finds of its only run."""
    with opened(url) as (source,):
        ((run, diagnosis),) = attempt(source, Request(), load_pack()).judged
    return run, told_of(diagnosis, run)


@pytest.mark.parametrize("sample", ["nan-inf.sb3", "lr-zero.sb3"])
def test_a_run_is_judged_as_its_log_on_a_disk(client, server, experiment, samples, sample):
    folder = samples / "sick" / sample
    with (folder / "progress.csv").open(encoding="utf-8") as file:
        rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name, number = experiment
    logged = [(int(row["time/total_timesteps"]), row) for row in rows]
    run_id = log(client, number, logged, settings, name=sample, status="FAILED")
    ((_, _, *expected),) = analyzed(folder)
    url = f"mlflow://{server}/{name.replace('[', '%5B').replace(']', '%5D')}/{run_id}"
    run, (run_name, source, *rest) = found(f"mlflow://{server}/{name}/{run_id}")
    assert rest == expected
    assert run_name == source == url
    assert len(run.series["approx_kl"]) == len(rows) - 1
    assert f"run “{sample}” of MLflow, failed" in " ".join(map(str, run.notes))
    assert found(f"mlflow://{server}/#/experiments/{number}/runs/{run_id}")[1][2:] == tuple(expected)


def test_of_an_experiment_each_run_is_a_unit_and_only_what_changed_is_judged_again(
    client, server, experiment, tmp_path, monkeypatch
):
    monkeypatch.setattr(mlflow_runs, "PAGE", 2)
    name, number = experiment
    ids = [log(client, number, sb3_rows(seed=n), {"n_epochs": 4}, status="RUNNING") for n in range(5)]
    url = f"mlflow://{server}/{name}"
    done, rows = judged([url], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged, done.errors) == (5, 0, [])
    assert {row["run"] for row in rows} == {f"{url}/{run}" for run in ids}
    client.log_metric(ids[0], "train/learning_rate", 0.0003, step=2048 * 21)  # the value that it had before
    client.set_terminated(ids[1], "KILLED")
    client.delete_run(ids[2])
    log(client, number, sb3_rows(seed=9))
    done, rows = judged([url], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged, len(rows)) == (3, 2, 6)


def test_numbers_that_are_not_finite_and_names_that_are_no_files_arrive(client, server, experiment):
    rows = [(step, {**values, "train": 1.0, "train/approx_kl/max": 0.5}) for step, values in sb3_rows(30)]
    rows[10][1]["train/approx_kl"] = float("nan")
    rows[11][1]["train/approx_kl"] = float("inf")
    run_id = log(client, experiment[1], rows)
    run, _ = found(f"mlflow://{server}/{experiment[0]}/{run_id}")
    assert [str(value) for value in run.series["approx_kl"].values[10:12]] == ["nan", "inf"]
    assert {"train", "train/approx_kl/max"} <= set(run.keys)


def test_a_local_store_is_named_by_the_environment(server, client, experiment, monkeypatch):
    run_id = log(client, experiment[1], sb3_rows())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{server}")
    mlflow_runs._client.cache_clear()
    assert found(f"mlflow:///{experiment[0]}/{run_id}")[1][0] == f"mlflow:///{experiment[0]}/{run_id}"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    mlflow_runs._client.cache_clear()
    with pytest.raises(DoctorError) as unknown:
        list(units_at("mlflow:///x"))
    assert unknown.value.code == ExitCode.USAGE


def test_what_is_not_there_is_said(server, experiment):
    for url, words in (
        (f"mlflow://{server}/{experiment[0]}/nosuchrun", "no such run"),
        (f"mlflow://{server}/nosuchexperiment", "no experiment"),
        (f"mlflow://{server}/99999", "no such run or experiment"),
        (f"mlflow://{server}/{experiment[0]}", "no run there"),
    ):
        with pytest.raises(DoctorError, match=words) as absent:
            list(units_at(url))
        assert absent.value.code == ExitCode.NOTHING_TO_JUDGE


def test_more_values_than_the_limit_are_not_fetched(server, client, experiment, tmp_path):
    run_id = log(client, experiment[1], sb3_rows(20))
    with pytest.raises(DoctorError, match="not fetched"):
        mlflow_runs.fetch(f"mlflow://{server}/{experiment[0]}/{run_id}", tmp_path, 100 * mlflow_runs.OF_A_VALUE)


@pytest.mark.parametrize("url", ["mlflow://key:secret@host/x", "mlflow://host/a/b/c"])
def test_a_url_that_names_nothing_or_holds_a_password_is_refused(url):
    with pytest.raises(DoctorError) as refused:
        list(units_at(url))
    assert refused.value.code == ExitCode.USAGE
    assert "secret" not in refused.value.message + refused.value.hint


def test_a_server_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(DoctorError, match="does not answer"):
            list(units_at(f"mlflow://127.0.0.1:{free.getsockname()[1]}/x"))


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    mlflow_runs._client.cache_clear()
    with pytest.raises(DoctorError) as lacking:
        list(units_at("mlflow://host/x"))
    assert (lacking.value.hint, lacking.value.code) == ("pip install 'ppo-doctor[mlflow]'", ExitCode.USAGE)
