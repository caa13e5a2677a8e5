"""Rewards: constant, gone or rare; their level, trend and parts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import read_run
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Fact
from ppo_doctor.trainers import detection
from tests.synthetic import a_run, a_series


def fact(name, **series):
    found = RunView(case_run({"series": series})).fact(name)
    return None if found is None else found.value


def test_a_step_may_earn_one_number_where_episodes_differ():
    rises = " ".join(str(20 + 3 * n) for n in range(20))
    assert fact("reward_spread", reward_mean="1x19", episode_return=rises)
    assert fact("reward_course", reward_mean="1x19", episode_return=rises) > 3
    assert fact("reward_spread", reward_mean="1x19", episode_return="20x19") == 0
    assert fact("reward_spread", reward_mean="1x19", reward_total=rises) == 0  # a penalty varies, the reward does not


def test_few_records_tell_that_nothing_varies_where_each_has_many_episodes_alike():
    alike = {"episode_return": "0.5x3", "episode_return_min": "0.5x3", "episode_return_max": "0.5x3"}
    assert fact("reward_spread", **alike) == 0
    assert fact("reward_spread", **(alike | {"episode_return_max": "0.5 0.6 0.5x1"})) is None
    assert fact("reward_spread", episode_return="0.5x3") is None


def test_a_constant_negative_return_is_what_episodes_cost_that_never_reach_the_goal():
    assert fact("reward_fixed_elsewhere", episode_return="-200x19") == 0
    assert fact("reward_fixed_elsewhere", reward_mean="-200x19") == 1


def test_what_was_earned_and_lost_is_gone_and_not_sparse():
    earned = " ".join(str(n % 7 * 10 + 20) for n in range(40))
    assert fact("reward_gone", episode_return=f"{earned} 0x59") == 60
    assert fact("reward_zero_share", episode_return=f"{earned} 0x59") == 0
    assert fact("reward_zero_share", episode_return="0x29 5 0x29") > 0.9


def test_a_reward_that_is_gone_is_so_since_a_step():
    found = RunView(case_run({"series": {"reward_mean": "1 2 1 2 1 2 1 2 0x9"}})).fact("reward_gone")
    assert found is not None
    assert (found.value, found.since) == (10, 8)


def test_a_mean_that_stays_while_samples_differ_is_no_constant_reward():
    assert fact("reward_spread", reward_mean="0.0625x19", reward_std="0.1x19") > 0
    assert fact("reward_spread", reward_mean="0x19", reward_std="1x19") == 1
    assert fact("reward_spread", reward_mean="0.0625x19", reward_std="0x19") == 0
    assert fact("reward_spread", reward_mean="0.0625x19", reward_std="0x18 0.1") == 0  # an odd record
    assert fact("reward_spread", episode_return="-200x19", reward_std="1x19") == 0  # of steps, not of episodes


#: fault, dialect → causes of which one has to lead


def observe(**case):
    return RunView(case_run(case))


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [("0x19", 0), ("1x19", 1), ("-1x19", 0), ("0.5x19", 0.5), ("0x9 300x9", 1), ("-100x9 -50x9", 0.5)],
)
def test_reward_level_knows_its_bounds(rewards, expected):
    level = observe(series={"reward_mean": rewards}).series("reward_level")
    assert level.values[-1] == pytest.approx(expected)


def test_reward_level_carries_the_resolution():
    level = observe(series={"reward_mean": "0x9 200x9"}, resolution={"reward_mean": 1.0}).series("reward_level")
    assert level.resolution.absolute == pytest.approx(0.005)


@pytest.mark.parametrize("rewards", ["0 1 0", "nanx19", "nanx30 1"])
def test_few_rewards_say_nothing(rewards):
    seen = observe(series={"reward_mean": rewards})
    assert seen.fact("reward_trend") is None


def test_a_moving_average_is_no_trend():
    rng = np.random.default_rng(3)
    smooth = np.convolve(rng.normal(size=400), np.ones(60) / 60, mode="valid")
    text = " ".join(f"{value:.6f}" for value in smooth)
    assert abs(observe(series={"reward_mean": text}).fact("reward_trend").value) < 4


def test_a_rise_among_noise_is_a_trend():
    rng = np.random.default_rng(3)
    text = " ".join(f"{value:.6f}" for value in rng.normal(size=300) + np.linspace(0, 3, 300))
    assert observe(series={"reward_mean": text}).fact("reward_trend").value > 4


def test_constant_returns_do_not_make_the_critic_bad():
    series = {"explained_variance": "0.5x19 -1000x19", "value_loss": "1x19 0.000001x19"}
    alive = observe(series=series).series("explained_variance_alive")
    assert np.isnan(alive.values[-1])
    assert alive.values[0] == 0.5


def test_a_lost_record_of_one_metric_takes_no_more_than_itself():
    first = observe(series={"explained_variance": "_ -3x19", "value_loss": "1x20"}).series("explained_variance_alive")
    assert first.values.tolist() == [-3.0] * 20
    other = observe(series={"explained_variance": "-3x20", "value_loss": "1x9 _ 1x9"})
    assert np.flatnonzero(np.isnan(other.series("explained_variance_alive").values)).tolist() == [10]


def test_metrics_that_mostly_stand_in_other_records_are_not_combined():
    series = {"explained_variance": "-3x20", "value_loss": "1x10 " + "_ " * 10}
    assert observe(series=series).series("explained_variance_alive") is None


def test_value_loss_from_nothing_is_no_explosion():
    growth = observe(series={"value_loss": "0.0000001x19 0.5x19"}).fact("value_loss_explosion")
    assert growth.value < 1000


@pytest.mark.parametrize(
    ("gamma", "length", "horizon"), [(0.5, "20x19", 2), (1.0, "20x19", None), (0.9, "20x19", None)]
)
def test_the_horizon_is_judged_against_episodes_only(gamma, length, horizon):
    fact = observe(config={"gamma": gamma}, series={"episode_length": length}).fact("discount_horizon")
    assert (fact and fact.value) == horizon


def test_rollout_steps_need_counters_that_move():
    assert observe(series={"env_steps": "10x19", "iteration": "1x19"}).fact("rollout_steps_seen") is None


@pytest.mark.parametrize(("apart", "expected"), [(10, 10.0), (64, 64.0), (2048, None)])
def test_updates_a_few_environment_steps_apart_bound_the_rollout(apart, expected):
    """A wide spacing bounds nothing, for several updates may lie between two records."""
    flag = Fact(name="steps_are_env_steps", value=True, how="default")
    loss = a_series("policy_loss", [0.01] * 20, steps=[apart * k for k in range(1, 21)])
    seen = RunView(a_run(loss, facts={"steps_are_env_steps": flag})).fact("rollout_steps_seen")
    assert (seen.value if seen else None) == expected
    assert RunView(a_run(loss)).fact("rollout_steps_seen") is None


def test_advantages_between_zero_and_zero_are_zero():
    seen = observe(series={"advantages_min": "0x4 -1x4", "advantages_max": "0x4 2x4"}, algorithm="ppo")
    assert seen.series("advantage_spread").values.tolist() == [0] * 5 + [2] * 5


def test_a_solved_end_is_not_flat_throughout():
    fact = observe(series={"frac_reward_zero_std": "0.2x19 1x19"}).fact("flat_share")
    assert math.isclose(fact.value, 0.2)


def test_a_differential_entropy_is_no_share_of_anything():
    run_ = case_run({"series": {"entropy": "1.4-0.1x29", "action_std": "1-0.02x29"}})
    assert RunView(run_).series("choice_entropy") is None
    assert RunView(run_).series("entropy_share") is None


def test_parts_of_the_reward_are_bounded_and_named_safely(tmp_path):
    parts = {f"rewards/part{i:02d}\x1b[31m<b>/mean": 0.5 for i in range(100)}
    rows = [
        {"step": i + 1, "reward": 0.1 * (i % 3), "reward_std": 0.1, "loss": 0.0, "kl": 0.0, **parts} for i in range(30)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    read = read_run(str(log), Request())
    names = [name for name in read.series if name.startswith("reward_component.")]
    assert 0 < len(names) <= 64
    assert all(name.isprintable() and "<" not in name for name in names)
    assert any("parts of the reward" in note.text for note in read.notes)


def test_a_part_is_read_under_its_own_name():
    profile = detection.profile("trl-grpo").resolved(["rewards/match/mean", "rewards/match/std", "reward"])
    assert profile.metrics["reward_component.match"].keys == ("rewards/match/mean",)
    assert profile.metrics["reward_component_std.match"].keys == ("rewards/match/std",)
