"""The command `fleet`: what it writes, where, and what it says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    """Return a folder with three runs, one of them sick."""
    folder = tmp_path_factory.mktemp("fleet") / "runs"
    for kind, name in (("sick", "nan-inf.sb3"), ("healthy", "*"), ("sick", "lr-zero.*")):
        found = sorted((samples / kind).glob(name))[0]
        shutil.copytree(found, folder / found.name)
    return folder


def test_text_goes_to_stdout_and_progress_to_stderr(cli, runs, tmp_path):
    table = tmp_path / "runs.parquet"
    first = cli("fleet", runs, "--out", table, "--jobs", "1")
    assert first.code == 0
    assert first.out.startswith("3 runs: 2 unhealthy, 1 healthy\n")
    assert first.err == f"3 judged: {table}\n"
    again = cli("fleet", runs, "--out", table, "--jobs", "1")
    assert again.err == f"0 judged, 3 unchanged: {table}\n"
    assert again.out == first.out


def test_page_json_and_reports(cli, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    formats = ("--format", "html=pages/fleet.html", "--format", "json")
    (tmp_path / "pages").mkdir()
    found = cli("fleet", runs, "--reports", "reports", "--jobs", "1", *formats)
    assert found.json["runs"] == 3
    assert sorted(found.json) == sorted(json.loads(found.out))
    page = (tmp_path / "pages" / "fleet.html").read_text(encoding="utf-8")
    links = re.findall(r'"(\.\./reports/\w+\.html)"', page)
    assert len(set(links)) == 3
    for link in links:
        report = (tmp_path / "pages" / link).read_text(encoding="utf-8")
        assert "<title>" in report
    assert len(list((tmp_path / "reports").iterdir())) == 3


def test_a_page_without_reports_links_none(cli, runs, tmp_path):
    assert cli("fleet", runs, "--jobs", "1", "--format", f"html={tmp_path / 'fleet.html'}").out == ""
    page = (tmp_path / "fleet.html").read_text(encoding="utf-8")
    assert '"report":["","",""]' in page


@pytest.mark.parametrize(
    "formats",
    [["markdown"], ["html="], ["text", "json"], ["html=a.html", "json=a.html"]],
)
def test_wrong_formats_are_refused(cli, runs, formats):
    found = cli("fleet", runs, *(part for each in formats for part in ("--format", each)))
    assert found.code == 2
    assert found.out == ""


def test_nothing_to_judge_is_said(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    found = cli("fleet", tmp_path / "empty", "--jobs", "1")
    assert (found.code, found.out) == (3, "")
    assert "no log in this folder" in found.err


def test_a_source_that_is_missing_is_told_and_the_others_are_judged(cli, runs, tmp_path):
    found = cli("fleet", tmp_path / "nowhere", runs, "--jobs", "1")
    assert found.code == 3
    assert found.out.startswith("3 runs: ")
    assert "nowhere: no such file or folder" in found.err
    assert cli("fleet", tmp_path / "nowhere").code == 3


@pytest.mark.parametrize("options", [("--engine", "spark"), ("--out", "notes.md")])
def test_wrong_use(cli, runs, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("no table\n")
    found = cli("fleet", runs, *options)
    assert found.code == 2
    assert found.out == ""
