"""TensorBoard event files: our reader against TensorBoard's own, both with every checksum and every point."""

from __future__ import annotations

import importlib.util
import statistics
import warnings
from pathlib import Path

from benchmarks import tfevents
from benchmarks.measuring import Line, Unmeasured, amount


def rows(scratch: Path, repeat: int, *, quick: bool) -> list[Line | Unmeasured]:
    """Measure scalars as numbers and as tensors, interleaved in this process."""
    if importlib.util.find_spec("tensorboard") is None:
        return [Unmeasured(task="tfevents", why="TensorBoard is not installed (`--group test`)")]
    warnings.simplefilter("ignore")
    events = 2_000 if quick else 200_000
    return [_row(scratch, kind, events, repeat) for kind in ("simple values", "tensors")]


def _row(scratch: Path, kind: str, events: int, repeat: int) -> Line:
    folder = scratch / kind.replace(" ", "-")
    folder.mkdir()
    few, many = folder / "few", folder / "many"
    few.mkdir(), many.mkdir()
    warm = tfevents.write_events(few, 200, tensors=kind == "tensors")
    path = tfevents.write_events(many, events, tensors=kind == "tensors")
    tfevents.theirs(warm), tfevents.ours(warm)  # imports and tables are no part of it
    readers = (tfevents.ours, tfevents.theirs)
    rounds = [[tfevents.timed(reader, path, events) for reader in readers] for _ in range(repeat)]
    ratios = [theirs / ours for ours, theirs in rounds]
    ours, theirs = (statistics.median(times) for times in zip(*rounds, strict=True))
    return Line(
        task=f"tfevents, {events // 1000}k scalars as {kind}, checksums checked",
        peer="faster than `EventAccumulator`, unlimited sizes",
        clock="cpu",
        ratio=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        bound=tfevents.LEAST,
        at_least=True,
        ours=amount("cpu", ours),
        theirs=amount("cpu", theirs),
        rounds=len(rounds),
    )
