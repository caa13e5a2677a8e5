"""Courses of series: start, end, steps between them, and whether a change is more than scatter."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.checks.series import all_known, any_known, both, course, paired, zero_share
from ppo_doctor.diagnosis.analyze import diagnose
from tests.synthetic import a_series, observe


def test_a_rise_beyond_its_scatter_and_none_within_it():
    noise = np.random.default_rng(1).normal(0, 1, 40)
    assert course(noise + np.linspace(0, 20, 40)).change > 5
    assert abs(course(noise).change) < 3


@pytest.mark.parametrize("size", [0, 3])
def test_too_few_values_have_no_course(size):
    assert course(np.ones(size)) is None


def test_a_long_series_is_read_as_means():
    values = np.tile([0.0, 1.0], 5_000)
    assert course(values).start == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_change_has_no_scale(scale):
    values = np.array([1.0, 1.2, 0.9, 1.1, 2.0, 2.2, 1.9, 2.1])
    assert course(values * scale).change == pytest.approx(course(values).change, rel=1e-3)


def test_a_zero_that_may_be_one_in_print_only_is_not_counted():
    assert zero_share(a_series("grad_norm", [0.0] * 5)) == 1.0
    assert zero_share(a_series("grad_norm", [0.0, 0.5, 0.5], absolute=0.05)) is None
    assert zero_share(a_series("grad_norm", [0.0, 500.0, 500.0], absolute=0.05)) == pytest.approx(1 / 3)


def test_values_are_paired_by_their_steps():
    left, right = paired(a_series("a", [1.0, 2.0, 3.0]), a_series("b", [10.0, np.nan, 30.0, 40.0]))
    assert (left.tolist(), right.tolist()) == ([1.0, 3.0], [10.0, 30.0])


def test_what_is_unknown_says_neither_yes_nor_no():
    assert (all_known(None, True), all_known(None, False), all_known(None)) == (True, False, None)
    assert (any_known(None, False), any_known(None, True), any_known()) == (False, True, None)
    assert (both(None, True), both(None, False), both(True, True)) == (None, False, True)


PACK = load_pack()


def observed(**case):
    return RunView(case_run(case))


# Time


def noisy(*levels, scatter=0.05):
    return np.concatenate([np.full(20, level) for level in levels]) + np.random.default_rng(1).normal(
        0, scatter, 20 * len(levels)
    )


def test_missing_records_are_left_out():
    lost = observed(series={"reward_mean": "0.9x9 nan 0.9x9 0x14 nan 0x4"}).fact("reward_lost")
    assert lost is not None
    assert lost.value == 1.0


# Windows and identities


def test_entropy_near_zero_from_the_start_has_no_share():
    assert observed(series={"entropy": "0.01x29"}).series("entropy_share") is None


# The lab


def judged(**series):
    return diagnose(case_run({"series": series}), PACK)


def leaders(diagnosis):
    return [cause.id for cause in diagnosis.causes if cause.leader and not cause.benign]


HEALTHY_KL = "0.004 0.005 0.006x97"


def test_a_run_that_dips_and_recovers_has_not_collapsed():
    rising, dip, back = "0.1+0.01x39", "0.1 0.12 0.11 0.13 0.12 0.1", "0.45 0.47 0.5 0.48 0.52x49"
    diagnosis = judged(episode_return=f"{rising} {dip} {back}", approx_kl=HEALTHY_KL, entropy="0.69-0.004x99")
    assert "late-collapse" not in leaders(diagnosis)


def test_a_spike_of_the_gradient_and_one_bad_record_are_no_trend():
    gradient = "1 1.1 0.9 " * 16 + "40 " + "1 1.1 0.9 " * 17
    reward = "0.1+0.01x47 0.1 0.58+0.002x50"
    diagnosis = judged(episode_return=reward, grad_norm=gradient.strip(), approx_kl=HEALTHY_KL, entropy="0.69-0.004x99")
    assert leaders(diagnosis) == []


def test_a_deterministic_policy_says_nothing_of_the_ratio():
    entropy = "0.6 0.3 0.05 " + "1e-9 " * 37
    departure = observed(series={"approx_kl": "0.5 2 4 3 0x35", "entropy": entropy.strip()}).series("ratio_departure")
    assert np.isfinite(departure.values).sum() == 4


def test_a_step_far_from_the_others_hides_no_course():
    rises = np.linspace(0.0, 1.0, 600) + np.random.default_rng(0).normal(scale=0.05, size=600)
    usual, far = (observe(a_series("reward_mean", rises, steps=[*range(599), last])) for last in (599, 10**12))
    assert usual.fact("reward_gain").value > 10
    assert far.fact("reward_gain").value == pytest.approx(usual.fact("reward_gain").value, rel=0.1)
