"""Every sample log gets the diagnosis that its index declares: these are real training runs with known faults."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ppo_doctor import analyze
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.gate_result import exit_code
from ppo_doctor.report import RenderOptions, render

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_logs"
LOGS = tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["log"]
JUDGED = [log for log in LOGS if log["verdict"] != "error"]
UNREADABLE = [log for log in LOGS if log["verdict"] == "error"]
#: Files that belong to a log, or describe the folder.
BESIDES = {"config.json", "README.md", "index.toml"}


def by_path(log):
    return log["path"]


CAUSES = {cause.id: cause for cause in load_pack().causes}


def diagnosed(path):
    """Return the diagnosis of a log, and the same as JSON."""
    found = analyze(SAMPLES / path)
    return found, json.loads(render(found, None, RenderOptions(), "json"))


#: Verdicts that are not the fault's own: what the reward did counts, and so does what any log shows.
TOLD = {
    "clip-range-too-small.sb3": "warning",  # the reward rises a little in spite of it
    "clip-range-too-small.canonical": "warning",
    "old-policy-aliased.cleanrl": "warning",  # the reward rises: the first update of each batch is sound
    "old-policy-aliased.trl-ppo": "warning",
    "benign-single-update.canonical": "healthy",
    # a rate that no language model bears is a finding, though the table that stands for one here bears it
    "benign-single-update.trl-grpo": "warning",
    "benign-single-update.trl-ppo": "warning",
}
#: A reward that rises makes a suspicion of what says that the policy stands: nothing for a gate to fail.
SUSPECTED = {"old-policy-aliased.cleanrl", "old-policy-aliased.trl-ppo"}
#: What these sound runs are warned of.
WARNED = {"warning": ["rate-huge"]}


def verdict_of(log):
    return TOLD.get(log["path"].split("/")[1], log["verdict"])


#: Logs that show why: every reward is 0, and so is every advantage.
ROOTS = {"adv-exactly-zero.trl-grpo": "reward-too-sparse"}


@pytest.mark.parametrize("log", JUDGED, ids=by_path)
def test_a_log_gets_the_diagnosis_of_the_index(log, validate):
    found, report = diagnosed(log["path"])
    validate(report)
    assert report["verdict"] == verdict_of(log)
    assert report["run"]["framework"] == log["framework"]
    assert exit_code(found, "high") == gate_of(log)
    check = {"sick": assert_the_injected_cause_leads, "healthy": assert_sound, "benign": assert_sound}
    if kind := check.get(log["path"].partition("/")[0]):
        kind(log, report)


def gate_of(log):
    """Return the exit code that a gate gives a log."""
    if verdict_of(log) == "inconclusive":
        return 4
    grave = log["cause"] in CAUSES and CAUSES[log["cause"]].severity in ("critical", "high")
    return int(grave and log["path"].split("/")[1] not in SUSPECTED)


def assert_the_injected_cause_leads(log, report):
    """Hold the leading causes against the injected one, or its root, and those that no log can tell apart from it."""
    root = ROOTS.get(log["path"].split("/")[1])
    injected, level = (root, set()) if root else (log["cause"], set(log["level_with"]))
    allowed = {injected, *level}
    assert report["causes"], "no cause at all"
    assert report["causes"][0]["id"] in allowed
    leading = [cause for cause in report["causes"] if cause["leader"]]
    leaders = {cause["id"] for cause in leading if not cause["benign"]}
    assert injected in leaders
    assert leaders <= allowed
    assert leaders >= allowed & CAUSES.keys(), "a cause that no log can tell apart does not lead"
    named = {cause["id"]: set(cause["level_with"]) for cause in leading}
    assert named[injected] == (allowed & CAUSES.keys()) - {injected}


def assert_sound(log, report):
    """Hold a sound run to no fault but what it is warned of, and a benign one to its explanation."""
    faults = [cause for cause in report["causes"] if not cause["benign"]]
    assert [cause["id"] for cause in faults if cause["confidence"] != "suspected"] == []
    shown = [name for problem in report["problems"] for name in problem["findings"]]
    assert shown == WARNED.get(verdict_of(log), [])
    assert bool(faults) is bool(shown)
    assert report["coverage"]["movement"] and report["coverage"]["signal"] and report["coverage"]["numerics"]
    if log["cause"] != "healthy":
        assert [cause["id"] for cause in report["causes"] if cause["benign"]][:1] == [log["cause"]]


@pytest.mark.parametrize("log", UNREADABLE, ids=by_path)
def test_a_log_that_cannot_be_judged_says_so(log, cli, validate):
    outcome = cli("analyze", SAMPLES / log["path"], "--format", "json")
    assert outcome.code == 3
    validate(outcome.json)
    assert outcome.json["error"]["code"] == 3
    assert Path(log["path"]).name in outcome.json["error"]["message"]


def test_a_torn_line_is_counted_and_its_run_still_judged():
    _, report = diagnosed("broken/torn-last-line.canonical/run.jsonl")
    sources = report["run"]["sources"]
    assert [source["skipped"] for source in sources] == [1]


def test_the_index_lists_every_log():
    listed = {log["path"] for log in LOGS}
    found = {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*") if path.is_file()}
    assert {path for path in found if Path(path).name not in BESIDES} == listed


def test_every_listed_cause_is_known():
    table = ROOT.parent / "shared" / "causes.csv"
    if not table.is_file():
        pytest.skip("the table of causes is not beside this checkout")
    known = {line.partition(",")[0] for line in table.read_text(encoding="utf-8").splitlines()[1:]}
    named = {log["cause"] for log in LOGS} | {name for log in LOGS for name in log["level_with"]}
    assert named - known == {"healthy", "none"}


def test_sample_files_are_small():
    sizes = {path.name: path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()}
    assert {name: size for name, size in sizes.items() if size >= 200_000} == {}
