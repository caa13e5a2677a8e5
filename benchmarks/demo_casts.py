"""Recordings of the real program in a terminal of its own: `python -m benchmarks.demo_casts [--out DIR] [NAME …]`.

Each becomes an asciicast (version 2, for `asciinema play`) and an animated picture of it. Pictures need tmux, which
serves as the terminal that draws what was recorded; they load no font and hold no script.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.demo import ROOT, cleaned

#: Seconds that one thing may take to appear.
PATIENCE = 60.0
#: Words of a command that a viewer need not see.
UNTOLD = ("--interval", "500ms", "--quiet")
#: Longer pauses of a recording are shortened to this.
LONGEST_PAUSE = 2.0
#: A picture shows each of its screens for so long at least.
SHORTEST_SHOWN = 1.2
_CODES = re.compile(r"\x1b(\[[0-9;?<>=$ ]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[PX^_].*?\x1b\\|[=>()][0-9A-B]?)")


@dataclass(frozen=True)
class Step:
    """Words to wait for, keys to press then, and seconds to let the viewer look before them."""

    see: str
    keys: str = ""
    look: float = 1.5


@dataclass(frozen=True)
class Take:
    """What to record: a sample log, the command after its name is known, the keys, and whether the log still grows."""

    sample: str
    command: tuple[str, ...]
    steps: tuple[Step, ...]
    size: tuple[int, int] = (100, 28)
    #: records per second of a log that grows, 0 for one that is there
    grows: float = 0.0


TAKES = {
    "interactive": Take(
        "sick/nan-inf.sb3",
        ("analyze", "progress.csv", "-i"),
        (
            Step("1 Story", "w", 2.5),
            Step("all that is behind it", "3", 2.0),
            Step("3 Metrics", "/", 1.0),
            Step("search", "loss\r", 0.6),
            Step("value_loss", "4", 2.0),
            Step("4 Config", "5", 1.5),
            Step("5 Source", "q", 2.5),
        ),
    ),
    "watch": Take(
        "sick/nan-inf.canonical",
        ("watch", "run.jsonl", "--interval", "500ms", "--fail-on", "high", "--quiet"),
        (Step("UNHEALTHY", "", 1.0),),
        grows=4.0,
    ),
}


@dataclass(frozen=True)
class Recording:
    """What a terminal of some columns and rows got, and when."""

    title: str
    size: tuple[int, int]
    output: tuple[tuple[float, str], ...]

    def cast(self) -> str:
        """Return it as an asciicast, version 2."""
        head = {"version": 2, "width": self.size[0], "height": self.size[1], "title": self.title}
        lines = [head, *([round(at, 3), "o", text] for at, text in self.output)]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def until(self, at: float) -> str:
        """Return what the terminal had got at a moment."""
        return "".join(text for moment, text in self.output if moment <= at)


def recorded(take: Take) -> Recording:
    """Run the program in a terminal, press its keys, and return what it wrote; long pauses are shortened."""
    title = f"ppo-doctor {' '.join(word for word in take.command if word not in UNTOLD)}"
    with tempfile.TemporaryDirectory() as folder:
        whole, here = ROOT / "sample_logs" / take.sample, Path(folder) / "run"
        shutil.copytree(whole, here)
        log = here / take.command[1]
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        if take.grows:
            log.unlink()
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", take.size[1], take.size[0], 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "ppo_doctor", *take.command],
            cwd=here,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
            start_new_session=True,
        )
        os.close(follower)
        if take.grows:
            select.select([leader], [], [], PATIENCE)  # once it waits for the log
            threading.Thread(target=_write, args=(log, lines, process, take.grows), daemon=True).start()
        output = tuple(_shortened(_played(leader, process, take.steps)))
        os.close(leader)
    return Recording(title, take.size, output)


def _write(log: Path, lines: Sequence[str], process: subprocess.Popen[bytes], per_second: float) -> None:
    with log.open("w", encoding="utf-8") as file:
        for line in lines:
            if process.poll() is not None:
                return
            file.write(line)
            file.flush()
            time.sleep(1 / per_second)


def _played(leader: int, process: subprocess.Popen[bytes], steps: Sequence[Step]) -> Iterator[tuple[float, str]]:
    """Press keys when their words are there, and yield output with its time until the program ends."""
    began, seen, left = time.monotonic(), "", list(steps)
    due: float | None = None
    rest = b""
    while time.monotonic() - began < PATIENCE * 2:
        if select.select([leader], [], [], 0.02)[0]:
            try:
                rest += os.read(leader, 1 << 16)
            except OSError:  # Linux reports the end of the other side so
                break
            text, rest = _decoded(rest)
            seen += text
            yield time.monotonic() - began, text
        elif process.poll() is not None:
            break
        if left and due is None and left[0].see in _CODES.sub("", seen):
            due = time.monotonic() + left[0].look
        if left and due is not None and time.monotonic() >= due:
            os.write(leader, left.pop(0).keys.encode())
            due, seen = None, ""
    process.wait(PATIENCE)


def _decoded(data: bytes) -> tuple[str, bytes]:
    """Return whole characters, and the bytes of one that is not whole yet."""
    for cut in range(4):
        try:
            return data[: len(data) - cut].decode("utf-8"), data[len(data) - cut :]
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace"), b""


def _shortened(output: Iterator[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    now, before = 0.0, None
    for at, text in output:
        now += min(at - before, LONGEST_PAUSE) if before is not None else 0.0
        before = at
        yield now, text


def moments(recording: Recording, most: int = 6) -> list[float]:
    """Return times after which nothing was written for a while: the longest of these pauses."""
    ends = [at for at, _ in recording.output[1:]] + [recording.output[-1][0] + LONGEST_PAUSE]
    pauses = [(after - at, at) for (at, _), after in zip(recording.output, ends, strict=True)]
    ending = {at for at, _ in recording.output[-2:]}  # what it comes to, however soon the program leaves then
    return sorted(ending | {at for _, at in sorted(pauses)[-most:]})


def screen(recording: Recording, at: float) -> Text:
    """Return what the terminal showed at a moment, drawn by tmux."""
    width, height = recording.size
    with tempfile.TemporaryDirectory() as folder:
        server = ["tmux", "-L", Path(folder).name, "-f", os.devnull]  # of its own: the one before may not be gone yet
        raw = Path(folder) / "raw"
        raw.write_text(recording.until(at), encoding="utf-8", newline="")
        shown = f"stty raw -echo; cat {raw}; sleep 60"
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        start = [*server, "new-session", "-d", "-x", str(width), "-y", str(height), shown]
        subprocess.run(start, check=True, env=environment)
        time.sleep(1.0)
        printed = subprocess.run([*server, "capture-pane", "-eNp"], check=True, capture_output=True, env=environment)
        subprocess.run([*server, "kill-server"], check=True)
    return Text.from_ansi(printed.stdout.decode("utf-8"))  # in one piece: styles go on from line to line


def animated(recording: Recording, most: int = 6) -> str:
    """Return a picture that goes through the screens that were there for longest, and begins again."""
    shown = {at: held for at in moments(recording, most) if (held := screen(recording, at)).plain.strip()}
    times = list(shown)
    drawn = [_drawn(held, recording, f"s{number}") for number, held in enumerate(shown.values())]
    lengths = [
        min(max(after - at, SHORTEST_SHOWN), LONGEST_PAUSE)
        for at, after in zip(times, [*times[1:], times[-1] + 3.0], strict=True)
    ]
    total, begins = sum(lengths), [sum(lengths[:number]) for number in range(len(lengths))]
    rules = ["g.screen{visibility:hidden}"]
    for number, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        first, last = 100 * begin / total, 100 * (begin + length) / total
        away = f"0%{{visibility:hidden}}{first:.2f}%" if first else "0%"
        gone = f"{last:.2f}%,100%{{visibility:hidden}}" if last < 100 else "100%{visibility:visible}"
        rules.append(f"@keyframes s{number}{{{away}{{visibility:visible}}{gone}}}")
        rules.append(f"#s{number}{{animation:s{number} {total:.2f}s step-end infinite}}")
    head = drawn[0][drawn[0].index("<svg") : drawn[0].index(">", drawn[0].index("<svg")) + 1]
    inner = (svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")] for svg in drawn)
    screens = "".join(f'<g class="screen" id="s{number}">{part}</g>' for number, part in enumerate(inner))
    return f"{head}<style>{''.join(rules)}</style>{screens}</svg>"


def _drawn(shown: Text, recording: Recording, name: str) -> str:
    console = Console(
        file=io.StringIO(), record=True, width=recording.size[0], force_terminal=True, color_system="truecolor"
    )
    console.print(shown, soft_wrap=True, end="")
    return console.export_svg(title=recording.title, unique_id=name)


def main(arguments: Sequence[str] | None = None) -> None:
    """Record what is named, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or TAKES:
        recording = recorded(TAKES[name])
        made = {"cast": recording.cast()}
        if shutil.which("tmux"):
            made["svg"] = cleaned(animated(recording))
        for ending, text in made.items():
            target = options.out / f"{name}-recorded.{ending}"
            target.write_text(text, encoding="utf-8", newline="\n")
            print(f"{target}  {target.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
