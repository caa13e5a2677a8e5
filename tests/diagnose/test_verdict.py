"""Whether the run is broken, asked apart from why."""

from __future__ import annotations

import pytest

from ppo_doctor.diagnose.problems import problems
from ppo_doctor.diagnose.verdict import SELDOM, verdict
from ppo_doctor.model import ChainLink, Coverage
from tests.synthetic import a_cause, a_finding, a_pack, a_rule

SYMPTOM, BEST = a_rule("symptom"), a_rule("reward-at-ceiling")
FLAT, MOVES = a_rule("reward-level", severity="info"), a_rule("policy-moves", severity="info")
RULES = [SYMPTOM, FLAT, MOVES, BEST]
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


def test_a_policy_that_moves_without_reward_is_not_healthy_unless_the_reward_is_at_its_best():
    assert said(fired=("reward-level",))[0] == "healthy"
    assert said(fired=("reward-level", "policy-moves"))[0] == "inconclusive"
    assert said(fired=("reward-level", "policy-moves", "reward-at-ceiling"))[0] == "healthy"


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
