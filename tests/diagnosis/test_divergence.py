"""Where two series part: found within a few records, and never found between seeds of one thing."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ppo_doctor
from ppo_doctor.checks.cases import case_run
from ppo_doctor.diagnosis.divergence import Divergence, divergences, first_apart, other_level
from ppo_doctor.report.compare import Difference, Side, differences, explanations
from ppo_doctor.report.phrases import short


def noise(seed, size=200, seeds=1):
    return np.random.default_rng(seed).normal(1.0, 0.1, (seeds, size))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("seeds", [1, 3])
def test_seeds_of_one_thing_do_not_part(seed, seeds):
    assert first_apart(noise(seed, seeds=seeds), noise(seed + 1000, seeds=seeds)) is None


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("start", [0, 60, 150])
def test_a_shift_is_found_where_it_begins(seed, start):
    shifted = noise(seed + 1000)
    shifted[:, start:] += 1.5
    assert abs(first_apart(noise(seed), shifted) - start) <= 5


def test_a_short_excursion_is_no_parting():
    shifted = noise(1)
    shifted[:, 60:90] += 5
    assert first_apart(noise(2), shifted) is None


def test_equal_constants_do_not_part_and_unequal_ones_do():
    ones = np.ones((1, 20))
    assert first_apart(ones, ones.copy()) is None
    assert first_apart(ones, ones * 1.5) == 0
    assert first_apart(ones, ones * 1.001) is None


def test_numbers_that_break_part():
    broken = np.ones((1, 20))
    broken[:, 8:] = np.nan
    assert first_apart(np.ones((1, 20)), broken) == 8


@pytest.mark.filterwarnings("error")
def test_numbers_whose_squares_overflow_are_compared_without_a_warning():
    def run(size):
        values = (1 + np.sin(np.arange(40))) * size
        return ppo_doctor.load_run({"step": range(1, 41), "approx_kl": values, "entropy": np.linspace(1, 0.5, 40)})

    divergences([run(1e200)], [run(1e-2)])


def side(**config):
    return Side(name="x", config=config)


def test_what_belongs_to_one_run_is_no_difference():
    a, b = side(seed=1, output_dir="a", run_name="x", gamma=0.9), side(seed=2, output_dir="b", run_name="y", gamma=0.99)
    assert [difference.key for difference in differences(a, b)] == ["gamma"]


def test_values_that_mean_the_same_are_no_difference():
    assert differences(side(k=1), side(k=1.0)) == ()
    assert [d.key for d in differences(side(k=1), side(k=True))] == ["k"]
    assert differences(side(k="<function f at 0x7f91>"), side(k="<function f at 0x7f35>")) == ()
    assert differences(side(**{"log.<Log at 0x7f91>.first": 1}), side()) == ()
    assert [(d.a, d.b) for d in differences(side(k=1), side())] == [(1, None)]


def test_the_setting_that_acts_on_the_earliest_comes_first():
    parted = [Divergence(metric=name, step=step, a=0, b=1) for step, name in enumerate(["entropy", "approx_kl"])]
    found = [Difference(key=key, canonical=key, a=0, b=1) for key in ("learning_rate", "ent_coef", "vf_coef")]
    assert [e.difference.key for e in explanations(found, parted)] == ["ent_coef", "learning_rate"]


def test_an_only_difference_is_named_and_several_unknown_ones_are_not():
    parted = [Divergence(metric="entropy", step=3, a=0, b=1)]
    odd = [Difference(key=key, canonical=None, a=0, b=1) for key in ("colour", "shape")]
    assert [e.difference.key for e in explanations(odd[:1], parted)] == ["colour"]
    assert explanations(odd, parted) == ()
    assert explanations(odd[:1], []) == ()


def walk(seed, size=240):
    return np.cumsum(np.random.default_rng(seed).normal(0, 0.01, (1, size)), axis=1) + 2.0


def test_walks_that_drift_apart_by_chance_do_not_part():
    """An entropy is the sum of what was learned: two seeds of it end in different places."""
    parted = sum(first_apart(walk(seed), walk(seed + 1000)) is not None for seed in range(100))
    assert parted <= 5


@pytest.mark.parametrize("seed", range(10))
def test_a_walk_that_jumps_parts_where_it_jumps(seed):
    jumped = walk(seed + 1000)
    jumped[:, 100:] += 3.0
    assert abs(first_apart(walk(seed), jumped) - 100) <= 12


@pytest.mark.parametrize("start", [0, 60])
def test_a_metric_that_dies_parts_where_it_dies(start):
    """KL of 0 in every record is no low KL, however noisy the other run's is."""
    a, b = (np.random.default_rng(seed).exponential(0.003, (1, 200)) for seed in (1, 2))
    b[:, start:] = 0.0
    assert first_apart(a, b) == start
    b[:, 90:] = a[:, 90:] / 2
    assert first_apart(a, b) is None


def test_a_setting_in_force_parts_at_any_slope():
    flat, falling = np.full((1, 60), 1e-3), np.linspace(1e-3, 0, 60)[None]
    assert first_apart(flat, falling, wander=False) <= 2


def test_levels_of_one_thing_are_seldom_told_apart():
    parted = sum(other_level(noise(seed), noise(seed + 1000)) is not None for seed in range(200))
    assert parted <= 4


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("start", [0, 80])
def test_a_level_below_the_noise_is_found_where_it_begins(seed, start):
    """A gap as wide as the noise of one record is many standard deviations of the mean of a hundred."""
    shifted = noise(seed + 1000)
    shifted[:, start:] += 0.15
    assert first_apart(noise(seed), shifted) is None
    assert abs(other_level(noise(seed), shifted) - start) <= 25


def test_seeds_that_differ_in_level_show_how_far_seeds_do():
    spread = np.array([0.6, 1.0, 1.4])[:, None]
    a = noise(1, seeds=3) * spread
    b = noise(2, seeds=3) * spread * 1.2
    assert other_level(a, b) is None
    assert other_level(noise(1, seeds=3), noise(2, seeds=3) * 1.2) == 0


def counted(rate, size=40):
    return case_run({"name": "x", "series": {"epochs_executed_total": f"{rate}+{rate}x{size}"}})


def test_counters_part_where_they_begin_to_count_otherwise():
    [parted] = divergences([counted(4)], [counted(10)])
    assert (parted.step, parted.a, parted.b) == (1, 4, 10)
    assert divergences([counted(4)], [counted(4)]) == ()


def test_a_level_counts_only_where_a_setting_acts():
    rng = np.random.default_rng(3)
    words = (" ".join(f"{v:.4f}" for v in rng.normal(level, 0.02, 120)) for level in (0.1, 0.12))
    runs = [[case_run({"name": "x", "series": {"clip_fraction": text}})] for text in words]
    assert divergences(*runs) == ()
    [parted] = divergences(*runs, expected={"clip_fraction"})
    assert parted.expected


def test_rewards_stand_side_by_side_whatever_parts(cli, samples):
    """First, last and best reward of both sides, though too few records part for a divergence."""
    a, b = samples / "sick" / "lr-zero.canonical", samples / "healthy" / "healthy.canonical"
    found = cli("compare", a, b, "--format", "json").json["comparison"]["reward"]
    logs = [[json.loads(line) for line in (side / "run.jsonl").read_text().splitlines()] for side in (a, b)]
    for side, log in zip("ab", logs, strict=True):
        values = [record["episode_return"] for record in log if record.get("episode_return") is not None]
        expected = {"metric": "episode_return", "first": values[0], "last": values[-1], "best": max(values)}
        assert found[side] == expected
    text = cli("compare", a, b).out
    assert all(short(found[side]["last"]) in text for side in "ab")


def test_rewards_of_reports_and_of_one_side_are_unknown(cli, samples, tmp_path):
    a = samples / "sick" / "lr-zero.canonical"
    cli("analyze", a, "--format", "json", "-o", tmp_path / "report.json")
    found = cli("compare", a, tmp_path / "report.json", "--format", "json").json["comparison"]["reward"]
    assert found["a"]["metric"] == "episode_return"
    assert found["b"] is None
    assert "unknown" in cli("compare", a, tmp_path / "report.json").out
