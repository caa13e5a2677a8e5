"""What a short name may mean: all of it, each with its cost, and nothing where a word is unknown."""

from __future__ import annotations

import pytest

from ppo_doctor.trainers.guessing.abbreviations import of_other_tasks, of_others, readings

MAY_MEAN = (
    ("G", "episode_return"),
    ("G", "grad_norm"),
    ("La", "policy_loss"),
    ("Lc", "value_loss"),
    ("Ent2", "entropy"),
    ("cf%", "clip_fraction"),
    ("rho-1", "ratio_mean"),
    ("1-rho", "ratio_abs_dev"),
    ("|r-1|", "ratio_abs_dev"),
    ("dKL", "approx_kl"),
    ("ΔKL", "approx_kl"),
    ("KL_post", "probe_kl"),
    ("q_err", "value_loss"),
    ("J_pi", "policy_loss"),
    ("upd/batch", "optimizer_steps"),
    ("L_π", "policy_loss"),
    ("H(π)", "entropy"),
    ("R̄", "episode_return"),
    ("|g|", "grad_norm"),
    ("value", "value_loss"),
    ("value", "values_mean"),
    ("crit_r2", "explained_variance"),
    ("η", "learning_rate"),
    ("策略误差", "policy_loss"),
)
UNKNOWN = ("zz", "x9", "backbone", "D", "", "//", "loss_股", "log_std", "a_very_long_name_of_more_than_six_words_in_it")


@pytest.mark.parametrize(("key", "metric"), MAY_MEAN)
def test_what_a_name_may_mean(key, metric):
    assert metric in {reading.metric for reading in readings(key)}


@pytest.mark.parametrize("key", UNKNOWN)
def test_a_name_with_a_word_that_nobody_knows_means_nothing(key):
    assert readings(key) == ()


@pytest.mark.parametrize(("key", "scale"), [("J_pi", -1.0), ("surr_gain", -1.0), ("La", 1.0), ("pl", 1.0)])
def test_a_gain_is_a_loss_of_turned_sign(key, scale):
    assert next(r for r in readings(key) if r.metric == "policy_loss").scale == scale


@pytest.mark.parametrize("key", ["KL×1e3", "kl*1000", "kl (x1000)"])
def test_a_factor_in_a_name_is_taken_out(key):
    assert next((r.metric, r.scale) for r in readings(key)) == ("approx_kl", 0.001)


def test_what_is_left_of_a_ratio_without_its_one_is_added_to_one():
    offsets = {reading.metric: reading.offset for reading in readings("rho-1")}
    assert (offsets["ratio_mean"], offsets["ratio_abs_dev"]) == (1.0, 0.0)


@pytest.mark.parametrize("key", ["Lq1", "qf2_loss", "loss/D_disc", "replay_size"])
def test_names_of_other_methods_are_known(key):
    assert of_others(key)


@pytest.mark.parametrize("key", ["recon", "elbo", "val_loss", "ppl"])
def test_names_of_other_tasks_are_known(key):
    assert of_other_tasks(key)
    assert not of_others(key)


@pytest.mark.parametrize("key", ["q_err", "J_pi", "value", "update", "kl", "clip"])
def test_names_of_ppo_are_not_those_of_other_methods(key):
    assert not of_others(key)


def test_a_nabla_is_a_gradients_norm_and_a_unit_at_the_end_a_factor():
    assert readings("∇π")[0].metric == "grad_norm"
    (rate,) = readings("lr_1e-4")
    assert (rate.metric, rate.scale) == ("learning_rate", pytest.approx(1e-4))
