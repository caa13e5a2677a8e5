"""A process that trains a lab run and writes its log while it does: `python -m tests.cli.watch.trainer … FOLDER`.

Each update is logged as soon as it is done; after `stop` updates the process ends, as a job that was killed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from lab.numpy_lab import FAULTS, RunRecord, run, train, write
from lab.numpy_lab.presets import base_config, dialect_task
from lab.numpy_lab.settings import Setup, Stages
from tests.watch_replay import grow


def train_and_report(fault: str, dialect: str, report, **how) -> None:
    """Train a run and report it as it is after each update."""
    task = dialect_task(dialect)
    setup = FAULTS[fault].inject(
        Setup(replace(base_config(task, dialect), updates=how["updates"]), Stages()), how["severity"]
    )
    nothing = RunRecord(
        fault=fault, task=task, seed=how["seed"], severity=how["severity"], config=setup.config, updates=()
    )
    trained, done = train._update, []

    def update(agent, batch, rollout, now, *rest):
        record = trained(agent, batch, rollout, now, *rest)
        done.append(replace(record, kl_coef=now.config.kl_coef))
        report(replace(nothing, updates=tuple(done)))
        return record

    train._update = update
    run(fault, task=task, dialect=dialect, **how)


def main() -> None:
    """Train, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("dialect")
    parser.add_argument("folder", type=Path)
    for name, value in (("--seed", 0), ("--updates", 40), ("--stop", 40), ("--severity", 2)):
        parser.add_argument(name, type=int, default=value)
    parser.add_argument("--pace", type=float, default=0.05, help="seconds between two updates, beside the training")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as whole:

        def report(record: RunRecord) -> None:
            now = write(record, given.dialect, Path(whole))
            grow(given.folder / now.name, now)
            if len(record.updates) == given.stop:
                raise SystemExit
            time.sleep(given.pace)

        how = {"seed": given.seed, "updates": given.updates, "severity": given.severity}
        train_and_report(given.fault, given.dialect, report, **how)


if __name__ == "__main__":
    main()
