"""Problems: which are reported, in which order, with which title; the share of samples that they waste."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.causes import cause_groups
from ppo_doctor.diagnosis.problems import COSTS, costs, problems
from ppo_doctor.model.diagnosis import ChainLink, Outcome
from ppo_doctor.model.words import Severity
from tests.synthetic import a_cause, a_finding, a_rule

LIGHT, GRAVE = a_rule("light", severity="medium", link="critic"), a_rule("grave", severity="critical", link="loss")


HIGH, SLIGHT = a_rule("high", link="policy"), a_rule("slight", severity="low")


SHOWN_RULES = {rule.name: rule for rule in (LIGHT, GRAVE, HIGH, SLIGHT)}


LIKELY, SUSPECTED = 30, 5


LEARNED, FLAT = Outcome(what="learned"), Outcome(what="flat")


LOST = Outcome(what="lost", start=1.0, best=9.0, end=0.0, since_step=400)


def shown(causes=(), fired=(), became=LEARNED, links=(), onset=None):
    findings = [
        a_finding(rule, "fired" if name in fired else "clear", onset=onset) for name, rule in SHOWN_RULES.items()
    ]
    return problems(cause_groups(causes, findings), findings, became, links)


def test_a_finding_of_medium_severity_without_a_cause_is_a_problem():
    (problem,) = shown(fired=("light",), onset=12)
    assert (problem.title, problem.findings) == (a_finding(LIGHT).title, ("light",))
    assert (problem.link, problem.severity, problem.since_step) == ("critic", Severity.MEDIUM, 12)
    assert (problem.leader, problem.causes) == ("", ())


def test_a_finding_of_low_severity_alone_is_no_problem():
    assert shown(fired=("slight",)) == ()


def test_a_suspicion_without_a_finding_is_no_problem():
    assert shown([a_cause("it", {"slight": SUSPECTED}, severity="critical")], fired=("slight",)) == ()


def test_a_cause_that_is_sure_is_a_problem_though_only_a_finding_of_low_severity_shows_it():
    (problem,) = shown([a_cause("it", {"slight": LIKELY}, severity="high")], fired=("slight",))
    assert (problem.leader, problem.findings, problem.severity) == ("it", ("slight",), Severity.HIGH)


def test_a_suspicion_stands_under_a_reward_that_is_flat():
    cause = a_cause("it", {"slight": SUSPECTED}, severity="critical")
    (problem,) = shown([cause], fired=("slight",), became=FLAT)
    assert (problem.leader, problem.link, problem.severity) == ("it", "rewards", Severity.LOW)
    assert shown(became=FLAT) == ()


def test_a_reward_that_is_lost_is_a_problem_by_itself():
    (problem,) = shown(became=LOST)
    assert (problem.severity, problem.verdict, problem.since_step) == (Severity.CRITICAL, "unhealthy", 400)
    assert shown(became=Outcome(what="fell", start=9.0, best=9.0, end=0.0))[0].severity is Severity.HIGH


def test_a_reward_that_is_lost_takes_in_what_the_reward_alone_shows():
    gone = a_rule("reward-declines", link="rewards")
    findings = [a_finding(gone), a_finding(LIGHT)]
    cause = a_cause("it", {"reward-declines": SUSPECTED})
    first, second = problems(cause_groups([cause], findings), findings, LOST, ())
    assert (first.findings, first.causes) == (("reward-declines",), ("it",))
    assert second.findings == ("light",)


def test_the_title_is_the_gravest_of_the_findings_that_the_cause_accounts_for():
    (problem,) = shown([a_cause("it", {"light": 40, "grave": 20})], fired=("light", "grave"))
    assert problem.title == a_finding(GRAVE).title
    assert problem.findings == ("grave", "light")


def test_two_groups_with_the_same_first_finding_are_one_problem():
    causes = [a_cause("one", {"high": LIKELY}), a_cause("two", {"high": LIKELY - 5}, complaints=("critic-fails",))]
    (problem,) = shown(causes, fired=("high",))
    assert problem.causes == ("one", "two")
    assert problem.leader == "one"


def test_what_a_harmless_cause_accounts_for_is_no_problem():
    harmless = a_cause("benign", {"high": LIKELY}, benign=True, severity="info", proof=("high",))
    assert shown([harmless], fired=("high",)) == ()


def test_problems_are_numbered_in_the_order_in_which_they_are_told():
    """What is sure or critical comes first, the rest by severity."""
    sure = a_cause("sure", {"light": LIKELY}, severity="medium", complaints=("critic-fails",))
    told = shown([sure], fired=("light", "high", "grave"))
    assert [problem.id for problem in told] == ["p1", "p2", "p3"]
    assert {told[0].findings, told[1].findings} == {("light",), ("grave",)}
    assert told[2].findings == ("high",)


@pytest.mark.parametrize(("state", "expected"), [("dead", "dead"), ("weak", "weak"), ("alive", "wrong")])
def test_a_problem_breaks_its_link_as_the_chain_shows(state, expected):
    links = [ChainLink(link="policy", state=state), ChainLink(link="ratio", state="dead", entailed_by="policy")]
    (problem,) = shown(fired=("high",), links=links)
    assert problem.state == expected
    cause = a_cause("it", {"high": LIKELY}, link="policy", complaints=("critic-fails",))
    assert shown([cause], fired=("high",), links=links)[0].follows == ("ratio",)


def run_of(**series):
    return case_run({"series": series})


@pytest.mark.parametrize("rule", COSTS)
def test_the_share_is_the_mean_over_the_run(rule):
    metric, _ = COSTS[rule]
    told = costs([a_finding(a_rule(rule))], run_of(**{metric: "0.2x4 0.6x4"}))
    assert told[rule].share == pytest.approx(0.4)


def test_records_without_a_number_count_for_nothing():
    told = costs([a_finding(a_rule("clipped-much"))], run_of(clip_fraction="0.5x4 nanx4"))
    assert told["clipped-much"].share == pytest.approx(0.5)


def test_nothing_is_told_of_what_is_not_counted_or_not_crossed():
    clipped = a_rule("clipped-much")
    assert costs([a_finding(clipped)], run_of(entropy="1x9")) == {}
    assert costs([a_finding(clipped)], run_of(clip_fraction="nanx9")) == {}
    assert costs([a_finding(clipped, "clear")], run_of(clip_fraction="0.5x9")) == {}
    assert costs([a_finding(a_rule("other"))], run_of(clip_fraction="0.5x9")) == {}


def test_every_check_with_a_cost_exists():
    assert set(COSTS) <= set(load_pack().by_name)
