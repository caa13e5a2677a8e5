"""What to do first, and remedies in the terms of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.diagnosis.first_step import MOST_REMEDIES, remedies_for, target
from ppo_doctor.model.rules import Remedy
from ppo_doctor.model.run import Axis, Note, Run, Series, Setting, SourceRef
from ppo_doctor.model.words import ConfigValue
from ppo_doctor.trainers.detection import profiles


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


PLACE = SourceRef(path="config.json")


def a_run(framework: str = "sb3", **more: Any) -> Run:
    return Run(id="run", framework=framework, algorithm="ppo", sources=(), **{"series": {}} | more)


def configured(name: str, key: str, value: ConfigValue) -> dict[str, Setting]:
    return {name: Setting(key=key, value=value, how="configured", source=PLACE)}


@pytest.mark.parametrize(
    ("to", "now", "default", "wanted"),
    [
        ("/ 10", 0.005, None, 0.0005),
        ("* 2", 8, None, 16),
        ("/ 3", 1, None, 1),
        ("/ 10", None, 3e-4, None),
        ("* 2", "auto", None, None),
        ("* 2", 0.0, None, None),
        (">= 0.01", 0.0, None, 0.01),
        (">= 0.01", 0.02, None, None),
        ("<= default", 40, 10, 10),
        ("<= default", 4, 10, None),
        ("= default", 0.0, 3e-4, 3e-4),
        ("= default", 3e-4, 3e-4, None),
        ("= default", 1.0, None, None),
        ("= true", False, None, True),
        ("= bfloat16", "float16", None, "bfloat16"),
        ("= 0.2", None, None, 0.2),
        ("", 1, 1, None),
    ],
)
def test_the_value_to_set(to: str, now: ConfigValue, default: ConfigValue, wanted: ConfigValue) -> None:
    assert target(to, now, default) == wanted


def remedy_for(remedy: Remedy, **parts: Any) -> Remedy:
    (found,) = remedies_for([remedy], a_run(**parts))
    return found


RATE = Remedy(do="lower it", setting="learning_rate", to="/ 10")


RAISED = Remedy(do="raise it", setting="learning_rate", to="* 10")


HOT = Remedy(do="sample at 1", setting="temperature", to="= 1")


OTHER = Remedy(do="look at the log-probs")


def test_a_setting_has_the_run_s_own_key_and_value() -> None:
    found = remedy_for(RATE, config=configured("learning_rate", "optim.lr", 0.001))
    assert (found.key, found.now, found.then) == ("optim.lr", 0.001, 0.0001)


def test_a_setting_that_only_the_log_tells_has_the_framework_s_key() -> None:
    axis = Axis(path="run.csv", steps=np.arange(2), lines=np.arange(2))
    logged = Series(name="learning_rate", raw="train/learning_rate", axis=axis, values=np.array([0.001, 0.0005]))
    found = remedy_for(RATE, series={"learning_rate": logged})
    assert (found.key, found.now, found.then) == ("learning_rate", 0.001, 0.0001)


@pytest.mark.parametrize(("remedy", "now"), [(RATE, 0.01), (RAISED, 1e-6)])
def test_a_part_or_a_multiple_goes_all_the_way_to_a_default_that_lies_beyond(remedy: Remedy, now: float) -> None:
    assert remedy_for(remedy, config=configured("learning_rate", "lr", now)).then == 0.0003


@pytest.mark.parametrize(("logged", "now"), [([0.0, 0.0], 0.0), ([0.01, 0.005], 0.02)])
def test_a_value_that_every_record_logs_is_the_one_in_force(logged: list[float], now: float) -> None:
    axis = Axis(path="run.csv", steps=np.arange(2), lines=np.arange(2))
    rate = Series(name="learning_rate", raw="lr", axis=axis, values=np.array(logged))
    found = remedy_for(RATE, series={"learning_rate": rate}, config=configured("learning_rate", "lr", 0.02))
    assert found.now == now


def test_a_configured_value_is_better_than_a_default_where_every_record_logs_0() -> None:
    axis = Axis(path="run.csv", steps=np.arange(3), lines=np.arange(3) + 2)
    rate = Series(name="learning_rate", raw="lr", axis=axis, values=np.zeros(3))
    remedy = Remedy(do="set it", setting="learning_rate", to="= default")
    found = remedy_for(remedy, series={"learning_rate": rate}, config=configured("learning_rate", "lr", 0.02))
    assert (found.now, found.then) == (0, 0.02)
    assert (
        remedy_for(remedy, series={"learning_rate": rate}, config=configured("learning_rate", "lr", 0.0)).then == 0.0003
    )


def test_a_setting_that_the_trainer_lacks_is_no_remedy() -> None:
    upper = Remedy(do="raise the upper bound", setting="clip_range_high", to=">= 0.28")
    assert remedies_for([upper, OTHER], a_run()) == (OTHER,)
    assert [one.do for one in remedies_for([upper, OTHER], a_run(framework="trl-grpo"))] == [upper.do, OTHER.do]


def test_the_weight_of_a_value_loss_is_no_remedy_beside_an_optimizer_of_the_critic() -> None:
    weight = Remedy(do="weigh the value loss", setting="vf_coef", to=">= 0.25")
    assert [one.do for one in remedies_for([weight, OTHER], a_run(framework="canonical"))] == [weight.do, OTHER.do]
    apart = configured("critic_learning_rate", "vf_lr", 1e-3)
    assert remedies_for([weight, OTHER], a_run(framework="canonical", config=apart)) == (OTHER,)
    assert remedies_for([weight, OTHER], a_run(framework="spinningup")) == (OTHER,)


def test_a_framework_without_the_setting_is_told_no_key() -> None:
    found = remedy_for(Remedy(do="raise it", setting="num_generations", to="= 8"))
    assert (found.key, found.then) == (None, None)


def test_a_default_that_nobody_is_known_to_use_is_not_told_as_the_run_s_value() -> None:
    unset = {"rollout_steps": Setting(key="n_steps", value=2048, how="default", source=PLACE)}
    found = remedy_for(Remedy(do="collect more", setting="rollout_steps", to="* 8"), config=unset)
    assert (found.key, found.now, found.then) == ("n_steps", None, None)
    found = remedy_for(Remedy(do="look farther", setting="gae_lambda", to="= 0.9"))
    assert (found.key, found.now, found.then) == ("gae_lambda", None, 0.9)


@pytest.mark.parametrize(("temperature", "left"), [(1.0, [OTHER]), (0.7, [HOT, OTHER])])
def test_a_value_that_the_run_has_is_no_remedy(temperature: float, left: list[Remedy]) -> None:
    run = a_run(framework="trl-grpo", config=configured("temperature", "temperature", temperature))
    assert [remedy.do for remedy in remedies_for([HOT, OTHER], run)] == [remedy.do for remedy in left]


def test_what_a_default_follows_already_is_no_remedy() -> None:
    assert remedies_for([Remedy(do="look farther", setting="gae_lambda", to="= 0.95"), OTHER], a_run()) == (OTHER,)


def test_a_run_that_follows_all_remedies_is_told_them_in_words() -> None:
    found = remedy_for(HOT, framework="trl-grpo", config=configured("temperature", "temperature", 1.0))
    assert (found.do, found.now, found.then) == (HOT.do, 1.0, None)


def test_what_the_run_follows_already_is_no_remedy() -> None:
    high = Remedy(do="raise it", setting="ent_coef", to=">= 0.01")
    assert remedies_for([high, OTHER], a_run(config=configured("ent_coef", "ent_coef", 0.05))) == (OTHER,)


def test_remedies_of_other_frameworks_are_left_out() -> None:
    ours, other, any_ = (Remedy(do=name, framework=name) for name in ("trl-grpo", "verl", None))
    assert remedies_for([other, ours, any_], a_run(framework="trl-grpo")) == (ours, any_)
    assert remedies_for([other, ours, any_], a_run(framework="unsloth")) == (ours, any_)


def test_only_the_first_remedies_are_told() -> None:
    assert len(remedies_for([Remedy(do=str(n)) for n in range(9)], a_run())) == MOST_REMEDIES


def test_every_setting_to_change_is_one_that_a_framework_has() -> None:
    known = {name for profile in profiles().values() for name in profile.config}
    named = {r.setting for cause in load_pack().causes for r in cause.remedies if r.setting}
    assert named - known == set()


def test_what_is_for_samples_of_another_kind_is_left_out():
    prompts, episodes, any_ = (
        Remedy(do=do, samples=kind) for do, kind in (("a", "completions"), ("b", "episodes"), ("c", None))
    )
    both = [prompts, episodes, any_]
    assert remedies_for(both, a_run(), "completions") == (prompts, any_)
    assert remedies_for(both, a_run(), "episodes") == (episodes, any_)
    assert remedies_for(both, a_run()) == (prompts, episodes, any_)


@pytest.mark.parametrize("now", [0.0, -0.5])
def test_a_multiple_of_nothing_is_no_remedy(now: float) -> None:
    run = a_run(config=configured("learning_rate", "lr", now))
    assert [remedy.do for remedy in remedies_for([RAISED, OTHER], run)] == [OTHER.do]


def test_of_a_setting_that_changes_the_largest_that_was_logged_is_told() -> None:
    axis = Axis(path="run.csv", steps=np.arange(2), lines=np.arange(2))
    logged = Series(name="learning_rate", raw="lr", axis=axis, values=np.array([0.0001, 0.001]))
    assert remedy_for(RATE, series={"learning_rate": logged}).now == 0.001
