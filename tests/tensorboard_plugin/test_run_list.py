"""Runs are judged on demand and again as they grow, in a thread for which nobody waits."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from ppo_doctor.tensorboard_plugin import judging
from ppo_doctor.tensorboard_plugin.run_list import RunList
from tests.tensorboard_plugin.conftest import Board, run_list


@pytest.fixture
def judgements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of runs, each as often as it was judged."""
    made: list[str] = []

    def judge(found: judging.Found, *, growing: bool, page: bool) -> judging.Judgement:
        made.append(f"{found.name}{' growing' * growing}{' page' * page}")
        return real(found, growing=growing, page=page)

    real = judging.judge
    monkeypatch.setattr(judging, "judge", judge)
    return made


def aged(folder: Path, seconds: float = 3600.0) -> Path:
    """Give the files of a folder a time in the past."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)
    return folder


def settle(board: Board) -> None:
    """Let the thread look a few times more."""
    for _ in range(10):
        board.runs()
        time.sleep(0.02)


def test_a_run_is_judged_once(board, runs, judgements):
    aged(runs)
    board.judged()
    settle(board)
    assert sorted(judgements) == ["sound", "sweep/sick"]


def test_a_report_is_made_for_the_run_that_is_opened(board, runs, judgements):
    aged(runs)
    board.judged()
    board.opened("sound")
    settle(board)
    assert sorted(judgements) == ["sound", "sound page", "sweep/sick"]


def test_a_run_is_judged_again_when_it_grows(board, runs):
    lines = (runs / "sound" / "progress.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (runs / "sound" / "progress.csv").write_text("".join(lines[:40]), encoding="utf-8")
    first = board.judged()["sound"]
    page = board.opened("sound").text
    assert first["step"] < 40960
    with (runs / "sound" / "progress.csv").open("a", encoding="utf-8") as file:
        file.write("".join(lines[40:]))
    board.until(lambda found: found["sound"]["step"] == 40960, opened=first["key"])
    again = board.until(lambda found: found["sound"]["report"], opened=first["key"])["sound"]
    assert again["writing"]
    assert board.get("report", run=again["key"]).text != page


def test_the_last_line_of_a_run_counts_once_it_is_quiet(board, runs, judgements, monkeypatch):
    log = runs / "sound" / "progress.csv"
    log.write_text(log.read_text(encoding="utf-8").rstrip("\n"), encoding="utf-8")
    assert board.judged()["sound"]["step"] == 40448
    monkeypatch.setattr(run_list, "WRITING", -1.0)
    assert not board.until(lambda found: found["sound"]["step"] == 40960)["sound"]["writing"]
    assert [name for name in judgements if "sound" in name] == ["sound growing", "sound"]


def test_a_change_that_the_clock_of_a_file_hides_is_seen(board, runs):
    aged(runs)
    assert not board.judged()["sound"]["writing"]
    with (runs / "sound" / "progress.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    aged(runs)
    board.until(lambda found: found["sound"]["writing"])


def test_runs_come_and_go(board, runs, samples):
    board.judged()
    board.opened("sound")
    key = board.runs()["sound"]["key"]
    shutil.rmtree(runs / "sound")
    shutil.copytree(samples / "sick" / "nan-inf.sb3", runs / "late")
    assert set(board.until(lambda found: "late" in found and "sound" not in found)) == {"late", "sweep/sick"}
    assert board.get("report", run=key).status_code == 404


def test_a_log_that_cannot_be_judged_says_why(board, runs):
    (runs / "broken").mkdir()
    (runs / "broken" / "progress.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    found = board.judged()["broken"]
    assert found["state"] == "failed"
    assert "no metric" in found["headline"]


def test_files_that_hold_no_run_are_not_listed(board, runs, judgements):
    (runs / "notes").mkdir()
    (runs / "notes" / "prices.csv").write_text("milk,bread\n1,2\n", encoding="utf-8")
    board.until(lambda _: any("notes" in name for name in judgements))
    assert set(board.judged()) == {"sound", "sweep/sick"}


def test_a_bug_is_said_and_stops_nothing(board, monkeypatch, caplog):
    def judge(found, **_):
        raise KeyError(found.name)

    monkeypatch.setattr(judging, "judge", judge)
    found = board.judged()
    assert {run["state"] for run in found.values()} == {"failed"}
    assert "a bug of ours: KeyError" in found["sound"]["headline"]
    assert "could not be judged" in caplog.text


def test_nobody_waits_for_a_judgement(board, monkeypatch):
    begun, release = threading.Event(), threading.Event()

    def judge(*_, **__):
        begun.set()
        release.wait(30)
        return judging.Judgement("judged", verdict="healthy")

    monkeypatch.setattr(judging, "judge", judge)
    board.until(lambda _: begun.is_set())
    before = time.monotonic()
    assert {run["state"] for run in board.runs().values()} == {"waiting"}
    assert board.client.get("/data/plugins_listing").status_code == 200
    assert board.get("report", run="x").status_code == 404
    assert time.monotonic() - before < 5
    assert sum(thread.name == "ppo-doctor" and thread.is_alive() for thread in threading.enumerate()) == 1
    release.set()
    board.judged()


def test_the_thread_ends_when_nobody_looks_and_comes_back(runs, monkeypatch):
    monkeypatch.setattr(run_list, "ATTENTION", 0.3)
    listed = RunList({runs: ""})
    for _ in range(2):
        listed.state()
        thread = listed._thread
        thread.join(30)
        assert not thread.is_alive()
        assert listed._thread is None


def test_a_large_run_waits_until_it_is_opened(board, judgements, monkeypatch):
    monkeypatch.setattr(run_list, "LARGEST", 10)
    found = board.until(lambda runs: len(runs) == 2)
    settle(board)
    assert {run["state"] for run in board.runs().values()} == {"large"}
    assert judgements == []
    assert "learning rate" in board.opened("sweep/sick").text
    assert board.runs()["sound"]["state"] == "large"
    assert found["sound"]["verdict"] == ""


def test_small_runs_are_judged_first(runs, monkeypatch):
    monkeypatch.setattr(run_list, "BATCH", 1)
    log = runs / "sound" / "progress.csv"
    log.write_text(log.read_text(encoding="utf-8") * 3, encoding="utf-8")
    listed = RunList({runs: ""})
    listed._look()
    assert listed._next().found.name == "sweep/sick"


def test_only_the_latest_runs_are_listed(board, runs, monkeypatch):
    monkeypatch.setattr(run_list, "MOST_RUNS", 1)
    aged(runs / "sound", 1e9)  # older than any copy of the samples
    board.until(lambda _: board.get("runs").json["left_out"] == 1)
    assert set(board.runs()) == {"sweep/sick"}


def test_few_reports_are_kept(board, monkeypatch):
    monkeypatch.setattr(run_list, "MOST_PAGES", 1)
    key = board.until(lambda found: "sound" in found)["sound"]["key"]
    board.opened("sound")
    board.opened("sweep/sick")
    assert board.get("report", run=key).status_code == 404
    board.opened("sound")
