"""What is named need not be a file: pipes are read, and what never answers or never ends is refused."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from ppo_doctor.model import opening
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers import read
from tests.readers.conftest import gather

TEXT = b"".join(b'{"step": %d, "loss": 0.5}\n' % step for step in range(5_000))
posix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")


@posix
def test_a_pipe_is_read_as_a_file_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TEXT,))
    writer.start()
    got = gather(*read(path))
    writer.join()
    assert (got.container, len(got.records), got.notes) == ("jsonl", 5_000, [])


@posix
def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(DoctorError, match="pipe") as error:
        read(path)
    assert error.value.code == ExitCode.NOTHING_TO_JUDGE


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_a_device_is_no_log(cli, path):
    if not Path(path).exists():
        pytest.skip("no such device here")
    outcome = cli("analyze", path)
    assert outcome.code == 3
    assert "device" in outcome.err


@posix
@pytest.mark.parametrize("command", ["analyze", "check-config"])
def test_nothing_that_is_no_file_is_read_as_a_configuration(cli, tmp_path, command, monkeypatch):
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    path = tmp_path / "config.yaml"
    os.mkfifo(path)
    assert cli(command, path).code == 2
    assert cli("analyze", "/dev/zero", "--config", "/dev/zero").code in (2, 3)


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="sockets in folders are POSIX")
def test_a_socket_is_no_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may be a hundred bytes long
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("run.jsonl")
        with pytest.raises(DoctorError, match="cannot be read") as error:
            read("run.jsonl")
    assert error.value.code == ExitCode.NOTHING_TO_JUDGE


@posix
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("where", ["baseline", "policy's baseline", "rules", "config"])
def test_what_is_no_file_is_refused_wherever_a_file_is_named(cli, tmp_path, monkeypatch, kind, where):
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    log, odd = tmp_path / "run.jsonl", tmp_path / ("x.toml" if where == "rules" else "odd")
    log.write_bytes(TEXT)
    if kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.symlink_to("/dev/zero")
    (tmp_path / "policy.txt").write_text('baseline = "odd"\n')
    given = {
        "baseline": ("gate", log, "--baseline", odd),
        "policy's baseline": ("gate", log, "--policy", tmp_path / "policy.txt"),
        "rules": ("analyze", log, "--rules", tmp_path),
        "config": ("analyze", log, "--config", odd),
    }[where]
    assert cli(*given).code == 2


@posix
def test_a_baseline_may_come_out_of_a_pipe(cli, tmp_path):
    log, report = tmp_path / "run.jsonl", tmp_path / "pipe"
    log.write_text("".join(f'{{"step": {i}, "approx_kl": 0.01, "reward_mean": {i}}}\n' for i in range(40)))
    made = cli("analyze", log, "--format", "json")
    os.mkfifo(report)
    writer = threading.Thread(target=report.write_text, args=(made.out,))
    writer.start()
    outcome = cli("gate", log, "--baseline", report)
    writer.join()
    assert outcome.code in (0, 1, 4)


def test_more_than_the_limit_is_refused_and_not_read(tmp_path):
    (tmp_path / "file").write_bytes(b"a" * 11)
    assert opening.contents(tmp_path / "file", 11) == b"a" * 11
    with pytest.raises(DoctorError, match="larger"):
        opening.contents(tmp_path / "file", 10)


def test_what_is_confined_opens_plain_files_below_its_folders_alone(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "log").write_bytes(TEXT)
    (inside / "link").symlink_to(outside / "log")
    with opening.confined([inside], len(TEXT)):
        assert opening.contents(inside / "log", len(TEXT)) == TEXT
        for path in (outside / "log", inside / "link", inside / ".." / "outside" / "log"):
            assert opening.is_outside(path)
            for opened in (opening.opened, opening.plain_file):
                with pytest.raises(DoctorError, match="outside"):
                    opened(path)
    assert opening.contents(outside / "log", len(TEXT)) == TEXT
    with opening.confined([inside], len(TEXT) - 1), pytest.raises(DoctorError, match="at most"):
        opening.plain_file(inside / "log")


def test_a_link_that_changes_while_it_is_opened_leads_nowhere(tmp_path, monkeypatch):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "log").write_bytes(TEXT)
    link = inside / "link"
    link.symlink_to(outside / "log")
    really = os.open

    def changed(path, flags):
        handle = really(path, flags)
        link.unlink()
        link.symlink_to(inside / "log")
        return handle

    monkeypatch.setattr(os, "open", changed)
    with opening.confined([inside], len(TEXT)), pytest.raises(DoctorError, match="outside"):
        opening.plain_file(link)
