"""Whatever a training loop hands over, training goes on, the record is written, and other writers keep their lines."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ppo_doctor.record import Recorder
from ppo_doctor.record.sinks import LineFile
from tests.record.loops import one_update

FIXED = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "max_examples": 60}


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("step", [np.int64(3), np.int32(3), np.float32(3), np.float64(3), np.array(3), np.array([3])])
def test_a_step_may_be_a_scalar_of_numpy(tmp_path, step):
    recorder = Recorder(tmp_path / "run.jsonl")
    assert one_update(recorder, step=step, reward_mean=np.float32(0.5)) is not None
    assert one_update(recorder, step=step) is not None
    assert [line["step"] for line in lines(tmp_path / "run.jsonl")[1:]] == [3, 3]


def test_a_window_without_an_episode_leaves_its_metric_out(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl")
    for returns in (np.array([]), [], np.zeros((0, 3)), np.array([2.0])):
        assert one_update(recorder, episode_return=returns) is not None
    assert ["episode_return" in line for line in lines(tmp_path / "run.jsonl")[1:]] == [False, False, False, True]


def test_settings_of_any_form_stand_in_the_file(tmp_path):
    config = SimpleNamespace(
        clip_coef=np.float32(0.25),
        n_epochs=np.int64(4),
        betas=(0.9, np.float64(0.999)),
        optimizer={"lr": 1e-3, "nested": {"eps": np.float64(1e-8)}},
        target_kl=float("nan"),
        schedule=len,
    )
    one_update(Recorder(tmp_path / "run.jsonl", config=config))
    assert lines(tmp_path / "run.jsonl")[0]["config"] == {
        "clip_coef": 0.25,
        "n_epochs": 4,
        "betas": [0.9, 0.999],
        "optimizer": {"lr": 1e-3, "nested": {"eps": 1e-8}},
        "target_kl": "nan",
    }


@pytest.mark.parametrize("every", [None, "two", float("nan"), float("inf"), -3, [], np.int64(1)])
def test_no_argument_of_every_reaches_training(tmp_path, every):
    assert one_update(Recorder(tmp_path / "run.jsonl", every=every)) is not None


def test_what_training_raises_for_is_no_fault_of_the_record(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl")
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.start_update()
        recorder.minibatch(new_log_prob=np.full(4, -1e4), old_log_prob=np.full(4, -1e-4), advantages=np.zeros(4))
        recorder.minibatch(new_log_prob=np.full(4, 1e4), old_log_prob=np.zeros(4), advantages=np.arange(4.0))
        assert recorder.end_update() is not None
    assert not recorder.quiet


def test_a_logger_that_fails_takes_neither_the_file_nor_the_others_along(tmp_path, capfd):
    held: list[object] = []

    def broken(_numbers):
        raise ConnectionError("no such host")

    recorder = Recorder([tmp_path / "run.jsonl", broken, held.append])
    for _ in range(3):
        assert one_update(recorder) is not None
    assert len(lines(tmp_path / "run.jsonl")) == 4
    assert len(held) == 3
    assert capfd.readouterr().err.count("training goes on") == 1


def test_a_line_that_does_not_fit_erases_no_line_of_another_writer(tmp_path, monkeypatch):
    path = tmp_path / "run.jsonl"
    ours, theirs = LineFile(path), LineFile(path)
    write, calls = os.write, []

    def full(handle: int, data: bytes) -> int:
        """Let the other writer come first, then take half of our line, then nothing."""
        calls.append(data)
        if len(calls) == 1:
            write(theirs._file, b'{"theirs": 1}\n')
            return write(handle, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            ours.write({"ours": 1, "more": "x" * 20})
    ours.write({"ours": 2})
    whole = [line for line in path.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line) for line in whole] == [{"theirs": 1}, {"ours": 2}]


ANYTHING = st.one_of(
    st.none(),
    st.sampled_from([np.zeros(3), np.zeros((2, 0)), np.array(1.5), "x", b"x", object(), len, {}, [1, "a"]]),
    st.floats(),
    st.integers(-(10**400), 10**400),
)


@given(data=st.data())
@settings(**FIXED)
def test_nothing_that_is_handed_over_raises_into_training(data, tmp_path):
    def draw():
        return data.draw(ANYTHING)

    recorder = Recorder(tmp_path / "run.jsonl", every=draw(), config=draw(), clip_range=draw())
    recorder.configure(draw())
    recorder.start_update(advantages=draw())
    recorder.minibatch(new_log_prob=draw(), old_log_prob=draw(), advantages=draw(), mask=draw(), policy_loss=draw())
    recorder.optimizer_step(grad_norm=draw(), loss_scale=draw())
    recorder.end_update(step=draw(), reward_mean=draw())
    recorder.close()
    path = tmp_path / "run.jsonl"
    assert all(isinstance(line, dict) for line in (lines(path) if path.exists() else ()))


def test_records_that_a_full_disk_cost_are_told_once_and_counted_in_the_next(tmp_path, capfd, monkeypatch):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    with monkeypatch.context() as full:
        full.setattr(LineFile, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        for _ in range(3):
            one_update(recorder)
    one_update(recorder)
    one_update(recorder)
    written = lines(tmp_path / "run.jsonl")[1:]
    assert [(line["update"], line.get("records_lost")) for line in written] == [(1, None), (5, 3), (6, None)]
    assert capfd.readouterr().err.count("training goes on") == 1


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be deleted there")
def test_a_log_that_is_deleted_is_told_once(tmp_path, capfd):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    (tmp_path / "run.jsonl").unlink()
    for _ in range(3):
        assert one_update(recorder) is not None
    told = capfd.readouterr().err
    assert told.count("training goes on") == 1
    assert "deleted" in told
