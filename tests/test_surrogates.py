"""What the sign of the policy loss tells is read where the loss is the surrogate alone, and nowhere else."""

from __future__ import annotations

import pytest

from ppo_doctor.derive import Observations
from ppo_doctor.testing import case_run


def fact(name, framework="trl-grpo", config=None, **series):
    case = {"name": "case", "framework": framework, "config": config or {}, "series": series}
    return Observations(case_run(case)).fact(name)


@pytest.mark.parametrize("extra", [{"ref_kl": "0.01x99"}, {}])
def test_a_kl_term_in_the_loss_hides_its_sign(extra):
    config = {} if extra else {"kl_coef": 0.04}
    assert fact("losses_above_zero", config=config, loss="0.1x99", **extra) is None
    assert fact("loss_trend", config=config, loss="0.1+0.01x99", **extra) is None


def test_a_loss_of_single_samples_says_nothing_here():
    assert fact("losses_above_zero", framework="trl-ppo-legacy", policy_loss="0.1x99") is None


PASSES = {"policy_loss": "0.01 -0.01 " * 24 + "0.01", "approx_kl": "0.0002x48", "response_length": "20x48"}


@pytest.mark.parametrize(
    ("config", "clipped"),
    [
        ({"ppo_epochs": 1, "early_stopping": False}, "0x48"),
        ({"ppo_epochs": 4, "early_stopping": True, "target_kl": 1}, "0x48"),
        ({"ppo_epochs": 4, "early_stopping": False}, "0.1x48"),
    ],
    ids=["one pass", "a KL target may stop", "the clip takes gains"],
)
def test_other_reasons_for_no_gain_are_left_alone(config, clipped):
    assert fact("passes_without_gain", "trl-ppo-legacy", config, clip_fraction=clipped, **PASSES) is None


def test_losses_of_another_scale_have_no_gain_per_root_kl():
    told = {"policy_loss": "-0.6x29", "approx_kl": "0.001x29"}
    assert fact("gain_per_root_kl", "canonical", **told) is None
    assert fact("gain_per_root_kl", "canonical", policy_loss="-0.01x29", approx_kl="0.01x29").value == pytest.approx(
        0.1
    )
