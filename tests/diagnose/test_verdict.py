"""Whether the run is broken, asked apart from why."""

from __future__ import annotations

import pytest

from ppo_doctor.diagnose.problems import problems
from ppo_doctor.diagnose.verdict import SELDOM, verdict
from ppo_doctor.model import ChainLink, Coverage
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

SYMPTOM, BEST = a_rule("symptom"), a_rule("reward-at-ceiling")
GRAVE = a_rule("grave", severity="critical")
FLAT, RISES = a_rule("reward-level", severity="info"), a_rule("reward-rises", severity="info")
RULES = [SYMPTOM, GRAVE, FLAT, RISES, BEST]
COMPLETE = {"movement": True, "signal": True, "numerics": True}


def said(causes=(), fired=(), coverage=COMPLETE, rates=None, failed=None, dead=()):
    findings = [a_finding(rule, "fired" if rule.name in fired else "clear") for rule in RULES]
    pack = a_pack(RULES, causes, rates)
    covered = Coverage(**coverage, evaluated=2, clear=2, fired=0, skipped=0, errored=0, failed=failed or {})
    links = [ChainLink(link=name, state="dead", witness="it is 0 (run.jsonl:1)") for name in dead]
    return verdict(problems(pack.causes, findings), covered, links, pack, findings)


def test_nothing_found_where_everything_was_asked_is_healthy():
    assert said()[0] == "healthy"


@pytest.mark.parametrize("question", sorted(COMPLETE))
def test_an_open_question_keeps_it_from_healthy(question):
    assert said(coverage=COMPLETE | {question: False})[0] == "inconclusive"


def test_a_check_that_failed_to_run_keeps_it_from_healthy():
    assert said(failed={"symptom": "ZeroDivisionError"})[0] == "inconclusive"


def test_a_reward_that_stays_leaves_open_whether_the_policy_learns_unless_it_is_at_its_best():
    assert said(fired=("reward-level",))[0] == "inconclusive"
    assert said(fired=("reward-level", "reward-at-ceiling"))[0] == "healthy"


def test_beside_a_rising_reward_a_symptom_is_a_warning_if_it_is_critical_and_keeps_it_open_else():
    rates = {"symptom": SELDOM / 2, "grave": SELDOM / 2}
    assert said(fired=("symptom", "reward-rises"), rates=rates)[0] == "inconclusive"
    assert said(fired=("grave", "reward-rises"), rates=rates)[0] == "warning"


def test_beside_a_rising_reward_a_suspicion_of_medium_gravity_is_none():
    for severity, expected in (("medium", "healthy"), ("high", "warning")):
        cause = a_cause("it", {"symptom": 5}, severity=severity)
        assert said([cause], fired=("symptom",))[0] == "warning"
        assert said([cause], fired=("symptom", "reward-rises"))[0] == expected


@pytest.mark.parametrize(("rate", "expected"), [(SELDOM / 2, "warning"), (SELDOM * 2, "healthy"), (None, "healthy")])
def test_what_sound_runs_hardly_ever_show_is_a_warning_though_nothing_explains_it(rate, expected):
    rates = {} if rate is None else {"symptom": rate}
    assert said(fired=("symptom",), rates=rates)[0] == expected


def test_what_a_cause_accounts_for_is_told_by_the_cause():
    cause = a_cause("it", {"symptom": 30}, severity="critical")
    assert said([cause], fired=("symptom",), rates={"symptom": 0.0})[0] == "unhealthy"


@pytest.mark.parametrize(("link", "expected"), [("policy", "unhealthy"), ("critic", "inconclusive")])
def test_a_run_with_a_dead_link_is_never_healthy(link, expected):
    verdict_, because = said(dead=(link,))
    assert verdict_ == expected
    assert f"{link}: it is 0 (run.jsonl:1)" in because


def test_a_dead_path_is_unhealthy_however_unsure_the_cause():
    doubtful = a_cause("it", {"symptom": 8}, severity="critical")
    assert said([doubtful], fired=("symptom",))[0] == "warning"
    assert said([doubtful], fired=("symptom",), dead=("step",))[0] == "unhealthy"
    assert said([doubtful], fired=("symptom",), dead=("ratio",))[0] == "warning"
