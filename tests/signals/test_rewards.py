"""What was paid: constant, gone, or mostly nothing."""

from __future__ import annotations

from ppo_doctor.derive import Observations
from ppo_doctor.testing import case_run


def fact(name, **series):
    found = Observations(case_run({"series": series})).fact(name)
    return None if found is None else found.value


def test_a_step_may_earn_one_number_where_episodes_differ():
    rises = " ".join(str(20 + 3 * n) for n in range(20))
    assert fact("reward_spread", reward_mean="1x19", episode_return=rises)
    assert fact("reward_course", reward_mean="1x19", episode_return=rises) > 3
    assert fact("reward_spread", reward_mean="1x19", episode_return="20x19") == 0
    assert fact("reward_spread", reward_mean="1x19", reward_total=rises) == 0  # a penalty varies, the reward does not


def test_few_records_tell_that_nothing_varies_where_each_has_many_episodes_alike():
    alike = {"episode_return": "-200x2", "episode_return_min": "-200x2", "episode_return_max": "-200x2"}
    assert fact("reward_fixed_elsewhere", **alike) == 1
    assert fact("reward_fixed_elsewhere", **(alike | {"episode_return_max": "-200 -190 -200"})) is None
    assert fact("reward_fixed_elsewhere", episode_return="-200x2") is None
