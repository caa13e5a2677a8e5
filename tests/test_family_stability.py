"""Stability, mismatch and time: lab faults through the judge, and the traps of what is derived."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.derive.onset import find_collapse, run_phases, spikes, split
from ppo_doctor.rulepack import load_pack
from ppo_doctor.testing import case_run

from .lab.judge import judge
from .lab.presets import dialect_task
from .lab.train import run

PACK = load_pack()


def observed(**case):
    return Observations(case_run(case))


# Time


def noisy(*levels, scatter=0.05):
    return np.concatenate([np.full(20, level) for level in levels]) + np.random.default_rng(1).normal(
        0, scatter, 20 * len(levels)
    )


def test_a_step_is_found_where_it_is():
    at, chance = split(noisy(0.0, 1.0))
    assert abs(at - 20) <= 1
    assert chance < 1e-3


def test_noise_and_outliers_are_no_step():
    values = np.random.default_rng(2).normal(0, 1, 60)
    values[30] = 1e6
    assert split(values)[1] > 1e-3


def test_a_correlated_walk_needs_more_evidence_than_independent_noise():
    sharp, blurred = noisy(0.0, 0.5, scatter=0.3), np.repeat(noisy(0.0, 0.5, scatter=0.3)[::4], 4)
    assert split(blurred)[1] > split(sharp)[1]


def test_a_lasting_fall_is_a_collapse_and_says_where():
    found = find_collapse(noisy(0.1, 0.8, 0.9, 0.1))
    assert found is not None
    assert abs(found.at - 60) <= 2
    assert found.lost > 0.9


@pytest.mark.parametrize(
    "levels",
    [(0.1, 0.8, 0.1, 0.8), (0.1, 0.4, 0.8, 0.9), (0.9, 0.8, 0.85, 0.6), (0.1, 0.1, 0.1, 0.1)],
    ids=["recovery", "learning", "a third lost", "never anything"],
)
def test_what_is_no_collapse(levels):
    assert find_collapse(noisy(*levels)) is None


def test_few_records_and_constants_tell_nothing():
    assert find_collapse(np.zeros(5)) is None
    assert find_collapse(np.ones(50)) is None


def test_a_spike_stands_alone():
    values = np.ones(40)
    values[7] = 100.0
    values[20:24] = 100.0
    assert spikes(values, 10.0).tolist() == [7]


def test_phases_are_named():
    series = {"reward_mean": "0.1x14 0.8 0.82 0.8 0.81 0.8 0.82 0.8 0.81 0.8 0.82 0.8 0.81 0.8 0.82 0.8 0.81 0.05x14"}
    assert [phase.name for phase in run_phases(observed(series=series))] == ["learning", "plateau", "collapse"]


def test_missing_records_are_left_out():
    lost = observed(series={"reward_mean": "0.9x9 nan 0.9x9 0x14 nan 0x4"}).fact("reward_lost")
    assert lost is not None
    assert lost.value == 1.0


# Windows and identities


def test_a_mean_over_all_minibatches_counts_three_times():
    case = {"framework": "trl-ppo-legacy", "series": {"approx_kl": "0.02x9"}}
    assert observed(**case).series("update_kl").values.tolist() == pytest.approx([0.06] * 10)


def test_one_sided_clip_counts_are_doubled_and_tiny_ranges_left_out():
    case = {"framework": "trl-grpo", "series": {"clip_fraction": "0.2x9"}}
    assert observed(**case).series("clipped_share").values[0] == pytest.approx(0.4)
    tiny = {"series": {"clip_fraction": "0.9x9"}, "config": {"clip_range": 0.001}}
    assert observed(**tiny).series("clipped_share") is None


def test_other_windows_are_not_held_against_each_other():
    same = {"series": {"clip_fraction": "0.5x9", "approx_kl": "0.0001x9"}, "config": {"clip_range": 0.2}}
    assert observed(**same).series("clip_kl_contradiction").values[0] > 0.9
    assert observed(framework="sb3", **same).series("clip_kl_contradiction") is None


def test_entropy_near_zero_from_the_start_has_no_share():
    assert observed(series={"entropy": "0.01x29"}).series("entropy_share") is None


# The lab


LOUD = [
    ("lr-too-high", "sb3", {"lr-too-high"}),
    ("lr-too-high", "trl-ppo", {"lr-too-high"}),
    ("entropy-explosion", "canonical", {"entropy-explosion"}),
    ("entropy-collapse", "trl-grpo", {"entropy-collapse", "single-output-collapse"}),
    ("token-misalignment", "trl-grpo", {"token-misalignment"}),
    ("staleness-async", "trl-grpo", {"staleness-async"}),
    ("weights-not-synced", "trl-grpo", {"weights-not-synced"}),
    ("rollout-trainer-mismatch", "trl-grpo", {"rollout-trainer-mismatch"}),
    ("dropout-or-train-mode", "trl-grpo", {"dropout-or-train-mode"}),
    ("negative-kl", "trl-ppo", {"negative-kl"}),
    ("ref-model-wrong", "trl-ppo", {"ref-model-wrong"}),
    ("metric-logging-bug", "canonical", {"metric-logging-bug"}),
]


@pytest.mark.parametrize(("fault", "dialect", "causes"), LOUD, ids=[f"{f}-{d}" for f, d, _ in LOUD])
def test_a_fault_is_among_the_leaders(fault, dialect, causes):
    record = run(fault, task=dialect_task(dialect), seed=0, severity=2, updates=50, dialect=dialect)
    diagnosis = judge(record, dialect, PACK)
    assert causes & {cause.id for cause in diagnosis.causes if cause.leader}


def test_a_synced_reference_raises_no_alarm():
    record = run("benign-ref-sync", task="language", seed=0, severity=2, updates=50, dialect="trl-grpo")
    diagnosis = judge(record, "trl-grpo", PACK)
    assert [c.id for c in diagnosis.causes if c.leader and not c.benign and c.family == "mismatch"] == []
