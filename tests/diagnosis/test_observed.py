"""Runs of a few records that `ppo-doctor run` observed: each fault is established, and sound runs have no finding."""

from __future__ import annotations

import json

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import analyze, diagnose, read_run
from ppo_doctor.model.evidence import UNREWARDED
from ppo_doctor.model.metrics import OBSERVED
from ppo_doctor.model.request import Request
from ppo_doctor.model.words import Severity
from ppo_doctor.report import RenderOptions, render

CONFIG = {"learning_rate": 3e-4, "clip_range": 0.2, "max_grad_norm": 0.5, "n_epochs": 4, "num_minibatches": 4}
#: One record of a sound actor-critic script with four passes over four minibatches.
SOUND = {
    "ratio_mean": 1.002,
    "ratio_std": 0.06,
    "ratio_min": 0.71,
    "ratio_max": 1.32,
    "repeated_ratio_dev": 0.32,
    "approx_kl": 0.0031,
    "approx_kl_k1": 0.0028,
    "clip_fraction": 0.04,
    "clip_range": 0.2,
    "clip_fraction_low": 0.02,
    "clip_fraction_high": 0.02,
    "clip_fraction_positive": 0.02,
    "clip_fraction_negative": 0.02,
    "batch_start_ratio_dev": 2e-7,
    "epoch_start_ratio_dev": 0.09,
    "advantages_mean": 0.01,
    "advantages_std": 1.0,
    "advantages_min": -2.3,
    "advantages_max": 2.7,
    "advantages_abs_max": 2.7,
    "logratio_advantage_corr": 0.4,
    "optimizer_steps": 16,
    "skipped_steps": 0,
    "grad_norm": 0.8,
    "learning_rate": 3e-4,
    "update_norm": 0.11,
    "changed_fraction": 1.0,
    "loss": 0.4,
    "optimizer_params_matched": 1.0,
    "old_policy_shared": 0.0,
    "passes": 4,
    "policy_pull": 0.998,
    "surrogate_broadcast": 1,
    "advantage_repeat_corr": 1.0,
    "sampling_temperature": 1.0,
    "rollout_trained": 1.0,
    "value_broadcast": 1,
    "weights_rounded_away": 0.01,
    **dict.fromkeys(("old_log_prob_with_gradient", "surrogate_takes_larger", "weights_without_gradient"), 0.0),
    **dict.fromkeys(("weights_frozen", "weights_unheld", "ratio_without_gradient", "clip_unused"), 0.0),
    **dict.fromkeys(("clip_after_step", "gradients_left_over", "inputs_unseen", "dropout_active", "modes_differ"), 0.0),
    **dict.fromkeys(("rollouts_behind", "samples_trained_before", "value_target_with_gradient"), 0.0),
    "clip_bounds_swapped": 0.0,
    "minibatches_alike": 0.0,
    "policy_gradient_cut": 0.0,
    "advantages_transposed": 0.0,
    "logits_masked_apart": 0.0,
    "loop_left_early": 0.0,
    "deviation_of_one": 0.0,
    "gradient_kept": 0.6,
}
#: What does not change where no step moves the policy.
AT_ONE = {
    "ratio_mean": 1.0,
    "ratio_std": 0.0,
    "ratio_min": 1.0,
    "ratio_max": 1.0,
    "approx_kl": 0.0,
    "approx_kl_k1": 0.0,
    **dict.fromkeys((name for name in SOUND if name.startswith("clip_fraction")), 0.0),
    "batch_start_ratio_dev": 0.0,
    "epoch_start_ratio_dev": 0.0,
    "repeated_ratio_dev": 0.0,
    "logratio_advantage_corr": None,
}
#: What does not change where no step moves the weights.
STILL = {**AT_ONE, "update_norm": 0.0, "changed_fraction": 0.0}
#: A ratio that is off before any step.
OFF = {"batch_start_ratio_dev": 0.62, "ratio_std": 0.15, "approx_kl": 0.011, "clip_fraction": 0.2}

#: Fault → the numbers that differ from a sound run, the cause, and the check that comes first (with `|`, one of them).
FAULTS = {
    "recomputed in every minibatch": (AT_ONE, "old-logp-resynced-per-minibatch", "ratio-one-on-trained-samples"),
    "the same object": ({**AT_ONE, "old_policy_shared": 1.0}, "old-policy-aliased", "old-policy-shares-memory"),
    "recomputed in every epoch": (
        {"epoch_start_ratio_dev": 0.0, "repeated_ratio_dev": 0.05},
        "old-logp-resynced-per-epoch",
        "ratio-one-at-epoch-starts",
    ),
    "old with gradient": (
        {**AT_ONE, "old_log_prob_with_gradient": 1.0, "policy_pull": None},
        "no-grad-path",
        "old-log-probs-carry-gradient",
    ),
    "old with gradient, and nothing else trains": (
        {**STILL, "old_log_prob_with_gradient": 1.0, "grad_norm": 0.0, "policy_pull": None},
        "no-grad-path",
        "old-log-probs-carry-gradient",
    ),
    "wrong sign": (
        {"policy_pull": -1.0, "logratio_advantage_corr": -0.4},
        "advantage-sign-flipped",
        "loss-pulls-against-advantages",
    ),
    "max for min": ({"surrogate_takes_larger": 1.0}, "advantage-sign-flipped", "surrogate-takes-the-larger"),
    "N x N": ({"surrogate_broadcast": 64, "policy_pull": 0.02}, "advantage-misaligned", "advantages-broadcast"),
    "other advantages": (
        {"advantage_repeat_corr": 0.02},
        "advantage-misaligned",
        "advantages-change-between-passes",
    ),
    "transposed": ({"advantages_transposed": 1.0}, "advantage-misaligned", "advantages-transposed"),
    "other prompts": ({"advantages_off_prompts": 1.0}, "advantage-misaligned", "advantages-of-other-prompts"),
    "head on a detached trunk": ({"policy_gradient_cut": 0.9}, "no-grad-path", "policy-gradient-stops-early"),
    "detached trunk": ({"weights_without_gradient": 0.7}, "no-grad-path", "weights-without-gradient"),
    "detached ratio": (
        {**STILL, "ratio_without_gradient": 1.0, "grad_norm": 0.0, "policy_pull": None},
        "no-grad-path",
        "ratio-without-gradient",
    ),
    "detached ratio beside a critic": (
        {**AT_ONE, "ratio_without_gradient": 1.0, "policy_pull": None},
        "no-grad-path",
        "ratio-without-gradient",
    ),
    "clip unused": ({"clip_unused": 1.0}, "dead-hyperparameter", "clip-computed-and-unused"),
    "bounds swapped": (
        {"clip_bounds_swapped": 1.0, "clip_fraction": None, "clip_range": None},
        "clip-range-too-small",
        "clip-bounds-swapped",
    ),
    "bounds swapped, as clipped": (
        {"clip_bounds_swapped": 1.0, "clip_fraction": 1.0, "clip_range": -0.2},
        "clip-range-too-small",
        "clip-bounds-swapped",
    ),
    "clipped after the step": ({"clip_after_step": 1.0}, "dead-hyperparameter", "gradients-clipped-after-the-step"),
    "other inputs": ({**OFF, "inputs_unseen": 1.0}, "obs-transform-mismatch", "inputs-differ-from-rollout"),
    "other inputs, a little": (
        {"batch_start_ratio_dev": 0.02, "inputs_unseen": 1.0},
        "obs-transform-mismatch",
        "inputs-differ-from-rollout",
    ),
    "dropout": ({**OFF, "dropout_active": 1.0}, "dropout-or-train-mode", "dropout-in-training-passes"),
    "batch normalisation": ({**OFF, "modes_differ": 1.0}, "dropout-or-train-mode", "modes-differ-from-rollout"),
    "mask": ({**OFF, "logits_masked_apart": 1.0}, "temperature-mismatch", "classes-excluded-on-one-side"),
    "temperature": ({**OFF, "sampling_temperature": 0.7}, "temperature-mismatch", "sampled-at-another-temperature"),
    "stale": ({**OFF, "rollouts_behind": 1.0}, "staleness-async", "trains-on-an-earlier-rollout"),
    "same batch": ({**OFF, "samples_trained_before": 1.0}, "stuck-batch", "samples-of-earlier-updates"),
    "one pass": (
        {"passes": 1, "optimizer_steps": 4, "epoch_start_ratio_dev": None, "repeated_ratio_dev": None},
        "epochs-not-executed",
        "passes-below-configured|fewer-updates-than-configured",
    ),
    "one step": (
        {**AT_ONE, "passes": 1, "optimizer_steps": 1, "epoch_start_ratio_dev": None, "repeated_ratio_dev": None},
        "epochs-not-executed",
        "passes-below-configured|fewer-updates-than-configured",
    ),
    "a return in the loop": (
        {"optimizer_steps": 1, "loop_left_early": 1.0, "passes": None, "epoch_start_ratio_dev": None, **AT_ONE},
        "epochs-not-executed",
        "loop-left-in-first-iteration|fewer-updates-than-configured",
    ),
    "a deviation of one": (
        {"loss": float("nan"), "advantages_mean": float("nan"), "deviation_of_one": 1.0},
        "minibatch-of-one",
        "deviation-of-a-single-value|metric-not-finite",
    ),
    "target with gradient": (
        {"value_target_with_gradient": 1.0},
        "critic-not-learning",
        "value-target-carries-gradient",
    ),
    "values N x N": ({"value_broadcast": 64}, "critic-not-learning", "values-broadcast"),
    "rounded away": (
        {**AT_ONE, "weights_rounded_away": 0.97, "update_norm": 0.002, "changed_fraction": 0.02},
        "bf16-swallowed-update",
        "steps-round-away",
    ),
    "all rounded away": (
        {**STILL, "weights_rounded_away": 1.0},
        "bf16-swallowed-update",
        "steps-round-away",
    ),
    "learning rate 0 in several updates": (
        {**STILL, "learning_rate": 0.0},
        "lr-zero",
        "rate-always-zero|learning-rate-zero",
    ),
    "other parameters": (
        {**STILL, "optimizer_params_matched": 0.0},
        "optimizer-orphaned-params",
        "optimizer-holds-other-parameters",
    ),
    "other parameters beside a critic": (
        {**AT_ONE, "weights_unheld": 1.0, "optimizer_params_matched": 0.0},
        "optimizer-orphaned-params",
        "weights-in-no-optimizer",
    ),
    "part of the parameters": (
        {"weights_unheld": 0.54, "optimizer_params_matched": 0.46},
        "optimizer-orphaned-params",
        "weights-in-no-optimizer",
    ),
    "three passes of four": ({"passes": 3, "optimizer_steps": 12}, "epochs-not-executed", "passes-below-configured"),
    "advantages zero": (
        {
            **STILL,
            **dict.fromkeys((n for n in SOUND if n.startswith("advantages_")), 0.0),
            "grad_norm": 0.0,
            "policy_pull": None,
            "advantage_repeat_corr": None,
        },
        "adv-exactly-zero",
        "advantages-all-zero",
    ),
    "NaN loss": ({"loss": float("nan"), "grad_norm": float("nan")}, "nan-inf", "metric-not-finite"),
    "reference is the policy": ({"reference_shared": 1.0}, "ref-model-wrong", "reference-shares-memory"),
}
#: The fault shows from the second update on, or one update cannot tell it from the start of a warm-up.
FROM_THE_SECOND = ("same batch", "stale")
NOT_IN_ONE = ("learning rate 0 in several updates",)


def written(folder, records, config=CONFIG):
    path = folder / "run.jsonl"
    lines = [{"ppo_doctor": 1, "config": config}, *({"ppo_doctor": 1, **record} for record in records)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def records_of(changes, count, sound_at=()):
    """Return records with small differences between updates, as a script makes them; None leaves a number out."""
    for at in range(count):
        values = SOUND | ({} if at in sound_at else changes)
        wobble = {
            name: values[name] * (1 + 0.07 * at)
            for name in ("approx_kl", "ratio_std", "grad_norm", "update_norm", "loss", "epoch_start_ratio_dev")
            if values.get(name) and values[name] < 1
        }
        kept = {name: value for name, value in (values | wobble).items() if value is not None}
        yield {"step": 2048 * (at + 1), "update": at + 1, **kept}


def grave(diagnosis):
    fired = [finding for finding in diagnosis.findings if finding.status == "fired"]
    return [finding.rule for finding in fired if finding.severity.at_least(Severity.MEDIUM)]


def test_the_sound_record_holds_every_observed_metric():
    of_prompts = {"advantages_off_prompts"}  # a log with it is one of completions, which some causes are not about
    assert SOUND.keys() >= OBSERVED - of_prompts


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_established_with_its_finding_first(tmp_path, name, count):
    changes, cause, check = FAULTS[name]
    count += name in NOT_IN_ONE
    late = name in FROM_THE_SECOND
    records = records_of(changes, count + late, sound_at=(0,) if late else ())
    diagnosis = analyze(written(tmp_path, records))
    assert diagnosis.causes, grave(diagnosis)
    assert (diagnosis.causes[0].id, diagnosis.causes[0].confidence) == (cause, "established"), grave(diagnosis)
    assert diagnosis.problems[0].findings[0] in check.split("|")
    assert diagnosis.verdict == "unhealthy"


SETTINGS = {
    "clip range 1e-6": ({"clip_range": 1e-6}, {"clip_range": 1e-6, "clip_fraction": 0.95}, "clip-range-too-small"),
    "gradient bound 1e-6": ({"max_grad_norm": 1e-6}, {}, "grad-clip-starves"),
}


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_stops_the_policy_is_the_first_cause(tmp_path, name, count):
    settings, changes, cause = SETTINGS[name]
    diagnosis = analyze(written(tmp_path, records_of(changes, count), CONFIG | settings))
    assert diagnosis.causes, grave(diagnosis)
    assert diagnosis.causes[0].id == cause, grave(diagnosis)


@pytest.mark.parametrize(
    ("name", "check"), [("gradients_left_over", "gradients-left-over"), ("weights_frozen", "weights-frozen")]
)
def test_what_has_no_exact_cause_is_a_finding(tmp_path, name, check):
    diagnosis = analyze(written(tmp_path, records_of({name: 0.98}, 2)))
    assert grave(diagnosis) == [check]
    assert diagnosis.problems[0].next_step


#: Kinds of sound runs: what differs from an actor-critic script, and its configuration.
SOUND_RUNS = {
    "actor-critic": ({}, CONFIG),
    "nothing configured": ({}, {}),
    "one step per batch": (
        {
            **AT_ONE,
            "optimizer_steps": 1,
            "passes": 1,
            "old_policy_shared": 1.0,
            "epoch_start_ratio_dev": None,
            "repeated_ratio_dev": None,
            "advantage_repeat_corr": None,
            "value_broadcast": None,
            "value_target_with_gradient": None,
            "learning_rate": 1e-6,
            "tokens_in_loss": 900,
        },
        {"learning_rate": 1e-6, "clip_range": 0.2, "n_epochs": 1},
    ),
    "a language model in half precision": (
        {
            "batch_start_ratio_dev": 0.03,
            "learning_rate": 1e-6,
            "weights_rounded_away": 0.2,
            "changed_fraction": 0.97,
            "approx_kl": 2e-4,
            "ratio_std": 0.02,
            "clip_fraction": 0.001,
            "tokens_in_loss": 900,
        },
        {"learning_rate": 1e-6, "clip_range": 0.2, "n_epochs": 4, "temperature": 1.0},
    ),
    "dropout, with old log-probs of the training pass": ({"dropout_active": 1.0}, CONFIG),
    "an early stop": ({"passes": 2, "optimizer_steps": 8, "approx_kl": 0.016}, CONFIG | {"target_kl": 0.01}),
    "no critic": ({"value_broadcast": None, "value_target_with_gradient": None}, CONFIG),
    "a fixed deviation": ({"weights_frozen": 0.001}, CONFIG),
    "only weights seen": (
        dict.fromkeys(SOUND.keys() - {"weights_without_gradient", "update_norm", "learning_rate", "grad_norm"}),
        {},
    ),
    "clipped often": ({"clip_fraction": 0.15, "approx_kl": 0.02, "policy_pull": 0.9}, CONFIG),
}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 12])
@pytest.mark.parametrize("name", SOUND_RUNS)
def test_a_sound_run_has_no_grave_finding(tmp_path, name, count):
    changes, config = SOUND_RUNS[name]
    diagnosis = analyze(written(tmp_path, records_of(changes, count), config))
    assert grave(diagnosis) == []
    assert [cause.id for cause in diagnosis.causes if not cause.benign] == []
    assert diagnosis.verdict in ("healthy", "inconclusive")


@pytest.mark.parametrize(("count", "updates"), [(1, "1 update"), (3, "3 updates")])
def test_a_sound_run_says_in_how_many_updates_nothing_was_found_and_that_the_reward_is_missing(
    tmp_path, count, updates
):
    diagnosis = analyze(written(tmp_path, records_of({}, count)))
    because = f"nothing wrong was found in what was observed of {updates}; {UNREWARDED}"
    assert (diagnosis.verdict, diagnosis.verdict_because) == ("inconclusive", because)
    assert diagnosis.headline == f"{because.capitalize()}."
    assert "ppo-doctor run --log" in diagnosis.first_step
    for form in ("text", "markdown", "html", "json", "github"):
        report = " ".join(render(diagnosis, None, RenderOptions(width=200), form).split())
        assert diagnosis.headline in report
        assert "No reward is logged" not in report


def test_what_the_observation_does_not_show_is_named_beside_the_missing_reward(tmp_path):
    diagnosis = analyze(written(tmp_path, records_of(*SOUND_RUNS["only weights seen"][:1], 3), {}))
    assert diagnosis.left_open
    assert ", but it does not show " in diagnosis.verdict_because
    assert diagnosis.verdict_because.endswith(f"; {UNREWARDED}")


def test_with_a_reward_its_course_comes_first(tmp_path):
    records = [record | {"episode_return": 1.0} for record in records_of({}, 3)]
    diagnosis = analyze(written(tmp_path, records))
    assert UNREWARDED not in diagnosis.verdict_because
    report = " ".join(render(diagnosis, None, RenderOptions(width=200), "text").split())
    nothing = (
        "Nothing wrong was found in what was observed of 3 updates, but the log does not show that the policy learns."
    )
    assert f"The reward (episode_return) has 3 numbers, too few to show a course. {nothing}" in report


def test_as_few_records_of_a_log_that_was_not_observed_prove_nothing(tmp_path):
    changes = FAULTS["advantages zero"][0] | dict.fromkeys(OBSERVED)
    assert "advantages-all-zero" in grave(analyze(written(tmp_path, records_of(FAULTS["advantages zero"][0], 3))))
    assert "advantages-all-zero" not in grave(analyze(written(tmp_path, records_of(changes, 3))))


def test_checks_that_take_an_observation_are_in_no_count_of_another_run(tmp_path):
    seen = analyze(written(tmp_path, records_of({}, 3)))
    logged = analyze(written(tmp_path, records_of(dict.fromkeys(OBSERVED), 3)))
    only_seen = {finding.rule for finding in seen.findings} - {finding.rule for finding in logged.findings}
    assert {"loss-pulls-against-advantages", "weights-in-no-optimizer", "minibatches-alike"} < only_seen
    assert "ratio-identically-one" not in only_seen
    assert (seen.coverage.left_to_run, logged.coverage.left_to_run) == (0, len(only_seen))
    assert not [finding for finding in logged.findings if OBSERVED.intersection(finding.missing)]
    counts = logged.coverage.clear + logged.coverage.fired + logged.coverage.skipped + logged.coverage.errored
    assert counts == len(logged.findings)
    words = f"{len(only_seen)} further checks take an observation of the running script: ppo-doctor run."
    for form, options in (("text", {"why": True, "width": 200}), ("html", {})):
        reports = [" ".join(render(each, None, RenderOptions(**options), form).split()) for each in (seen, logged)]
        assert [words in report.replace("\u00a0", " ") for report in reports] == [False, True]
    assert words not in render(logged, None, RenderOptions(), "text")


def test_a_check_left_out_on_request_is_counted_once(tmp_path):
    path = written(tmp_path, records_of(dict.fromkeys(OBSERVED), 3))
    request = Request(ignore=("minibatches-alike", "ratio-identically-one"))
    whole, less = (diagnose(read_run(str(path), each), load_pack(), each) for each in (Request(), request))
    assert less.coverage.left_to_run == whole.coverage.left_to_run - 1
    assert len(less.findings) == len(whole.findings) - 1


def test_one_update_without_advantages_at_the_end_is_no_finding(tmp_path):
    flat = STILL | dict.fromkeys((name for name in SOUND if name.startswith("advantages_")), 0.0) | {"grad_norm": 0.0}
    for count in (2, 3, 4):
        sound = range(count - 1)
        assert grave(analyze(written(tmp_path, records_of(flat, count, sound_at=sound)))) == []


def test_a_warm_up_from_0_is_no_finding(tmp_path):
    for count in (1, 2, 4):
        records = list(records_of(SOUND_RUNS["one step per batch"][0], count))
        for at, record in enumerate(records):
            record["learning_rate"] = 1e-7 * at
            record["update_norm"] *= min(at, 1)
        assert grave(analyze(written(tmp_path, records, SOUND_RUNS["one step per batch"][1]))) == []


def test_a_schedule_that_ends_early_is_established(tmp_path):
    records = list(records_of({}, 6))
    for at, record in enumerate(records):
        if at > 1:
            record.update(STILL, learning_rate=0.0, logratio_advantage_corr=0.0)
    diagnosis = analyze(written(tmp_path, records))
    assert (diagnosis.causes[0].id, diagnosis.causes[0].confidence) == ("lr-schedule-horizon-wrong", "established")
