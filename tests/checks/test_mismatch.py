"""A first record is the state before training only where nothing was trained in it."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import load_run


def first(folder, steps, values, rate=None, framework="trl-grpo", **settings):
    rows = [
        {"step": step, "reward": 0.2 + 0.01 * step, "reward_std": 0.3, "kl": kl, "completions/mean_length": 90.5}
        | ({"learning_rate": rate} if rate is not None else {})
        for step, kl in zip(steps, values, strict=True)
    ]
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    fact = RunView(load_run(path, settings=settings, framework=framework)).fact("reference_first")
    return None if fact is None else fact.value


FLAT = [0.4, 0.41, 0.42, 0.4, 0.41, 0.43, 0.42, 0.4, 0.41, 0.42]


@pytest.mark.parametrize(
    ("steps", "rate", "known"),
    [
        (range(1, 11), None, True),  # a record per step, taken before it
        (range(10, 101, 10), None, False),  # a mean of ten steps, at a rate that nobody tells
        (range(10, 101, 10), 1e-6, True),  # ten steps at 1e-6 make no 0.4 nats
        (range(10, 101, 10), 3e-5, False),  # at 3e-5 they may
        (range(1, 92, 10), None, False),  # a first record at step 1 of a log that averages
        (range(37, 47), None, False),  # a log that begins later
    ],
)
def test_where_the_first_record_is_the_start(tmp_path, steps, rate, known):
    assert first(tmp_path, steps, FLAT, rate) == (0.4 if known else None)
