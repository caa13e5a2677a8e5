"""JUnit XML: legal, one case per rule, and red only where the run fails."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.report import RenderOptions, render, render_error, render_many
from tests.report.cases import CASES, CODE, LOG, TOGETHER, observed, unhealthy
from tests.report.golden import check_golden


def suites(text):
    return ET.fromstring(text).findall("testsuite")  # noqa: S314 - our own output


def cases(diagnosis, **options):
    (suite,) = suites(render(diagnosis, None, RenderOptions(**options), "junit"))
    return {case.get("name"): case for case in suite.findall("testcase")}


def outcome(case):
    return next((tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), "passed")


def test_golden():
    check_golden("unhealthy.junit.xml", render(unhealthy(), None, RenderOptions(), "junit"))


@pytest.mark.parametrize("name", list(CASES))
def test_each_rule_is_one_case_and_counts_agree(name):
    diagnosis = CASES[name]
    (suite,) = suites(render(diagnosis, None, RenderOptions(), "junit"))
    every = suite.findall("testcase")
    assert len(every) == 1 + len(diagnosis.findings) + len(diagnosis.suppressed)
    tally = [outcome(case) for case in every]
    counted = [int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")]
    assert counted == [len(every), *(tally.count(tag) for tag in ("failure", "error", "skipped"))]


def test_what_a_status_becomes():
    found = cases(unhealthy())
    assert outcome(found["ADV001 advantages-all-zero"]) == "failure"
    assert outcome(found["OPT001 learning-rate-zero"]) == "passed"
    assert outcome(found["RAT001 ratio-identically-one"]) == "skipped"
    assert outcome(cases(CASES["errored"])["KL001 kl-runaway"]) == "error"
    assert f"({LOG}:12)" in found["ADV001 advantages-all-zero"].find("failure").text


def test_a_failure_names_the_line_of_an_observed_script():
    lines = cases(observed())["ADV001 advantages-all-zero"].find("failure").text.splitlines()
    assert f"at train.py:205 in update: {CODE.text}" in lines


def test_a_failure_names_every_line_of_an_observed_script():
    lines = cases(observed(TOGETHER))["ADV001 advantages-all-zero"].find("failure").text.splitlines()
    at = lines.index(f"at {TOGETHER.says}")
    assert lines[at + 1 : at + 4] == [each.does for each in TOGETHER.also]


def test_a_fired_rule_that_fails_nothing_is_not_red():
    """Findings never fail a gate: the cause here is only suspected."""
    found = cases(CASES["warning"])
    assert outcome(found["POL009 policy-moves-far"]) == "passed"
    assert "speaks for no cause" in found["POL009 policy-moves-far"].find("system-out").text


def test_an_allowed_cause_is_not_red():
    held = tuple(
        GateItem(kind="cause", name=c.id, outcome="allowed", message="known") for c in unhealthy().causes if c.leader
    )
    found = cases(unhealthy(), gate_results={LOG: GateResult(code=ExitCode.OK, items=held)})
    assert {outcome(case) for case in found.values()} == {"passed", "skipped"}
    assert outcome(found["adv-exactly-zero"]) == "skipped"


@pytest.mark.parametrize(
    ("code", "result"),
    [(ExitCode.OK, "passed"), (ExitCode.SICK, "failure"), (ExitCode.INCONCLUSIVE, "error")],
)
def test_the_gate_is_a_case(code, result):
    found = cases(CASES["healthy"], gate_results={LOG: GateResult(code=code)})
    assert outcome(found["the run passes the gate"]) == result


def test_control_characters_are_legal_xml():
    text = render(CASES["hostile"], None, RenderOptions(), "junit")
    ET.fromstring(text)  # noqa: S314 - our own output
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert "\ufffe" not in text
    text.encode("utf-8")


def test_every_character_survives_or_shows():
    from ppo_doctor.report.escape import xml

    for code in [*range(0x250), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF, 0x1FFFE, 0xE0001]:
        ET.fromstring(f'<a b="{xml(chr(code))}">{xml(chr(code))}</a>')  # noqa: S314 - our own output


def test_several_runs_are_several_suites():
    text = render_many([CASES["healthy"], CASES["unhealthy"]], RenderOptions(), "junit")
    assert [len(suite) > 1 for suite in suites(text)] == [True, True]


def test_an_error_is_a_case_in_error():
    (suite,) = suites(render_error("no <such> file", "look", 3, "junit"))
    assert outcome(suite.find("testcase")) == "error"
    assert suite.find("testcase/error").get("message") == "no <such> file"
