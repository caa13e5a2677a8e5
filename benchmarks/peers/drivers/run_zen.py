"""Runs inside zen-rl's environment: writes the log as TensorBoard scalars, which are all it reads. Prints its modes."""

import csv
import json
import sys
import tempfile
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from zen.detect.rules import detect
from zen.ingest.tensorboard import load_run
from zen.vlak import group, rank

with tempfile.TemporaryDirectory() as folder:
    writer = EventFileWriter(folder)
    with Path(sys.argv[1]).open() as file:
        for row in csv.DictReader(file):
            held = [Summary.Value(tag=key, simple_value=float(value)) for key, value in row.items() if value]
            step = int(row["time/total_timesteps"])
            writer.add_event(Event(wall_time=float(step), step=step, summary=Summary(value=held)))
    writer.close()
    print(json.dumps([issue["mode"] for issue in group(rank(detect(load_run(folder))))]))
