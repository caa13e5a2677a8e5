"""A folder that is closed in part, or too full, costs what it hides and not the log beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.runs import discover as sources
from ppo_doctor.runs import layouts as walking
from ppo_doctor.runs.discover import sources_in
from ppo_doctor.runs.reading import Request

LOG = "".join(f'{{"step": {i}, "entropy": 1.0, "approx_kl": 0.01}}\n' for i in range(20))


def told(folder: Path) -> str:
    return "; ".join(text for source in sources_in(folder) for text in source.told)


def test_a_closed_folder_is_told_and_skipped(tmp_path, monkeypatch):
    (tmp_path / "run.jsonl").write_text(LOG)
    (tmp_path / "closed").mkdir()
    real_access, real_stat = os.access, os.stat

    def access(path, mode, **kwargs):
        return Path(path).name != "closed" and real_access(path, mode, **kwargs)

    def stat(path, *args, **kwargs):
        if not isinstance(path, int) and Path(os.fsdecode(path)).parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return real_stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(os, "stat", stat)
    assert "closed" in told(tmp_path)
    assert len(read_runs(str(tmp_path), Request())) == 1


def test_a_log_among_more_files_than_are_looked_at_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(walking, "MOST_ENTRIES", 20)
    for i in range(60):
        (tmp_path / f"n{i:02}.txt").write_text("hello\n")
    (tmp_path / "run.jsonl").write_text(LOG)
    assert "more than 20 files" in told(tmp_path)
    assert [Path(source.path).name for run in read_runs(str(tmp_path), Request()) for source in run.sources] == [
        "run.jsonl"
    ]


def test_of_files_that_say_nothing_only_some_are_looked_into(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_LOOKED_INTO", 10)
    for i in range(30):
        (tmp_path / f"n{i:02}.txt").write_text("hello\n")
    (source,) = sources_in(tmp_path)
    assert len(source.perhaps) == 10
    assert "only 10 of 30" in told(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user who can be refused")
def test_a_folder_closed_by_its_mode(tmp_path):
    (tmp_path / "run.jsonl").write_text(LOG)
    (tmp_path / "closed").mkdir(mode=0)
    try:
        assert "closed" in told(tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_a_log_in_a_closed_folder_is_not_said_to_be_absent(cli, tmp_path, monkeypatch):
    plain = os.stat

    def closed(path, *arguments, **options):
        if str(path).endswith("run.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return plain(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", closed)
    outcome = cli("analyze", tmp_path / "run.jsonl")
    assert outcome.code == 3
    assert "run.jsonl cannot be read: Permission denied" in outcome.err
