"""What a gate decides: causes, allowances, questions, budgets, baselines and groups, on hand-made diagnoses."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from ppo_doctor.cli.gate import decide
from ppo_doctor.cli.policy import Allowed, Baseline, KnownFault, Policy, parse_budget
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.model.run import Axis, Run, Series
from ppo_doctor.model.words import Severity
from tests.report.cases import CASES, FLAT_GROUPS, LOG, inconclusive, unhealthy
from tests.synthetic import a_problem

TODAY = date(2026, 7, 1)
SOLE = replace(unhealthy(), causes=(replace(FLAT_GROUPS, level_with=()),))


def run_with(**metrics):
    size = max((len(values) for values in metrics.values()), default=0)
    axis = Axis(path=LOG, steps=np.arange(size), lines=np.arange(size) + 1)
    series = {
        name: Series(name=name, raw=name, axis=axis, values=np.array(values, dtype=float))
        for name, values in metrics.items()
    }
    return Run(id=LOG, framework="canonical", algorithm="ppo", sources=(), series=series)


def decided(*diagnoses, run=None, baseline=None, **policy):
    judged = [(run or run_with(), diagnosis) for diagnosis in diagnoses]
    return decide(judged, Policy(**policy), baseline, TODAY)


def led_by(**change):
    """Return a diagnosis whose only problem rests on a changed cause: by itself it makes nothing unhealthy."""
    problems = tuple(replace(problem, verdict="warning") for problem in SOLE.problems)
    return replace(SOLE, causes=(replace(SOLE.causes[0], **change),), problems=problems)


def outcomes(result):
    return {item.name: item.outcome for item in result.items}


def allowance(day, cause="adv-exactly-zero"):
    return (Allowed(cause=cause, reason="the ablation wants it", expires=day),)


def before(severity=Severity.CRITICAL, confidence="likely", cause="adv-exactly-zero"):
    return Baseline(path=None, runs={LOG: {cause: KnownFault(severity=severity, confidence=confidence)}})


@pytest.mark.parametrize(
    ("name", "code"),
    [("healthy", 0), ("benign", 0), ("unhealthy", 1), ("warning", 0), ("inconclusive", 4), ("errored", 4)],
)
def test_the_exit_code_without_a_policy(name, code):
    assert decided(CASES[name]).code == code


def test_the_bound():
    medium = led_by(severity=Severity.MEDIUM)
    assert decided(medium).code == ExitCode.OK
    assert decided(medium, fail_on="medium").code == ExitCode.SICK
    assert decided(SOLE, fail_on="never").code == ExitCode.OK
    assert decided(inconclusive(), fail_on="never").code == ExitCode.OK


@pytest.mark.parametrize("change", [{"leader": False}, {"benign": True}, {"confidence": "suspected"}])
def test_what_never_fails(change):
    assert decided(led_by(**change)).code == ExitCode.OK


def test_an_allowed_cause_passes_until_its_day_and_on_it():
    assert outcomes(decided(SOLE, allow=allowance(TODAY))) == {"adv-exactly-zero": "allowed"}
    late = decided(SOLE, allow=allowance(date(2026, 6, 30)))
    assert late.code == ExitCode.SICK
    assert "allowed until 2026-06-30 (the ablation wants it), which has passed" in late.items[0].message


def test_an_expired_allowance_fails_whatever_the_baseline_says():
    assert decided(SOLE, allow=allowance(date(2026, 6, 30)), baseline=before()).code == ExitCode.SICK


def test_one_of_two_level_causes_allowed_is_not_enough():
    assert decided(unhealthy(), allow=allowance(TODAY)).code == ExitCode.SICK


def test_an_allowance_without_use_is_told():
    assert (
        "adv-exactly-zero is allowed and does not lead here" in decided(CASES["healthy"], allow=allowance(TODAY)).notes
    )


def test_required_questions():
    thin = replace(CASES["healthy"], coverage=replace(CASES["healthy"].coverage, movement=False))
    assert decided(thin, require=("signal",)).code == ExitCode.OK
    assert outcomes(decided(thin, require=("signal", "movement"))) == {"movement": "open"}
    assert decided(thin, require=("movement",)).code == ExitCode.INCONCLUSIVE


def test_a_requirement_replaces_the_floor():
    only_movement = replace(inconclusive(), coverage=replace(inconclusive().coverage, movement=True))
    assert decided(only_movement).code == ExitCode.INCONCLUSIVE
    assert decided(only_movement, require=("movement",)).code == ExitCode.OK


def test_a_check_that_failed_to_run_is_held_whatever_else_is_asked():
    """A leader that only a check can find must not slip through where that check broke."""
    broken = CASES["errored"]
    for policy in ({}, {"require": ("movement",)}):
        result = decided(broken, **policy)
        assert result.code == ExitCode.INCONCLUSIVE
        assert outcomes(result) == {"kl-runaway": "open"}
        assert "ZeroDivisionError" in result.items[0].message
    assert decided(broken, fail_on="never").code == ExitCode.OK
    assert decided(broken, SOLE).code == ExitCode.SICK


def contested_by(cause):
    problem = a_problem(cause.problem, leader=cause.id, verdict="inconclusive")
    return replace(SOLE, problems=(problem,), verdict="inconclusive", causes=(cause,))


def test_a_contested_cause_is_inconclusive_and_fails_nothing():
    assert decided(contested_by(SOLE.causes[0])).code == ExitCode.INCONCLUSIVE
    assert decided(contested_by(SOLE.causes[0]), require=("movement",)).code == ExitCode.INCONCLUSIVE
    assert decided(contested_by(SOLE.causes[0]), allow=allowance(TODAY)).code == ExitCode.OK


def test_a_failure_beats_an_open_question():
    thin = replace(SOLE, coverage=replace(SOLE.coverage, movement=False))
    assert decided(thin, require=("movement",)).code == ExitCode.SICK


@pytest.mark.parametrize(
    ("text", "values", "outcome"),
    [
        ("approx_kl.p95 < 0.05", [0.01] * 20, "passed"),
        ("approx_kl.p95 < 0.05", [0.01] * 10 + [0.2] * 10, "failed"),
        ("approx_kl.max <= 0.2", [0.1, 0.2], "passed"),
        ("approx_kl.max < 0.2", [0.1, 0.2], "failed"),
        ("approx_kl.min >= -1e-3", [0.0], "passed"),
        ("approx_kl.first > 0", [0.1, -5], "passed"),
        ("approx_kl.last > 0", [0.1, -5], "failed"),
        ("approx_kl.last > 0", [0.1, np.nan], "failed"),
        ("approx_kl.mean > 0", [0.1, np.nan], "passed"),
        ("approx_kl.median > 0", [np.nan, np.inf], "failed"),
        ("approx_kl.p100 < 1", [0.5], "passed"),
        ("entropy.last > 0", [0.5], "open"),
    ],
)
def test_budgets(text, values, outcome):
    result = decided(CASES["healthy"], run=run_with(approx_kl=values), budgets=(parse_budget(text, "here"),))
    assert outcomes(result) == {text: outcome}
    assert result.code == {"passed": 0, "failed": 1, "open": 4}[outcome]


def test_a_budget_is_held_in_a_gate_that_never_fails_for_causes():
    budgets = (parse_budget("approx_kl.last < 0", "here"),)
    assert decided(SOLE, run=run_with(approx_kl=[1.0]), budgets=budgets, fail_on="never").code == ExitCode.SICK


def test_a_known_cause_passes_and_a_new_one_fails():
    assert outcomes(decided(SOLE, baseline=before())) == {"adv-exactly-zero": "known"}
    assert outcomes(decided(SOLE, baseline=before(cause="lr-zero"))) == {"adv-exactly-zero": "failed"}


@pytest.mark.parametrize(
    ("severity", "confidence", "code"),
    [
        (Severity.CRITICAL, "likely", 0),
        (Severity.CRITICAL, "established", 0),
        (Severity.HIGH, "likely", 1),
        (Severity.CRITICAL, "suspected", 1),
    ],
)
def test_worse_than_in_the_baseline(severity, confidence, code):
    assert decided(SOLE, baseline=before(severity, confidence)).code == code


def test_fixed_causes_are_told():
    assert decided(CASES["healthy"], baseline=before()).fixed == ("adv-exactly-zero",)


def test_a_run_that_several_baselines_lack_is_new():
    several = Baseline(path=None, runs={"x/a.csv": {}, "x/b.csv": {}})
    result = decided(SOLE, baseline=several)
    assert result.code == ExitCode.SICK
    assert "does not hold" in result.notes[0]


def test_a_likely_cause_needs_half_of_the_seeds():
    healthy = CASES["healthy"]
    assert outcomes(decided(SOLE, healthy, healthy)) == {"adv-exactly-zero": "seldom"}
    assert decided(SOLE, healthy, healthy).code == ExitCode.OK
    assert decided(SOLE, healthy).code == ExitCode.SICK
    assert "in 1 of 2 runs" in decided(SOLE, healthy).items[0].message


def test_a_proven_cause_needs_one_seed():
    proven = replace(SOLE, causes=(replace(SOLE.causes[0], confidence="established"),))
    assert decided(proven, CASES["healthy"], CASES["healthy"]).code == ExitCode.SICK


def test_suppressed_rules_are_listed():
    assert decided(replace(CASES["healthy"], suppressed=("kl-runaway",))).suppressed == ("kl-runaway",)


def test_a_baseline_of_several_seeds_counts_at_its_worst():
    likely, suspected = (
        {"adv-exactly-zero": KnownFault(severity=Severity.CRITICAL, confidence=c)} for c in ("likely", "suspected")
    )
    for runs in ({"a": likely, "b": suspected}, {"a": suspected, "b": likely}):
        known = Baseline(path=None, runs=runs).known(["a", "b"])
        assert known["adv-exactly-zero"].confidence == "likely"
    assert Baseline(path=None, runs={"a": likely, "b": suspected}).known(["c"]) is None


def lost(**change):
    problem = replace(a_problem("p1", leader="", verdict="unhealthy"), findings=("reward-gone",), **change)
    return replace(SOLE, problems=(problem,), verdict="unhealthy", causes=())


def held_finding(severity=Severity.HIGH):
    return Baseline(path=None, runs={LOG: {"reward-gone": KnownFault(severity=severity, confidence="likely")}})


def test_a_finding_that_makes_a_run_unhealthy_fails_without_a_cause():
    assert outcomes(decided(lost())) == {"reward-gone": "failed"}
    assert decided(lost(), fail_on="critical").code == ExitCode.OK
    assert decided(lost(), fail_on="never").code == ExitCode.OK


def test_a_finding_is_held_to_allowances_baseline_and_seeds():
    suspected = lost(causes=("adv-exactly-zero",))
    assert outcomes(decided(suspected, allow=allowance(TODAY)))["reward-gone"] == "allowed"
    assert outcomes(decided(lost(), baseline=held_finding())) == {"reward-gone": "known"}
    assert outcomes(decided(lost(), baseline=held_finding(Severity.LOW))) == {"reward-gone": "failed"}
    assert outcomes(decided(lost(), CASES["healthy"], CASES["healthy"]))["reward-gone"] == "seldom"


def test_a_finding_that_a_firm_cause_explains_is_held_once():
    cause = replace(SOLE.causes[0], problem="p1")
    assert outcomes(decided(replace(lost(), causes=(cause,)))) == {"adv-exactly-zero": "failed"}
