"""The pass over a dump against one np.exp and plain NumPy, and two checkpoints against torch."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks import tensors
from benchmarks.measuring import Line, Unmeasured, amount, interleaved, line, worker
from ppo_doctor.readers.tensors import read_archive

EXP32, EXP64 = "one np.exp over the same float32 array", "one np.exp of it in float64"
PLAIN = "the same numbers as plain NumPy expressions, float64"
#: Plain expressions take six seconds and come out alike: 0.06 to 0.07 in every round.
PLAIN_ROUNDS = 3
TORCH = "torch: load both, subtract, norms"
MAKE = """
import sys, torch
torch.manual_seed(0)
folder, layers, width = sys.argv[1], int(sys.argv[2]), 1024
old = {f"layers.{n}.weight": torch.randn(width, width) for n in range(layers)}
torch.save(old, folder + "/old.pt")
torch.save({name: held + 1e-3 * torch.randn_like(held) for name, held in old.items()}, folder + "/new.pt")
"""


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    """Measure the tensor pass, its memory, and the comparison of checkpoints."""
    tokens = 200_000 if quick else 50_000_000
    path = scratch / "dump.npz"
    tensors.write(path, tokens)
    found = _passes(path, tokens, repeat)
    path.unlink()
    return [*found, _checkpoints(scratch, repeat, quick=quick)]


def _passes(path: Path, tokens: int, repeat: int) -> list[Line | Unmeasured]:
    dump = read_archive(path)
    times: dict[str, list[float]] = {name: [] for name in tensors.TASKS}
    for turn in range(repeat + 1):
        for name, task in tensors.TASKS.items():
            if name == "plain" and not 0 < turn <= PLAIN_ROUNDS:
                continue
            start = time.process_time()
            task(dump)
            if turn:
                times[name].append(time.process_time() - start)
    size = f"{tokens:,} tokens"
    return [
        _line(f"ratio statistics, {size}", times, "core", "exp32", EXP32, 4.0),
        _line(f"the same, {size}", times, "core", "exp64", EXP64, 4.0),
        _line(f"all statistics, {size}", times, "whole", "exp32", EXP32, 4.0),
        _line(f"the same, {size}", times, "whole", "exp64", EXP64, 4.0),
        _line(f"with padding of -inf, {size}", times, "masked", "exp64", EXP64, 4.0),
        _line(f"all statistics, {size}", times, "whole", "plain", PLAIN, 0.5),
        _memory(path),
    ]


def _line(task: str, times: dict[str, list[float]], ours: str, peer: str, words: str, bound: float) -> Line:
    ratios = [a / b for a, b in zip(times[ours], times[peer], strict=False)]
    return Line(
        task=task,
        peer=words,
        clock="cpu",
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        bound=bound,
        ours=amount("cpu", statistics.median(times[ours])),
        theirs=amount("cpu", statistics.median(times[peer])),
        rounds=len(ratios),
    )


def _memory(path: Path) -> Line:
    ours, theirs = (_peak(task, path) for task in ("whole", "plain"))
    return Line(
        task="peak memory of that pass beyond the mapped file",
        peer=PLAIN,
        clock="peak_mb",
        ratio=ours / theirs,
        low=ours / theirs,
        high=ours / theirs,
        bound=0.2,
        ours=amount("peak_mb", ours),
        theirs=amount("peak_mb", theirs),
    )


def _peak(task: str, path: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.tensors", "--peak", task, str(path)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 1e6


def _checkpoints(scratch: Path, repeat: int, *, quick: bool) -> Line | Unmeasured:
    task = "two checkpoints, every weight changed"
    torch = os.environ.get("TORCH_PYTHON")
    if not torch:
        return Unmeasured(task=task, why="TORCH_PYTHON names no interpreter that has torch (`make bench` does)")
    layers = 4 if quick else 64
    subprocess.run([torch, "-c", MAKE, str(scratch), str(layers)], check=True)
    cases = {
        "ours": partial(worker, "our_delta", scratch),
        TORCH: partial(worker, "torch_delta", scratch, python=torch),
    }
    costs = interleaved(cases, repeat)
    return line(f"{task}, {layers * 8} MB, times faster", costs, "ours", TORCH, bound=4.0, at_least=True)
