"""Sizes: whole groups; rollouts: one batch again and again."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.config import words_unknown
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.checks.sizes import broken_groups
from tests.synthetic import a_series, observe


def seen(**config):
    return RunView(case_run({"framework": "trl-grpo", "config": config}))


@pytest.mark.parametrize(
    ("config", "broken"),
    [
        ({"num_generations": 7, "per_device_train_batch_size": 6}, True),
        ({"num_generations": 7, "per_device_train_batch_size": 6, "use_vllm": True}, False),
        ({"num_generations": 7, "per_device_train_batch_size": 6, "num_processes": 7}, False),
        ({"num_generations": 8, "per_device_train_batch_size": 1}, False),
        ({"num_generations": 8, "per_device_train_batch_size": 1, "num_processes": 4}, True),
        ({"num_generations": 8, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}, False),
        ({"num_generations": 5, "per_device_train_batch_size": 8}, True),
        ({"num_generations": 8, "generation_batch_size": 12}, True),
        ({"num_generations": 8, "generation_batch_size": 64}, False),
        ({"num_generations": 8}, False),
    ],
)
def test_groups_that_no_batch_holds_a_whole_number_of(config, broken):
    assert bool(list(broken_groups(seen(**config)))) is broken


@pytest.mark.parametrize(
    ("word", "meant"), [("dapoo", "dapo"), ("grop", "grpo"), ("sigmoid", None), ("DR_GRPO", ...), ("${loss}", ...)]
)
def test_words_are_held_against_the_list(word, meant):
    found = [near for _, _, near in words_unknown(seen(loss_type=word, num_generations=8))]
    assert found == ([] if meant is ... else [meant])


SAME = [-14.0331, *[-14.0327] * 19]


def repeats(**series):
    found = observe(*(a_series(name, values) for name, values in series.items())).series("batch_repeats")
    return None if found is None else int(np.nansum(found.values))


def test_a_mean_reward_repeats_beside_its_spread():
    assert repeats(reward_mean=[0.24826] * 20, reward_std=[0.13383] * 20) == 19
    assert repeats(reward_mean=[0.24826] * 20, reward_std=np.linspace(0.1, 0.13383, 20)) == 0


def test_a_return_repeats_beside_a_counter_that_stands():
    assert repeats(episode_return=SAME, env_steps=[19200.0, *[20800.0] * 19]) == 18
    assert repeats(episode_return=SAME, env_steps=[1600.0 * i for i in range(20)]) == 0


def test_a_mean_that_no_one_sets_repeats_from_the_first_record_on():
    moves = {"entropy": np.linspace(1.3, 0.8, 20)}
    assert repeats(episode_return=[-14.0327] * 20, **moves) == 19
    assert repeats(episode_return=[-14.0327] * 20, entropy=[1.3] * 20) is None
    assert repeats(reward_mean=[0.25] * 20, **moves) is None
    assert repeats(episode_return=[0.25] * 20, explained_variance=np.linspace(0.0, 0.9, 20), **moves) == 19
    assert repeats(episode_return=[0.25] * 20, explained_variance=np.linspace(0.0, 0.3, 20), **moves) == 0


def test_a_return_alone_tells_nothing():
    assert repeats(episode_return=SAME) is None
    assert repeats(reward_mean=[0.955] * 20, reward_std=[0.0] * 20) is None


def test_returns_and_lengths_repeat_together_or_beside_a_counter_that_stands():
    sampled, moving = [1600.0] * 20, [1600.0 * n for n in range(1, 21)]
    alike, differ = [31.99] * 20, [31.99 + n / 100 for n in range(20)]
    assert repeats(episode_return=SAME, episode_length=alike, env_steps=moving) == 18
    assert repeats(episode_return=SAME, episode_length=differ, env_steps=moving) == 0
    assert repeats(episode_return=SAME, env_steps=sampled) == 18
    assert repeats(episode_return=[200.0] * 20, episode_length=[200.0] * 20, env_steps=moving) == 0  # a solved task
