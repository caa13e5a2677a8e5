"""The recorder in plain loops: whatever it is handed, training goes on and the record is written."""

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
from lab.numpy_lab.dialects import write
from lab.numpy_lab.train import run
from ppo_doctor.record import Recorder
from ppo_doctor.record.outlets import LineFile
from tests.record.loops import one_update
from tests.record.numpy_loop import train

FIXED = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


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


#: What no log without the learning rate tells apart.
STANDING = {"lr-zero", "no-grad-path", "optimizer-orphaned-params"}


@pytest.mark.parametrize("watched", [True, False])
def test_advantages_that_reach_the_loss_are_not_called_zero(tmp_path, watched):
    train(tmp_path / "run.jsonl", 0.0, watched=watched, updates=40)
    run, diagnosis = ppo_doctor.load_run(tmp_path / "run.jsonl"), ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert run.series["advantages_std"].values == pytest.approx(1, abs=1e-6)
    assert diagnosis.verdict == "unhealthy"
    assert "adv-exactly-zero" not in {cause.id for cause in diagnosis.causes}
    leaders = {cause.id: cause.confidence for cause in diagnosis.causes if cause.leader}
    assert leaders.keys() <= STANDING
    assert leaders.get("lr-zero") == ("likely" if watched else None)
    assert "established" not in leaders.values()


@pytest.mark.parametrize(
    ("watched", "how"),
    [(True, {"learning_rate": 0.0}), (False, {"lr": 0}), (False, {"config": {"learning_rate": 0.0}})],
)
def test_a_learning_rate_of_zero_that_is_told_is_the_cause(tmp_path, watched, how):
    """Whether weights are given or not: without them, and without the rate, a log shows only that nothing moves."""
    train(tmp_path / "run.jsonl", 0.0, watched=watched, updates=25, **how)
    leaders = [
        (cause.id, cause.confidence) for cause in ppo_doctor.analyze(tmp_path / "run.jsonl").causes if cause.leader
    ]
    assert leaders == [("lr-zero", "established")]


@pytest.mark.parametrize("rate", [0.03, 0.07])
def test_a_run_that_learns_with_small_updates_is_healthy_at_any_rate(tmp_path, rate):
    train(tmp_path / "run.jsonl", rate, learning_rate=rate)
    run, diagnosis = ppo_doctor.load_run(tmp_path / "run.jsonl"), ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert run.series["approx_kl"].values.max() <= 0.008
    assert run.series["reward_mean"].values[-1] > 0.75
    assert diagnosis.verdict == "healthy"
    assert [cause.id for cause in diagnosis.causes if not cause.benign] == []


def test_a_rate_that_takes_updates_far_is_too_high(tmp_path):
    train(tmp_path / "run.jsonl", 10.0, learning_rate=10.0)
    diagnosis = ppo_doctor.analyze(tmp_path / "run.jsonl")
    assert diagnosis.causes[0].id == "lr-too-high"


def test_a_policy_synced_by_value_has_memory_of_its_own(tmp_path):
    lines = write(run("old-logp-resynced-per-minibatch", updates=3), "recorder", tmp_path).read_text().splitlines()
    assert [json.loads(line)["old_policy_shared"] for line in lines[1:]] == [0, 0, 0]


def test_the_recorders_numbers_are_those_of_the_lab(tmp_path):
    record = run("healthy", seed=12, updates=4, dialect="recorder")
    lines = write(record, "recorder", tmp_path).read_text().splitlines()[1:]
    for update, line in zip(record.updates, lines, strict=True):
        told = json.loads(line)
        cells = update.minibatches
        assert told["approx_kl"] == pytest.approx(np.mean([cell.k3 for cell in cells]), rel=1e-3, abs=1e-7)
        assert told["ratio_max"] == pytest.approx(max(cell.ratio_max for cell in cells), rel=1e-5)
        assert told["clip_fraction"] == pytest.approx(np.mean([cell.clip_fraction for cell in cells]), abs=1e-6)
        assert told["grad_norm"] == pytest.approx(np.mean([cell.grad_norm for cell in cells]), rel=1e-5)
        assert told["update_norm"] == pytest.approx(update.update_norm, rel=1e-4)
        assert told["changed_fraction"] == pytest.approx(update.changed_fraction)
        assert told["probe_kl"] == pytest.approx(update.probe_kl, rel=1e-3, abs=1e-7)
        assert (told["optimizer_steps"], told["skipped_steps"]) == (16, 0)
        assert told["optimizer_params_matched"] == 1
        assert told["loss_ratio_std"] == pytest.approx(told["ratio_std"], rel=0.2)
        # two float32 log-probs of about one nat differ by as much as 2**-20 where they should be the same
        assert told["batch_start_ratio_dev"] <= 2**-20 < told["epoch_start_ratio_dev"]
