"""What became of the reward, told from made-up courses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.outcome import outcome


def noisy(*levels, scatter=0.02, each=20):
    """Return a course over levels, each held for some records, with noise of a share of the largest level."""
    values = np.concatenate([np.full(each, float(level)) for level in levels])
    return values + np.random.default_rng(1).normal(0, scatter * np.abs(values).max(), len(values))


def run_of(target=None, **series):
    told = {name: " ".join(f"{value:.10g}" for value in values) for name, values in series.items()}
    return outcome(case_run({"series": told}), target=target)


def test_a_reward_that_ends_above_its_start_is_learned():
    found = run_of(episode_return=np.linspace(10, 200, 80) + noisy(0, 1, 0, 1))
    assert found.what == "learned"
    assert found.sound
    assert found.start == pytest.approx(15, abs=5)
    assert found.end == pytest.approx(190, abs=10)


def test_most_of_a_rise_before_half_of_the_run_is_levelled_off():
    found = run_of(episode_return=noisy(10, 100, 100, 100, 100))
    assert found.what == "levelled_off"
    assert 15 <= found.since_step <= 30


def test_what_was_gained_and_is_gone_for_good_is_lost_from_that_step_on():
    found = run_of(episode_return=noisy(10, 80, 90, 10))
    assert found.what == "lost"
    assert not found.sound
    assert abs(found.since_step - 60) <= 5
    assert found.best > 80
    assert found.source.line is not None


def test_a_high_start_that_goes_to_zero_is_lost():
    assert run_of(episode_return=np.abs(noisy(200, 200, 0, 0))).what == "lost"


def test_a_reward_that_ends_below_its_start_fell():
    found = run_of(episode_return=noisy(-100, -150, -200, -250))
    assert found.what == "fell"
    assert not found.sound


@pytest.mark.parametrize("levels", [(10, 80, 20, 80), (10, 50, 80, 90)], ids=["recovered", "learned"])
def test_what_came_back_is_not_lost(levels):
    assert run_of(episode_return=noisy(*levels)).what in ("learned", "levelled_off")


def test_a_reward_that_wobbles_around_one_level_is_flat():
    wobbles = 50 + 10 * np.sin(np.arange(120) / 2) + noisy(0, 5, 0, 5, 0, 5)
    assert run_of(episode_return=wobbles).what == "flat"
    assert run_of(episode_return=noisy(50, 50, 50, scatter=0.3)).what == "flat"


def test_a_single_record_says_nothing():
    values = noisy(50, 50, 50)
    values[0], values[-1] = 0, 1000
    assert run_of(episode_return=values).what == "flat"


def test_nothing_earned_in_any_record_and_too_few_records():
    assert run_of(episode_return=np.zeros(40)).what == "never_earned"
    assert run_of(episode_return=[0, 0, 0]).what == "too_short"
    short = run_of(episode_return=[1, 2, 3])
    assert (short.what, short.records) == ("too_short", 3)
    assert outcome(case_run({"series": {"entropy": "1x9"}})).what == "not_logged"


def test_a_reward_of_one_per_step_whose_episodes_reach_their_limit_is_at_its_ceiling():
    full = np.full(40, 500.0)
    assert run_of(episode_return=full, episode_length=full).what == "at_ceiling"
    assert run_of(episode_return=full).what == "flat"
    assert run_of(episode_return=full, episode_length=np.full(40, 700.0)).what == "flat"


def test_a_target_is_reached_or_not_and_changes_nothing_else():
    rises = np.linspace(10, 200, 80)
    plain, low, high = (
        run_of(episode_return=rises),
        run_of(100.0, episode_return=rises),
        run_of(475.0, episode_return=rises),
    )
    assert (plain.target, plain.reached) == (None, None)
    assert (low.target, low.reached, high.reached) == (100.0, True, False)
    assert low.what == high.what == plain.what == "learned"


def test_an_evaluation_is_told_beside_the_training_reward():
    found = run_of(episode_return=np.linspace(10, 200, 80), eval_return=noisy(100, 100, 20, 20))
    assert found.what == "learned"
    assert found.evaluation is not None
    assert found.evaluation.what == "lost"
    assert run_of(episode_return=np.linspace(10, 200, 80)).evaluation is None


def test_a_column_that_speaks_of_a_reward_is_named_where_none_is_read():
    alone = case_run({"series": {"entropy": "1-0.02x19"}})
    run = replace(alone, not_understood=("zz", "Average Prey Reward"))
    assert (outcome(run).what, outcome(run).key) == ("not_logged", "Average Prey Reward")
    assert outcome(replace(run, not_understood=("zz",))).key == ""


def test_a_reward_that_rose_at_once_and_stood_tells_where_it_began():
    found = run_of(episode_return=np.concatenate([[-1263, -1200], noisy(-1010, -1010, -1010, -1010, -1010)]))
    assert found.what == "flat"
    assert found.first == pytest.approx(-1230, abs=30)
    assert run_of(episode_return=noisy(-1010, -1010, -1010)).first is None


def test_a_flat_reward_whose_second_half_is_higher_leans():
    rising = np.tile([0.0, 8.0, -8.0, 4.0, -4.0], 12) + np.repeat([0.0, 0.0, 12.0, 6.0], 15)
    found = run_of(episode_return=rising)
    assert (found.what, found.leans) == ("flat", True)
    assert not run_of(episode_return=noisy(50, 50, 50, scatter=0.3)).leans


def test_where_no_reward_is_read_a_part_of_one_is_named_and_not_its_best():
    parts = {"reward_component.best_score": "1x9", "reward_component.mean_arousal": "2x9"}
    found = outcome(case_run({"series": parts}))
    assert (found.what, "arousal" in found.key) == ("not_logged", True)


@pytest.mark.parametrize("each", [20, 400], ids=["short", "read at spans"])
def test_the_best_level_stands_in_the_log_at_the_step_that_is_named(each):
    values = noisy(10, 90, 60, 10, each=each)
    found = run_of(episode_return=values)
    assert values[found.best_step] == pytest.approx(found.best, rel=0.01)


def test_a_lost_reward_tells_below_which_level_it_stays():
    values = noisy(10, 80, 90, 10)
    found = run_of(episode_return=values)
    assert found.end < found.kept_below < found.best
    assert np.median(values[found.since_step :]) < found.kept_below < np.median(values[20:60])
    assert run_of(episode_return=noisy(10, 80)).kept_below is None


@pytest.mark.parametrize(("each", "early", "late"), [(5, 2, 2), (50, 10, 20), (400, 80, 160)])
def test_levels_tell_how_many_records_they_are_medians_of(each, early, late):
    found = run_of(episode_return=noisy(10, 20, 30, 40, each=each))
    assert (found.early, found.late, found.records) == (early, late, 4 * each)


def test_a_reward_that_was_as_low_before_only_wanders():
    low = noisy(-11, -13, -10.5, -11, -10.2, -12.5, scatter=0.01)
    assert run_of(episode_return=low).what == "flat"
    assert run_of(episode_return=noisy(-10, -10.5, -11, -11.5, -12, -12.5, scatter=0.01)).what == "fell"


def test_a_centred_mean_of_0_whose_samples_differ_is_flat_and_not_unpaid():
    assert run_of(reward_mean=np.zeros(40), reward_std=np.ones(40)).what == "flat"
    assert run_of(reward_mean=np.zeros(40), reward_std=np.zeros(40)).what == "never_earned"


def test_a_reward_that_leans_and_rises_along_a_straight_line_is_learned():
    steady = np.tile([0.0, 8.0, -8.0, 4.0, -4.0], 30) + np.linspace(0, 13, 150)
    found = run_of(episode_return=steady)
    assert (found.what, found.sound, found.clear) == ("learned", True, False)
    short = np.tile([0.0, 8.0, -8.0, 4.0, -4.0], 3) + np.linspace(0, 13, 15)
    assert run_of(episode_return=short).what == "flat"


def test_a_reward_that_wanders_does_not_rise_whatever_its_halves_say():
    for seed in range(20):
        assert run_of(episode_return=np.random.default_rng(seed).normal(50, 10, 200)).what == "flat", seed


def test_the_best_of_many_stretches_is_a_peak_only_where_chance_does_not_make_it():
    assert not run_of(episode_return=noisy(50, 50, 50, scatter=0.3)).peaks
    assert run_of(episode_return=noisy(50, 90, 50)).peaks


def test_a_reward_within_its_last_printed_digits_has_no_course():
    rounded = "0 0 0.01 0 0.01 0 0.01 0.02 0.01 0.01 0.02 0.01 0.01 0.01 0 0 0 0 0 0"
    assert outcome(case_run({"series": {"episode_return": rounded}})).what == "flat"
    told = rounded.replace("0.0", "0.000")  # of so many digits that the same numbers are no noise of printing
    assert outcome(case_run({"series": {"episode_return": told.replace(" 0 ", " 0.00001 ")}})).what != "never_earned"


def test_levels_that_are_told_of_a_long_log_are_medians_of_its_records():
    values = np.linspace(0, 100, 3000) ** 1.5 + np.random.default_rng(2).exponential(200, 3000)
    found = run_of(episode_return=values)
    assert found.start == pytest.approx(np.median(values[: found.early]), rel=1e-6)
    assert found.end == pytest.approx(np.median(values[-found.late :]), rel=1e-6)
