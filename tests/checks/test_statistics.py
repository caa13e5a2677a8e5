"""Each derived quantity: what it is, when it cannot be told, and the traps in between."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.checks.run_view import STATISTICS, RunView, inputs, metrics_wanted
from ppo_doctor.checks.series import finite
from ppo_doctor.checks.statistics import once
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.request import Request
from tests.every_metric import ESTIMATORS, FACTS, SETTINGS, axis_of, derive_all, observe_all
from tests.synthetic import NAN, a_series, an_axis, configured, observe

TWENTY = range(1, 21)


def test_nothing_is_derived_from_nothing():
    bare = observe()
    assert [name for name in STATISTICS if bare.series(name) is not None or bare.fact(name) is not None] == []
    assert [name for name in STATISTICS if not inputs(name) or not metrics_wanted(name)] == []


def test_nothing_breaks_on_a_log_of_nan():
    axis = an_axis(TWENTY)
    metrics = [a_series(metric, [NAN] * 20, axis=axis, estimator="k3") for metric in METRICS]
    settings = {"ppo_epochs": 4, "target_kl": 0.01, "clip_range": 0.2}
    facts = {"generation_marker": "reward_mean", "epochs_repeat_batch": True}
    for name in STATISTICS:
        observe(*metrics, config=settings, facts=facts).get(name)


def test_a_quantity_is_computed_once(monkeypatch):
    view = observe(a_series("approx_kl", [0.1] * 9))
    first = view.series("ratio_departure")
    monkeypatch.delitem(STATISTICS, "ratio_departure")
    assert view.series("ratio_departure") is first


@pytest.mark.parametrize("result", [(1.0, 2.0), None])
def test_what_statistics_share_is_computed_once_for_each_run(result):
    asked = []
    shared = once(lambda view: asked.append(view) or result)
    runs = [observe(a_series("approx_kl", [size] * 9)) for size in (0.1, 0.2)]
    assert [shared(view) for view in (*runs, *runs)] == [result] * 4
    assert asked == runs


@pytest.mark.parametrize(
    ("values", "known"), [([0.5, NAN, 2.0, math.inf], [0.5, 2.0]), ([0.5, 1.0], [0.5, 1.0]), ([], [])]
)
def test_the_finite_values_of_a_series_stay_what_they_are(values, known):
    series = a_series("approx_kl", values)
    assert finite(series).tolist() == finite(series).tolist() == known


def test_a_statistic_that_nobody_registered_is_an_error():
    with pytest.raises(LookupError, match="ratio_departur'"):
        observe().value("ratio_departur")


def test_a_logged_metric_is_not_derived():
    logged = a_series("advantage_spread", [0.5] * 9)
    assert observe(logged).series("advantage_spread") is logged


# K


def test_a_counter_of_steps_is_k():
    found = observe(a_series("optimizer_steps", [16.0] * 9)).fact("updates_observed")
    assert (found.value, found.how) == (16, "observed")


def generation(every, apart=1, records=40, **fields):
    """Return a log with a record per `apart` optimizer steps, whose generation keys are `every` steps apart."""
    steps = range(1, 1 + records * apart, apart)
    loss = a_series("loss", np.linspace(1, 2, records), steps=steps)
    reward = a_series(
        "reward_mean", [1.0] * len(range(1, records * apart, every)), steps=range(1, records * apart, every)
    )
    return observe(loss, reward, facts={"generation_marker": "reward_mean"} | fields.pop("facts", {}), **fields)


@pytest.mark.parametrize("every", [1, 4, 7])
def test_generations_are_k_steps_apart(every):
    assert generation(every).fact("updates_observed").value == every


@pytest.mark.parametrize(("every", "known"), [(1, None), (4, 4)])
def test_records_without_a_generation_show_several_steps_even_where_none_is_numbered(every, known):
    found = generation(every, facts={"steps_numbered": True}).fact("updates_observed")
    assert (found.value if found else None) == known


@pytest.mark.parametrize("apart", [2, 10])
def test_the_spacing_is_hidden_where_records_average_over_several_steps(apart):
    assert generation(apart, apart=apart).fact("updates_observed") is None


def test_a_variance_over_one_minibatch_shows_a_single_update():
    facts = {"single_update_marker": "ratio_batch_var"}
    assert observe(a_series("ratio_batch_var", [NAN] * 9), facts=facts).fact("updates_observed").value == 1
    assert observe(a_series("ratio_batch_var", [NAN] * 8 + [0.1]), facts=facts).fact("updates_observed") is None


@pytest.mark.parametrize(
    ("observed", "known", "effective", "how"),
    [
        (8.0, configured(4), 8, "observed"),
        (None, configured(4), 4, "configured"),
        (None, configured(4, "default"), 4, "default"),
        (None, None, None, None),
    ],
)
def test_k_is_observed_else_configured_else_default(observed, known, effective, how):
    held = [a_series("optimizer_steps", [observed] * 9)] if observed else []
    facts = {"updates_configured": known} if known else {}
    found = observe(*held, facts=facts)
    fact = found.fact("updates_effective")
    assert (fact.value if fact else None, fact.how if fact else None) == (effective, how)
    assert (found.fact("updates_known") is None) is (how in ("default", None))


def counted(executed, iterations=None, **fields):
    counter = a_series("epochs_executed_total", np.cumsum([executed] * 10))
    more = [a_series("iteration", iterations)] if iterations else []
    return observe(counter, *more, **fields)


def test_executed_over_configured_epochs():
    assert counted(1.0, config={"ppo_epochs": 4}).fact("epochs_share").value == 0.25
    assert counted(4.0, config={"ppo_epochs": 4}).fact("epochs_share").value == 1


def test_a_default_is_no_configuration():
    assert counted(1.0, defaults={"ppo_epochs": 4}).fact("epochs_share") is None
    facts = {"updates_configured": configured(16, "default")}
    assert observe(a_series("optimizer_steps", [4.0] * 9), facts=facts).fact("epochs_share") is None


def test_records_that_skip_batches_do_not_count_double():
    found = counted(20.0, list(range(5, 55, 5)), config={"ppo_epochs": 4})
    assert found.fact("epochs_share").value == 1


def test_a_counter_that_falls_at_a_resume_does_not_count():
    totals = [*range(4, 44, 4), *range(4, 44, 4)]
    found = observe(
        a_series("epochs_executed_total", totals),
        config={"ppo_epochs": 4},
    )
    assert found.fact("epochs_share").value == 1


@pytest.mark.parametrize("wrong", [9e9, 1.0])
def test_a_wrong_number_in_a_counter_adds_no_epochs(wrong):
    totals = [*range(4, 44, 4)]
    totals[5] = wrong
    found = observe(a_series("epochs_executed_total", totals), config={"ppo_epochs": 4})
    assert found.fact("epochs_share").value == 1


@pytest.mark.parametrize(("target", "value"), [(0.01, 2.0), (None, 0.0)])
def test_kl_over_target(target, value):
    found = observe(a_series("approx_kl", [0.02] * 9), config={"target_kl": target})
    assert found.fact("kl_over_target").value == pytest.approx(value)


def test_a_target_that_does_not_stop_is_no_target():
    config = {"target_kl": 0.01, "early_stopping": False}
    found = observe(a_series("approx_kl", [0.02] * 9), config=config)
    assert found.fact("kl_over_target").value == 0
    assert found.fact("binding_target_kl") is None


def test_the_learning_rate_is_the_logged_one_else_the_configured_one():
    logged = a_series("learning_rate", [0.1] * 5)
    assert observe(logged, config={"learning_rate": 1}).series("applied_learning_rate") is logged
    assert observe(config={"learning_rate": 0.0}).get("applied_learning_rate") is None


# Ratio


def test_a_departure_is_the_largest_distance_from_identity():
    axis = an_axis([1, 2, 3])
    held = [("approx_kl", [0, 0.1, 0]), ("ratio_mean", [1, 1, 0.5]), ("ratio_max", [1.0, 1.0, 1.2])]
    found = observe(*(a_series(name, values, axis=axis) for name, values in held)).series("ratio_departure")
    assert found.values.tolist() == pytest.approx([0, 0.1, 0.5])


@pytest.mark.parametrize("alone", ["ratio_mean", "approx_kl_k1", "clip_fraction", "ref_kl", "rollout_kl"])
def test_what_may_cancel_shows_no_identity(alone):
    assert observe(a_series(alone, [1.0] * 9)).series("ratio_departure") is None


def test_the_coarsest_print_decides_what_a_departure_means():
    axis = an_axis([1, 2])
    held = [a_series("approx_kl", [0, 0], axis=axis), a_series("ratio_std", [0, 0], axis=axis, absolute=0.005)]
    assert observe(*held).series("ratio_departure").resolution.absolute == 0.005


def test_a_trace_of_the_ratio_falls_back_to_the_clip_fraction():
    clip = a_series("clip_fraction", [0.0] * 9)
    assert observe(clip).series("ratio_trace") is clip
    assert observe(clip, a_series("approx_kl", [0.0] * 9)).series("ratio_trace").name == "ratio_departure"


PASSES = {"epochs_repeat_batch": True, "generation_marker": "reward_mean"}


def passes(losses, *, every=2, spread=None, config=None, facts=PASSES):
    rewards = len(losses) // every
    steps = range(1, len(losses) + 1)
    reward = a_series("reward_mean", [1.0] * rewards, steps=steps[::every])
    more = [a_series("frac_reward_zero_std", spread, steps=steps[::every])] if spread else []
    config = {"ppo_epochs": every} if config is None else config
    return observe(a_series("loss", losses, steps=steps), reward, *more, config=config, facts=facts)


def test_a_repeated_loss_shows_between_passes_of_one_batch():
    assert passes([5, 5, 7, 7, 4, 4]).series("loss_change_within_batch").values.tolist() == [0, 0, 0]
    assert passes([5, 6, 7, 9, 4, 4]).series("loss_change_within_batch").values.tolist() == [1, 2, 0]


def test_batches_without_advantages_do_not_count():
    found = passes([5, 5, 7, 8, 4, 4], spread=[1.0, 0.2, 1.0])
    assert found.series("loss_change_within_batch").values.tolist() == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"ppo_epochs": 1}},
        {"config": {}},
        {"facts": {"generation_marker": "reward_mean"}},
    ],
    ids=["one pass", "passes unknown", "order of minibatches unknown"],
)
def test_a_repeated_loss_means_nothing_elsewhere(changes):
    assert passes([5, 5, 7, 7, 4, 4], **changes).series("loss_change_within_batch") is None


def test_a_repeated_loss_means_nothing_beside_a_kl_term_and_a_changed_one_does():
    found = passes([5, 5, 7, 9, 4, 4], config={"ppo_epochs": 2, "kl_coef": 0.04}).series("loss_change_within_batch")
    assert np.array_equal(found.values, [NAN, 2, NAN], equal_nan=True)


def test_a_repeated_loss_in_print_is_known_to_both_roundings():
    losses = a_series("loss", [5, 5, 7, 7, 4, 4], absolute=5e-5)
    reward = a_series("reward_mean", [1.0] * 3, steps=[1, 3, 5])
    found = observe(losses, reward, config={"ppo_epochs": 2}, facts=PASSES).series("loss_change_within_batch")
    assert found.resolution.absolute == pytest.approx(1e-4)


# Signal


@pytest.mark.parametrize(("algorithm", "known"), [("grpo", True), ("rloo", True), ("ppo", False)])
def test_the_spread_of_rewards_is_that_of_advantages_for_group_methods_only(algorithm, known):
    found = observe(a_series("reward_std", [0.0] * 9), algorithm=algorithm).series("advantage_spread")
    assert (found is not None) is known


def test_groups_tell_more_than_whitened_advantages():
    held = [a_series("frac_reward_zero_std", [1.0, 0.75]), a_series("advantages_std", [1.0, 1.0])]
    assert observe(*held).series("advantage_spread").values.tolist() == [0, 0.25]


# Clip range


def test_the_clip_range_in_force_is_that_of_the_first_half():
    found = observe(a_series("clip_range", np.linspace(0.2, 0, 21)), config={"clip_range": 0.3}).fact(
        "implied_clip_range"
    )
    assert found.value > 0.1
    assert observe(config={"clip_range": 0.3}).fact("implied_clip_range").value == 0.3
    assert observe(defaults={"clip_range": 0.2}).fact("implied_clip_range") is None


@pytest.mark.parametrize(
    ("estimator", "first", "known"),
    [
        *(("k2", 1e-4, True), ("k3", 1e-4, True), ("exact", 1e-4, True), ("k1", 1e-4, False)),
        *((None, 1e-4, True), (None, 0.0, False), (None, -1e-5, False)),
    ],
)
def test_a_bound_from_kl_takes_an_estimate_that_is_never_negative(estimator, first, known):
    axis = an_axis(TWENTY)
    held = [
        a_series("clip_fraction", [0.5] * 20, axis=axis),
        a_series("approx_kl", [first, *[1e-4] * 19], axis=axis, estimator=estimator),
    ]
    found = observe(*held).fact("implied_clip_range")
    assert (found is not None) is known
    if found:
        assert found.value == pytest.approx(math.sqrt(2 * 1e-4 / 0.5))


def test_a_bound_takes_two_metrics_of_the_same_records():
    kl = a_series("approx_kl", [1e-4] * 20, axis=an_axis(TWENTY, path="other"), estimator="k3")
    held = [a_series("clip_fraction", [0.5] * 20), kl]
    assert observe(*held).fact("implied_clip_range") is None


@pytest.mark.parametrize("setting", [{"importance_sampling_level": "sequence"}, {"loss_type": "gspo"}])
def test_sequence_level_ratios_have_other_ranges(setting):
    assert observe(config={"clip_range": 3e-4} | setting).fact("implied_clip_range") is None


# Drift


def drift(values, **fields):
    return observe(a_series("entropy", values, **fields)).fact("policy_drift")


def bound():
    from ppo_doctor.checks.rulepack import load_pack

    return load_pack().rule("policy-changes-over-time").when[0].bound


@pytest.mark.parametrize("records", [18, 20, 60, 300])
def test_a_frozen_policy_does_not_drift(records):
    """Its entropy is white noise; not one of 500 runs may pass for a policy that moves."""
    worst = max(drift(np.random.default_rng(seed).normal(2, 0.1, records)).value for seed in range(500))
    assert worst <= bound()


def test_a_policy_that_learns_drifts():
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    assert drift(np.linspace(2, 1, 60) + noise).value > bound()


def test_a_constant_entropy_does_not_drift():
    assert drift([0.69] * 60).value == 0


def test_float_noise_and_the_last_digit_are_no_drift():
    assert drift(0.69 + np.linspace(0, 1e-8, 60)).value <= bound()
    assert drift([0.693] * 30 + [0.694] * 30, absolute=0.0005).value <= bound()


@pytest.mark.parametrize("records", [0, 5, 11])
def test_too_few_records_show_no_drift(records):
    assert drift([1.0] * records) is None


def test_motion_is_that_of_the_weights_else_of_a_probe():
    update, probe = a_series("update_norm", [1.0]), a_series("probe_kl", [2.0])
    assert observe(update, probe).series("weight_motion") is update
    assert observe(probe).series("weight_motion") is probe


# Spikes


@pytest.mark.parametrize(
    ("last", "epochs", "steps"),
    [(0.0, 1, 1.0), (1e-7, 1, 1.0), (0.001, 1, None), (0.0, 10, None)],
    ids=["the same", "the same up to float32", "another minibatch", "ten epochs by the counter"],
)
def test_one_minibatch_is_seen_where_its_loss_is_that_of_all(last, epochs, steps):
    value_loss = [90.0 - step for step in range(8)]
    told = {
        "value_loss": value_loss,
        "loss": [0.5 * value * (1 + last * (-1) ** step) + 1e-8 for step, value in enumerate(value_loss)],
        "policy_loss": [1e-8] * 8,
        "entropy": [1.1] * 8,
        "epochs_executed_total": [epochs * step for step in range(8)],
    }
    series = {name: " ".join(f"{value:.17g}" for value in values) for name, values in told.items()}
    found = RunView(case_run({"framework": "sb3", "series": series})).fact("updates_observed")
    assert (found and found.value) == steps


@pytest.mark.parametrize(("steps", "value"), [([99.0] * 9, 0.0), ([99.0] * 8 + [7.0], 2.0), ([20.0] * 9, 2.0)])
def test_a_kl_above_its_target_stops_nothing_where_every_update_is_whole(steps, value):
    series = a_series("approx_kl", [0.02] * 9), a_series("optimizer_steps", steps)
    found = observe(*series, config={"target_kl": 0.01}, facts={"updates_configured": configured(100)})
    assert found.fact("kl_over_target").value == pytest.approx(value)


SIZES = (0.0, 5e-324, 1e-300, 1e-160, 1e-8, 1e-3, 1.0, 1e3, 2.0**53, 1e19, 1e155, 1e300, 1.7e308)


SHAPES = ("constant", "noise", "one-sided noise", "ramp", "level", "mixed", "broken", "ordinary")


LENGTHS = (1, 6, 20, 60, 120, 450)


SWITCHED = (0, 1, -1, 1e300, -1e300, 5e-324, float("inf"), float("nan"), "none", None)


def numbers(chance, size):
    """Return values of one shape, with at most one that is out of place."""
    shape, level = chance.choice(SHAPES), float(chance.choice(SIZES)) * chance.choice([1, 1, -1])
    unit = chance.random(size)
    values = {
        "constant": lambda: np.full(size, level),
        "noise": lambda: level * (unit - 0.5),
        "one-sided noise": lambda: level * unit,
        "ramp": lambda: level * np.linspace(0, 1, size),
        "level": lambda: np.where(np.arange(size) < size * unit[0], level, chance.choice(SIZES)),
        "mixed": lambda: chance.choice(SIZES, size) * chance.choice([1, -1], size),
        "broken": lambda: chance.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, level], size),
        "ordinary": lambda: unit,
    }[shape]()
    if chance.random() < 0.2:
        values[chance.integers(size)] = chance.choice([np.nan, np.inf, -np.inf, 1e308])
    return values


def settings_of(chance):
    """Return the settings of a run, some of them left out and some with a value that makes no sense."""
    kept = [name for name in SETTINGS if chance.random() < 0.8]
    return {n: SETTINGS[n] if chance.random() < 0.8 else SWITCHED[chance.integers(len(SWITCHED))] for n in kept}


def observed(seed):
    chance = np.random.default_rng(seed)
    size = int(chance.choice(LENGTHS))
    alike = numbers(chance, size)
    same = chance.random() < 0.3
    return observe_all(
        axis_of(size, int(chance.choice([1, 2048, 10**15]))),
        lambda _: alike if same and chance.random() < 0.7 else numbers(chance, size),
        config=settings_of(chance),
        facts={name: value for name, value in FACTS.items() if chance.random() < 0.6},
        estimator=ESTIMATORS[seed % len(ESTIMATORS)],
        algorithm=str(chance.choice(["ppo", "grpo"])),
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_quantity_fails_on_any_size_of_number():
    failed = {seed: told for seed in range(48) if (told := derive_all(observed(seed)))}
    assert failed == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_check_fails_on_any_size_of_number():
    pack, failed = load_pack(), {}
    for seed in range(16):
        told = diagnose(observed(seed).run, pack, Request())
        failed |= {f.rule: (seed, f.reason) for f in told.findings if f.status == "errored"}
    assert failed == {}


def rows_of(scale):
    chance = np.random.default_rng(7)
    for step in range(40):
        draw = chance.random(5).tolist()
        yield {"step": step, "reward_mean": draw[0] * scale, "entropy": draw[1] * scale, "ratio_std": draw[2] * 0.1}


@pytest.mark.parametrize("scale", [1.0, 1e155, 1e300])
def test_a_log_of_huge_numbers_is_judged_without_a_check_that_fails(cli, tmp_path, scale):
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(map(json.dumps, rows_of(scale))))
    outcome = cli("analyze", str(log), "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["coverage"]["errored"] == 0


@pytest.mark.parametrize("key", ["ppo_epochs", "num_minibatches", "learning_rate", "max_response_length"])
def test_a_setting_that_no_float_holds_is_infinite(cli, root, key):
    log = root / "sample_logs/healthy/healthy.canonical/run.jsonl"
    outcome = cli("analyze", str(log), "--set", f"{key}=1{'0' * 400}", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["coverage"]["errored"] == 0
