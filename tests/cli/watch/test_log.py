"""What a watcher reads: the log as `analyze` does, but for a last line that is not whole."""

from __future__ import annotations

import json
import os

import pytest

from ppo_doctor import analyze
from ppo_doctor.cli.watch.log import WatchedLog
from ppo_doctor.model.request import Request
from ppo_doctor.report.json_report import payload

from .conftest import SOUND


def record(step, **values):
    return {"step": step, "approx_kl": 0.01, "clip_fraction": 0.1, "entropy": 0.5, **values}


FORMS = {
    "run.jsonl": lambda records: "".join(json.dumps(each) + "\n" for each in records),
    "run.csv": lambda records: (
        ",".join(records[0]) + "\n" + "".join(",".join(map(str, each.values())) + "\n" for each in records)
    ),
    "run.log": lambda records: "".join(
        f"step:{each.pop('step')} - " + " - ".join(f"{key}:{value}" for key, value in each.items()) + "\n"
        for each in records
    ),
}


def read(log):
    """Look at a log, and return the values of its newest run."""
    log.look()
    return log.runs()[-1].series["entropy"].values.tolist()


@pytest.mark.parametrize("name", FORMS)
def test_a_number_that_is_half_written_is_not_taken_for_another(tmp_path, name):
    text = FORMS[name]([record(step, entropy=0.5) for step in range(8)] + [record(8, entropy=0.1234)])
    cut = text.rindex("34")
    path = tmp_path / name
    path.write_text(text[:cut])
    log = WatchedLog(path, Request())
    assert read(log) == [0.5] * 8
    path.write_text(text)
    assert read(log) == [*[0.5] * 8, 0.1234]


def test_the_end_counts_a_last_line_without_an_end(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(FORMS["run.jsonl"]([record(step) for step in range(8)]).rstrip("\n"))
    log = WatchedLog(path, Request())
    assert len(read(log)) == 7
    assert len(log.finish()[-1].series["entropy"]) == 8


def test_several_files_of_a_folder_are_one_run(tmp_path):
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(record(step)) + "\n" for step in range(40)))
    rewards = "".join(json.dumps({"step": step, "reward_mean": step / 40}) + "\n" for step in range(40))
    (tmp_path / "rewards.jsonl").write_text(rewards)
    log = WatchedLog(tmp_path, Request())
    log.look()
    (run,) = log.runs()
    assert {"entropy", "reward_mean"} <= run.series.keys()
    with (tmp_path / "rewards.jsonl").open("a") as file:
        file.write(json.dumps({"step": 40, "reward_mean": 1.0}) + "\n")
    log.look()
    assert log.changed


def test_a_document_is_read_when_it_has_come_to_rest(tmp_path):
    path = tmp_path / "trainer_state.json"
    log = WatchedLog(path, Request())
    history = [{"step": step, "loss": 0.1, "kl": 0.01, "reward": 1.0, "entropy": 0.3} for step in range(60)]
    path.write_text(json.dumps({"log_history": history[:20]}))
    log.look()
    log.runs()
    ready = []
    for size in range(21, 28):
        path.write_text(json.dumps({"log_history": history[:size]}))
        log.look()
        ready.append(log.ready)
    assert ready == [False] * 4 + [True] * 3
    log.runs()
    path.write_text(json.dumps({"log_history": history}))
    log.look()
    assert not log.ready
    log.look()
    assert log.ready


def test_a_log_that_is_gone_at_the_end_is_judged_as_it_was_read(tmp_path, samples):
    path = tmp_path / "run.jsonl"
    path.write_bytes(samples.joinpath(*SOUND).read_bytes())
    log = WatchedLog(path, Request())
    log.look()
    log.runs()
    path.unlink()
    log.look()
    (run,) = log.finish()
    assert run.steps == analyze(samples.joinpath(*SOUND)).run.steps


def test_a_log_that_was_written_anew_with_more_is_another(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(FORMS["run.jsonl"]([record(step) for step in range(8)]))
    log = WatchedLog(path, Request())
    read(log)
    path.write_text(FORMS["run.jsonl"]([record(step, entropy=0.25) for step in range(9)]))
    (event,) = log.look()
    assert "written anew" in event.text
    assert log.former is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_a_pipe_cannot_be_watched_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "run.jsonl")
    log = WatchedLog(tmp_path / "run.jsonl", Request())
    (event,) = log.look()
    assert "no regular file" in event.text
    assert log.look() == []


def test_a_run_folder_ends_as_analyze_reports_it(watching, samples):
    watched = watching(samples / "sick" / "lr-zero.canonical")
    watched.look()
    watched.session.finish()
    whole = analyze(samples / "sick" / "lr-zero.canonical")
    assert payload(watched.session.view.monitor.diagnosis) == payload(whole)
