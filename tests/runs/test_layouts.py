"""Folders that are closed or too full, and pages into which somebody copied a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.runs import discover, walking
from ppo_doctor.runs.discover import sources_in
from tests.runs.folders import as_csv, sb3_rows, write

LOG = "".join(f'{{"step": {i}, "entropy": 1.0, "approx_kl": 0.01}}\n' for i in range(20))


def told(folder: Path) -> str:
    return "; ".join(text for source in sources_in(folder) for text in source.skipped)


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
    monkeypatch.setattr(discover, "MOST_LOOKED_INTO", 10)
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


NOTES = "# Monday\n\nSame seed as before.\n\n```\n{}```\n\nWhy is that?\n"


LINES = "".join(
    f"upd {i} | ret {10 + i % 7 + i:.2f} | ent {1.5 - 0.01 * i:.3f} | kl 0.0{10 + i}\n" for i in range(1, 30)
)


def files_of(folder):
    return [(*source.logs, *source.perhaps) for source in sources_in(folder)]


def test_notes_with_a_log_are_the_log_of_a_folder_without_another(tmp_path, cli):
    write(tmp_path, {"notes.md": NOTES.format(LINES), "README.md": NOTES.format(LINES)})
    assert files_of(tmp_path) == [(str(tmp_path / "notes.md"),)]
    assert cli("analyze", tmp_path, "--format", "json").json["outcome"]["records"] == 29


@pytest.mark.parametrize("better", ["progress.csv", "values.txt"])
def test_notes_are_left_where_another_file_holds_records(tmp_path, better):
    write(tmp_path, {"notes.md": NOTES.format(LINES), better: as_csv(sb3_rows())})
    assert files_of(tmp_path) == [(str(tmp_path / better),)]


def test_notes_count_where_the_other_files_hold_none(tmp_path):
    write(tmp_path, {"notes.md": NOTES.format(LINES), "words.txt": "apple\npear\nplum\n"})
    assert files_of(tmp_path) == [(str(tmp_path / "notes.md"),)]


def test_a_readme_counts_where_it_is_all_there_is_and_holds_records(tmp_path):
    write(tmp_path, {"README.md": NOTES.format(LINES)})
    assert files_of(tmp_path) == [(str(tmp_path / "README.md"),)]
    write(tmp_path / "other", {"README.md": NOTES.format(""), "notes.md": "Nothing yet.\n"})
    with pytest.raises(DoctorError):
        sources_in(tmp_path / "other")


def test_pages_without_records_leave_a_configuration_alone_to_be_judged(tmp_path):
    write(
        tmp_path,
        {
            "config.yaml": "n_epochs: 4\nclip_range: 0.2\nn_steps: 128\ngamma: 0.99\n",
            "notes.md": "Try more epochs.\n",
            "README.md": LINES,
        },
    )
    (source,) = sources_in(tmp_path)
    assert [path.name for path in source.config] == ["config.yaml"]


def test_a_file_of_numbers_is_the_log_of_a_folder_without_another(tmp_path, cli):
    write(tmp_path, {"till.jnl": LINES, "train.py": LINES, "notes.bin": "word\n" * 40})
    assert files_of(tmp_path) == [(str(tmp_path / "till.jnl"),)]
    assert cli("analyze", tmp_path, "--format", "json").json["outcome"]["records"] == 29


def test_a_folder_of_sources_holds_no_log(tmp_path):
    write(tmp_path, {"train.py": LINES, "data.bin": "\0" + LINES})
    with pytest.raises(DoctorError):
        files_of(tmp_path)


def test_settings_and_dumps_come_before_a_file_of_numbers(tmp_path):
    write(tmp_path, {"config.yaml": "n_epochs: 0\nclip_range: 0.2\ngamma: 0.99\n", "deps.lock": LINES})
    (source,) = sources_in(tmp_path)
    assert [path.name for path in source.config] == ["config.yaml"]


@pytest.mark.parametrize("beside", [True, False])
def test_answers_of_each_step_are_no_logs(tmp_path, beside):
    answers = "".join(f'{{"input": "q", "output": "a", "score": 0.{i}, "step": 1}}\n' for i in range(9))
    write(tmp_path / "rollout", {f"{step}.jsonl": answers for step in range(1, 9)})
    if beside:
        write(tmp_path, {"run.jsonl": LOG})
        assert [Path(run.id).name for run in read_runs(str(tmp_path), Request())] == ["run.jsonl"]
    else:
        with pytest.raises(DoctorError, match="no log"):
            read_runs(str(tmp_path), Request())


def test_logs_with_a_number_for_a_name_are_read(tmp_path):
    write(tmp_path / "seeds", {f"{seed}.jsonl": LOG for seed in (1, 2)})
    assert len(read_runs(str(tmp_path), Request())) >= 1
