"""The summary of a diagnosis, as data: outcome, table, problems, what stays open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppo_doctor.model.rules import Evidence, Finding, Measurement, Remedy
from ppo_doctor.model.run import Axis, Note, Run, Series
from ppo_doctor.model.words import Severity
from ppo_doctor.report.phrases import short
from ppo_doctor.report.summary import MOST_REMEDIES, remedies, summarize
from tests.report.cases import (
    CASES,
    FLAT_GROUPS,
    LOG,
    NOTHING_TO_LEARN,
    SETTLE,
    ZERO,
    benign,
    chain,
    healthy,
    inconclusive,
    outcome,
    summary,
    unhealthy,
)


def series(name: str, values: Any, raw: str = "", steps: Any = None, **more: Any) -> Series:
    held = np.asarray(values, dtype=float)
    at = np.arange(1, len(held) + 1) if steps is None else np.asarray(steps)
    return Series(name=name, raw=raw or name, axis=Axis(path=LOG, steps=at, lines=at), values=held, **more)


def a_run(*held: Series, **more: Any) -> Run:
    logged = {one.name: one for one in held}
    return Run(id=LOG, framework="trl-grpo", algorithm="grpo", sources=(), series=logged, **more)


def of_412(name: str, before: float, after: float) -> Series:
    return series(name, np.where(np.arange(1, 413) < 12, before, after))


SICK_RUN = a_run(
    of_412("frac_reward_zero_std", 0.2, 1.0),
    of_412("loss", 0.3, 0.0),
    of_412("reward_std", 0.5, 0.0),
    of_412("reward_mean", 0.95, 0.03),
    of_412("entropy", 0.24, 6.0),
    of_412("approx_kl", 0.01, 0.01),
    of_412("clip_fraction", 0.1, 0.0),
)


def test_the_outcome_is_that_of_the_diagnosis_and_the_entropy_is_the_run_s_own() -> None:
    told = summarize(unhealthy(), SICK_RUN)
    assert told.outcome == unhealthy().outcome
    assert told.entropy is not None
    assert (told.entropy.word, told.entropy.first, told.entropy.last) == ("entropy", 0.24, 6.0)


def test_without_its_run_a_story_has_no_numbers() -> None:
    told = summarize(unhealthy(), None)
    assert told.table is None
    assert told.entropy is None
    assert told.problems


def test_the_table_shows_the_onset_and_what_is_around_it() -> None:
    table = summarize(unhealthy(), SICK_RUN).table
    assert table is not None
    assert [(moment.name, moment.step) for moment in table.key_steps] == [
        ("start", 1),
        ("before", 11),
        ("onset", 12),
        ("after", 112),
        ("end", 412),
    ]


def test_the_metrics_of_the_evidence_come_first_then_those_that_matter_to_every_run() -> None:
    table = summarize(unhealthy(), SICK_RUN).table
    assert table is not None
    assert [row.name for row in table.rows] == [
        *("frac_reward_zero_std", "loss", "reward_std"),
        *("reward_mean", "approx_kl", "clip_fraction"),
    ]
    assert table.rows[0].values == (0.2, 0.2, 1.0, 1.0, 1.0)


def test_a_run_without_an_onset_is_shown_at_start_middle_and_end() -> None:
    table = summarize(healthy(), a_run(series("reward_mean", np.linspace(0, 1, 11), "rollout/ep_rew_mean"))).table
    assert table is not None
    assert [(moment.name, moment.step) for moment in table.key_steps] == [("start", 1), ("middle", 6), ("end", 11)]
    assert [(row.key, row.values) for row in table.rows] == [("rollout/ep_rew_mean", (0.0, 0.5, 1.0))]


@pytest.mark.parametrize(("records", "names"), [(1, ["start"]), (2, ["start", "end"])])
def test_few_records_are_few_moments(records: int, names: list[str]) -> None:
    table = summarize(healthy(), a_run(series("reward_mean", np.ones(records)))).table
    assert table is not None
    assert [moment.name for moment in table.key_steps] == names


def test_the_table_begins_where_every_metric_is_logged() -> None:
    run = a_run(series("reward_mean", np.ones(20)), series("entropy", np.ones(19), steps=range(2, 21)))
    table = summarize(healthy(), run).table
    assert table is not None
    assert table.key_steps[0].step == 2


def test_a_metric_that_is_logged_late_is_blank_before() -> None:
    run = a_run(series("reward_mean", np.ones(20)), series("entropy", [2.0, 2.0], steps=[15, 20]))
    told = summarize(healthy(), run)
    assert told.table is not None
    assert told.table.rows[1].values == (None, None, 2.0)
    assert told.entropy is not None
    assert told.entropy.first == 2.0


def test_only_what_is_logged_stands_in_the_table() -> None:
    run = a_run(series("reward_mean", [1.0, 2.0]), series("approx_kl", [0.0, 0.0], how="computed"))
    table = summarize(healthy(), run).table
    assert table is not None
    assert [row.name for row in table.rows] == ["reward_mean"]
    assert summarize(healthy(), a_run()).table is None


def test_a_problem_has_its_place_its_remedies_and_what_would_settle_it() -> None:
    (problem,) = summarize(unhealthy(), SICK_RUN).problems
    assert (problem.rank, problem.title, problem.severity) == (1, ZERO.title, ZERO.severity)
    assert (problem.cause, problem.sure) == ("adv-exactly-zero", True)
    assert problem.since == 12
    assert problem.place is not None
    assert (problem.place.path, problem.place.line) == (LOG, 12)
    first, resort = problem.do
    assert first.do == "raise the number of generations per prompt"
    assert (first.key, first.now, first.then) == ("num_generations", 8, 16)
    assert resort.do.startswith("print the rewards")
    assert problem.check is not None
    assert (problem.check.log, problem.check.because) == (SETTLE.log, SETTLE.because)


def test_level_causes_are_told_with_the_one_that_leads() -> None:
    (problem,) = summarize(unhealthy(), None).problems
    assert [why.cause for why in problem.why] == ["adv-exactly-zero", "reward-constant"]
    assert [why.confidence for why in problem.why] == ["likely", "likely"]


def test_an_established_cause_needs_no_check() -> None:
    found = unhealthy()
    sure = replace(FLAT_GROUPS, confidence="established", level_with=())
    assert summarize(replace(found, causes=(sure,)), None).problems[0].check is None


def test_a_check_speaks_of_a_rule_by_its_title() -> None:
    asked = Measurement(log="ratio_std", because="it would decide it", check_title="The ratio is one")
    found = replace(unhealthy(), causes=(replace(FLAT_GROUPS, would_change_my_mind=(asked,)),))
    check = summarize(found, None).problems[0].check
    assert check is not None
    assert check.because == "it tells whether the ratio is one"


def test_the_same_advice_is_given_once() -> None:
    other = replace(FLAT_GROUPS, id="other", rank=2, problem="p2")
    shown = (NOTHING_TO_LEARN, replace(NOTHING_TO_LEARN, id="p2"))
    first, second = summarize(replace(unhealthy(), causes=(FLAT_GROUPS, other), problems=shown), None).problems
    assert first.do
    assert second.do == ()
    assert second.check is None


def test_a_harmless_explanation_is_a_remark_and_no_problem() -> None:
    told = summarize(benign(), None)
    assert told.problems == ()
    (remark,) = told.remarks
    assert remark.title == "One optimizer step per rollout batch: the ratio is 1 by construction"
    assert remark.message.startswith("with K = 1 the ratio is 1")


def test_a_problem_without_a_cause_is_told_by_what_shows_it() -> None:
    alone = replace(NOTHING_TO_LEARN, leader="", causes=(), openers=())
    (problem,) = summarize(replace(unhealthy(), causes=(), problems=(alone,)), None).problems
    assert (problem.title, problem.since) == (ZERO.title, 12)
    assert problem.seen
    assert problem.place is not None
    assert (problem.why, problem.do, problem.check, problem.sure) == ((), (), None, False)


def test_what_is_only_suspected_is_settled_and_not_treated() -> None:
    doubtful = replace(FLAT_GROUPS, confidence="suspected")
    (problem,) = summarize(replace(unhealthy(), causes=(doubtful,)), None).problems
    assert problem.do == ()
    assert problem.avoid == ""
    assert problem.check is not None


def test_open_questions_name_what_would_answer_them() -> None:
    told = summarize(inconclusive(), None)
    assert [question.question for question in told.open] == [
        "whether the policy moves",
        "whether there is a learning signal",
    ]
    assert told.open[0].metrics == ("ratio_std", "ratio_max", "clip_fraction")
    assert told.because == "nothing was found, but not every question could be answered"


def test_a_short_log_says_so() -> None:
    few = replace(inconclusive(), run=summary(records=3))
    assert summarize(few, None).short
    assert not summarize(inconclusive(), None).short


def test_a_broken_link_is_told_by_the_title_of_its_check() -> None:
    witness = "loss_gone 1 is at least 0.5 (run.jsonl:12)"
    found = replace(
        healthy(),
        verdict="unhealthy",
        verdict_because=f"the chain breaks at loss: {witness}",
        chain=chain(loss=("dead", witness)),
    )
    assert summarize(found, None).because == "the chain breaks at loss"


def test_checks_are_counted_and_those_that_failed_named() -> None:
    checks = summarize(CASES["errored"], None).checks
    assert (checks.clear, checks.not_run) == (3, 1)
    assert checks.unlogged
    assert checks.failed == (("KL001 kl-runaway", "ZeroDivisionError: division by zero"),)


def test_the_gravest_notes_on_reading_are_told() -> None:
    notes = (Note(text="renamed", kind="renamed"), Note(text="skipped", kind="skipped"), Note(text="gone", kind="lost"))
    found = replace(healthy(), run=summary(notes=tuple(map(str, notes))))
    assert summarize(found, a_run(notes=notes)).reading == ("gone", "skipped")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.003124, "0.00312"),
        (17.84, "17.8"),
        (2341.4, "2341"),
        (-1229.0, "-1229"),
        (1e-6, "1e-6"),
        (2.5e9, "2.5e9"),
        (float("nan"), "NaN"),
        (float("-inf"), "-infinity"),
    ],
)
def test_numbers_have_three_digits(value: float, told: str) -> None:
    assert short(value) == told


def test_why_it_was_judged_so_is_told_where_neither_problem_nor_outcome_tells_it() -> None:
    assert summarize(healthy(), None).because == ""
    assert summarize(unhealthy(), None).because == ""
    stood = replace(healthy(), outcome=outcome("flat", 0.5, 0.5), verdict="inconclusive")
    told = replace(stood, verdict_because="nothing found, but a check failed to run")
    assert summarize(told, None).because == "nothing found, but a check failed to run"
    said = "nothing found, but the log does not show that the policy learns: "
    courses = replace(stood, verdict_because=said + "The reward (reward_mean) shows no clear rise: 0.5 throughout")
    assert summarize(courses, None).because == ""


def test_a_problem_is_told_with_what_shows_it_in_this_run() -> None:
    (problem,) = summarize(unhealthy(), None).problems
    assert problem.seen
    assert problem.title not in problem.seen


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("lr reaches 0.3", "Too high: lr reaches 0.3"),
        ("configured", "Too high"),
        ("env_steps per iteration", "Too high"),
    ],
)
def test_a_remark_on_a_check_has_its_number_where_it_tells_one(says: str, told: str) -> None:
    shown = Evidence(metric="rate_largest", raw="lr", statistic=says, observed=0.3, op=">=", bound=0.02)
    high = Finding(
        rule="rate-huge",
        code="R1",
        title="Too high",
        link="step",
        status="fired",
        severity=Severity.LOW,
        evidence=(shown,),
    )
    found = replace(healthy(), findings=(high,), verdict_because="")
    assert [remark.title for remark in summarize(found, None).remarks] == [told]


def test_rows_answer_what_people_ask_about_them() -> None:
    held = (series("entropy", [1.0, 1.5]), series("approx_kl", [0.002, 0.02]), series("clip_fraction", [0.3, 0.1]))
    norm = series("grad_norm", [1.0, 1.0], aggregation="last optimizer step")
    table = summarize(healthy(), a_run(*held, norm)).table
    assert table is not None
    told = {row.name: row.remark for row in table.rows}
    assert told["entropy"].startswith("rises")
    assert told["clip_fraction"].startswith("falls, KL rises")
    assert "last update" in told["grad_norm"]
    calm = summarize(healthy(), a_run(series("entropy", [1.0, 0.9]), series("clip_fraction", [0.3, 0.29]))).table
    assert calm is not None
    assert [row.remark for row in calm.rows] == ["", ""]


def test_a_healthy_run_s_row_outside_its_usual_range_says_that_no_harm_is_seen() -> None:
    table = summarize(healthy(), a_run(series("approx_kl", [0.01, 0.5]))).table
    assert table is not None
    assert "no harm seen" in table.rows[0].remark


def test_a_reward_of_a_step_that_never_varies_is_not_told_where_episodes_differ() -> None:
    steps, episodes = series("reward_mean", [1.0] * 4), series("episode_return", [20.0, 50.0, 90.0, 120.0])
    told = summarize(healthy(), a_run(steps, episodes))
    assert told.table is not None
    assert [row.key for row in told.table.rows] == ["episode_return"]


def test_a_metric_counted_in_updates_is_shown_by_its_own_course() -> None:
    reward = series("episode_return", np.linspace(10.0, 500.0, 400), steps=np.arange(1, 401) * 100)
    entropy = series("entropy", np.linspace(0.69, 0.4, 40), steps=np.arange(40))
    told = summarize(healthy(), a_run(reward, entropy))
    assert told.entropy is not None
    assert (told.entropy.first, told.entropy.last) == (pytest.approx(0.69), pytest.approx(0.4))


@pytest.mark.parametrize(
    ("values", "remark"),
    [(100.0 + 90 * np.sin(np.arange(21) * np.pi / 5), "ranges"), (np.full(21, 100.0), ""), (np.arange(1.0, 22.0), "")],
    ids=["alike by chance", "constant", "rises"],
)
def test_a_metric_whose_moments_are_alike_by_chance_tells_its_range(values: Any, remark: str) -> None:
    table = summarize(healthy(), a_run(series("episode_length", values))).table
    assert table is not None
    assert table.rows[0].remark.startswith(remark)
    assert bool(table.rows[0].remark) == bool(remark)


def test_one_reward_under_two_names_is_one_row() -> None:
    twice = np.linspace(0, 1, 11)
    told = replace(ZERO, evidence=(replace(ZERO.evidence[0], metric="reward_std", raw="reward_std"),))
    diagnosis = replace(
        unhealthy(), findings=(told,), problems=(replace(NOTHING_TO_LEARN, findings=(told.rule,)),), causes=()
    )
    run = a_run(series("reward_mean", twice), series("reward_std", twice), series("entropy", twice))
    table = summarize(diagnosis, run).table
    assert table is not None
    assert [row.name for row in table.rows] == ["reward_mean", "entropy"]


def test_a_metric_with_one_number_among_many_records_has_no_course() -> None:
    once = series("entropy", [0.0])
    told = summarize(inconclusive(), a_run(series("reward_mean", np.linspace(0, 1, 50)), once))
    assert told.entropy is None
    assert told.table is not None
    assert [row.name for row in told.table.rows] == ["reward_mean"]
    few = summarize(inconclusive(), a_run(series("reward_mean", [0.1, 0.2]), once))
    assert few.table is not None
    assert [row.name for row in few.table.rows] == ["reward_mean", "entropy"]


def test_a_norm_of_the_last_of_one_update_is_that_of_all() -> None:
    summed = summary()
    once = replace(healthy(), run=replace(summed, updates_per_batch=replace(summed.updates_per_batch, effective=1)))
    norm = series("grad_norm", [1.0, 1.0], aggregation="last optimizer step")
    table = summarize(once, a_run(series("entropy", [1.0, 0.9]), norm)).table
    assert table is not None
    assert [row.remark for row in table.rows if row.name == "grad_norm"] == [""]


SET = Remedy(do="set the default", key="lr", now=1e-10, then=3e-4)
RAISE = Remedy(do="multiply it by 10", key="lr", now=1e-10, then=1e-9)
OTHER = Remedy(do="add epochs", key="epochs", now=1, then=2)


def test_a_setting_that_has_its_value_is_not_told_about_again() -> None:
    assert remedies([SET, RAISE, OTHER]) == (SET, OTHER)


def test_each_of_several_settings_has_its_value() -> None:
    assert remedies([SET, OTHER]) == (SET, OTHER)


def test_a_setting_without_a_value_to_set_leaves_that_to_the_next() -> None:
    words = Remedy(do="check the schedule", key="lr", now=1e-10)
    assert remedies([words, RAISE]) == (words, RAISE)


def test_only_the_first_remedies_are_kept() -> None:
    assert len(remedies([SET, OTHER, replace(OTHER, key="batch")])) == MOST_REMEDIES
