"""SARIF: valid, every rule listed, places and kinds right, fingerprints that a re-run keeps."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import Severity
from ppo_doctor.report import RenderOptions, render, render_error, render_many
from ppo_doctor.report.sarif import location
from tests.report.cases import CASES, CODE, LOG, TOGETHER, observed, unhealthy
from tests.report.golden import check_golden
from tests.report.sarif_subset import SCHEMA


def run_of(diagnosis, **options):
    (run,) = valid(render(diagnosis, None, RenderOptions(**options), "sarif"))["runs"]
    return run


def valid(text):
    log = json.loads(text)
    jsonschema.validate(log, SCHEMA)
    official = os.environ.get("SARIF_SCHEMA")
    if official:
        jsonschema.validate(log, json.loads(Path(official).read_text(encoding="utf-8")))
    return log


def results(run):
    return {result["ruleId"]: result for result in run["results"]}


@pytest.mark.parametrize("name", list(CASES))
def test_every_log_is_valid(name):
    valid(render(CASES[name], None, RenderOptions(), "sarif"))
    valid(render(CASES[name], None, RenderOptions(quiet=True), "sarif"))


def test_golden():
    check_golden("unhealthy.sarif.json", render(unhealthy(), None, RenderOptions(), "sarif"))


def test_all_rules_are_listed_and_pointed_at():
    run = run_of(unhealthy())
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules[: len(unhealthy().findings)] == [finding.code for finding in unhealthy().findings]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])


def test_kinds_and_levels():
    found = results(run_of(unhealthy()))
    assert (found["ADV001"]["kind"], found["ADV001"]["level"]) == ("fail", "error")
    assert (found["OPT001"]["kind"], found["OPT001"]["level"]) == ("pass", "none")
    assert (found["RAT001"]["kind"], found["RAT001"]["level"]) == ("notApplicable", "none")
    assert (found["adv-exactly-zero"]["kind"], found["adv-exactly-zero"]["level"]) == ("fail", "error")
    suspected = results(run_of(CASES["warning"]))["lr-too-high"]
    assert (suspected["kind"], suspected["level"]) == ("review", "none")


def test_what_only_informs_is_no_failure():
    finding = replace(unhealthy().findings[1], severity=Severity.INFO)
    found = results(run_of(replace(unhealthy(), findings=(finding,), causes=())))
    assert found["ADV001"]["kind"] == "informational"


def test_places():
    place = results(run_of(unhealthy()))["ADV001"]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == LOG
    assert place["physicalLocation"]["region"] == {"startLine": 12}
    assert place["logicalLocations"][0]["name"] == "frac_reward_zero_std"


def test_a_binary_log_has_no_lines():
    source = replace(unhealthy().run.sources[0], container="tfevents")
    found = results(run_of(replace(unhealthy(), run=replace(unhealthy().run, sources=(source,)))))
    assert "region" not in found["ADV001"]["locations"][0]["physicalLocation"]


def moved(diagnosis, lines, value):
    """Return the diagnosis of a re-run: other line numbers, other numbers, the same trouble."""

    def shifted(evidence):
        source = replace(evidence.source, line=(evidence.source.line or 0) + lines) if evidence.source else None
        return replace(evidence, source=source, observed=value, satisfied=3, of=7, steps=(9, 99))

    findings = tuple(replace(f, evidence=tuple(map(shifted, f.evidence))) for f in diagnosis.findings)
    return replace(diagnosis, findings=findings)


def prints(diagnosis):
    return {rule: result["partialFingerprints"] for rule, result in results(run_of(diagnosis)).items()}


def test_fingerprints_survive_a_rerun():
    assert prints(moved(unhealthy(), 40, 0.5)) == prints(unhealthy())


def test_fingerprints_tell_rules_files_and_metrics_apart():
    ours = [tuple(found.values()) for found in prints(unhealthy()).values()]
    assert len(set(ours)) == len(ours)
    elsewhere = replace(unhealthy(), run=replace(unhealthy().run, id="other.jsonl"))
    assert prints(elsewhere)["ADV001"] != prints(unhealthy())["ADV001"]
    finding = unhealthy().findings[1]
    other = replace(finding, evidence=(replace(finding.evidence[0], metric="reward_std"),))
    assert prints(replace(unhealthy(), findings=(other,)))["ADV001"] != prints(unhealthy())["ADV001"]


def test_a_crash_is_a_notification_and_no_result():
    run = run_of(CASES["errored"])
    assert "KL001" not in results(run)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert "ZeroDivisionError" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_quiet_keeps_failures_only():
    assert {result["kind"] for result in run_of(unhealthy(), quiet=True)["results"]} == {"fail"}


def test_what_the_gate_knows():
    held = (
        GateItem(kind="cause", name="adv-exactly-zero", outcome="allowed", message="until 2027: being rewritten"),
        GateItem(kind="cause", name="reward-constant", outcome="known", message="in the baseline"),
    )
    found = results(run_of(unhealthy(), gate_results={LOG: GateResult(code=ExitCode.OK, items=held)}))
    assert found["adv-exactly-zero"]["suppressions"][0]["justification"] == "until 2027: being rewritten"
    assert found["reward-constant"]["baselineState"] == "unchanged"


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("./a b/run.jsonl", "a%20b/run.jsonl"),
        ("/data/run.jsonl", "file:///data/run.jsonl"),
        ("C:\\data\\run #1.csv", "file:///C:/data/run%20%231.csv"),
        ("runs\\exp\\log.csv", "runs/exp/log.csv"),
        ("-", "stdin"),
        ("ü\udcff.csv", "%C3%BC%5Cudcff.csv"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
    ],
)
def test_paths_become_uris(path, uri):
    assert location(path)["uri"] == uri


def test_several_runs_and_errors():
    assert len(valid(render_many([CASES["healthy"], unhealthy()], RenderOptions(), "sarif"))["runs"]) == 2
    (run,) = valid(render_error("no file", "look", 3, "sarif"))["runs"]
    assert run["invocations"][0] == {
        "executionSuccessful": False,
        "exitCode": 3,
        "toolExecutionNotifications": [{"level": "error", "message": {"text": "no file. look"}}],
    }


def test_a_place_without_a_line():
    evidence = replace(unhealthy().findings[1].evidence[0], source=SourceRef(path=LOG))
    finding = replace(unhealthy().findings[1], evidence=(evidence,))
    found = results(run_of(replace(unhealthy(), findings=(finding,))))
    assert "region" not in found["ADV001"]["locations"][0]["physicalLocation"]


def test_the_place_is_the_line_of_an_observed_script():
    found = results(run_of(observed()))
    for name in ("ADV001", "adv-exactly-zero"):
        (place,) = found[name]["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
        assert place["physicalLocation"]["region"] == {"startLine": 205, "snippet": {"text": CODE.text}}
        assert place["logicalLocations"] == [{"name": "update"}]
        assert found[name]["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 12}
    assert prints(observed()) == prints(unhealthy())


def test_further_lines_of_an_observed_script_are_related_places():
    found = results(run_of(observed(TOGETHER)))
    for name in ("ADV001", "adv-exactly-zero"):
        related = found[name]["relatedLocations"]
        assert [each["id"] for each in related] == list(range(1, len(related) + 1))
        assert [each["message"]["text"] for each in related[:3]] == [each.does for each in TOGETHER.also]
        assert related[0]["physicalLocation"]["artifactLocation"]["uri"] == "conf.py"
        assert related[1]["physicalLocation"]["region"] == {"startLine": 231, "snippet": {"text": "self.sync()"}}
        assert related[3]["physicalLocation"]["region"] == {"startLine": 12}  # in the log
