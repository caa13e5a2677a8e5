"""What is said in prose: the exception that a console ends in, early stops, and pairs between the records."""

from __future__ import annotations

import pytest

from ppo_doctor import readers

TRACE = """Traceback (most recent call last):
  File "/srv/lab/train.py", line 12, in main
    loss.backward()
  File "/srv/lab/torch/distribution.py", line 77, in __init__
    raise ValueError(
ValueError: Expected parameter logits to satisfy the constraint, but found invalid values:
tensor([[nan, nan],
        [nan, nan]])
"""
STEPS = "".join(f"step={i} policy_loss=0.0{i} value_loss=1.{i} entropy=0.6{i} approx_kl=0.00{i}\n" for i in range(1, 9))


def notes(tmp_path, text):
    (tmp_path / "stdout.log").write_text(text)
    _, items = readers.read(tmp_path / "stdout.log")
    return [str(item) for item in items if "died here" in str(getattr(item, "text", ""))]


def test_the_exception_at_the_end_is_told_with_its_last_frame(tmp_path):
    (note,) = notes(tmp_path, STEPS + TRACE)
    assert "stdout.log:14:" in note
    assert "ValueError: Expected parameter logits" in note
    assert "distribution.py:77, in __init__" in note
    assert "/srv" not in note


@pytest.mark.parametrize("text", [TRACE + STEPS, STEPS, STEPS + "Traceback (most recent call last):\n" + STEPS])
def test_what_a_run_survived_did_not_end_it(tmp_path, text):
    assert notes(tmp_path, text) == []


def test_a_run_that_never_began_says_why(cli, tmp_path):
    (tmp_path / "stdout.log").write_text(
        "Loading\n" + "".join(TRACE.splitlines(keepends=True)[:4]) + "RuntimeError: no such device\n"
    )
    asked = cli("analyze", tmp_path / "stdout.log")
    assert asked.code == 3
    assert "RuntimeError: no such device" in asked.err


def test_a_run_that_died_of_nan_before_its_first_record_is_judged_by_that(cli, tmp_path):
    (tmp_path / "stdout.log").write_text("Loading\n" + TRACE)
    (tmp_path / "config.json").write_text('{"ppo_epochs": 4}')
    report = cli("analyze", tmp_path, "--format", "json").json
    assert (report["verdict"], [cause["id"] for cause in report["causes"]]) == ("unhealthy", ["nan-inf"])


def test_a_run_that_died_of_nan_is_judged_by_that_where_nothing_else_is_a_metric(cli, tmp_path):
    (tmp_path / "stdout.log").write_text("Epoch: 0/4:\nEpoch: 1/4:\n" + TRACE)
    report = cli("analyze", tmp_path, "--format", "json").json
    assert (report["verdict"], [cause["id"] for cause in report["causes"]]) == ("unhealthy", ["nan-inf"])


def test_what_a_run_died_of_stands_at_the_top_of_its_report(cli, tmp_path):
    (tmp_path / "stdout.log").write_text(STEPS + TRACE)
    head = cli("analyze", tmp_path / "stdout.log").out.split("Signal chain")[0]
    assert "died of ValueError: Expected parameter logits" in " ".join(head.split())
    (tmp_path / "stdout.log").write_text(TRACE + STEPS)
    assert "died of" not in cli("analyze", tmp_path / "stdout.log").out


def test_early_stops_are_counted(tmp_path):
    prose = "Early stopping at step 2 due to reaching max kl: 0.03\n"
    lines = STEPS.splitlines(keepends=True)
    (tmp_path / "stdout.log").write_text("".join([lines[0], prose, *lines[1:4], prose, *lines[4:]]))
    _, items = readers.read(tmp_path / "stdout.log")
    (note,) = [str(item) for item in items if "stopped early" in str(getattr(item, "text", ""))]
    assert "stdout.log:2:" in note
    assert "2 updates" in note


def test_a_pair_that_stands_alone_again_and_again_is_a_part_of_the_next_record(cli, tmp_path):
    lines = [f"{line}Mean Reward: {n}.5\n\n" for n, line in enumerate(STEPS.splitlines(keepends=True))]
    (tmp_path / "stdout.log").write_text("Seed: 7\n\n" + "".join(lines))
    shown = cli("inspect", tmp_path / "stdout.log").out
    assert "Mean Reward" in shown
    assert "reward_mean" in shown
    assert "Seed" not in shown
