"""Notes into which somebody copied a log are read where a folder holds nothing better."""

import pytest

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.runs.discover import sources_in
from tests.runs.folders import as_csv, sb3_rows, write

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
