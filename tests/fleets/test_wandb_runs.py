"""Runs of W&B: read by its own client from recorded answers, judged as the same log on a disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.attempt import attempt
from ppo_doctor.fleets import wandb_runs
from ppo_doctor.fleets.remote import fetched, opened, units_at
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from tests.fleets.fleets import analyzed, judged, told_of
from tests.fleets.wandb_api import KEY, PAGE, wandb_api
from tests.runs.folders import as_jsonl, sb3_rows, write
from tests.runs.test_discover import wandb_run

pytest.importorskip("wandb", minversion="0.31")
#: The client's own, in the process that it starts and when it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS = {"n_epochs": 4, "batch_size": 64, "n_steps": 2048}


def records(rows, apart=1):
    """Return rows as W&B keeps them: with its own step, here one for each record or `apart`."""
    return [
        {**values, "global_step": step, "_step": number * apart, "_runtime": 1.5 * number, "_timestamp": 1.7e9 + number}
        for number, (step, values) in enumerate(rows)
    ]


@pytest.fixture(scope="module")
def server():
    with wandb_api() as api:
        yield api


@pytest.fixture
def api(server, monkeypatch, tmp_path_factory):
    own = tmp_path_factory.mktemp("wandb")
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(own))
    for name in wandb_runs.SETTINGS:
        monkeypatch.setenv(name, wandb_runs.SETTINGS[name])
    wandb_runs._client.cache_clear()
    server.projects.clear()
    yield server
    wandb_runs._client.cache_clear()


def found(url):
    """Return what `analyze URL` finds of its only run."""
    with opened(url) as (source,):
        ((run, diagnosis),) = attempt(source, Request(), load_pack()).judged
    return run, told_of(diagnosis, run)


def test_a_run_is_judged_as_its_log_on_a_disk(api, tmp_path):
    rows = sb3_rows(60)
    rows[40][1]["train/approx_kl"] = "NaN"
    api.put("proj", "abc", records(rows), SETTINGS, summary={"best": 7.5, "train/approx_kl": 0.1})
    rows[40][1]["train/approx_kl"] = float("nan")
    header = json.dumps({"config": SETTINGS}).encode() + b"\n"
    write(tmp_path, {"run/run.jsonl": header + as_jsonl(rows, "global_step")})
    ((_, _, *expected),) = analyzed(tmp_path / "run")
    run, (name, source, *rest) = found("wandb://team/proj/abc")
    assert rest == expected
    assert name == source == "wandb://team/proj/abc"
    assert {setting.value for key, setting in run.config.items() if key == "ppo_epochs"} == {4}
    assert len(run.series["approx_kl"]) == 60
    text = " ".join(map(str, run.notes))
    assert "finished" in text
    assert "best = 7.5" in text


def test_all_records_come_page_by_page_also_where_steps_are_far_apart(api):
    rows = records(sb3_rows(2500))
    api.put("proj", "dense", rows)
    api.put("proj", "sparse", records(sb3_rows(30), apart=2048))
    for name, count in (("dense", 2500), ("sparse", 30)):
        with opened(f"wandb://team/proj/{name}") as (source,):
            lines = Path(source.log).read_bytes().splitlines()
        assert len(lines) == count + 1
    assert json.loads(lines[-1])["_step"] == 29 * 2048


def test_a_resumed_run_whose_steps_start_over_is_one_as_in_its_own_file(api, tmp_path):
    rows = [*sb3_rows(30), *sb3_rows(20, seed=1)]
    api.put("proj", "abc", records(rows), SETTINGS)
    write(tmp_path, {"run-abc.wandb": wandb_run(rows, **SETTINGS)})
    ((_, _, *expected),) = analyzed(tmp_path)
    assert found("wandb://team/proj/abc")[1][2:] == tuple(expected)


def test_media_are_left_out(api):
    picture = {"_type": "histogram", "values": [1], "bins": [0, 1]}
    api.put("proj", "abc", [{**each, "gradients": picture} for each in records(sb3_rows())])
    run, _ = found("wandb://team/proj/abc")
    assert not [key for key in run.keys if "gradients" in key]


def test_of_a_project_each_run_is_a_unit_and_only_what_changed_is_judged_again(api, tmp_path):
    for number in range(2 * PAGE + 1):
        api.put("proj", f"r{number}", records(sb3_rows(seed=number)), SETTINGS)
    done, rows = judged(["wandb://team/proj"], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged, done.errors) == (5, 0, [])
    assert {row["run"] for row in rows} == {f"wandb://team/proj/r{n}" for n in range(5)}
    assert {row["settings"]["n_epochs"] for row in map(_plain, rows)} == {"4"}
    api.put("proj", "r1", records(sb3_rows(30, seed=1)), SETTINGS, heartbeat="2026-02-02T00:00:00")
    api.put("proj", "new", records(sb3_rows(seed=9)), SETTINGS, state="running")
    done, rows = judged(["wandb://team/proj"], tmp_path / "t.parquet")
    assert (done.rows["judged"], done.unchanged, len(rows)) == (2, 4, 6)


def _plain(row):
    return {**row, "settings": dict(row["settings"])}


def test_what_is_not_there_is_said(api):
    api.put("proj", "abc", [])
    with pytest.raises(DoctorError, match="no such run") as absent:
        list(units_at("wandb://team/proj/other"))
    assert absent.value.code == ExitCode.NOTHING_TO_JUDGE
    with pytest.raises(DoctorError, match="no such run or project"):
        list(units_at("wandb://team/other"))
    (unit,) = units_at("wandb://team/proj/runs/abc")
    with fetched(unit) as (source,):
        (error,) = attempt(source, Request(), load_pack()).errors
    assert "wandb://team/proj/abc" in error.message
    assert source.log not in error.message


@pytest.mark.parametrize("url", ["wandb://", "wandb://team", "wandb://a/b/c/d", "wandb://key:secret@team/proj"])
def test_a_url_that_names_nothing_is_refused_without_its_text(url):
    with pytest.raises(DoctorError) as refused:
        list(units_at(url))
    assert refused.value.code == ExitCode.USAGE
    assert "secret" not in refused.value.message + refused.value.hint


def test_more_history_than_the_limit_is_not_fetched(api, tmp_path):
    api.put("proj", "abc", records(sb3_rows(50)))
    with pytest.raises(DoctorError, match="not fetched"):
        wandb_runs.fetch("wandb://team/proj/abc", tmp_path, 2000)


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    wandb_runs._client.cache_clear()
    with pytest.raises(DoctorError) as lacking:
        list(units_at("wandb://team/proj"))
    assert (lacking.value.hint, lacking.value.code) == ("pip install 'ppo-doctor[wandb]'", ExitCode.USAGE)


@pytest.mark.parametrize("key", ["f" * 40, "short", ""])
def test_who_is_not_logged_in_is_told_how_and_no_key_is_printed(api, tmp_path, key):
    api.put("proj", "abc", records(sb3_rows()))
    command = [sys.executable, "-m", "ppo_doctor", "analyze", "wandb://team/proj/abc"]
    own = {"WANDB_API_KEY": key, "HOME": str(tmp_path), "NETRC": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
    run = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert run.returncode == ExitCode.NOTHING_TO_JUDGE
    assert "wandb login" in run.stderr
    assert "Traceback" not in run.stderr
    assert not key or key not in run.stderr
    assert not list(tmp_path.glob("ppo-doctor-*"))
