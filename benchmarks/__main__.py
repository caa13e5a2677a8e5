"""Run with `python -m benchmarks [--repeat N]`: whole processes, interleaved, wall time, medians with their spread."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

METRICS = [
    *("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"),
    *("learning_rate", "grad_norm", "explained_variance", "episode_return", "ratio_std"),
]
SCRIPT = str(Path(sys.executable).with_name("ppo-doctor"))


def write_log(path: Path, records: int) -> None:
    """Write a canonical log of noise with a configuration."""
    numbers = random.Random(0)
    lines = [json.dumps({"ppo_doctor": 1, "config": {"ppo_epochs": 4, "num_minibatches": 4}})]
    lines += [json.dumps({"step": step, **{name: numbers.random() for name in METRICS}}) for step in range(records)]
    path.write_text("\n".join(lines) + "\n")


def timed(command: list[str], environment: dict[str, str]) -> float:
    """Return the wall time of one process in seconds; a command that fails has no time."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    return time.perf_counter() - start


def measure(commands: dict[str, list[str]], repeat: int, environment: dict[str, str]) -> dict[str, list[float]]:
    """Return `repeat` times per command, interleaved so that noise hits all alike; a first round warms caches."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(repeat + 1):
        for name, command in commands.items():
            seconds = timed(command, environment)
            if turn:
                times[name].append(seconds)
    return times


def report(times: dict[str, list[float]], targets: list[tuple[str, str, float]]) -> bool:
    """Print the ratios against their limits and tell whether all were met."""
    met = True
    for name, values in times.items():
        middle, least, most = (1000 * f(values) for f in (statistics.median, min, max))
        print(f"{name:<22} {middle:7.1f} ms  [{least:.1f} … {most:.1f}]")
    for name, base, limit in targets:
        ratio = statistics.median(times[name]) / statistics.median(times[base])
        met &= ratio <= limit
        print(f"{name:<22} {ratio:5.2f} × {base:<20} limit {limit}  {'met' if ratio <= limit else 'MISSED'}")
    return met


def main() -> None:
    """Measure start-up: the whole process, as a user waits for it."""
    options = argparse.ArgumentParser()
    options.add_argument("--repeat", type=int, default=15)
    repeat = options.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        write_log(log, 500)
        commands = {
            "pass": [sys.executable, "-c", "pass"],
            "numpy+orjson": [sys.executable, "-c", "import numpy, orjson"],
            "--version": [SCRIPT, "--version"],
            "--help": [SCRIPT, "--help"],
            "analyze json": [SCRIPT, "analyze", str(log), "--format", "json"],
            "analyze text": [SCRIPT, "analyze", str(log)],
        }
        times = measure(commands, repeat, dict(os.environ, PPO_DOCTOR_CACHE=folder))
    targets = [
        ("--version", "pass", 2.5),
        ("--help", "pass", 8.0),
        ("analyze json", "numpy+orjson", 2.0),
        ("analyze text", "numpy+orjson", 2.6),
    ]
    report(times, targets)


if __name__ == "__main__":
    main()
