"""Passes counted in clip fractions: what simulated trainers log is read as the number of passes that they ran."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ppo_doctor.derive import Observations
from tests.synthetic import a_run, a_series

MINIBATCHES, SIZE = 4, 64
ROLLOUT = MINIBATCHES * SIZE
SETTINGS = {"rollout_steps": 64, "num_envs": 4, "num_minibatches": MINIBATCHES, "learning_rate": 1e-3}


def logged(passes, records=60, *, size=SIZE, seed=0):
    """Return the mean clip fraction of each update, as a trainer takes it: float32 for a minibatch, then a mean.

    The share at risk grows from minibatch to minibatch, by another speed in every update.
    """
    drawn = np.random.default_rng(seed)
    speeds = drawn.choice([0.0, 0.0, 0.02, 0.2, 0.5], size=records)
    grows = np.linspace(0, 1, passes * MINIBATCHES)
    counts = drawn.binomial(size, speeds[:, None] * grows)
    return np.mean((counts / size).astype(np.float32), axis=1, dtype=np.float64)


def passes_counted(values, configured, *, framework="cleanrl", spacing=ROLLOUT, **settings):
    steps = [(i + 1) * spacing for i in range(len(values))]
    clipped = a_series("clip_fraction", values, steps=steps, aggregation="all minibatches")
    run = a_run(clipped, config=SETTINGS | {"ppo_epochs": configured} | settings)
    return Observations(dataclasses.replace(run, framework=framework)).fact("passes_by_clip_counts")


@pytest.mark.parametrize(("run", "configured"), [(1, 2), (1, 4), (2, 4), (3, 4), (2, 10), (4, 10), (7, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_passes_that_are_missing_are_counted(run, configured, seed):
    found = passes_counted(logged(run, seed=seed), configured)
    assert found.value == run / configured
    assert f"{run} of {configured} passes" in found.says


@pytest.mark.parametrize("passes", [2, 3, 4, 8, 10])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("framework", ["sb3", "cleanrl", "canonical"])
def test_all_passes_are_counted(passes, seed, framework):
    assert passes_counted(logged(passes, seed=seed), passes, framework=framework).value == 1


def test_a_container_of_float32_says_as_much():
    assert passes_counted(logged(1).astype(np.float32).astype(np.float64), 4).value == 0.25
    assert passes_counted(logged(4).astype(np.float32).astype(np.float64), 4).value == 1


@pytest.mark.parametrize(("run", "configured"), [(1, 4), (4, 4)])
def test_fractions_that_float32_rounds_are_whole_counts_still(run, configured):
    found = passes_counted(logged(run, size=100), configured, rollout_steps=100, spacing=400)
    assert found.value == run / configured


def test_more_passes_than_configured_are_not_called_fewer():
    assert passes_counted(logged(6), 4) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"target_kl": 0.02},
        {"num_ranks": 2},
        {"num_minibatches": 3},
        {"num_envs": 5},
        {"learning_rate": 0},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_nothing_is_said_where_the_settings_leave_it_open(settings):
    assert passes_counted(logged(1), 4) is not None
    assert passes_counted(logged(1), 4, **settings) is None


def test_nothing_is_said_of_records_that_stand_no_whole_rollout_apart():
    assert passes_counted(logged(1), 4, spacing=ROLLOUT - 8) is None


def test_only_trainers_known_to_average_over_all_passes_are_charged():
    assert passes_counted(logged(1), 4, framework="canonical") is None
    assert passes_counted(logged(1), 4, framework="trl-ppo") is None


def test_few_digits_say_nothing():
    clipped = a_series("clip_fraction", np.round(logged(1), 3), absolute=5e-4, aggregation="all minibatches")
    run = dataclasses.replace(a_run(clipped, config=SETTINGS | {"ppo_epochs": 4}), framework="cleanrl")
    assert Observations(run).fact("passes_by_clip_counts") is None


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.0, 20.0])
def test_samples_that_every_pass_clips_alike_are_no_missing_pass(rate):
    counts = np.random.default_rng(3).poisson(rate, size=120)
    assert passes_counted(counts / ROLLOUT, 4) is None


def test_an_average_of_fewer_minibatches_is_no_missing_pass():
    drawn = np.random.default_rng(4).choice([0, 0, 0, 1, 2, 5, 9, 14, 20], size=60)
    assert passes_counted(drawn / SIZE, 4) is None
