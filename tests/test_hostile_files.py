"""Policies, baselines, reports, rule packs and file names of any kind end in a message, never in exit code 70."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ppo_doctor.checks.rulepack import builtin_rules, load_pack
from ppo_doctor.cli import policy
from ppo_doctor.cli.policy import read_baseline, read_report
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.report.compare import compare, side_of_report

KEYS = [field.removesuffix("?") for field in policy.FIELDS]
#: Values as TOML writes them.
TOML = st.sampled_from(
    [
        *("5", "-1", "1.5", "true", '"x"', '""', "[]", "[1]", "[{}]", '[["a"]]', "{}", "{ a = 1 }", "nan", "inf"),
        *("1" * 401, "99999999999999999999", "1e400", "2026-01-01", "2026-01-01T00:00:00", f'"{"x" * 300}"'),
    ]
)
#: Values as JSON writes them.
JSON = st.sampled_from([5, -1.5, True, None, "x", "", [], [1], [{}], {}, {"a": 1}, 10**400])
FIXED = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict[str, Any]:
    from ppo_doctor.cli.application import run

    folder = tmp_path_factory.mktemp("report")
    log = builtin_rules().parent / "sample_logs" / "sick" / "lr-zero.canonical" / "run.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["ppo-doctor", "analyze", str(log), "-f", f"json={folder / 'report.json'}"])
        run()
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def refused_or_read(read, *arguments):
    """Do what may be refused with a message, and nothing else."""
    try:
        return read(*arguments)
    except DoctorError as error:
        assert error.message
        return None


@given(key=st.sampled_from(KEYS), value=TOML)
@settings(**FIXED)
def test_any_value_of_a_policy(key, value, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(f"{key} = {value}\n")
    refused_or_read(policy.read_policy, path)


@given(fields=st.fixed_dictionaries(dict.fromkeys(policy.ALLOW_FIELDS, TOML)))
@settings(**FIXED)
def test_any_value_of_an_allowed_cause(fields, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("[[allow]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items()))
    refused_or_read(policy.read_policy, path)


@given(value=TOML)
@settings(**FIXED)
def test_any_threshold_of_a_policy(value, tmp_path):
    path = tmp_path / "policy.toml"
    rule = next(rule for rule in load_pack().rules if rule.params)
    path.write_text(f"[thresholds.{rule.name}]\n{rule.params[0].name} = {value}\n")
    asked = refused_or_read(policy.read_policy, path)
    if asked is not None:
        refused_or_read(policy.applied, asked, load_pack())


@given(data=st.data())
@settings(**FIXED)
def test_any_value_in_a_report(data, report, tmp_path):
    """A report with another value at one place is a baseline, and a side of a comparison, or is refused."""
    changed = deepcopy(report)
    diagnosis = changed["diagnoses"][0] if "diagnoses" in changed else changed
    where = data.draw(st.sampled_from([changed, diagnosis, diagnosis["run"], diagnosis["causes"][0]]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(JSON)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(changed))
    refused_or_read(read_baseline, path)
    held = refused_or_read(read_report, path)
    if held is not None:
        side = side_of_report(held)
        compare(side, side)


@given(version=JSON, run=JSON, diagnoses=JSON, error=JSON)
@settings(**FIXED)
def test_any_document_that_says_it_is_a_report(version, run, diagnoses, error, tmp_path):
    path = tmp_path / "report.json"
    for kept in ({"run": run}, {"diagnoses": diagnoses}, {"error": error}, {"diagnoses": [], "error": {}}):
        for said in (version, "2"):
            path.write_text(json.dumps({"schema_version": said} | kept))
            assert refused_or_read(read_baseline, path) is None


RULE = (builtin_rules() / "advantages" / "surrogate-zero-beside-signal.toml").read_text(encoding="utf-8")
CAUSE = next(iter(sorted((builtin_rules() / "causes").glob("*.toml")))).read_text(encoding="utf-8")


def with_another_value(text: str, name: str, value: str) -> str:
    """Return a TOML text in which a key of one line or of a list holds another value."""
    return re.sub(rf"(?ms)^{name} = (?:\[\n.*?^\]|[^\n]*)$", lambda _: f"{name} = {value}", text, count=1)


def names_in(text: str) -> list[str]:
    return sorted(set(re.findall(r"(?m)^(\w+) = ", text)))


@given(data=st.data(), value=TOML)
@settings(**FIXED)
def test_any_value_in_a_rule_or_a_cause(data, value, tmp_path):
    folder, text = data.draw(st.sampled_from([("advantages", RULE), ("causes", CAUSE)]))
    name = data.draw(st.sampled_from(names_in(text)))
    path = tmp_path / "pack" / folder / "mine.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(with_another_value(text, name, value))
    refused_or_read(load_pack, [tmp_path / "pack"])
    path.unlink()


@pytest.mark.parametrize("name", ["run\n3.jsonl", "run:\n3", "a\r7.jsonl", "3\n\n4.jsonl"])
@pytest.mark.parametrize("command", ["analyze", "inspect", "gate"])
def test_a_line_end_in_the_name_of_a_log(cli, samples, tmp_path, name, command):
    log = tmp_path / name
    try:
        log.write_bytes((samples / "sick" / "lr-zero.canonical" / "run.jsonl").read_bytes())
    except OSError:
        pytest.skip("no such names here")
    assert cli(command, log).code in (0, 1, 4)
