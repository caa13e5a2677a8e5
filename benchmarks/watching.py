"""Run with `python -m benchmarks.watching [--seconds 60] [--records 100000]`: what watching a long log costs.

Each figure is the share of one processor that a watcher uses between two moments after its first judgement: while
nothing happens, in plain lines and in the live view, and while the log grows by 50 records a second.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.data import jsonl

#: Seconds after the first event about the run, by which its first judgement is over.
SETTLED = 10.0
#: Shares that are promised: while nothing happens, and while the log grows (docs/watch.md).
IDLE, GROWING = 0.02, 0.1
PER_SECOND = 50


def share(log: Path, seconds: float, *, terminal: bool, more: list[bytes] | None = None) -> float:
    """Return the share of one processor that a watcher takes, in a terminal of its own or with plain lines.

    Without `more` nothing happens to the log; else its lines are added, `PER_SECOND` of them a second.
    """
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "ppo_doctor", "watch", str(log), *([] if terminal else ["--plain"])]
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    begun = threading.Event()
    threading.Thread(target=_drain, args=(leader, begun), daemon=True).start()
    begun.wait()
    _grow(log, SETTLED, more)
    before = _used(process.pid)
    _grow(log, seconds, more)
    used = _used(process.pid) - before
    process.kill()
    process.wait()
    return used / seconds


def _grow(log: Path, seconds: float, more: list[bytes] | None) -> None:
    """Wait, and write meanwhile."""
    end = time.monotonic() + seconds
    with log.open("ab", buffering=0) as file:
        while time.monotonic() < end:
            time.sleep(1 / PER_SECOND)
            if more:
                file.write(more.pop(0))


def _drain(leader: int, begun: threading.Event) -> None:
    """Read what a watcher shows; set the event when it has read the log."""
    shown = b""
    try:
        while block := os.read(leader, 1 << 16):
            shown = shown[-100:] + block
            if b"a run" in shown:
                begun.set()
    except OSError:  # the end of the other side
        return


def _used(process: int) -> float:
    """Return the CPU seconds that a process has used so far (Linux only)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the shares; one above its limit is a miss."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--records", type=int, default=100_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, log = Path(folder) / "whole.jsonl", Path(folder) / "run.jsonl"
        more = int(PER_SECOND * (given.seconds + SETTLED)) + PER_SECOND
        jsonl(whole, given.records + more, 20)
        lines = whole.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:-more]))
        _print("idle, plain", share(log, given.seconds, terminal=False), IDLE)
        _print("idle, live view", share(log, given.seconds, terminal=True), IDLE)
        _print("growing, live view", share(log, given.seconds, terminal=True, more=lines[-more:]), GROWING)


def _print(name: str, found: float, limit: float) -> None:
    print(f"{name:<18} {100 * found:6.2f} % of one processor  {'met' if found <= limit else 'MISSED'}")


if __name__ == "__main__":
    main()
