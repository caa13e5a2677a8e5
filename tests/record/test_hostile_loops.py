"""Whatever a training loop hands over, training goes on, the record is written, and other writers keep their lines."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pickle
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ppo_doctor
from ppo_doctor.record import Recorder
from ppo_doctor.record.outlets import LineFile
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


class Stranger:
    """Answers to nothing, and not politely."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError

    __repr__ = __bool__ = __len__ = __iter__ = __float__ = __int__ = __array__ = __str__


class MuteError(LookupError):
    """Has no text, either."""

    __str__ = Stranger.__str__


def refuse(*_):
    raise MuteError


ANYTHING = st.one_of(
    st.none(),
    st.sampled_from([np.zeros(3), np.zeros((2, 0)), np.array(1.5), "x", b"x", object(), len, {}, [1, "a"]]),
    st.sampled_from([np.array(["a"]), np.array([None]), np.array([1j]), np.ma.masked, Stranger(), refuse, Ellipsis]),
    st.sampled_from([lambda: [np.zeros(3)], lambda: (np.zeros(3), np.zeros(3)), lambda: 3, [Stranger()], (0.1, None)]),
    st.booleans(),
    st.floats(),
    st.integers(-(10**400), 10**400),
)
STRICT = st.sampled_from([contextlib.nullcontext, lambda: np.errstate(all="raise")])


@given(data=st.data())
@settings(**FIXED)
def test_nothing_that_is_handed_over_raises_into_training(data, tmp_path):
    def draw():
        return data.draw(ANYTHING)

    def some(*names):
        return {name: draw() for name in data.draw(st.sets(st.sampled_from(names)))}

    path = tmp_path / "run.jsonl"
    path.unlink(missing_ok=True)
    target = data.draw(st.sampled_from([path, [path], [path, refuse], [Stranger(), path], [None, path]]))
    with data.draw(STRICT)(), warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder = Recorder(
            target, every=1, **some("config", "clip_range", "model", "optimizer", "old_policy", "reference")
        )
        Recorder(draw(), every=draw(), sequence_ratio=draw()).start_update()
        recorder.configure(draw())
        recorder.watch(draw(), draw())
        recorder.start_update(advantages=draw())
        recorder.rollout(**some("sampler_log_prob", "old_log_prob", "mask"))
        pair = {"new_log_prob": draw(), "old_log_prob": draw()}
        recorder.minibatch(**pair, **some("advantages", "mask", "policy_loss", "other", "epoch", "log_prob_gradient"))
        recorder.minibatch(*some("new_log_prob").values(), **some("old_log_prob", "clip_range"))
        recorder.optimizer_step(**some("model", "optimizer", "grad_norm", "loss_scale", "executed"))
        recorder.end_update(**some("step", "probe", "reward_mean", "update"))
        assert one_update(recorder)["tokens_in_loss"] == 4
        recorder.close()
        recorder.close()
    assert lines(path)[-1]["tokens_in_loss"] == 4


@pytest.mark.parametrize("bad", [{"old_log_prob": np.zeros(5)}, {"advantages": np.zeros(3)}, {"mask": np.ones((2, 2))}])
def test_a_minibatch_whose_shapes_mismatch_costs_its_own_numbers_alone(tmp_path, capfd, bad):
    good = {"new_log_prob": np.zeros(4), "old_log_prob": np.full(4, -0.1), "advantages": np.arange(4.0)}
    recorder = Recorder(tmp_path / "run.jsonl", clip_range=0.2)
    for minibatches in ([good, good], [good, good | bad, good], [good, good]):
        recorder.start_update()
        for epoch, minibatch in enumerate(minibatches):
            recorder.minibatch(**minibatch, epoch=epoch, policy_loss=0.5)
        recorder.end_update()
    first, hit, last = lines(tmp_path / "run.jsonl")[1:]
    aside = ("step", "update", "time_update", "calls_lost")
    assert len({json.dumps({k: v for k, v in line.items() if k not in aside}) for line in (first, hit, last)}) == 1
    assert [line.get("calls_lost") for line in (first, hit, last)] == [None, 1, None]
    assert capfd.readouterr().err.count("training and recording go on") == 1


def test_metrics_of_several_numbers_stand_for_their_mean(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder, episode_return=np.array([1.0, 2.0, 6.0]), episode_length=[10, 20])
    written = lines(tmp_path / "run.jsonl")[1]
    assert (written["episode_return"], written["episode_length"]) == (3, 15)


def test_a_step_that_is_no_number_is_the_count_of_updates(tmp_path, capfd):
    recorder = Recorder(tmp_path / "run.jsonl")
    for step in ("x", float("nan"), np.zeros(3), None):
        one_update(recorder, step=step)
    assert [line["step"] for line in lines(tmp_path / "run.jsonl")[1:]] == [1, 2, 3, 4]
    assert capfd.readouterr().err.count("training and recording go on") == 2


@pytest.mark.parametrize("clip_range", ["x", (0.1,), -2.0, {}])
def test_a_clip_range_that_is_none_costs_what_is_clipped_alone(tmp_path, clip_range):
    found = one_update(Recorder(tmp_path / "run.jsonl", clip_range=clip_range))
    assert "clip_fraction" not in found
    assert found["tokens_in_loss"] == 4


def test_weights_that_cannot_be_read_cost_what_is_told_of_them_alone(tmp_path, capfd):
    recorder = Recorder(tmp_path / "run.jsonl", model=refuse)
    assert one_update(recorder)["tokens_in_loss"] == 4
    assert one_update(recorder, probe=refuse)["tokens_in_loss"] == 4
    assert "MuteError" in capfd.readouterr().err


def test_a_target_that_cannot_be_opened_takes_no_other_along(tmp_path, capfd):
    (tmp_path / "file").write_text("")
    recorder = Recorder([tmp_path / "file" / "run.jsonl", tmp_path / "one.jsonl", None, tmp_path / "two.jsonl"])
    one_update(recorder)
    assert lines(tmp_path / "one.jsonl") == lines(tmp_path / "two.jsonl")
    assert len(lines(tmp_path / "one.jsonl")) == 2
    assert capfd.readouterr().err.count("nothing is recorded into") == 2


THREADS, EACH = 4, 150


def test_threads_that_share_a_recorder_lose_no_line(tmp_path):
    recorder, told = Recorder(tmp_path / "run.jsonl"), []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def trains():
        told.extend(one_update(recorder)["step"] for _ in range(EACH))

    threads = [threading.Thread(target=trains) for _ in range(THREADS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    written = lines(tmp_path / "run.jsonl")[1:]
    assert [line["update"] for line in written] == list(range(1, THREADS * EACH + 1))
    assert sorted(told) == [line["step"] for line in written]
    assert {line["tokens_in_loss"] for line in written} == {4}


def test_what_another_thread_tells_belongs_to_the_update_that_is_open(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl", every=2)
    for _ in range(4):
        for call in (recorder.start_update, lambda: one_minibatch(recorder), recorder.end_update):
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
    written = lines(tmp_path / "run.jsonl")[1:]
    assert [(line["update"], line["tokens_in_loss"]) for line in written] == [(1, 4), (3, 4)]


def one_minibatch(recorder):
    recorder.minibatch(new_log_prob=np.zeros(4), old_log_prob=np.zeros(4))


def test_a_recorder_that_hangs_on_a_model_is_copied_with_it(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    assert not copy.deepcopy(recorder).quiet
    assert pickle.dumps(recorder)


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


@pytest.fixture
def full(monkeypatch):
    """A disk that has no room as long as the context lasts."""

    @contextlib.contextmanager
    def lasting():
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            yield

    return lasting


def test_settings_that_found_no_room_come_before_the_first_record_that_does(tmp_path, full):
    recorder = Recorder(tmp_path / "run.jsonl", config={"n_epochs": 4})
    with full():
        one_update(recorder)
    one_update(recorder)
    settings, record = lines(tmp_path / "run.jsonl")
    assert settings["config"] == {"n_epochs": 4}
    assert (record["update"], record["records_lost"]) == (2, 1)


def test_records_that_were_lost_last_are_counted_at_the_end(tmp_path, full):
    recorder = Recorder(tmp_path / "run.jsonl")
    one_update(recorder)
    with full():
        one_update(recorder)
        one_update(recorder)
    recorder.close()
    assert lines(tmp_path / "run.jsonl")[-1] == {"ppo_doctor": 1, "records_lost": 2}
    assert ppo_doctor.load_run(tmp_path / "run.jsonl").series["ratio_mean"].values.shape == (1,)
