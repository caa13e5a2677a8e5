"""Does the policy move, and does the ratio see it? Each witness up to its resolution."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.run_view import RunView

K4 = {"ppo_epochs": 4, "num_minibatches": 4}
FALLS, STAYS = "1.4-0.03x19", "1.4x19"


def told(name, config=None, framework="canonical", **series):
    found = RunView(case_run({"framework": framework, "series": series, "config": config or {}})).fact(name)
    return None if found is None else bool(found.value)


def test_a_ratio_of_one_beside_a_policy_that_moves():
    assert told("ratio_flat", approx_kl="0x19", clip_fraction="0x19")
    assert not told("ratio_flat", approx_kl="0.01x19", clip_fraction="0x19")
    assert not told("ratio_flat", approx_kl="0x19", clip_fraction="0.1x19")


def test_a_kl_of_zero_beside_a_surrogate_that_is_alive_may_not_have_been_computed():
    assert told("ratio_flat", approx_kl="0x19", policy_loss="-0.01x19") is None


def test_a_surrogate_at_float_noise_is_a_witness_where_no_kl_is_logged():
    assert told("ratio_flat", policy_loss="1e-8 -2e-8 3e-8 -1e-8x16")
    assert not told("ratio_flat", policy_loss="0.01x19")


def test_a_whole_loss_at_float_noise_is_one_and_a_loss_of_exactly_nothing_is_none():
    assert told("ratio_flat", {"num_iterations": 4}, "trl-grpo", clip_fraction="0x19", loss="1e-8 -2e-8 3e-8x17")
    assert not told("ratio_flat", {"num_iterations": 4}, "trl-grpo", clip_fraction="0x19", loss="0.01 -0.02x18")
    assert not told("ratio_flat", {"num_iterations": 4}, "trl-grpo", clip_fraction="0x19", loss="0x19")


def marked(lost=()):
    """Return ten generations of four steps each with one loss, whose first steps log a reward, but for some."""
    reward = " ".join("_" if step % 4 or step // 4 in lost else "0.5" for step in range(40))
    loss = " ".join(f"0.{step // 4 + 1:02}" for step in range(40))
    return {"reward_mean": reward, "loss": loss}


def test_losses_that_repeat_within_a_generation_tell_a_ratio_of_one_though_marks_are_lost():
    for lost in ((), (3,), (3, 6)):
        assert told("ratio_flat", {"num_iterations": 4}, "trl-grpo", clip_fraction="0x40", **marked(lost)), lost
    moving = marked() | {"loss": " ".join(f"0.{step + 10}" for step in range(40))}
    assert not told("ratio_flat", {"num_iterations": 4}, "trl-grpo", clip_fraction="0x40", **moving)


@pytest.mark.parametrize(("entropy", "stands"), [(STAYS, True), (FALLS, False)])
def test_a_policy_stands_still_by_every_witness(entropy, stands):
    assert told("policy_stands", K4, approx_kl="0x19", clip_fraction="0x19", entropy=entropy) is stands


def test_an_entropy_of_one_number_tells_where_no_log_prob_is_compared():
    assert told("policy_stands", K4, policy_loss="-0.01x19", entropy=STAYS)
    assert not told("policy_stands", K4, policy_loss="-0.01x19", entropy="1.4x18 1.4001")
    assert not told("policy_stands", K4, policy_loss="-0.01x19", entropy=STAYS, action_std="1x19")
    assert not told("policy_stands", K4, policy_loss="-0.01x19", entropy=STAYS, clip_fraction="0.1x19")


def test_with_one_update_per_batch_the_entropy_alone_can_tell():
    one = {"ppo_epochs": 1, "num_minibatches": 1}
    assert told("policy_stands", one, approx_kl="0x19", clip_fraction="0x19") is None
    assert told("policy_stands", one, approx_kl="0x19", entropy=FALLS) is False


def test_a_loss_that_sees_no_ratio_though_kl_does():
    flat = {"approx_kl": "0.05x19", "clip_fraction": "0x19", "policy_loss": "1e-8x19"}
    assert told("ratio_ignored", K4, **flat)
    assert not told("ratio_ignored", K4, **(flat | {"clip_fraction": "0.1x19"}))


def test_a_kl_after_the_only_update_of_a_batch_is_not_ignored():
    flat = {"approx_kl": "0.05x19", "clip_fraction": "0x19", "policy_loss": "1e-8x19"}
    assert told("ratio_ignored", **flat) is None
    assert told("ratio_ignored", {"ppo_epochs": 1, "num_minibatches": 1}, **flat) is False
    assert told("ratio_ignored", **flat, epochs_executed="8x19")


def test_a_mean_ratio_that_is_not_quite_one_is_a_step_as_large_as_its_kl():
    near = {"clip_fraction": "0x19", "ratio_mean": "1.00002x19", "entropy": STAYS}
    assert told("policy_stands", K4, approx_kl="1e-8x19", **near)
    assert not told("policy_stands", K4, approx_kl="1e-3x19", **near)


def test_a_loss_that_is_never_negative_may_be_an_absolute_value():
    assert told("surrogate_above_zero", policy_loss="0.01x19") is None
    assert told("surrogate_above_zero", policy_loss="0.01x18 -0.01")
    assert told("surrogate_above_zero", policy_loss="0.01x19", approx_kl="0.01x19")


def test_an_offset_beyond_what_kl_allows_is_no_loss_of_the_update():
    assert not told("surrogate_above_zero", policy_loss="0.9x19", approx_kl="0.001x19")


DRIFT = " ".join(f"{1.4 + 0.04 * math.sin(step / 4):.4f}" for step in range(19))
SCATTER = " ".join(f"{1.4 + 0.04 * math.cos(step * 2.5):.4f}" for step in range(19))


def test_an_entropy_whose_records_are_like_their_neighbours_moves_and_scatter_of_the_same_size_does_not():
    assert told("entropy_moves", entropy=DRIFT)
    assert not told("entropy_moves", entropy=SCATTER)
    assert not told("policy_stands", K4, approx_kl="0x19", entropy=DRIFT)
    assert told("policy_stands", K4, approx_kl="0x19", entropy=SCATTER)


def test_a_reward_that_rises_or_falls_tells_that_the_policy_moves_and_one_that_stays_tells_nothing():
    assert told("policy_moves", episode_return="1+0.5x29")
    assert told("policy_moves", episode_return="20-0.5x29")
    assert told("policy_moves", episode_return="1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2") is None
    assert told("policy_moves", episode_return="1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2 1 2", entropy=STAYS) is False


def test_a_ratio_that_never_spreads_beside_a_kl_that_lives_is_ignored():
    assert told("ratio_ignored", K4, approx_kl="0.05x19", ratio_std="0x19", ratio_mean="1x19")
    assert not told("ratio_ignored", K4, approx_kl="0.05x19", ratio_std="0.1x19", ratio_mean="1x19")


def test_where_no_log_prob_is_compared_the_entropy_tells_that_a_policy_stands():
    flat = "0.680 0.679 0.681 0.680 0.679 0.681 0.680 0.680 0.679 0.681 0.680 0.679 0.681 0.680 0.680"
    rewards = "30 28 31 29 30 28 31 30 29 30 28 31 29 30 29"
    assert told("policy_stands", entropy=flat, policy_loss="-9.3x14", episode_return=rewards)
    assert not told("policy_stands", entropy="0.68-0.03x14", policy_loss="-9.3x14", episode_return=rewards)


def test_the_entropys_term_in_the_loss_is_a_witness_whatever_its_coefficient():
    falls = " ".join(f"{-0.003 * (1 - 0.03 * n):.6f}" for n in range(20))
    assert told("policy_moves", entropy_loss=falls)
    assert not told("policy_moves", entropy_loss="-0.003x19")
    assert told("policy_moves", entropy_loss="0.00001 -0.003x18") is None  # a density's may begin next to 0


def test_a_gaussians_deviation_is_a_witness_as_its_entropy_is():
    assert told("policy_moves", action_std="1-0.03x19")
    assert not told("policy_moves", action_std="0.5x19")


def test_a_kl_to_the_reference_that_grows_shows_movement_however_small():
    grows = " ".join(f"{0.0002 + 0.00003 * n:.6f}" for n in range(40))
    scatter = " ".join(f"{0.004 + 0.001 * ((7 * n) % 5 - 2):.4f}" for n in range(40))
    assert told("policy_moves", ref_kl=grows)
    assert not told("policy_moves", ref_kl=scatter)
    frozen = {"approx_kl": "0x39", "clip_fraction": "0x39", "entropy": "1.4x39"}
    assert told("policy_stands", K4, ref_kl=scatter, **frozen)
    assert not told("policy_stands", K4, ref_kl=grows, **frozen)


def test_large_first_updates_are_told_by_a_number_that_the_log_holds_and_where():
    found = RunView(case_run({"series": {"approx_kl": "0.02 0.9 0.02x18"}})).fact("divergence_violent")
    assert found is not None
    assert found.value == pytest.approx(0.3)
    assert "0.9 at step 1" in found.says
    assert found.source.line == 2
    usual = RunView(case_run({"series": {"approx_kl": "0.02x9 0.2x10"}})).fact("divergence_violent")
    assert usual is not None
    assert usual.value == pytest.approx(0.2)


FADES = "0.005x9 0.00006x190"


def fading(config=None, **series):
    found = RunView(case_run({"series": series, "config": config or {}})).fact("divergence_fades")
    return None if found is None else found.value > 20


def test_updates_that_vanish_while_nothing_is_gained_fade():
    assert fading(approx_kl=FADES)
    assert fading(approx_kl=FADES, learning_rate="3e-4x199")
    assert fading(approx_kl=FADES, clip_fraction="0.3x9 0x190")


def test_updates_fade_by_right_where_the_rate_falls_the_reward_rises_or_samples_are_still_clipped():
    assert not fading(approx_kl=FADES, learning_rate="3e-4x20 3e-5x179")
    assert not fading(approx_kl=FADES, reward_mean="0.1+0.01x199")
    assert not fading(approx_kl=FADES, clip_fraction="0.3x9 0.01x190")
    assert not fading(approx_kl="0.0005x9 0.000006x190")  # never large
    assert fading({"ppo_epochs": 1, "num_minibatches": 1}, approx_kl=FADES) is None


def test_a_policy_left_the_reference_where_the_first_kl_is_exactly_0_and_the_others_are_not():
    jitter = " ".join(f"{0.008 + 0.002 * (step % 3)}" for step in range(40))
    wide = " ".join(f"{3.5 + 0.2 * (step % 3 - 1)}" for step in range(41))
    assert not told("policy_stands", clip_fraction="0x40", entropy=wide, ref_kl=f"0 {jitter}")
    assert told("policy_stands", clip_fraction="0x40", entropy=wide, ref_kl="0x40")
    assert told("policy_stands", clip_fraction="0x40", entropy=wide, ref_kl=" ".join(["1e-5"] * 41))


def test_an_entropy_that_scatters_widely_is_no_sign_that_nothing_moves_where_the_ratio_tells_nothing():
    rng = np.random.default_rng(5)
    for width, stands in ((0.02, True), (0.08, False)):
        values = " ".join(f"{3.5 * (1 + width * deviation):.4f}" for deviation in rng.uniform(-1, 1, 60))
        assert told("policy_stands", {}, "trl-grpo", clip_fraction="0x59", entropy=values) is stands, width
        assert told("policy_stands", K4, clip_fraction="0x59", entropy=values), width  # of four epochs it tells


def test_what_is_0_by_construction_is_not_said_to_show_a_policy_that_stands():
    series = {"clip_fraction": "0x19", "entropy": STAYS}
    once = RunView(case_run({"series": series, "config": {"ppo_epochs": 1, "num_minibatches": 1}}))
    often = RunView(case_run({"series": series, "config": K4}))
    assert "clip_fraction" in often.fact("policy_stands").says
    assert "clip_fraction" not in once.fact("policy_stands").says


def test_an_exact_kl_of_0_to_the_reference_says_more_than_a_sampled_entropy():
    sampled = "0.34 0.39 0.36 0.41 0.33 0.4 0.35 0.38 0.3 0.42 0.37 0.4 0.39 0.41 0.4 0.42 0.41 0.43 0.42 0.44"
    assert told("policy_stands", ref_kl="0x19", entropy=sampled, policy_loss="0.01 -0.02x18")
    assert not told("policy_stands", ref_kl="0x1 0.01x17", entropy=sampled, policy_loss="0.01 -0.02x18")


def test_a_policy_that_goes_too_far_for_one_step_was_stepped_several_times():
    near = {"approx_kl": "0x19", "clip_fraction": "0x19", "value_loss": "1x19"}
    assert told("several_updates", entropy="1 0.7 0.5 0.4 0.3x15", **near) is None  # a trainer's own settings tell
