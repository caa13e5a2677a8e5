"""The report of each run of a fleet: where it lies, and what becomes of one that cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.fleets.reports import report_name
from ppo_doctor.fleets.unit import unit_of
from ppo_doctor.fleets.work import Judge, judge_unit
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather


@pytest.fixture
def unit(samples: Path):
    found, _ = gather([str(samples / "sick" / "nan-inf.sb3")])
    return unit_of(found[0])


def test_the_report_of_a_run_is_found_by_its_row(unit, tmp_path):
    (row,) = judge_unit(unit, Request(), load_pack(), tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == report_name(row.fingerprint, row.run)
    text = file.read_text(encoding="utf-8")
    assert row.verdict in text
    assert "<title>" in text


def test_without_a_folder_none_is_written(unit, tmp_path):
    assert [row.status for row in judge_unit(unit, Request(), load_pack())] == ["judged"]
    assert list(tmp_path.iterdir()) == []


def test_names_differ_by_run_and_by_what_was_judged():
    assert len({report_name(*each) for each in (("a", "b"), ("a", "c"), ("b", "b"), ("a", "\udcff"))}) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="folders are files there")
def test_a_report_that_cannot_be_written_fails_the_run_until_the_next_call(unit, tmp_path):
    (tmp_path / "file").write_text("no folder")
    (row,) = Judge(Request(), load_pack(), reports=tmp_path / "file")(unit)
    assert (row.status, row.again) == ("failed", True)
    assert "cannot write" in row.error
