"""Spikes of a KL, beside its median."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.run_view import RunView


def spike(**series):
    return RunView(case_run({"series": series})).fact("kl_spike")


def test_the_largest_kl_is_told_with_its_step_and_its_median():
    found = spike(ref_kl="0.5x9 50 0.5x9 60 0.5x9")
    assert found.value == pytest.approx(120)
    assert "60 at step 21" in found.says
    assert "median is 0.5" in found.says
    assert "above 10 in 2 of 32 records" in found.says


def test_of_two_kls_the_one_that_spikes_is_told():
    assert "approx_kl" in spike(approx_kl="0.02x9 4 0.02x9", ref_kl="0.5x19").says


@pytest.mark.parametrize("kl", ["0.0001x9 0.05 0.0001x9", "0.02x19", "0.02x9 nan 0.02x9"])
def test_small_steady_and_missing_numbers_are_no_spike(kl):
    assert spike(approx_kl=kl).value < 2


def test_a_kl_of_0_in_most_records_has_no_usual_size():
    assert spike(approx_kl="0x9 5 0x9") is None


def breaks(reward):
    return RunView(case_run({"series": {"episode_return": reward}})).fact("reward_breaks").value


def test_a_reward_that_is_none_to_the_end_breaks_only_where_it_is_longer_than_before():
    assert breaks("5x9 nan nan nan") == 1
    assert breaks("nan nan nan 5 nan nan nan nan 6 nan nan nan nan 7 nan nan") == 0


def test_one_gradient_spike_counts_as_two_where_the_reward_is_gone_after_it():
    def spikes(reward):
        run = case_run({"series": {"grad_norm": "0.3x19 900 0.3x19", "reward_mean": reward}})
        return RunView(run).fact("gradient_spikes")

    gone = spikes("0.5 0.52 0.5x17 0.5 0.5 0.02x17")
    assert (gone.value, gone.since) == (2, 20)
    assert spikes("0.5 0.52 0.5x37").value == 1
    assert spikes("0.5 0.52 0.5x29 0.02x7").value == 1  # long after it
