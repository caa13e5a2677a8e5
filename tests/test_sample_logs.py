"""Every sample log gets the diagnosis that its index declares: these are real training runs with known faults."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.each import for_each

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "sample_logs"
LOGS = tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["log"]
JUDGED = [log for log in LOGS if log["verdict"] != "error"]
SICK = [log for log in JUDGED if log["path"].startswith("sick/")]
SOUND = [log for log in JUDGED if log["path"].startswith(("healthy/", "benign/"))]
UNREADABLE = [log for log in LOGS if log["verdict"] == "error"]
#: Files that belong to a log, or describe the folder.
BESIDES = {"config.json", "README.md", "index.toml"}


def by_path(log):
    return log["path"]


@pytest.fixture(scope="module")
def known_causes():
    from ppo_doctor.rulepack import load_pack

    return {cause.id: cause for cause in load_pack().causes}


@pytest.fixture(scope="module")
def judged():
    """Return every judged log's diagnosis, by path."""
    from ppo_doctor import analyze

    return {log["path"]: analyze(SAMPLES / log["path"]) for log in JUDGED}


@pytest.fixture(scope="module")
def diagnoses(judged):
    """Return the same as JSON."""
    from ppo_doctor.report import RenderOptions, render

    return {path: json.loads(render(found, None, RenderOptions(), "json")) for path, found in judged.items()}


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
SICK = [
    log | {"cause": root, "level_with": []} if (root := ROOTS.get(log["path"].split("/")[1])) else log for log in SICK
]


@for_each(SICK, by_path)
def test_the_injected_cause_leads(log, diagnoses, known_causes):
    causes = diagnoses[log["path"]]["causes"]
    allowed = {log["cause"], *log["level_with"]}
    assert causes, "no cause at all"
    assert causes[0]["id"] in allowed
    leaders = {cause["id"] for cause in causes if cause["leader"] and not cause["benign"]}
    assert log["cause"] in leaders
    assert leaders <= allowed
    assert leaders >= allowed & known_causes.keys(), "a cause that no log can tell apart does not lead"


@for_each(SICK, by_path)
def test_level_causes_name_each_other(log, diagnoses, known_causes):
    leaders = {cause["id"]: set(cause["level_with"]) for cause in diagnoses[log["path"]]["causes"] if cause["leader"]}
    expected = ({log["cause"], *log["level_with"]} & known_causes.keys()) - {log["cause"]}
    assert leaders[log["cause"]] == expected


@for_each(JUDGED, by_path)
def test_verdict(log, diagnoses):
    assert diagnoses[log["path"]]["verdict"] == verdict_of(log)


@for_each(JUDGED, by_path)
def test_framework(log, diagnoses):
    assert diagnoses[log["path"]]["run"]["framework"] == log["framework"]


@for_each(SOUND, by_path)
def test_a_sound_run_raises_no_fault(log, diagnoses):
    faults = [cause for cause in diagnoses[log["path"]]["causes"] if not cause["benign"]]
    assert [cause["id"] for cause in faults if cause["confidence"] != "suspected"] == []
    shown = [name for problem in diagnoses[log["path"]]["problems"] for name in problem["findings"]]
    assert shown == WARNED.get(verdict_of(log), [])
    assert bool(faults) is bool(shown)
    coverage = diagnoses[log["path"]]["coverage"]
    assert coverage["movement"] and coverage["signal"] and coverage["numerics"]


@for_each([log for log in SOUND if log["cause"] != "healthy"], by_path)
def test_a_benign_explanation_is_named(log, diagnoses):
    assert [cause["id"] for cause in diagnoses[log["path"]]["causes"] if cause["benign"]][:1] == [log["cause"]]


@for_each(JUDGED, by_path)
def test_exit_code_of_a_gate(log, judged, known_causes):
    from ppo_doctor.diagnose.gate_result import exit_code

    severity = known_causes[log["cause"]].severity if log["cause"] in known_causes else "info"
    expected = 4 if verdict_of(log) == "inconclusive" else int(severity in ("critical", "high"))
    expected = 0 if log["path"].split("/")[1] in SUSPECTED else expected
    assert exit_code(judged[log["path"]], "high") == expected


@pytest.mark.parametrize("log", UNREADABLE, ids=by_path)
def test_a_log_that_cannot_be_judged_says_so(log, cli, validate):
    outcome = cli("analyze", SAMPLES / log["path"], "--format", "json")
    assert outcome.code == 3
    validate(outcome.json)
    assert outcome.json["error"]["code"] == 3
    assert Path(log["path"]).name in outcome.json["error"]["message"]


def test_a_torn_line_is_counted_and_its_run_still_judged(diagnoses):
    sources = diagnoses["broken/torn-last-line.canonical/run.jsonl"]["run"]["sources"]
    assert [source["skipped"] for source in sources] == [1]


@for_each(JUDGED, by_path)
def test_every_report_is_valid(log, diagnoses, validate):
    validate(diagnoses[log["path"]])


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
