"""Run with `python -m benchmarks.watching [--seconds 30]`: what watching costs while nothing happens, and per record.

Idle CPU is what a process uses between two moments after its first judgement, in plain lines and in the live view. The
second figure is the CPU of reading and judging a log that grows, per record, with start-up.
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

from benchmarks.__main__ import write_log

#: Seconds after which the first judgement is over.
SETTLED = 8.0
LIMIT = 0.02
#: Growing logs are watched until nothing has come for so many minutes.
ENOUGH = 0.05


def watch(log: Path, *options: str) -> list[str]:
    """Return the command that watches a log."""
    return [sys.executable, "-m", "ppo_doctor", "watch", str(log), *options]


def idle(log: Path, seconds: float, *, terminal: bool) -> float:
    """Return the share of one processor that an idle watcher takes, in a terminal of its own or with plain lines."""
    leader, follower = pty.openpty()
    command = watch(log) if terminal else watch(log, "--plain")
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    threading.Thread(target=_drain, args=(leader,), daemon=True).start()
    time.sleep(SETTLED)
    before = _used(process.pid)
    time.sleep(seconds)
    share = (_used(process.pid) - before) / seconds
    process.kill()
    process.wait()
    return share


def _drain(leader: int) -> None:
    try:
        while os.read(leader, 1 << 16):
            pass
    except OSError:  # the end of the other side
        return


def _used(process: int) -> float:
    """Return the CPU seconds that a process has used so far (Linux only)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def growing(folder: Path, records: int, pause: float) -> tuple[float, float]:
    """Return the CPU seconds per record and the share of a processor, for a log that grows while it is watched."""
    whole, log = folder / "whole.jsonl", folder / "grows.jsonl"
    write_log(whole, records)
    lines = whole.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"")
    start = time.monotonic()
    process = subprocess.Popen(watch(log, "--plain", "--until-idle", f"{ENOUGH}m"), stdout=subprocess.DEVNULL)
    with log.open("ab", buffering=0) as file:
        for line in lines:
            file.write(line)
            time.sleep(pause)
    _, _, usage = os.wait4(process.pid, 0)
    seconds = usage.ru_utime + usage.ru_stime
    return seconds / records, seconds / (time.monotonic() - start)


def main() -> None:
    """Print both figures; an idle share above 2 % is a miss."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--records", type=int, default=100_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        write_log(log, given.records)
        for terminal in (False, True):
            share = idle(log, given.seconds, terminal=terminal)
            name = "idle, live view" if terminal else "idle, plain"
            print(f"{name:<18} {100 * share:6.2f} % of one processor  {'met' if share < LIMIT else 'MISSED'}")
        per_record, share = growing(Path(folder), 1_000, 0.02)
        print(f"growing, 50 a second {1000 * per_record:6.2f} ms per record, {100 * share:.1f} % (start-up included)")


if __name__ == "__main__":
    main()
