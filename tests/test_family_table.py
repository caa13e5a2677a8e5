"""The decision table of a ratio of 1: derived quantities, and public threads rebuilt as logs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from lab.numpy_lab.faults import FAULTS
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.testing import case_run, parse_series

THREADS = tomllib.loads((Path(__file__).parent / "threads" / "ratio_one.toml").read_text(encoding="utf-8"))["thread"]
K4 = {"ppo_epochs": 4, "num_minibatches": 4}


def leaders(found):
    return {cause.id for cause in found.causes if cause.leader}


MINE = {name for name, fault in FAULTS.items() if fault.inject.__module__.endswith("decision_table")}


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["source"])
def test_a_public_thread(thread, tmp_path):
    import ppo_doctor

    found = ppo_doctor.analyze(rebuilt(thread, tmp_path))
    assert found.verdict in thread["verdicts"]
    assert leaders(found) & MINE <= set(thread["causes"])
    if found.verdict == "unhealthy":
        assert leaders(found) & set(thread["causes"])


def rebuilt(thread, folder):
    """Write a thread's numbers as the framework would have logged them."""
    columns = {key: parse_series(text) for key, text in thread["series"].items()}
    size = max(len(values) for values in columns.values())
    rows = [
        {"step": i + 1} | {key: values[i] for key, values in columns.items() if i < len(values)} for i in range(size)
    ]
    canonical = thread["framework"] == "canonical"
    header = [{"ppo_doctor": 1, "config": thread["config"]}] if canonical else []
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*header, *rows]), encoding="utf-8")
    if not canonical and thread["config"]:
        (folder / "config.json").write_text(json.dumps(thread["config"]), encoding="utf-8")
    return path


# Derived quantities


def observed(series, config=None, **rest):
    return RunView(case_run({"series": series, "config": config or {}, **rest}))


def test_kl_size_is_that_of_the_kl_else_half_the_variance_of_the_ratio():
    assert observed({"approx_kl": "-0.002x4"}).series("kl_size").values.tolist() == [0.002] * 5
    assert observed({"ratio_std": "0.1x4"}).series("kl_size").values == pytest.approx([0.005] * 5)
    rounded = observed({"ratio_std": "0x4"}, resolution={"ratio_std": 0.0005}).series("kl_size")
    assert rounded.resolution.absolute == pytest.approx(1.25e-7)


def test_usual_learning_rates_depend_on_the_task_and_a_printed_zero_is_none():
    assert observed({"learning_rate": "1e-6x5", "episode_return": "1x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(0.1)
    assert observed({"learning_rate": "1e-6x5", "response_length": "9x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(10)
    assert observed({"learning_rate": "0x5"}, resolution={"learning_rate": 0.0005}).fact("rate_over_usual") is None


def test_skipped_share_counts_against_the_plan_or_against_all_steps():
    assert observed({"skipped_steps": "8x3"}, K4).series("skipped_share").values.tolist() == [0.5] * 4
    both = observed({"skipped_steps": "3x3", "optimizer_steps": "1x3"}).series("skipped_share")
    assert both.values.tolist() == [0.75] * 4
    assert observed({"skipped_steps": "3x3"}).series("skipped_share") is None


def test_a_jump_of_the_learning_rate_is_no_schedule():
    assert observed({"learning_rate": "0.001-0.0001x9"}).fact("rate_left").value == pytest.approx(0.1)
    assert observed({"learning_rate": "0.001x9 0x9"}).fact("rate_left").value == 1


def test_infinite_gradients_count_only_beside_finite_losses():
    assert observed({"grad_norm": "inf 0.5", "loss": "0.1x1"}).series("overflowing_gradient").values.tolist() == [1, 0]
    assert observed({"grad_norm": "infx1", "loss": "nanx1"}).series("overflowing_gradient").values.tolist() == [0, 0]


def test_a_controller_may_stay_inside_its_band():
    band = observed({"learning_rate": "0.001 0.002x8", "approx_kl": "0.01x9"}, {"desired_kl": 0.01})
    assert band.series("controller_idle").values.sum() == 0
    assert observed({"learning_rate": "0.001x9", "approx_kl": "0.1x9"}).series("controller_idle") is None
