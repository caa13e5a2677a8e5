"""What to do first follows from the outcome and from what is logged, wherever no cause says it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.run import Note, SourceRef
from ppo_doctor.testing import case_run


def told(**series):
    written = {name: " ".join(f"{value:.8g}" for value in values) for name, values in series.items()}
    return diagnose(case_run({"series": written}), load_pack())


def scattered(*levels, each=20, scatter=1.0):
    values = np.concatenate([np.full(each, float(level)) for level in levels])
    return values + np.random.default_rng(3).normal(0, scatter, len(values))


@pytest.mark.parametrize(
    "series",
    [
        {"episode_return": scattered(50, 50, 50)},
        {"episode_return": scattered(50, 50, 50), "policy_loss": scattered(0, 0, 0, scatter=0.01)},
        {"episode_return": [1, 2, 3]},
        {"episode_return": np.zeros(40)},
        {"episode_return": scattered(-50, -80, -110)},
        {"episode_return": scattered(10, 90, 90, 10)},
        {"policy_loss": scattered(0, 0, 0, scatter=0.01)},
    ],
    ids=["flat", "flat beside a loss", "short", "never earned", "fell", "lost", "no reward"],
)
def test_every_run_that_is_not_healthy_has_a_first_step(series):
    found = told(**series)
    assert found.verdict != "healthy"
    assert found.first_step


def test_a_healthy_run_has_none():
    found = told(episode_return=np.linspace(0, 100, 60), entropy=np.linspace(1.3, 0.9, 60))
    assert (found.verdict, found.first_step) == ("healthy", "")


def test_a_flat_reward_asks_for_what_is_not_logged():
    assert "approx_kl" in told(episode_return=scattered(50, 50, 50)).first_step


def test_a_reward_that_rose_before_it_fell_sends_back_to_its_peak_and_not_to_the_sign():
    risen = np.concatenate([np.linspace(-400, -240, 4), scattered(-240, -240, -300, -360, -360, each=40, scatter=5)])
    found = told(reward_mean=risen)
    assert found.outcome.what == "fell"
    assert found.outcome.first == pytest.approx(-370, abs=30)
    assert f"step {found.outcome.best_step}" in found.first_step
    assert "sign" not in found.first_step


def test_a_fall_in_large_updates_asks_for_smaller_ones():
    kl = np.concatenate([np.full(20, 0.01), np.full(60, 0.4)]) + scattered(0, 0, 0, 0, scatter=1e-3)
    found = told(reward_mean=scattered(-50, -60, -80, -110), approx_kl=np.abs(kl))
    assert found.verdict == "unhealthy"
    assert "learning rate" in found.first_step


def test_few_records_ask_for_more():
    assert "20 records" in told(episode_return=scattered(50, 50, each=4)).first_step


def test_a_column_that_may_be_the_reward_is_offered_with_its_gaps_and_the_others():
    parts = {"reward_component.arousal": [np.nan, *[0.5] * 19], "reward_component.best": [0.0] * 20}
    step = told(**parts).first_step
    assert "arousal=episode_return" in step
    assert "1 of 20 records, first at step 0." in step
    assert "best (0 in every record)" in step


def test_a_mean_that_cannot_move_asks_for_the_reward_before_it_was_normalised():
    centred = told(reward_mean=np.full(40, 0.0625), reward_std=scattered(0.1, 0.1, scatter=0.01))
    assert "normalised" in centred.first_step
    assert not any(cause.id == "whiten-amplifies-noise" for cause in centred.causes)
    assert (
        "normalised" not in told(reward_mean=scattered(0.5, 0.5, scatter=0.1), reward_std=np.full(40, 0.1)).first_step
    )


def test_text_in_a_column_of_numbers_asks_for_that_column_and_not_for_the_rest_of_the_file():
    run = case_run({"series": {"reward_mean": " ".join(map(str, scattered(50, 50)))}})
    cells = Note(text="3 cells of kl hold text", source=SourceRef(path="log", line=7, key="kl"), kind="lost")
    torn = Note(text="the file goes on", source=SourceRef(path="log"), kind="lost")
    asked = diagnose(replace(run, notes=(cells,)), load_pack()).first_step
    assert "kl" in asked
    assert "line 7" in asked
    assert "whole log" in diagnose(replace(run, notes=(cells, torn)), load_pack()).first_step


def test_a_short_log_whose_losses_are_all_0_is_not_told_to_train_on():
    found = told(reward_mean=[0.3, 0.3, 0.0, 0.3, 0.3, 0.1, 0.3], loss=np.zeros(7))
    assert "loss is 0 in all 7 records" in found.first_step
    assert "Train on" in told(reward_mean=[0.3, 0.3, 0.0, 0.3, 0.3, 0.1, 0.3], loss=np.linspace(1, 2, 7)).first_step


def test_a_log_most_of_whose_records_repeat_a_step_is_asked_to_be_several():
    run = case_run({"series": {"reward_mean": "0.3"}})
    merged = Note(text="2 records repeat a step", source=SourceRef(path="log"), count=2, kind="merged")
    assert "Write a log for each" in diagnose(replace(run, notes=(merged,)), load_pack()).first_step
    assert "Write a log for each" not in diagnose(run, load_pack()).first_step
