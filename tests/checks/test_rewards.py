"""What was paid: constant, gone, or mostly nothing."""

from __future__ import annotations

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.testing import case_run


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
