"""The commands `demo` and `selftest`: two runs judged as expected, and a test that fails where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from ppo_doctor.cli import demo


def test_the_demo_prints_a_sick_and_a_sound_report(cli):
    told = cli("demo")
    assert told.code == 0
    verdicts = [line.split()[0] for line in told.out.splitlines() if line.endswith("progress.csv")]
    assert verdicts == ["UNHEALTHY", "HEALTHY"]
    assert max(map(len, told.out.splitlines()[-3:])) <= 80


def test_the_selftest_passes_and_says_what_it_tested(cli):
    told = cli("selftest")
    assert told.code == 0
    parts = {line.split()[0] for line in told.out.splitlines() if not line.startswith(" ")}
    assert parts == {"ppo-doctor", "dependencies", "extras", "rules", "demo", "result"}


def test_a_case_a_run_and_a_package_that_are_not_as_expected_fail_the_selftest(cli, monkeypatch):
    from ppo_doctor.checks import cases

    def broken(rule, case):
        problems = ("expected otherwise",) if rule.name == "ratio-identically-one" else ()
        return cases.CaseResult(rule=rule.name, case=case["name"], finding=None, problems=problems)

    wrong = dict(demo.DEMO) | {"healthy/healthy.sb3": ("unhealthy", "lr-zero")}
    monkeypatch.setattr(demo, "DEMO", MappingProxyType(wrong))
    monkeypatch.setattr(cases, "run_case", broken)
    monkeypatch.setattr(demo, "_needs", lambda: iter([("numpy", ""), ("not-there-at-all", ""), ("gone", "extra")]))
    told = cli("selftest")
    assert told.code == 1
    assert "expected unhealthy, lr-zero" in told.out
    assert "ratio-identically-one" in told.out
    assert "pip install not-there-at-all" in told.out
    assert "extra (gone)" in told.out


def test_a_package_without_its_runs_is_broken(cli, monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "ppo_doctor" / "cli" / "demo.py"))
    monkeypatch.setattr(demo, "_rules", lambda: demo.Part(name="rules", says=""))
    assert cli("demo").code == 70
    assert cli("selftest").code == 70


def test_what_the_package_asks_for_is_read_by_name_and_extra(monkeypatch):
    lines = ["numpy>=1.26", "typer<0.29,>=0.24", 'ppo-doctor[fleet]; extra == "s3"', "s3fs>=1; extra == 's3'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: lines)
    assert list(demo._needs()) == [("numpy", ""), ("typer", ""), ("ppo-doctor", "s3"), ("s3fs", "s3")]


@pytest.mark.parametrize("name", list(demo.DEMO))
def test_the_wheel_gets_the_runs_of_the_demo(root, name):
    assert f'"{name}"' in (root / "hatch_build.py").read_text(encoding="utf-8")
    assert (root / "sample_logs" / name / "config.json").is_file()
    assert json.loads((Path(root) / "sample_logs" / name / "config.json").read_text(encoding="utf-8"))
