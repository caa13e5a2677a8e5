"""The decision table of a ratio of 1: derived quantities, and public threads rebuilt as logs."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.testing import case_run, parse_series
from tests.lab.faults import FAULTS

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
    return Observations(case_run({"series": series, "config": config or {}, **rest}))


def test_kl_size_is_that_of_the_kl_else_half_the_variance_of_the_ratio():
    assert observed({"approx_kl": "-0.002x4"}).series("kl_size").values.tolist() == [0.002] * 5
    assert observed({"ratio_std": "0.1x4"}).series("kl_size").values == pytest.approx([0.005] * 5)
    rounded = observed({"ratio_std": "0x4"}, resolution={"ratio_std": 0.0005}).series("kl_size")
    assert rounded.resolution.absolute == pytest.approx(1.25e-7)


def test_late_drift_needs_records_and_ignores_what_is_not_a_number():
    assert observed({"entropy": "1x14"}).fact("late_entropy_drift") is None
    assert observed({"entropy": "1x15"}).fact("late_entropy_drift").value == 0
    assert observed({"entropy": "nan 1-0.02x29"}).fact("late_entropy_drift").value > 1
    early = observed({"entropy": "1-0.05x9 0.5x29"}).fact("late_entropy_drift")
    assert early.value < 1, "what moved in the first half does not count"


def test_motion_per_rate_skips_a_learning_rate_of_zero():
    values = observed({"update_norm": "0.1x2", "learning_rate": "0 0.01x1"}).series("motion_per_rate").values
    assert math.isnan(values[0])
    assert values[1:] == pytest.approx([10, 10])


@pytest.mark.parametrize(
    ("length", "plain"), [("0.004x9", True), ("0.0021x9", True), ("0.001x9", False), ("0.05x9", False)]
)
def test_motion_per_rate_says_nothing_of_plain_descent(length, plain):
    """Four steps of 0.01 along gradients of 0.1 add up to 0.002 to 0.004; clipped ones to less, Adam's to more."""
    logged = {"update_norm": length, "learning_rate": "0.01x9", "grad_norm": "0.1x9", "optimizer_steps": "4x9"}
    assert (observed(logged).series("motion_per_rate") is None) is plain


def test_usual_learning_rates_depend_on_the_task_and_a_printed_zero_is_none():
    assert observed({"learning_rate": "1e-6x5", "episode_return": "1x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(0.1)
    assert observed({"learning_rate": "1e-6x5", "response_length": "9x5"}).fact(
        "rate_over_usual"
    ).value == pytest.approx(10)
    assert observed({"learning_rate": "0x5"}, resolution={"learning_rate": 0.0005}).fact("rate_over_usual") is None


@pytest.mark.parametrize("steps", [2, 3, 4, 16])
def test_a_probe_in_line_with_coherent_steps_is_no_excess(steps):
    mean = np.mean(np.arange(steps) ** 2) / steps**2
    seen = observed(
        {"probe_kl": "0.01x9", "approx_kl": f"{0.01 * mean:.6f}x9"}, {"ppo_epochs": steps, "num_minibatches": 1}
    )
    assert seen.fact("probe_over_logged").value == pytest.approx(1, rel=0.01)


def test_a_probe_says_nothing_with_one_step_or_unknown_k():
    assert observed({"probe_kl": "0.01x9", "approx_kl": "0.001x9"}).fact("probe_over_logged") is None
    single = {"ppo_epochs": 1, "num_minibatches": 1}
    assert observed({"probe_kl": "0.01x9", "approx_kl": "0.001x9"}, single).fact("probe_over_logged") is None


def test_clipping_off_at_zero_in_transformers_and_on_elsewhere():
    series, config = {"grad_norm": "0.5x5"}, {"max_grad_norm": 0.0}
    assert observed(series, config).fact("clip_headroom").value == 0
    assert observed(series, config, framework="trl-grpo", algorithm="grpo").fact("clip_headroom") is None


def test_skipped_share_counts_against_the_plan_or_against_all_steps():
    assert observed({"skipped_steps": "8x3"}, K4).series("skipped_share").values.tolist() == [0.5] * 4
    both = observed({"skipped_steps": "3x3", "optimizer_steps": "1x3"}).series("skipped_share")
    assert both.values.tolist() == [0.75] * 4
    assert observed({"skipped_steps": "3x3"}).series("skipped_share") is None


def test_a_jump_of_the_learning_rate_is_no_schedule():
    assert observed({"learning_rate": "0.001-0.0001x9"}).fact("rate_left").value == pytest.approx(0.1)
    assert observed({"learning_rate": "0.001x9 0x9"}).fact("rate_left").value == 1


def test_tilt_is_one_over_the_coefficient_for_groups():
    seen = observed({"loss": "0.1x5"}, {"kl_coef": 0.04}, algorithm="grpo")
    assert seen.fact("reward_tilt").value == pytest.approx(25)
    assert observed({"loss": "0.1x5"}, {"kl_coef": 0.0}, algorithm="grpo").fact("reward_tilt") is None


def test_coefficient_growth_forgives_what_comes_back():
    assert observed({"kl_coef": "0.1 1 10 100 20x3"}).fact("coefficient_growth").value == 1
    assert observed({"kl_coef": "0.1 1 10 100 inf"}).fact("coefficient_growth").value > 100


def test_infinite_gradients_count_only_beside_finite_losses():
    assert observed({"grad_norm": "inf 0.5", "loss": "0.1x1"}).series("overflowing_gradient").values.tolist() == [1, 0]
    assert observed({"grad_norm": "infx1", "loss": "nanx1"}).series("overflowing_gradient").values.tolist() == [0, 0]


def test_a_controller_may_stay_inside_its_band():
    band = observed({"learning_rate": "0.001 0.002x8", "approx_kl": "0.01x9"}, {"desired_kl": 0.01})
    assert band.series("controller_idle").values.sum() == 0
    assert observed({"learning_rate": "0.001x9", "approx_kl": "0.1x9"}).series("controller_idle") is None
