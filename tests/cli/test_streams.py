"""A process with streams that are closed, full, left or not UTF-8, in a folder that is gone, with long paths."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ppo_doctor.cli import streams
from ppo_doctor.cli.application import run

ROOT = Path(__file__).resolve().parents[2]
SICK = ROOT / "sample_logs" / "sick" / "lr-zero.canonical" / "run.jsonl"
COMMAND = f"'{sys.executable}' -m ppo_doctor"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


def shell(text, **options):
    """Run a line of a shell in which `doctor` is the command; descriptors that it does not name are ours."""
    line = f'doctor() {{ {COMMAND} "$@"; }}; {text}'
    return subprocess.run(["bash", "-c", line], capture_output=True, check=False, timeout=120, **options)


@pytest.mark.parametrize("place", ["&-", pytest.param("/dev/full", marks=full)])
def test_output_that_cannot_be_written_is_told_and_no_cause(place):
    offenders = []
    for command in ("--help", f"gate '{SICK}'", f"analyze '{SICK}' --format json"):
        run = shell(f"doctor {command} >{place}")
        if run.returncode != 2 or b"standard output" not in run.stderr or run.stderr.count(b"\n") > 1:
            offenders.append((command, run.returncode, run.stderr))
    assert offenders == []


@pytest.mark.parametrize("place", ["&-", pytest.param("/dev/full", marks=full)])
def test_messages_that_cannot_be_written_change_nothing(place):
    """The exit code is that of the judgement, and the report is whole."""
    for command, code in ((f"analyze '{SICK}' --fail-on high", 1), ("analyze nowhere", 3)):
        run = shell(f"doctor {command} 2>{place}")
        assert (run.returncode, b"More: --why" in run.stdout) == (code, code == 1)


def test_a_report_in_a_file_needs_no_standard_stream(tmp_path):
    run = shell(f"doctor analyze '{SICK}' --fail-on high -o '{tmp_path}/report.txt' <&- >&- 2>&-")
    assert run.returncode == 1
    assert "lr-zero" in (tmp_path / "report.txt").read_text(encoding="utf-8")


def test_a_closed_input_is_nothing_to_judge():
    run = shell("doctor analyze - <&-")
    assert run.returncode == 3
    assert b"stdin" in run.stderr


def test_a_reader_who_left_changes_no_code():
    for command, code in (("--help", 0), ("rules list", 0), (f"analyze '{SICK}' '{SICK}' --fail-on high -f json", 1)):
        run = shell(f"doctor {command} | true; exit ${{PIPESTATUS[0]}}")
        assert (run.returncode, run.stderr) == (code, b"")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Return a log whose path has signs that Western encodings have and lack."""
    folder = tmp_path_factory.mktemp("f") / "é→Ж"
    folder.mkdir()
    (folder / "rün.jsonl").write_bytes(SICK.read_bytes())
    return folder / "rün.jsonl"


@pytest.fixture
def encoded(capfdbinary, monkeypatch):
    """Return what a command writes to a standard output of some encoding."""

    def call(encoding, *arguments):
        monkeypatch.setattr(sys, "argv", ["ppo-doctor", *map(str, arguments)])
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        capfdbinary.readouterr()
        streams.prepare()
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
        written = capfdbinary.readouterr()
        assert code == 0, written.err
        return written.out

    return call


def test_a_process_writes_in_the_encoding_that_it_is_given(foreign, encoded):
    command = ("analyze", str(foreign))
    for encoding in ("ascii", "cp1252", "utf-8"):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        doctor = [sys.executable, "-m", "ppo_doctor", *command]
        done = subprocess.run(doctor, capture_output=True, check=False, env=environment)
        assert (done.returncode, done.stdout) == (0, encoded(encoding, *command))


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_documents_are_the_same_in_any_encoding(foreign, encoded, encoding):
    """JSON, SARIF and XML say nothing else than in UTF-8, and in nothing but ASCII."""
    for name, parse in (("json", json.loads), ("sarif", json.loads), ("junit", ElementTree.canonicalize)):
        ours = encoded(encoding, "analyze", foreign, "-f", name)
        assert ours.isascii()
        assert parse(ours.decode()) == parse(encoded("utf-8", "analyze", foreign, "-f", name).decode())


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_pages_keep_their_signs_as_references(foreign, encoded, encoding):
    import html

    page = encoded(encoding, "analyze", foreign, "-f", "html")
    assert page.isascii()
    assert "é→Ж" in html.unescape(page.decode())
    text = encoded(encoding, "analyze", foreign, "-f", "markdown").decode(encoding)
    assert "é→Ж" in html.unescape(text)


def test_text_in_any_encoding_is_written(foreign, encoded):
    commands = (["analyze", foreign], ["inspect", foreign], ["explain", "lr-zero"], ["compare", foreign, SICK])
    for encoding in ("ascii", "cp1252"):
        for command in commands:
            assert encoded(encoding, *command).decode(encoding)


def test_files_are_utf8_whatever_the_output_is(foreign, encoded, tmp_path):
    names = ("json", "markdown", "html", "text")
    encoded("ascii", "analyze", foreign, *(part for name in names for part in ("-f", f"{name}={tmp_path / name}")))
    for name in names:
        assert (tmp_path / name).read_text(encoding="utf-8")
    assert "é→Ж" in (tmp_path / "html").read_text(encoding="utf-8")


LONG = ("a/" * 2500, "a" * 5000)


@pytest.mark.parametrize("path", LONG, ids=["folders", "name"])
def test_a_path_of_any_length_is_no_bug(cli, path):
    run = [SICK]
    lines = (
        (3, ["analyze", path]),
        (3, ["gate", path]),
        (3, ["inspect", path]),
        (3, ["compare", path, *run]),
        (3, ["watch", path, "--until-idle", "0.01s"]),
        (2, ["check-config", path]),
        (2, ["analyze", *run, "--config", path]),
        (2, ["analyze", *run, "--rules", path]),
        (2, ["analyze", *run, "-o", path]),
        (2, ["analyze", *run, "--framework", path]),
        (2, ["gate", *run, "--policy", path]),
        (2, ["gate", *run, "--baseline", path]),
        (2, ["rules", "new", "a-rule", "--dir", path]),
        (2, ["explain", path]),
    )
    assert [(line[0], code, got) for code, line in lines if (got := cli(*line).code) != code] == []


def test_a_folder_that_is_gone_stops_no_judgement(tmp_path):
    work = tmp_path / "work"
    lines = (
        (1, f"analyze '{SICK}' '{SICK}' --jobs 2 --fail-on high"),
        (3, "analyze run.jsonl"),
        (2, f"analyze '{SICK}' -o report.txt"),
    )
    offenders = []
    for code, line in lines:
        work.mkdir()
        run = shell(f"rmdir '{work}'; doctor {line}", cwd=work, env=os.environ | {"PYTHONPATH": str(ROOT)})
        if run.returncode != code or b"Traceback" in run.stderr:
            offenders.append((line, run.returncode, run.stderr))
    assert offenders == []


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (1, ("analyze", SICK, "--fail-on", "high")),
        (1, ("gate", SICK)),
        (0, ("inspect", SICK)),
        (3, ("analyze", "*.jsonl")),
        (2, ("analyze", ".")),
        (2, ("analyze", SICK, "--rules", "pack")),
        (2, ("rules", "new", "a-rule", "--dir", "pack")),
    ],
)
def test_commands_in_a_folder_that_is_gone(cli, tmp_path, monkeypatch, code, line):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work").rmdir()
    done = cli(*line)
    assert (done.code, "Traceback" in done.err) == (code, False), done.err
