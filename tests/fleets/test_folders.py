"""Folders of a process: no other has them while it lives, and nothing of one that was killed stays."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ppo_doctor.fleets import folders
from ppo_doctor.fleets.folders import owned, remove_left, temporary

HELD = """
import sys, time
from pathlib import Path
from ppo_doctor.fleets.folders import owned, temporary
with owned(Path(sys.argv[1])), temporary() as folder:
    (folder / "big").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_a_folder_is_of_one_process_until_that_is_killed(tmp_path, place):
    pytest.importorskip("fcntl")
    command = [sys.executable, "-c", HELD, str(tmp_path / "mine")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        told = other.stdout.readline().strip()
        with pytest.raises(BlockingIOError), owned(tmp_path / "mine"):
            pass
        remove_left()
        assert (place / told / "big").exists()
        other.send_signal(signal.SIGKILL)
    assert (place / told / "big").exists()
    folders._remove_left_once.cache_clear()
    with owned(tmp_path / "mine"), temporary():
        assert not (place / told).exists()
    assert list(place.iterdir()) == []
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_holds_something_stays(tmp_path):
    with owned(tmp_path / "a/b"):
        (tmp_path / "a/b/kept").touch()
    assert [path.name for path in (tmp_path / "a/b").iterdir()] == ["kept"]


def test_what_another_one_put_there_is_not_removed(place, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "held").mkdir()
    (tmp_path / "precious" / "lock").touch()
    (place / f"{folders.PREFIX}link").symlink_to(tmp_path / "precious")
    (place / f"{folders.PREFIX}new").mkdir()  # its process has no lock yet
    (place / f"{folders.PREFIX}file").touch()
    remove_left()
    assert len(list(place.iterdir())) == 3
    assert (tmp_path / "precious" / "held").exists()


def test_a_link_is_no_lock(tmp_path, place):
    (tmp_path / "precious").touch()
    (place / f"{folders.PREFIX}x").mkdir()
    (place / f"{folders.PREFIX}x" / "lock").symlink_to(tmp_path / "precious")
    remove_left()
    assert (tmp_path / "precious").exists()
    assert list(place.iterdir())


def test_where_a_file_system_knows_no_locks_nobody_is_kept_out(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with owned(tmp_path / "a"), owned(tmp_path / "a"):
        assert (tmp_path / "a").is_dir()
