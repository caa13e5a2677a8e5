"""One unit: bounded in time, and whatever goes wrong is in its row."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.fleets import work
from ppo_doctor.fleets.engines import LocalEngine
from ppo_doctor.fleets.unit import unit_of
from ppo_doctor.fleets.work import Judge
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import sources_below
from ppo_doctor.runs.walking import Walker
from tests.fleets.deadly import Hanging
from tests.runs.folders import as_csv, sb3_rows, write


def units(folder):
    return list(map(unit_of, sources_below(folder, Walker())))


def judge(seconds=60.0):
    return Judge(Request(), load_pack(), seconds)


def test_runs_of_one_file_are_rows_of_their_own_and_a_broken_one_is_told(tmp_path):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows()), "b/result.json": "{ nothing", "c/progress.csv": ""})
    rows = {row.key.rpartition("/")[2]: row for unit in units(tmp_path) for row in judge()(unit)}
    assert {name: row.status for name, row in rows.items()} == {"a": "judged", "b": "failed", "c": "failed"}
    assert rows["b"].error and not rows["b"].again
    a = rows["a"]
    assert (a.trainer, a.records, a.last_step) == ("sb3", 20, 40960)
    assert a.metrics_end["approx_kl"] == pytest.approx(sb3_rows()[-1][1]["train/approx_kl"])
    assert a.size == (tmp_path / "a/progress.csv").stat().st_size


def test_files_that_hold_no_run_make_no_row(tmp_path):
    write(tmp_path, {"a/table.csv": "name,colour\na,red\n", "b/progress.csv": as_csv(sb3_rows())})
    assert [len(judge()(unit)) for unit in units(tmp_path)] == [0, 1]


def test_a_unit_that_hangs_is_given_up(tmp_path, monkeypatch):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    monkeypatch.setattr(work, "judge_unit", lambda *_: time.sleep(60))
    begun = time.monotonic()
    (row,) = judge(0.2)(units(tmp_path)[0])
    assert time.monotonic() - begun < 30
    assert (row.status, row.again) == ("failed", True)
    assert "given up after 0.2 seconds" in row.error


def test_what_catches_every_exception_does_not_catch_the_end_of_the_time(tmp_path, monkeypatch):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.read_source", lambda *_: time.sleep(60))
    (row,) = judge(0.2)(units(tmp_path)[0])
    assert "given up" in row.error


def test_code_that_no_signal_interrupts_ends_its_process(tmp_path):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    begun = time.monotonic()
    ((_, (row,)),) = LocalEngine(1).map(iter(units(tmp_path)), Hanging(1.0))
    assert time.monotonic() - begun < 120
    assert (row.status, row.again) == ("failed", True)


def test_there_is_no_bound_outside_of_the_main_thread(tmp_path):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    rows = []
    thread = Thread(target=lambda: rows.extend(judge()(units(tmp_path)[0])))
    thread.start()
    thread.join()
    assert [row.status for row in rows] == ["judged"]


def test_a_bug_is_in_the_row(tmp_path, monkeypatch):
    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})

    def broken(*_):
        raise KeyError("x")

    monkeypatch.setattr(work, "judge_unit", broken)
    (row,) = judge()(units(tmp_path)[0])
    assert (row.status, row.error) == ("failed", "a bug of ours: KeyError: 'x'")


def test_the_traceback_of_a_bug_is_printed_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    def broken(*_):
        raise RuntimeError("planted")

    write(tmp_path, {"a/progress.csv": as_csv(sb3_rows())})
    monkeypatch.setattr("ppo_doctor.diagnosis.attempt.read_source", broken)
    (unit,) = units(tmp_path)
    assert "planted" in Judge(Request(), load_pack())(unit)[0].error
    assert capsys.readouterr().err == ""
    assert "planted" in Judge(Request(debug=True), load_pack())(unit)[0].error
    assert "Traceback" in capsys.readouterr().err
