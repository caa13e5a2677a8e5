"""Run with `python -m benchmarks.tfevents [--events N] [--repeat N]`: our reader against TensorBoard's on one file.

Both check every checksum and keep every point. Times are those of the processor in this process, interleaved.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import sys
import tempfile
import time
import warnings
from pathlib import Path

from ppo_doctor.readers import read
from ppo_doctor.readers.table import Table

#: As CleanRL names them.
TAGS = [f"losses/{name}" for name in ("value_loss", "policy_loss", "entropy", "old_approx_kl", "clipfrac")]
TAGS += [f"charts/{name}" for name in ("learning_rate", "SPS", "episodic_return", "episodic_length", "epsilon")]
LEAST = 8.0


def write_events(folder: Path, events: int, *, tensors: bool) -> Path:
    """Write scalars with TensorBoard's own writer."""
    import numpy as np
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    numbers = random.Random(0)
    writer = EventFileWriter(str(folder))
    for i in range(events):
        number = struct.unpack("<f", struct.pack("<f", numbers.random()))[0]
        value = Summary.Value(tag=TAGS[i % len(TAGS)], simple_value=number)
        if tensors:
            value = Summary.Value(tag=value.tag, tensor=make_tensor_proto(np.float32(number)))
            value.metadata.plugin_data.plugin_name = "scalars"
        writer.add_event(Event(wall_time=1.7e9 + i, step=i // len(TAGS) * 2048, summary=Summary(value=[value])))
    writer.close()
    return next(folder.glob("*tfevents*"))


def ours(path: Path) -> int:
    """Return how many values our reader makes of a file."""
    _, items = read(path)
    tables = [item for item in items if isinstance(item, Table)]
    return sum(len(table.records) * (len(table.columns) - 2) for table in tables)


def theirs(path: Path) -> int:
    """Return how many values TensorBoard's reader makes of a file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    scalars = sum(len(accumulator.Scalars(tag)) for tag in tags["scalars"])
    return scalars + sum(len(accumulator.Tensors(tag)) for tag in tags["tensors"])


def timed(reader, path: Path, events: int) -> float:
    start = time.process_time()
    held = reader(path)
    taken = time.process_time() - start
    if held != events:
        sys.exit(f"{reader.__name__} made {held} values of {events}")
    return taken


def main() -> None:
    """Measure scalars as numbers and as tensors; fail below the ratio asked for."""
    options = argparse.ArgumentParser()
    options.add_argument("--events", type=int, default=100_000)
    options.add_argument("--repeat", type=int, default=7)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    met = True
    for kind in ("simple values", "tensors"):
        with tempfile.TemporaryDirectory() as folder:
            path = write_events(Path(folder), given.events, tensors=kind == "tensors")
            theirs(path), ours(path)  # imports and tables are no part of it
            rounds = [(timed(ours, path, given.events), timed(theirs, path, given.events)) for _ in range(given.repeat)]
        own, other = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratios = sorted(b / a for a, b in rounds)
        ratio = statistics.median(ratios)
        met &= ratio >= LEAST
        verdict = "met" if ratio >= LEAST else "MISSED"
        print(f"{kind}: ours {given.events / own:,.0f} events/s, EventAccumulator {given.events / other:,.0f} events/s")
        print(f"  {ratio:.1f} × [{ratios[0]:.1f} … {ratios[-1]:.1f}]  least {LEAST}  {verdict}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
