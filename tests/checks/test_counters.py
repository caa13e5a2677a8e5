"""K from what a log counts, identities between metrics, and coefficients that they imply."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import load_run
from ppo_doctor.model.run import Axis, Run, Series
from tests.synthetic import a_series, an_axis, observe

HEADER = "time/iterations,time/total_timesteps,train/approx_kl,train/clip_fraction,train/n_updates"


def sb3(folder, epochs=10, rollout=2048, **settings):
    """Return the observations on a log of Stable-Baselines3 with these passes and this rollout."""
    rows = [f"{i},{rollout * i},{0.01 + i / 5000},0.1,{epochs * (i - 1)}" for i in range(2, 16)]
    (folder / "progress.csv").write_text("\n".join([HEADER, *rows]))
    run = load_run(folder / "progress.csv", settings=settings)
    assert run.framework == "sb3"
    return RunView(run)


def k(seen):
    fact = seen.fact("updates_effective")
    return None if fact is None else (fact.value, fact.how)


@pytest.mark.parametrize(
    ("told", "known", "asked"),
    [
        ({}, (320, "default"), "batch_size"),
        ({"epochs": 4}, None, "batch_size"),
        ({"rollout": 1280}, None, "batch_size"),
        ({"rollout": 1280, "batch_size": 64}, (200, "observed"), None),
        ({"epochs": 4, "n_epochs": 10, "batch_size": 64}, (128, "observed"), None),
        # eight environments that the configuration does not tell
        ({"rollout": 16384, "n_steps": 2048, "batch_size": 64}, (2560, "observed"), None),
        ({"n_epochs": 10, "updates_per_batch": 80}, (80, "configured"), None),
    ],
)
def test_counters_beat_settings_and_settings_beat_defaults(tmp_path, told, known, asked):
    seen = sb3(tmp_path, **told)
    assert k(seen) == known
    assert getattr(seen.fact("updates_asked"), "value", None) == asked


def test_defaults_of_a_trainer_whose_samples_are_others_are_none():
    config = {"env_id": "Pendulum-v1"}
    case = {"name": "a", "framework": "verl", "config": config, "series": {"approx_kl": "0.01x9"}}
    assert k(RunView(case_run(case))) is None
    assert k(RunView(case_run(case | {"config": {}}))) is not None


@pytest.mark.parametrize(
    ("clipped", "known"),
    [("0.1x9", None), ("0x9", (1, "default")), ("0x6 0.1x3", (1, "default")), ("0x3 0.1x6", None)],
)
def test_a_default_of_one_step_is_none_where_the_log_clips(clipped, known):
    case = {"name": "a", "framework": "trl-grpo", "config": {}, "series": {"clip_fraction": clipped}}
    seen = RunView(case_run(case))
    assert k(seen) == known
    assert seen.fact("updates_asked").value == "num_iterations"


@pytest.mark.parametrize(
    ("values", "iterations", "value"),
    [
        ([40.0 * i for i in range(9)], None, 40),
        ([80.0 * i for i in range(9)], [2.0 * i for i in range(9)], 40),
        ([40.0] * 9, None, 40),
        ([1.0 * i for i in range(9)], None, None),  # a record for each step
        ([1.0 * i for i in range(9)], [1.0 * i for i in range(9)], 1),
    ],
)
def test_a_counter_of_an_unknown_trainer(values, iterations, value):
    axis = an_axis(range(9))
    series = [a_series("optimizer_steps", values, axis=axis)]
    series += [a_series("iteration", iterations, axis=axis)] if iterations else []
    found = observe(*series).fact("updates_observed")
    assert (found and found.value) == value


@pytest.mark.parametrize("name", ["optim_steps", "train/gradient_steps", "total_sgd_steps", "minibatches_run"])
def test_counters_are_known_by_their_words(tmp_path, name):
    rows = [f"{i},{12 * i},{1 - i / 50},{0.01 + i / 5000}" for i in range(20)]
    (tmp_path / "progress.csv").write_text("\n".join([f"iteration,{name},policy_loss,approx_kl", *rows]))
    assert k(RunView(load_run(tmp_path / "progress.csv"))) == (12, "observed")


def test_passes_that_were_run_with_the_configured_minibatches(tmp_path):
    rows = [f"{i},3,{1 - i / 50},{0.01 + i / 5000}" for i in range(20)]
    (tmp_path / "progress.csv").write_text("\n".join(["iteration,epochs_run,policy_loss,approx_kl", *rows]))
    run = load_run(tmp_path / "progress.csv", settings={"ppo_epochs": 10, "num_minibatches": 4})
    assert k(RunView(run)) == (12, "observed")
    asked = RunView(load_run(tmp_path / "progress.csv")).fact("updates_asked")
    assert asked.value == "num_minibatches"


@pytest.mark.parametrize(
    ("columns", "counted"),
    [
        ("update,epoch,minibatch,policy_loss,approx_kl,value_loss", (6, "observed")),
        ("update_idx,ppo_epoch,mb_idx,pi_loss,approx_kl,vf_loss", (6, "observed")),
        ("update,epoch,minibatch,losses/policy_loss,losses/approx_kl,losses/old_approx_kl", (6, "observed")),
        ("update_idx,ppo_epoch,batch_size,pi_loss,approx_kl,vf_loss", None),
    ],
)
def test_rows_of_minibatches_are_counted(columns, counted, tmp_path):
    places = [(update, epoch, part) for update in range(6) for epoch in range(3) for part in range(2)]
    rows = [f"{u},{e},{p},{0.1 + i / 100},{i / 5000},{i / 4000}" for i, (u, e, p) in enumerate(places)]
    (tmp_path / "log.csv").write_text("\n".join([columns, *rows]))
    assert k(RunView(load_run(tmp_path / "log.csv"))) == counted


def test_a_log_that_says_that_updates_stop_early_needs_no_target():
    assert observe(a_series("early_stopped", [1.0] * 9)).fact("kl_over_target").value == 1
    assert observe(a_series("early_stopped", [0.0] * 9)).fact("kl_over_target") is None


@pytest.mark.parametrize(("apart", "counted"), [(3, (3, "observed")), (1, None)])
def test_a_trainer_may_count_optimizer_steps_by_its_records(apart, counted, tmp_path):
    """A console that numbers its records counts nothing."""
    rows = [f'{{"step": {apart * (i + 1)}, "approx_policy_kl": 0.01, "policy_loss": -0.{i + 1:02}}}' for i in range(9)]
    (tmp_path / "log.jsonl").write_text("\n".join(rows))
    run = load_run(tmp_path / "log.jsonl", framework="torchtune")
    assert (k(RunView(run)) or (None, "default"))[1] == (counted or (None, "default"))[1]
    assert counted is None or k(RunView(run)) == counted


WINDOWS = ("all minibatches", "last minibatch", "last epoch", None)


OFF = {"ratio_mean": 1.05, "approx_kl": 0.01, "approx_kl_k1": 0.008, "clip_fraction": 0.9}


ESTIMATORS = {"approx_kl": "k3", "approx_kl_k1": "k1", "clip_fraction": "both sides"}


def contradicting(**windows):
    """Return the observations on metrics that contradict each other over one window, each with its own."""
    axis = an_axis(range(20))
    series = [a_series(name, [value] * 20, axis=axis, estimator=ESTIMATORS.get(name)) for name, value in OFF.items()]
    declared = [dataclasses.replace(one, aggregation=windows.get(one.name, windows.get("all"))) for one in series]
    return observe(*declared, config={"clip_range": 0.2, "ppo_epochs": 4, "num_minibatches": 4})


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_not_declared_is_not_judged(window):
    found = contradicting(all=window).series("clip_over_spread")
    assert (found is not None) == (window is not None)
    assert found is None or (found.values > 0).all()


@pytest.mark.parametrize("kl", WINDOWS[1:])
def test_a_clip_fraction_is_not_held_against_the_kl_of_other_minibatches(kl):
    seen = contradicting(all="all minibatches", approx_kl=kl)
    assert seen.series("clip_over_spread") is None


def fact(name, **series):
    return RunView(case_run({"name": "case", "series": series})).fact(name)


def test_a_fixed_kl_coefficient_is_the_quotient_of_penalty_and_kl():
    found = fact("kl_coef_implied", ref_kl="1+0.5x19", kl_penalty_reward="-0.05-0.025x19")
    assert found.value == pytest.approx(0.05)


def test_an_adaptive_coefficient_is_not_read_off():
    assert fact("kl_coef_implied", ref_kl="1x19", kl_penalty_reward="-0.05-0.05x19") is None


@pytest.mark.parametrize(("kl", "penalty"), [("0x19", "0x19"), ("1x2", "-0.05x2")])
def test_no_kl_or_few_records_give_no_coefficient(kl, penalty):
    assert fact("kl_coef_implied", ref_kl=kl, kl_penalty_reward=penalty) is None


def test_a_straight_decay_tells_where_it_ends():
    # 0.001 at step 0, 0.0001 less every four steps: 0 at step 40
    assert fact("schedule_end_step", learning_rate="0.001-0.000025x29").value == 40


@pytest.mark.parametrize("rate", ["0.001x29", "0.001+0.0001x29", "0.001-0.0001x9", "0.001 0.0005 0.00025x9 0.0001x9"])
def test_other_schedules_have_no_such_end(rate):
    found = fact("schedule_end_step", learning_rate=rate)
    assert found is None or found.value <= 12


RNG = np.random.default_rng(5)


POLICY, VALUE, ENTROPY, KL = (
    RNG.normal(0, 0.05, 30), RNG.uniform(1, 30, 30), RNG.uniform(0.5, 0.7, 30), RNG.uniform(0, 2, 30),
)  # fmt: skip


def coefficient(
    name: str, loss: np.ndarray, *, windows: dict[str, str] | None = None, **terms: np.ndarray
) -> float | None:
    axis = Axis(path="run.csv", steps=np.arange(30), lines=np.arange(30))
    columns = {"loss": loss, "policy_loss": POLICY, **terms}
    series = {
        key: Series(name=key, raw=key, axis=axis, values=values, aggregation=(windows or {}).get(key))
        for key, values in columns.items()
    }
    found = RunView(Run(id="run", framework="", algorithm="ppo", sources=(), series=series)).fact(name)
    return None if found is None else float(str(found.value))


def test_all_coefficients_are_read_off_one_loss():
    loss = POLICY + 0.5 * VALUE - 0.01 * ENTROPY
    assert coefficient("value_loss_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == pytest.approx(0.5)
    assert coefficient("bonus_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == pytest.approx(0.01)


def test_a_bonus_with_the_wrong_sign_is_below_zero():
    assert coefficient("bonus_in_loss", POLICY + 0.02 * ENTROPY, entropy=ENTROPY) == pytest.approx(-0.02)


def test_a_penalty_that_pays_is_below_zero():
    assert coefficient("penalty_coefficient", POLICY - 0.3 * KL, ref_kl=KL) == pytest.approx(-0.3)


def test_a_value_loss_that_is_left_out_is_known_by_the_other_terms():
    loss = POLICY - 0.01 * ENTROPY
    assert coefficient("value_loss_in_loss", loss, value_loss=VALUE, entropy=ENTROPY) == 0


def test_digits_of_a_console_are_enough_where_the_term_is_large():
    loss = np.round(POLICY + 0.5 * VALUE, 3)
    assert coefficient("value_loss_in_loss", loss, value_loss=np.round(VALUE, 3)) == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("added", [RNG.normal(0, 1, 30), 0.5 * VALUE + RNG.normal(0, 0.5, 30), 0.5 * VALUE**1.1])
def test_a_loss_of_another_form_gives_no_coefficient(added: np.ndarray):
    assert coefficient("value_loss_in_loss", POLICY + added, value_loss=VALUE, entropy=ENTROPY) is None


def test_a_loss_that_is_the_surrogate_tells_nothing():
    assert coefficient("value_loss_in_loss", POLICY, value_loss=VALUE, entropy=ENTROPY) is None
    assert coefficient("penalty_in_loss", POLICY + 0.5 * VALUE, value_loss=VALUE, ref_kl=KL) is None


def test_no_coefficient_is_read_off_a_loss_of_other_samples():
    loss = POLICY + 0.5 * VALUE
    assert coefficient(
        "value_loss_in_loss", loss, windows={"loss": "last minibatch"}, value_loss=VALUE
    ) == pytest.approx(0.5)
    several = {"loss": "last minibatch", "value_loss": "all minibatches"}
    assert coefficient("value_loss_in_loss", loss, windows=several, value_loss=VALUE) is None
