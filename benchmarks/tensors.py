"""The pass over a dump against one np.exp over the same array and against plain NumPy: `python -m benchmarks.tensors`.

With `--checkpoints GB` two checkpoints of that size in bfloat16, of which every weight differs, are compared instead;
`--torch PYTHON` names an interpreter with torch and safetensors that does it, too, with one thread and as it likes.

Times are processor seconds, best of the rounds, all in one process, one after the other in each round; memory is the
largest anonymous part of the process (what is mapped from the file does not count), each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ppo_doctor.readers.tensors import read_archive
from ppo_doctor.readers.tensors.tensor import Archive
from ppo_doctor.runs.dumps import checkpoints
from ppo_doctor.runs.dumps.statistics import ratio_statistics

CLIP = (0.2, 0.2)


def write(path: Path, tokens: int) -> None:
    """Write float32 log-probs and advantages of sound training, with padding of minus infinity behind a mask."""
    chance = np.random.default_rng(0)
    old = -chance.standard_exponential(tokens, dtype=np.float32)
    new = old + np.float32(0.05) * chance.standard_normal(tokens, dtype=np.float32)
    mask = np.arange(tokens) % 1000 < 800
    padded = np.where(mask, new, np.float32(-np.inf))
    advantages = chance.standard_normal(tokens, dtype=np.float32)
    np.savez(path, log_probs=new, padded=padded, old_log_probs=old, advantages=advantages, response_mask=mask)


def core(dump: Archive) -> object:
    """Return the statistics of the ratio alone."""
    return ratio_statistics(dump.tensors["log_probs"], dump.tensors["old_log_probs"], clip=CLIP)


def whole(dump: Archive) -> object:
    """Return those with advantages."""
    named = dump.tensors
    return ratio_statistics(
        named["log_probs"], named["old_log_probs"], advantages=named["advantages"], clip=CLIP, dual_clip=3.0
    )


def masked(dump: Archive) -> object:
    """Return those of a padded dump with its mask."""
    named = dump.tensors
    mask, advantages = named["response_mask"], named["advantages"]
    return ratio_statistics(named["padded"], named["old_log_probs"], mask=mask, advantages=advantages, clip=CLIP)


def exp32(dump: Archive) -> object:
    """Return exp of the log-probs as they are."""
    return np.exp(dump.tensors["log_probs"].array())


def exp64(dump: Archive) -> object:
    """Return exp of the log-probs in float64, as the statistics need it."""
    return np.exp(dump.tensors["log_probs"].array(), dtype=np.float64)


def plain(dump: Archive) -> object:
    """Return the same numbers as `whole` by expressions over whole arrays, in float64."""
    new, old, a = (dump.tensors[n].array().astype(np.float64) for n in ("log_probs", "old_log_probs", "advantages"))
    d = new - old
    r = np.exp(d)
    low, high = r < 1 - CLIP[0], r > 1 + CLIP[1]
    return (
        *(r.mean(), r.std(), r.min(), r.max(), (d == 0).mean(), -d.mean(), (d * d).mean() / 2, (r - 1 - d).mean()),
        *(r.sum() ** 2 / (r * r).sum() / len(r), low.mean(), high.mean(), (low & (a < 0)).mean()),
        *((high & (a > 0)).mean(), ((r > 3) & (a < 0)).mean(), (r * a).mean() - a.mean()),
        *(a.mean(), a.std(), a.min(), a.max(), np.corrcoef(d, a)[0, 1], np.corrcoef(new, old)[0, 1]),
        np.quantile(r, (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)),
    )


TASKS: dict[str, Callable[[Archive], object]] = {
    task.__name__: task for task in (exp32, exp64, core, whole, masked, plain)
}


def anonymous() -> int:
    """Return the bytes of this process that are not mapped from a file (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def peak(task: Callable[[Archive], object], dump: Archive) -> int:
    """Return by how much the anonymous memory rises at most while a task runs."""
    before, most, ended = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    task(dump)
    ended.set()
    watcher.join()
    return max(most[0], anonymous()) - before


def write_checkpoint(path: Path, size: int, seed: int) -> None:
    """Write safetensors of about `size` bytes: square matrices of bfloat16 with 2**24 elements each."""
    chance = np.random.default_rng(seed)
    width = 1 << 12
    count = max(1, size // (2 * width * width))
    places = [(at * 2 * width * width, (at + 1) * 2 * width * width) for at in range(count)]
    header = {
        f"layers.{at}.weight": {"dtype": "BF16", "shape": [width, width], "data_offsets": place}
        for at, place in enumerate(places)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in places:
            file.write(
                (chance.standard_normal((width, width), dtype=np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
            )


#: As one would with torch: load both, subtract, norms; or all that we tell, which takes equality and finiteness, too.
_TORCH = """
import sys, time, torch
from safetensors.torch import load_file
threads, rounds, whole = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "whole"
if threads:
    torch.set_num_threads(threads)
for _ in range(rounds):
    wall, cpu = time.perf_counter(), time.process_time()
    new, old = map(load_file, sys.argv[4:])
    for name, tensor in old.items():
        float((new[name].double() - tensor.double()).norm() / tensor.double().norm())
        if whole:
            int((new[name] != tensor).sum()), bool(torch.isfinite(new[name]).all())
    print(time.process_time() - cpu, time.perf_counter() - wall)
"""


def _by_torch(python: str, paths: list[Path], rounds: int) -> None:
    """Print what the same costs in torch: with one thread, as many as we use, and with its default."""
    for what in ("norms", "whole"):
        for threads in (1, 0):
            command = [python, "-c", _TORCH, str(threads), str(rounds), what, *map(str, paths)]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            cpu, wall = (sorted(times)[len(times) // 2] for times in _columns(run.stdout))
            words = "norms alone" if what == "norms" else "and which weights changed, and are finite"
            print(f"torch, {threads or 'default'} threads, {words}: {cpu:.2f} s of CPU, {wall:.2f} s")


def _columns(text: str) -> list[list[float]]:
    return [list(column) for column in zip(*(map(float, line.split()) for line in text.splitlines()), strict=True)]


def compare_checkpoints(folder: Path, size: int, rounds: int, torch: str | None) -> None:
    """Print what comparing two checkpoints costs, and what that makes of 7 billion parameters."""
    paths = [folder / "policy.safetensors", folder / "old_policy.safetensors"]
    for seed, path in enumerate(paths):
        write_checkpoint(path, size, seed)
    found: list[tuple[float, float]] = []

    def task(_dump: Archive) -> object:
        start, wall = time.process_time(), time.perf_counter()
        measured = checkpoints.measure([read_archive(path) for path in paths])
        found.append((time.process_time() - start, time.perf_counter() - wall))
        return measured

    most = peak(task, read_archive(paths[0]))
    for _ in range(rounds):
        task(read_archive(paths[0]))
    cpu, wall = (sorted(times)[rounds // 2] for times in zip(*found[1:], strict=True))
    gigabytes = sum(path.stat().st_size for path in paths) / 1e9
    print(f"{gigabytes:.1f} GB in two files, median of {rounds}: {cpu:.2f} s of CPU, {wall:.2f} s")
    print(f"{most / 1e6:.0f} MB beyond what is mapped")
    print(f"two of 7 billion parameters (28 GB), extrapolated: {cpu * 28 / gigabytes:.0f} s, as much memory")
    if torch:
        _by_torch(torch, paths, rounds)


def main() -> None:
    """Print a table of times and peaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peak", nargs=2, metavar=("TASK", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--checkpoints", type=float, metavar="GB", help="compare two checkpoints of this size instead")
    parser.add_argument(
        "--torch", metavar="PYTHON", help="an interpreter that has torch and safetensors, to compare with"
    )
    given = parser.parse_args()
    if given.checkpoints:
        with tempfile.TemporaryDirectory() as folder:
            compare_checkpoints(Path(folder), int(given.checkpoints * 1e9), given.repeat, given.torch)
        return
    if given.peak:
        name, file = given.peak
        print(peak(TASKS[name], read_archive(Path(file))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump.npz"
        write(path, given.tokens)
        dump = read_archive(path)
        times: dict[str, float] = dict.fromkeys(TASKS, float("inf"))
        for _ in range(given.repeat):
            for name, task in TASKS.items():
                start = time.process_time()
                task(dump)
                times[name] = min(times[name], time.process_time() - start)
        print(f"{'task':8} {'CPU s':>8} {'of exp32':>9} {'of exp64':>9} {'of plain':>9} {'peak MB':>8}")
        for name, took in times.items():
            command = [sys.executable, "-m", "benchmarks.tensors", "--peak", name, str(path)]
            run = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
            shares = (took / times[peer] for peer in ("exp32", "exp64", "plain"))
            print(f"{name:8} {took:8.3f} " + " ".join(f"{s:9.2f}" for s in shares) + f" {int(run.stdout) / 1e6:8.1f}")


if __name__ == "__main__":
    main()
