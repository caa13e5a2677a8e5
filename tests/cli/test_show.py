"""The command `show`: what it takes, what it prints, and how it fails."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture
def run(samples):
    return samples / "sick" / "old-policy-aliased.sb3"


def test_text_and_json_show_the_same_finding(cli, run, tmp_path):
    told = cli("show", run, "ratio-identically-one")
    assert told.code == 0
    assert told.out.startswith("ratio-identically-one")
    found = cli("show", run, "RAT001", "--format", "json").json
    assert found["evidence"]["findings"][0]["id"] == "ratio-identically-one"
    file = tmp_path / "evidence.json"
    assert cli("show", run, "1", "--format", "json", "-o", file).out == ""
    assert file.read_text(encoding="utf-8").startswith("{")


def test_an_unknown_finding_is_wrong_usage(cli, run):
    told = cli("show", run, "no-such-thing")
    assert (told.code, told.out) == (2, "")
    assert "old-policy-aliased" in told.err
    error = cli("show", run, "no-such-thing", "--format", "json").json["error"]
    assert error["code"] == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["gone.csv", "1"], 3), (["RUN", "1", "--format", "xml"], 2), (["RUN", "1", "--samples", "gone"], 3)],
)
def test_errors_have_the_codes_of_the_contract(cli, run, arguments, code):
    given = [run if argument == "RUN" else argument for argument in arguments]
    told = cli("show", *given)
    assert told.code == code
    assert told.err.startswith("ppo-doctor: ")


def test_evidence_is_of_one_run(cli, samples, tmp_path):
    for name in ("lr-zero.sb3", "nan-inf.sb3"):
        shutil.copytree(samples / "sick" / name, tmp_path / name)
    told = cli("show", tmp_path, "1")
    assert told.code == 2
    assert "2 runs" in told.err


def test_an_input_is_never_replaced(cli, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    log = tmp_path / "run" / "progress.csv"
    before = log.read_bytes()
    assert cli("show", tmp_path / "run", "1", "-o", log).code == 2
    assert log.read_bytes() == before


def test_of_several_runs_one_has_to_be_named_even_if_some_cannot_be_read(cli, samples, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(samples / "sick" / "lr-zero.canonical", tmp_path / name)
    (tmp_path / "a" / "run.jsonl").write_text("")
    result = cli("show", tmp_path, "1")
    assert result.code == 2
    assert "2 runs" in result.err
    assert f"{tmp_path / 'b' / 'run.jsonl'}" in result.err
