"""The real command beside real writers that are killed, rotate their log, fill the disk and start over."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from lab.numpy_lab import FAULTS, run, write
from lab.numpy_lab.presets import dialect_task
from ppo_doctor import analyze
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.report.summary import summarize
from tests.watch_replay import onset

from .conftest import SICK, SOUND

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")
TITLE = "The learning rate is exactly 0"
COMMAND = [sys.executable, "-m", "ppo_doctor", "watch"]
#: Seconds after which a test gives up; nothing here takes a twentieth of it.
LONGEST = 120.0


class Watcher:
    """A watch process whose lines are collected."""

    def __init__(self, process):
        self.process = process
        self.lines = []

    def until(self, words):
        """Read lines until one holds these words, and return it."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            line = self.process.stdout.readline()
            self.lines.append(line)
            if words in line:
                return line
            assert line, f"ended without {words!r}: {self.lines} {self.process.stderr.read()}"
        raise AssertionError(f"no {words!r} in {self.lines}")

    def end(self, number=signal.SIGTERM):
        """Stop it and return its exit code."""
        self.process.send_signal(number)
        self.lines += self.process.communicate(timeout=LONGEST)[0].splitlines(keepends=True)
        return self.process.returncode


@contextmanager
def watcher(path, *options):
    command = [*COMMAND, str(path), "--plain", "--interval", "200ms", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Watcher(process)
        finally:
            process.kill()


def sick_lines(samples):
    return samples.joinpath(*SICK).read_text().splitlines(keepends=True)


WRITER = """
import sys, time
path, text, cut = sys.argv[1], sys.stdin.read(), int(sys.argv[2])
file = open(path, "a")
file.write(text[:cut])
file.flush()
print("written", flush=True)
time.sleep(600)
"""


@contextmanager
def writer(path, text, cut=None):
    """A process that has written part of a text and would go on."""
    command = [sys.executable, "-c", WRITER, str(path), str(len(text) if cut is None else cut)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write(text)
        process.stdin.close()
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def test_a_writer_that_is_killed_in_the_middle_of_a_line(tmp_path, samples):
    path = tmp_path / "run.jsonl"
    lines = sick_lines(samples)
    with watcher(path, "--fail-on", "high") as watched:
        watched.until("waiting")
        with writer(path, "".join(lines[:4]), cut=len("".join(lines[:4])) - 100) as process:
            watched.until("a run: ppo of canonical")
            process.send_signal(signal.SIGKILL)
        # Restarted from a checkpoint, it writes on behind its own torn line.
        with path.open("a") as file:
            file.write("\n" + "".join(lines[4:20]))
        assert TITLE in watched.until("cause critical")
        watched.until("end")
        assert watched.process.wait(LONGEST) == 1


def test_rotation_by_another_process(tmp_path, samples):
    path = tmp_path / "run.jsonl"
    lines = samples.joinpath(*SOUND).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:40]))
    with watcher(path) as watched:
        watched.until("a run")
        script = f"cat >> {path} && mv {path} {path}.1 && : > {path}"
        subprocess.run(["sh", "-c", script], input="".join(lines[40:50]), text=True, check=True)
        with path.open("a") as file:
            file.write("".join(lines[50:]))
        watched.until("another file took its place")
        assert f"step {len(lines) - 1}" not in watched.until("goes on in the new file")
        assert watched.end() == 0
    assert f"step {len(lines) - 1}" in watched.lines[-1]


def test_a_signal_ends_it_with_the_verdict(samples):
    """SIGTERM; the tests of terminals below send SIGHUP and SIGINT."""
    with watcher(samples.joinpath(*SICK)) as watched:
        watched.until("cause critical")
        assert watched.end(signal.SIGTERM) == 0
    assert "stopped by hand" in watched.lines[-2]
    assert "unhealthy" in watched.lines[-1]


def test_a_signal_that_was_ignored_ends_nothing(samples):
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with watcher(samples.joinpath(*SICK)) as watched:
            watched.until("cause critical")
            watched.process.send_signal(signal.SIGHUP)
            with pytest.raises(subprocess.TimeoutExpired):
                watched.process.wait(1)
            assert watched.end() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_a_terminal_that_is_closed_ends_it_with_its_exit_code(samples, options):
    leader, follower = pty.openpty()
    command = [*COMMAND, str(samples.joinpath(*SICK)), "--interval", "200ms", *options]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        os.close(follower)
        got = b""
        while TITLE.encode() not in got:
            got += os.read(leader, 1 << 16)
        os.close(leader)
        process.send_signal(signal.SIGHUP)
        assert (process.wait(LONGEST), process.stderr.read()) == (0, b"")


def test_when_nobody_reads_any_more_it_ends(tmp_path, samples):
    path = tmp_path / "run.jsonl"
    with watcher(path) as watched:
        watched.until("waiting")
        watched.process.stdout.close()
        path.write_text("".join(sick_lines(samples)))
        assert watched.process.wait(LONGEST) == 0
        assert "Traceback" not in watched.process.stderr.read()


def test_a_command_gets_the_finding_and_its_failure_is_not_fatal(tmp_path, samples):
    out = tmp_path / "finding.json"
    command = f"sh -c 'cat > {out}; echo no network >&2; exit 9'"
    with watcher(samples.joinpath(*SICK), "--on-finding", command, "--until-idle", "3s") as watched:
        assert "exit code 9: no network" in watched.until("problem")
        watched.until("nothing new for")
        assert watched.process.wait(LONGEST) == 0
    assert json.loads(out.read_text())["cause"]["id"] == "lr-zero"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run.jsonl", "--fail-on", "bad"],
        ["run.jsonl", "--interval", "0s"],
        ["run.jsonl", "--interval", "5"],
        ["run.jsonl", "--until-idle", "-1m"],
        ["run.jsonl", "--until-idle", "10 days"],
        ["run.jsonl", "--on-finding", "'"],
        ["-"],
    ],
)
def test_wrong_usage(arguments, cli):
    outcome = cli("watch", *arguments)
    assert outcome.code == 2
    assert ("analyze -" if arguments == ["-"] else arguments[1]) in outcome.err


def screen(path, keys, *options, size=(24, 80)):
    """Run the live view in a terminal until some words are seen, press Ctrl-C, and return what the terminal got."""
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*COMMAND, str(path), "--interval", "200ms", *options],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        start_new_session=True,
    )
    os.close(follower)
    got = b""
    sent = False
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        ready, _, _ = select.select([leader], [], [], 0.2)
        try:
            got += os.read(leader, 1 << 16) if ready else b""
        except OSError:  # Linux reports the end of the other side so
            break
        if not sent and keys.encode() in got:
            process.send_signal(signal.SIGINT)
            sent = True
        if process.poll() is not None and not ready:
            break
    os.close(leader)
    return got.decode("utf-8", "replace"), process.wait(LONGEST)


def test_the_live_view_gives_the_terminal_back(samples):
    got, code = screen(samples.joinpath(*SICK), TITLE)
    assert code == 0
    enter, leave = got.index("\x1b[?1049h"), got.index("\x1b[?1049l")
    assert enter < got.index(TITLE) < leave
    assert got.rindex("\x1b[?25h") > got.rindex("\x1b[?25l")
    assert "UNHEALTHY" in got[leave:]


def test_the_live_view_escapes_what_a_log_holds_and_goes_without_colour(tmp_path, samples):
    path = tmp_path / "run\x1b[31m[bold].jsonl"
    path.write_text("".join(sick_lines(samples)))
    got, _ = screen(path, TITLE, "--no-color")
    assert "\x1b[31m" not in got
    assert "\x1b[1;31" not in got
    assert "[bold].jsonl" in got


@contextmanager
def beside(*command):
    """A process that runs beside the watcher."""
    with subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def judged_as_analyze_does(watched, log):
    """Tell whether the last words are the verdict on the whole log, its last step included."""
    diagnosis = analyze(log)
    last = watched.lines[-1]
    problems = summarize(diagnosis, None).problems
    words = [f"step {diagnosis.run.steps[1]} ", f"{diagnosis.verdict}: ", *(problem.title for problem in problems)]
    return all(word in last for word in words)


#: Updates after a fault begins that a watcher may see before it tells it.
SOON = 20


def test_a_fault_is_reported_while_the_run_trains(tmp_path):
    """The trainer stops 20 updates after the fault began, so the report cannot rest on more of them."""
    fault, dialect = "nan-inf", "sb3"
    record = run(fault, task=dialect_task(dialect), seed=3, severity=2, updates=40, dialect=dialect)
    stop = onset(record, dialect) + SOON
    options = ("--seed", "3", "--updates", "40", "--stop", str(stop))
    with watcher(tmp_path) as watched:
        watched.until("waiting")
        with beside("-m", "tests.cli.watch.trainer", fault, dialect, str(tmp_path), *options) as trainer:
            told = watched.until("cause ")
            named = {fault, *FAULTS[fault].twins(dialect)}
            assert any(cause.title in told for cause in load_pack().causes if cause.id in named)
            assert trainer.wait(LONGEST) == 0
        assert watched.end() == 0
    assert judged_as_analyze_does(watched, tmp_path / "progress.csv")


FAST = """
import random, sys, time
path, text = sys.argv[1], sys.stdin.read().encode()
chance, began, at = random.Random(5), time.monotonic(), 0
per_second = 1000 * len(text) // (text.count(b"\\n") or 1)
with open(path, "ab", buffering=0) as file:
    while at < len(text):
        size = chance.randrange(1, per_second // 50)  # ends anywhere in a line
        file.write(text[at : at + size])
        at += size
        time.sleep(max(0.0, began + at / per_second - time.monotonic()))
"""


@pytest.mark.parametrize("tells", [True, False])
def test_a_thousand_records_per_second_are_followed(tmp_path, samples, tells):
    text = samples.joinpath(*SOUND).read_text()
    if tells:
        sizes = {"num_envs": 4, "num_steps": 16, "epochs": 2, "num_minibatches": 2}
        record = run("nan-inf", seed=3, severity=2, updates=400, dialect="canonical", **sizes)
        text = write(record, "canonical", tmp_path / "whole").read_text()
    path = tmp_path / "run.jsonl"
    with watcher(path) as watched:
        watched.until("waiting")
        with beside("-c", FAST, str(path)) as fast:
            fast.communicate(text, timeout=LONGEST)
        watched.until("cause critical" if tells else "a run: ")
        assert watched.end() == 0
    assert path.read_text() == text
    assert any(" cause " in line for line in watched.lines) == tells
    assert judged_as_analyze_does(watched, path)
