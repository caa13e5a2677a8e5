"""Stability, mismatch and time: the traps of what is derived."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.testing import case_run
from tests.synthetic import a_series, observe

PACK = load_pack()


def observed(**case):
    return RunView(case_run(case))


def test_missing_records_are_left_out():
    lost = observed(series={"reward_mean": "0.9x9 nan 0.9x9 0x14 nan 0x4"}).fact("reward_lost")
    assert lost is not None
    assert lost.value == 1.0


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
