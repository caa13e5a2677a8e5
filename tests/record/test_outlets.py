"""What is left on disk when a process is killed, the disk is full, or training starts anew; and who else is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ppo_doctor
from ppo_doctor.record import Recorder
from ppo_doctor.record.outlets import LineFile
from tests.record.loops import one_update

WRITER = """
import sys, numpy as np
from ppo_doctor.record import Recorder
made = np.random.default_rng(0)
recorder = Recorder(sys.argv[1], config={"n_epochs": 4}, clip_range=0.2)
for update in range(int(sys.argv[2])):
    recorder.start_update()
    for epoch in range(4):
        new = made.normal(-1, 0.1, 64)
        old, advantages = new - 0.01 * epoch, made.normal(0, 1, 64)
        recorder.minibatch(new_log_prob=new, old_log_prob=old, advantages=advantages, epoch=epoch)
        recorder.optimizer_step(grad_norm=0.5)
    recorder.end_update(reward_mean=update)
print("trained to the end", flush=True)
"""


def records(path: Path) -> list[dict[str, object]]:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("lines", [2, 7, 30])
def test_a_killed_process_leaves_whole_records(tmp_path, lines):
    path = tmp_path / "run.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1000000"]) as process:
        while not path.exists() or path.read_bytes().count(b"\n") <= lines:
            assert process.poll() is None
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    kept = records(path)
    assert len(kept) > lines
    run = ppo_doctor.load_run(path)
    assert len(run.series["approx_kl"]) == len(kept) - 1
    assert not [note for note in run.notes if "cut off" in str(note)]


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are POSIX")
def test_a_full_disk_does_not_stop_training(tmp_path):
    """The limit on file size stands in for the disk: the kernel writes a part of a line, then refuses."""
    path = tmp_path / "run.jsonl"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n" + WRITER
    done = subprocess.run([sys.executable, "-c", limited, str(path), "50"], capture_output=True, text=True, check=True)
    assert "trained to the end" in done.stdout
    assert done.stderr.count("could not be written") == 1
    kept = records(path)
    assert 2 < len(kept) < 50
    assert len(ppo_doctor.load_run(path).series["approx_kl"]) == len(kept) - 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_device_without_room_is_told_once(capfd):
    recorder = Recorder("/dev/full", config={"n_epochs": 4})
    found = [one_update(recorder) for _ in range(3)]
    assert [record["grad_norm"] for record in found] == [0.25] * 3
    assert not recorder.quiet
    assert capfd.readouterr().err.count("No space left on device") == 1


def test_a_line_cut_anywhere_costs_that_record_alone(tmp_path):
    """The kernel may stop a write of a killed process where a page ends, which is anywhere in a line."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path, config={"n_epochs": 4})
    for update in range(4):
        one_update(recorder, reward_mean=float(update))
    recorder.close()
    whole = path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in [*range(last, len(whole) - 2, 29), len(whole) - 2]:
        path.write_bytes(whole[:cut])
        assert ppo_doctor.load_run(path).series["reward_mean"].values.tolist() == [0, 1, 2]


def test_records_are_written_again_once_there_is_room(tmp_path, monkeypatch, capfd):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    with monkeypatch.context() as full:
        full.setattr(LineFile, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        one_update(recorder)
        one_update(recorder)
    one_update(recorder)
    assert [record.get("update") for record in records(tmp_path / "run.jsonl")] == [None, 1, 4]
    assert capfd.readouterr().err.count("No space left on device") == 1


def test_a_torn_line_of_an_earlier_process_is_closed(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 1, "approx_kl": 0.1}\n{"step": 2, "appr')
    one_update(Recorder(path), step=3)
    lines = path.read_text().splitlines()
    assert lines[1] == '{"step": 2, "appr'
    assert json.loads(lines[-1])["step"] == 3


def test_the_settings_stand_in_the_first_line(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl", config={"n_epochs": 4, "schedule": lambda _: 0, "nan": float("nan")})
    one_update(recorder)
    assert records(tmp_path / "run.jsonl")[0] == {"ppo_doctor": 1, "config": {"n_epochs": 4, "nan": "nan"}}


class Writer:
    def __init__(self):
        self.told: list[tuple[str, float, int]] = []

    def add_scalar(self, name, value, step):
        self.told.append((name, value, step))


class Run:
    def __init__(self):
        self.told: list[dict[str, float]] = []

    def log(self, numbers):
        self.told.append(numbers)


def test_loggers_get_the_same_numbers(tmp_path):
    writer, run, seen = Writer(), Run(), []
    recorder = Recorder([tmp_path / "run.jsonl", writer, run, seen.append])
    found = one_update(recorder, step=7)
    assert ("ppo_doctor/grad_norm", 0.25, 7) in writer.told
    assert run.told == seen
    assert run.told[0]["ppo_doctor/ratio_mean"] == found["ratio_mean"]
    assert records(tmp_path / "run.jsonl")[1]["ratio_mean"] == found["ratio_mean"]


def test_only_every_other_update_is_recorded(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl", every=2)
    assert [one_update(recorder) is None for _ in range(5)] == [False, True, False, True, False]
    assert [record.get("update") for record in records(tmp_path / "run.jsonl")[1:]] == [1, 3, 5]


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert one_update(Recorder(tmp_path / "run.jsonl")) is None
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize(
    "misuse",
    [
        lambda r: r.minibatch(new_log_prob=np.zeros(3), old_log_prob=np.zeros(5)),
        lambda r: r.minibatch(new_log_prob="text", old_log_prob=None),
        lambda r: r.minibatch(new_log_prob=np.zeros(3), old_log_prob=np.zeros(3), unheard_of=1.0),
        lambda r: r.end_update(probe=lambda: 1 / 0),
        lambda r: r.end_update(reward_mean="high"),
    ],
)
def test_a_fault_inside_is_told_once_and_costs_the_call_alone(tmp_path, capfd, misuse):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    for _ in range(2):
        recorder.start_update()
        misuse(recorder)
        recorder.end_update()
    whole = one_update(recorder)
    written = records(tmp_path / "run.jsonl")[1:]
    assert whole["ratio_mean"] == written[0]["ratio_mean"] == written[-1]["ratio_mean"]
    assert sum(record.get("calls_lost", 0) for record in written) == 2
    assert "calls_lost" not in written[-1]
    assert capfd.readouterr().err.count("training and recording go on") == 1


def test_a_logger_that_fails_is_no_concern_of_training(tmp_path, capfd):
    def broken(_numbers):
        raise ConnectionError("no such host")

    recorder = Recorder([tmp_path / "run.jsonl", broken])
    one_update(recorder)
    assert "no such host" in capfd.readouterr().err
    assert len(records(tmp_path / "run.jsonl")) == 2


def test_a_folder_that_cannot_be_written_is_no_concern_of_training(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    assert one_update(Recorder(tmp_path / "file" / "run.jsonl")) is None
    assert capfd.readouterr().err.count("training goes on") == 1


NO_NUMBERS = {"reward_mean": float("nan"), "value_loss": float("inf"), "policy_loss": float("-inf")}


def test_numbers_that_are_none_are_json_and_read_back(tmp_path):
    """RFC 8259 knows no NaN: jq, pandas' ujson and JavaScript refuse a line that holds one."""
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    for _ in range(6):
        one_update(recorder, **NO_NUMBERS)
    recorder.close()
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    run = ppo_doctor.load_run(path)
    for name, value in NO_NUMBERS.items():
        np.testing.assert_array_equal(run.series[name].values, np.full(6, value))


def test_records_of_before_with_bare_numbers_that_are_none_read_alike(tmp_path):
    path, old = tmp_path / "run.jsonl", tmp_path / "old.jsonl"
    recorder = Recorder(path)
    for _ in range(6):
        one_update(recorder, **NO_NUMBERS)
    recorder.close()
    text = path.read_text()
    bare = text.replace('"NaN"', "NaN").replace('"Infinity"', "Infinity").replace('"-Infinity"', "-Infinity")
    assert bare != text
    old.write_text(bare)
    now, then = ppo_doctor.load_run(path), ppo_doctor.load_run(old)
    assert now.series.keys() == then.series.keys()
    for name, series in now.series.items():
        np.testing.assert_array_equal(series.values, then.series[name].values)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX")
@pytest.mark.parametrize("before", [0, 3])
def test_a_forked_child_records_nothing_and_says_so(tmp_path, capfd, before):
    path = tmp_path / "run.jsonl"
    recorder = Recorder(path)
    for _ in range(before):
        one_update(recorder)
    child = os.fork()
    for _ in range(3):
        one_update(recorder)
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert [record["update"] for record in records(path)[1:]] == list(range(1, before + 4))
    assert capfd.readouterr().err.count("forked") == 1
