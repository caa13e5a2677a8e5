"""What an agent may name, and what it may not, however it is spelt."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from ppo_doctor.cli.agents.places import resolved
from ppo_doctor.cli.options import read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.opening import confined
from ppo_doctor.model.request import Request
from tests.cli.agents.conftest import SAMPLES

MOST_BYTES = 512 << 20
LOG = (SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl").read_text()


@pytest.fixture
def root(tmp_path):
    """Return an allowed folder with a log, and beside it one that is not allowed."""
    for name in ("allowed", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.jsonl").write_text(LOG)
    return tmp_path / "allowed"


def read(root: Path, text: str):
    with confined([root], MOST_BYTES):
        return read_runs([str(resolved(text, [root.resolve()]))], Request())


def refused(root: Path, text: str) -> str:
    with pytest.raises(DoctorError) as error:
        read(root, text)
    return error.value.message


@pytest.mark.parametrize("text", ["run.jsonl", "./run.jsonl", "."])
def test_what_lies_below_a_root_is_read(root, text):
    assert len(read(root, text).runs) == 1
    assert len(read(root, str(root / text)).runs) == 1


@pytest.mark.parametrize(
    "text", ["../secret/run.jsonl", "a/../../secret/run.jsonl", "..\\secret\\run.jsonl", "..", "run.jsonl/.."]
)
def test_no_path_goes_up(root, text):
    assert ".." in refused(root, text)
    assert ".." in refused(root, f"{root}/{text}")


def test_what_lies_outside_is_refused_and_not_told_about(root):
    there = refused(root, str(root.parent / "secret" / "run.jsonl"))
    missing = refused(root, str(root.parent / "secret" / "missing.jsonl"))
    assert "outside" in there
    assert there.replace("run", "missing") == missing
    assert "outside" in refused(root, f"{root}-and-more")


def test_a_link_out_of_a_root_is_refused(root):
    (root / "link.jsonl").symlink_to(root.parent / "secret" / "run.jsonl")
    (root / "folder").symlink_to(root.parent / "secret")
    assert "outside" in refused(root, "link.jsonl")
    assert "outside" in refused(root, "folder")
    assert "outside" in refused(root, "folder/run.jsonl")


def test_a_link_within_a_root_is_read(root):
    (root / "link.jsonl").symlink_to(root / "run.jsonl")
    assert len(read(root, "link.jsonl").runs) == 1


def test_links_out_of_a_folder_are_left_out_and_named(root):
    (root / "exp").mkdir()
    (root / "exp" / "progress.csv").symlink_to(root.parent / "secret" / "run.jsonl")
    (root / "exp" / "more").symlink_to(root.parent / "secret")
    with pytest.raises(DoctorError) as error:
        read(root, "exp")
    assert "allowed folders" in error.value.hint


def test_a_root_that_is_a_link_allows_what_it_leads_to_and_nothing_beside_it(root):
    link = root.parent / "link"
    link.symlink_to(root)
    assert len(read(link, "run.jsonl").runs) == 1
    assert "outside" in refused(link, str(root.parent / "secret" / "run.jsonl"))


def test_a_configuration_that_is_a_link_out_is_not_used(root):
    (root.parent / "secret" / "config.json").write_text(json.dumps({"learning_rate": 0.125}))
    (root / "config.json").symlink_to(root.parent / "secret" / "config.json")
    run = read(root, "run.jsonl").runs[0]
    assert all("secret" not in str(setting.source) for setting in run.config.values())
    assert 0.125 not in [setting.value for setting in run.config.values()]


def test_a_configuration_above_a_root_is_not_used(root):
    (root / "logs").mkdir()
    (root / "logs" / "run.jsonl").write_text(LOG)
    (root / "config.json").write_text(json.dumps({"learning_rate": 0.125}))
    run = read(root / "logs", "run.jsonl").runs[0]
    assert 0.125 not in [setting.value for setting in run.config.values()]


def test_a_folder_above_a_root_is_not_searched_for_what_lies_beside_a_log(root):
    from ppo_doctor.runs.beside import homes

    (root / "tb").mkdir()
    (root / "tb" / "run.jsonl").write_text(LOG)
    run = read(root, "tb/run.jsonl").runs[0]
    assert homes(run) == [root.resolve()]
    with confined([root / "tb"], MOST_BYTES):
        assert homes(run) == []


def test_what_is_too_large_is_refused_before_it_is_read(root):
    with (root / "huge.jsonl").open("wb") as file:
        file.truncate(2 << 30)
    assert "2,048 MiB" in refused(root, "huge.jsonl")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_what_is_no_plain_file_is_refused_without_opening_it(root):
    os.mkfifo(root / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "s"))
        assert "plain file" in refused(root, "pipe.jsonl")
        assert "plain file" in refused(root, "s")
    (root / "device").symlink_to("/dev/zero")
    assert "outside" in refused(root, "device")


@pytest.mark.parametrize("url", ["https://example.org/run.jsonl", "s3://bucket/runs", "file:///etc/passwd"])
def test_no_url_is_opened(root, url):
    assert "URLs are not read" in refused(root, url)


def test_stdin_is_no_file(root):
    assert "no such file" in refused(root, "-")
