"""What names of a script's own say: units, signs, and what their words hint at."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.trainers.guessing.column_names import (
    in_plain_units,
    is_outside,
    name_weight,
    parse_column_name,
    suggests,
)


def told(key, *others):
    return parse_column_name(key, {key, *others}, language=False)


def test_a_percent_sign_leaves_shares_and_divides():
    name = told("fence %")
    assert name.percent
    assert "entropy" not in name.allowed
    assert in_plain_units(np.array([50.0]), name) == pytest.approx(0.5)


def test_a_logarithm_is_undone():
    assert in_plain_units(np.array([-2.0]), told("lg")) == pytest.approx(0.01)


def test_thousandths_are_undone_and_leave_their_unit():
    name = told("leash_mnat")
    assert name.allowed == told("leash_nat").allowed
    assert in_plain_units(np.array([500.0]), name) == pytest.approx(0.5)
    assert in_plain_units(np.array([3.0]), told("slip_x1000")) == pytest.approx(0.003)


@pytest.mark.parametrize("key", ["ls_mean", "log_std", "logstd_bar", "ln_sigma"])
def test_a_natural_logarithm_is_a_deviations(key):
    assert in_plain_units(np.array([-1.0]), told(key)) == pytest.approx(np.exp(-1.0))


@pytest.mark.parametrize("key", ["loss", "lslip", "logits", "catalog_size"])
def test_no_logarithm_is_looked_for_within_a_word(key):
    assert not told(key).base


def test_words_weigh_for_what_they_hint_at_and_against_the_rest():
    name = told("oracle_err")
    assert name_weight("value_loss", name, None) > 0 > name_weight("entropy", name, None)
    assert suggests(name, "value_loss")
    assert not suggests(told("zqxv"), "value_loss")


def test_a_word_that_nobody_knows_weighs_nothing():
    assert name_weight("entropy", told("zqxv"), None) == 0


@pytest.mark.parametrize("key", ["wall seconds", "fps", "turns planned"])
def test_clocks_and_plans_are_outside(key):
    assert is_outside(key, [key])


def test_minibatches_beside_what_was_planned_are_no_megabytes():
    assert is_outside("mb", ["mb"])
    assert not is_outside("mb", ["mb", "mb planned"])


def test_a_pace_is_outside():
    assert is_outside("ticks/s", [])


@pytest.mark.parametrize(("key", "unit"), [("clip\u2030", 1000.0), ("KLalt[mn]", 1000.0), ("hit%", 100.0)])
def test_a_unit_that_stands_in_a_name(key, unit):
    assert told(key).unit == unit


def test_a_share_that_a_word_says_more_of_is_not_the_explained_variance():
    assert "clip_fraction" in (told("cl %").allowed or ())


def test_an_entropy_in_percent_is_one_of_the_most_that_it_can_be():
    assert told("H%").allowed == {"entropy"}


def test_what_many_names_begin_with_says_nothing_of_one_among_them():
    others = ("brain/tug", "brain/fog", "brain/zqxv")
    name = told("brain/fog", *others)
    assert suggests(name, "entropy")
    assert not suggests(told("brain/zqxv", *others), "grad_norm")
    assert name_weight("grad_norm", told("brain/zqxv", *others), None) > 0


@pytest.mark.parametrize("key", ["row_offset_mm", "jacket_celsius", "pump_kwh"])
def test_units_of_the_task_leave_no_metric(key):
    assert told(key).allowed == frozenset()


def test_a_word_that_people_use_is_not_taken_apart_into_letters():
    assert not told("sat").meant
    assert suggests(told("sat"), "clip_fraction")
    assert "value_loss" in told("vl").meant


def test_a_count_beside_what_was_planned_counts_optimizer_steps():
    assert suggests(told("mini", "mini planned"), "optimizer_steps")
    assert not suggests(told("mini"), "optimizer_steps")


@pytest.mark.parametrize(
    ("key", "metric"),
    [("Gbar", "episode_return"), ("J_hat", "episode_return"), ("mu_R", "episode_return"), ("kl_hat", "approx_kl")],
)
def test_a_mean_as_papers_write_it_is_of_its_letter(key, metric):
    assert metric in told(key).meant


@pytest.mark.parametrize("key", ["mbar", "chat", "toolbar", "what"])
def test_no_mean_is_looked_for_in_a_word(key):
    assert "episode_return" not in told(key).meant


@pytest.mark.parametrize(
    ("key", "metric"), [("D", "approx_kl"), ("D_on", "approx_kl"), ("Dold", "approx_kl"), ("Dref", "ref_kl")]
)
def test_a_divergence_is_said_by_its_letter(key, metric):
    assert told(key).meant.keys() == {metric}


@pytest.mark.parametrize("key", ["Done", "Drift", "Dash", "Dnew"])
def test_a_word_is_no_letter_before_another(key):
    assert "approx_kl" not in told(key).meant


def test_what_belongs_to_groups_is_no_gradient():
    name = told("flat_g")
    assert suggests(name, "frac_reward_zero_std")
    assert not suggests(name, "grad_norm")


def test_the_clipped_share_of_a_ratio_is_no_ratio():
    name = told("w_out")
    assert suggests(name, "clip_fraction")
    assert not suggests(name, "ratio_abs_dev")
