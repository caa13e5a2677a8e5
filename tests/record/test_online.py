"""Judged while it trains: what is unhealthy leaves its last minibatch, and may end the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ppo_doctor
from ppo_doctor.record import Recorder
from ppo_doctor.record.online import FIRST, REST, Online, Pace

CONFIG = {"algorithm": "ppo", "ppo_epochs": 4, "num_minibatches": 1, "clip_range": 0.2}


class Run:
    """A policy of a few weights in NumPy, a quarter of a step per minibatch; `frozen` never moves."""

    def __init__(self, recorder: Recorder, *, frozen: bool = False) -> None:
        self.made = np.random.default_rng(0)
        self.recorder, self.pace = recorder, 0.0 if frozen else 0.02
        self.weights = [np.ones(6, np.float32)]
        recorder.watch(lambda: self.weights)

    def updates(self, number: int) -> Iterator[int]:
        for update in range(number):
            self._update(update)
            yield update

    def _update(self, update: int) -> None:
        stored, advantages = self.made.normal(-1, 0.3, 64), self.made.normal(0, 1, 64)
        self.recorder.start_update(advantages=advantages)
        for epoch in range(4):
            new = stored + self.pace * epoch * (advantages + self.made.normal(0, 0.5, 64))
            self.recorder.minibatch(
                new_log_prob=new,
                old_log_prob=stored,
                advantages=advantages,
                epoch=epoch,
                entropy=1 - self.pace * update,
            )
            self.weights = [self.weights[0] + np.float32(self.pace)]
            self.recorder.optimizer_step(grad_norm=0.5)
        self.recorder.end_update(
            learning_rate=self.pace / 20, reward_mean=0.5 + self.made.normal(0, 0.1), reward_std=1.0
        )


def recorder(path: Path, **options: object) -> Recorder:
    return Recorder(path, config=CONFIG, clip_range=0.2, **options)


def test_a_critical_cause_asks_for_the_end(tmp_path, capfd):
    judged = recorder(tmp_path / "run.jsonl", stop_on="critical")
    ended = next(update for update in Run(judged, frozen=True).updates(60) if judged.should_stop)
    assert FIRST <= ended + 1 <= 3 * FIRST
    assert "critical" in judged.stop_reason
    assert "The learning rate is exactly 0" in judged.stop_reason
    assert ppo_doctor.analyze(tmp_path / "run.jsonl").causes[0].id == "lr-zero"
    assert capfd.readouterr().err == ""


def test_a_sound_run_goes_on_and_leaves_no_dump(tmp_path):
    judged = recorder(tmp_path / "run.jsonl", stop_on="low", dump_when="unhealthy")
    assert not any(judged.should_stop for _ in Run(judged).updates(40))
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_the_last_minibatch_is_saved_once_and_can_be_analyzed(tmp_path, capfd):
    judged = recorder(tmp_path / "run.jsonl", dump_when="unhealthy")
    for _ in Run(judged, frozen=True).updates(40):
        pass
    (dump,) = tmp_path.glob("*.safetensors")
    assert str(dump) in capfd.readouterr().err
    run = ppo_doctor.load_run(dump)
    assert run.series["ratio_max"].values.tolist() == [1.0]
    assert run.series["tokens_in_loss"].values.tolist() == [64.0]
    assert not judged.should_stop


def test_dumps_go_where_they_are_wanted_also_without_a_file(tmp_path):
    seen: list[dict[str, float]] = []
    judged = Recorder(seen.append, config=CONFIG, dump_when="unhealthy", dump_folder=tmp_path)
    for _ in Run(judged, frozen=True).updates(20):
        pass
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    assert len(seen) == 20


def test_without_being_asked_nothing_is_imported_or_kept(tmp_path):
    plain = recorder(tmp_path / "run.jsonl")
    for _ in Run(plain).updates(2):
        pass
    assert plain._outlets.online is None
    assert not plain.should_stop


@pytest.mark.parametrize("wrong", [{"stop_on": "never"}, {"dump_when": "always"}])
def test_what_does_not_exist_is_refused_before_training(tmp_path, wrong):
    with pytest.raises(ValueError, match="is"):
        recorder(tmp_path / "run.jsonl", **wrong)


def test_a_fault_in_judging_ends_the_judging_alone(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(Online, "take", lambda *_: 1 / 0)
    judged = recorder(tmp_path / "run.jsonl", stop_on="critical")
    for _ in Run(judged, frozen=True).updates(12):
        pass
    assert not judged.should_stop
    assert capfd.readouterr().err.count("no longer judged") == 1
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 13


def test_a_dump_that_finds_no_room_is_no_concern_of_training(tmp_path, capfd):
    judged = recorder(tmp_path / "run.jsonl", dump_when="unhealthy", dump_folder=tmp_path / "missing")
    for _ in Run(judged, frozen=True).updates(20):
        pass
    assert "training goes on" in capfd.readouterr().err
    assert [json.loads(line)["update"] for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]][-1] == 20


def judgements(records: int, *, cost: float, update: float) -> tuple[int, float]:
    """Return how often and how long a run is judged whose updates and judgements take so many seconds."""
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    for record in range(1, records + 1):
        now[0] += update
        if pace.ready(record):
            begun = now[0]
            now[0] += cost
            pace.spent(record, begun)
    return pace.judgements, pace.seconds


def test_judging_a_fast_run_grows_with_the_logarithm_of_its_length():
    assert judgements(1000, cost=1.0, update=1e-3)[0] <= 30
    assert judgements(10_000, cost=1.0, update=1e-3)[0] <= 45


def test_judging_a_slow_run_takes_a_hundredth_of_its_time():
    often, seconds = judgements(2000, cost=0.5, update=20.0)
    assert often > 500
    assert seconds / (2000 * 20.0) < 1.2 / REST
