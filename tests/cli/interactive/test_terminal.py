"""The real program in a real terminal: it opens, exports, quits, and whatever happens the terminal is as before."""

from __future__ import annotations

import base64
import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

pty = pytest.importorskip("pty", reason="needs a terminal of POSIX")
termios = pytest.importorskip("termios", reason="needs a terminal of POSIX")

#: Seconds that the slowest machine may take for one thing to appear.
PATIENCE = 60
#: Makes the terminal on standard output the one that the program belongs to, and becomes the program.
OWN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
CRASHING = """
import sys
from ppo_doctor.cli.interactive.metrics import Metrics
def fall(self, key, frame): raise RuntimeError("injected [bold]fault[/bold]")
Metrics.page = fall
from ppo_doctor.cli.application import run
sys.argv = ["ppo-doctor", *sys.argv[1:]]
sys.exit(run())
"""


class Terminal:
    """A program in a terminal of 100 × 30: what it wrote, and what state it left."""

    def __init__(self, *command: str, stdin: bytes | None = None, columns: int = 100, **variables: str) -> None:
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (30, columns))
        self.before = termios.tcgetattr(self.slave)
        self.written = b""
        read_end = None
        if stdin is not None:
            read_end, write_end = os.pipe()
            os.write(write_end, stdin)
            os.close(write_end)
        self.process = subprocess.Popen(
            (sys.executable, "-c", OWN_TERMINAL, *command),
            stdin=self.slave if read_end is None else read_end,
            stdout=self.slave,
            stderr=self.slave,
            env=os.environ | {"TERM": "xterm-256color", **variables},
            start_new_session=True,
        )

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.05) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            try:
                block = os.read(self.master, 1 << 16)
            except OSError:
                return
            if not block:
                return
            self.written += block

    def see(self, words: str, *, since: int = 0) -> None:
        """Wait until the program has written some words; text is compared without colours and cursor movements."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.read()
            if words in plain(self.written[since:]):
                return
            if self.process.poll() is not None:
                self.read()
                break
        assert words in plain(self.written[since:]), plain(self.written)[-2000:]

    def leave(self) -> int:
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        self.read()
        assert self.process.poll() is not None, "still running"
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Tell whether the screen, the cursor, the mouse and the line discipline are as before."""
        ended = {"screen": (b"\x1b[?1049h", b"\x1b[?1049l"), "cursor": (b"\x1b[?25l", b"\x1b[?25h")}
        ended |= {"mouse": (b"\x1b[?1000h", b"\x1b[?1000l"), "paste": (b"\x1b[?2004h", b"\x1b[?2004l")}
        left = [name for name, (on, off) in ended.items() if self.written.rfind(on) > self.written.rfind(off)]
        assert b"\x1b[?1049h" in self.written, "the report never had the screen"
        return not left and termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def plain(raw: bytes) -> str:
    text = re.sub(rb"\x1b(\[[0-9;?<>=$ ]*[A-Za-z]|\][^\x07]*\x07|[PX^_].*?\x1b\\|[=>()][0-9A-B]?)", b"", raw)
    return " ".join(text.decode("utf-8", "replace").split())


@pytest.fixture
def terminal():
    opened = []

    def start(*command: str, **more) -> Terminal:
        opened.append(Terminal(*command, **more))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def log(samples) -> str:
    return str(samples / "sick/old-policy-aliased.sb3/progress.csv")


def doctor(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "ppo_doctor", "analyze", *arguments)


def test_it_opens_copies_is_walked_through_exports_and_quits(terminal, samples, tmp_path):
    target, beside = tmp_path / "out.txt", tmp_path / "beside.json"
    log = str(samples / "sick/clip-range-too-small.sb3/progress.csv")
    screen = terminal(*doctor(log, "-i", "--format", f"json={beside}", "--fail-on", "high"))
    screen.see("The clip range is too small")
    screen.press("c")
    screen.see("Copy to the clipboard")
    screen.press("\r")
    screen.see("copied: clip_range")
    assert b"\x1b]52;c;" + base64.b64encode(b"clip_range") + b"\x07" in screen.written
    for number, title in enumerate(("Checks", "Metrics"), 2):
        screen.press(str(number))
        screen.see(f"[{number} {title}]")
    screen.press("5")
    screen.see("[5 Source]")
    screen.press(f"e\r\x01\x0b{target}\r")  # at once: the first format, Home, delete to the end, another name
    screen.see("written")
    screen.press("q")
    assert screen.leave() == 1
    assert screen.restored
    assert "The clip range is too small" in target.read_text(encoding="utf-8")
    assert beside.stat().st_size > 1000


def test_ctrl_c_leaves_with_130_and_without_colour_nothing_was_coloured(terminal, log):
    screen = terminal(*doctor(log, "-i", "--no-color"))
    screen.see("policy being updated")
    screen.press("\x03")
    assert screen.leave() == 130
    assert screen.restored
    assert "Traceback" not in plain(screen.written)
    assert_uncoloured(screen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_leaves_the_terminal_as_it_was(terminal, log, number):
    screen = terminal(*doctor(log, "-i"))
    screen.see("[1 Story]")
    screen.process.send_signal(number)
    assert screen.leave() == 130
    assert screen.restored


def test_a_crash_restores_the_screen_and_is_reported_as_a_bug(terminal, log):
    screen = terminal(sys.executable, "-c", CRASHING, "analyze", log, "-i")
    screen.see("[1 Story]")
    screen.press("3")
    assert screen.leave() == 70
    assert screen.restored
    after = plain(screen.written.rpartition(b"\x1b[?1049l")[2])
    assert "a bug of ours: RuntimeError: injected [bold]fault[/bold]" in after
    assert "Traceback" not in after


def test_a_log_from_a_pipe_leaves_the_keys_to_the_terminal(terminal, samples):
    raw = (samples / "sick/lr-zero.canonical/run.jsonl").read_bytes()[:60_000]
    screen = terminal(*doctor("-", "-i"), stdin=raw, NO_COLOR="1")
    screen.see("[1 Story]")
    screen.press("5")
    screen.see("[5 Source]")
    screen.see("cannot be read twice")
    screen.press("q")
    assert screen.leave() == 0
    assert screen.restored
    assert_uncoloured(screen)


def colours(written: bytes) -> list[bytes]:
    found = re.findall(rb"\x1b\[([0-9;]*)m", written)
    return [code for codes in found for code in codes.split(b";") if code[:1] in (b"3", b"4", b"9") and len(code) == 2]


def assert_uncoloured(screen):
    """Nothing is coloured, and the choice still shows."""
    assert set(colours(screen.written)) <= {b"39", b"49"}
    assert re.search(rb"\x1b\[(\d+;)*7[;m]", screen.written)


def test_sixteen_colours_are_the_terminals_own(terminal, log):
    screen = terminal(*doctor(log, "-i"), TERM="xterm", COLORTERM="")
    screen.see("policy being updated")
    screen.read(0.5)
    assert b"38;2;" not in screen.written
    assert b"38;5;" not in screen.written
    assert b"31" in colours(screen.written)
    screen.press("q")
    assert screen.leave() == 0


@pytest.mark.parametrize("format", ["json", "json=report.json"])
def test_without_a_terminal_it_says_what_to_do(cli, log, format, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cli("analyze", log, "-i", "--format", format)
    assert outcome.code == 2
    assert "terminal" in outcome.err
    assert "--format" in outcome.err


def test_a_dumb_terminal_is_refused(terminal, log):
    screen = terminal(*doctor(log, "-i"), TERM="dumb")
    assert screen.leave() == 2
    assert "TERM=dumb" in plain(screen.written)


def test_the_screen_is_emptied_before_it_is_left():
    """What stands there would be moved to the history of a terminal that was resized meanwhile."""
    from ppo_doctor.cli.interactive.terminal import leaving_nothing

    written: list[str] = []

    class Plain:
        def write(self, text: str) -> None:
            written.append(text)

        def stop_application_mode(self) -> None:
            written.append("\x1b[?1049l")

    leaving_nothing(Plain)().stop_application_mode()
    assert "".join(written).index("\x1b[2J") < "".join(written).index("\x1b[?1049l")
