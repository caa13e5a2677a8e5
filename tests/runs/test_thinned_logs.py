"""A log of which records are left out may tell less, never that a run is healthy which as a whole is not.

Where the reward rises a suspicion moves no verdict, and what is left may show no more than that.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ppo_doctor.checks.outcome import outcome
from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose, read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import Run
from ppo_doctor.runs.reading import Request
from tests.synthetic import a_series, observe

ROOT = Path(__file__).resolve().parent.parent.parent
WHOLE = {"whole": slice(None)}
KEPT = {"even": slice(0, None, 2), "odd": slice(1, None, 2)}


def thin_lines(log: Path, kept: slice) -> None:
    """Leave out records of JSON Lines or CSV; what is no record (a header, a configuration) stays."""
    first, *lines = log.read_text().splitlines(keepends=True)
    head = [first] if log.suffix == ".csv" or "ppo_doctor" in json.loads(first) else []
    log.write_text("".join(head + ([*lines] if head else [first, *lines])[kept]))


def thin_state(log: Path, kept: slice) -> None:
    """Leave out entries of a trainer's state."""
    state = json.loads(log.read_text())
    log.write_text(json.dumps(state | {"log_history": state["log_history"][kept]}, indent=1))


THIN: dict[str, Callable[[Path, slice], None]] = {".csv": thin_lines, ".jsonl": thin_lines, ".json": thin_state}


def log_of(folder: Path) -> Path | None:
    """Return the file that holds the records, None where it is no text."""
    logs = [file for file in folder.iterdir() if file.suffix in THIN and file.name != "config.json"]
    return logs[0] if len(logs) == 1 else None


SICK = sorted(folder for folder in (ROOT / "sample_logs/sick").iterdir() if log_of(folder))


def verdicts(path: Path) -> dict[str, str]:
    """Return the verdict of each run, none where too little is left to judge."""
    try:
        return {run.framework: verdict_of(run) for run in read_runs(str(path), Request())}
    except DoctorError:
        return {}


def verdict_of(run: Run) -> str:
    return diagnose(run, load_pack(), Request()).verdict


def rises(folder: Path) -> bool:
    """Tell whether the reward of a whole log rises."""
    return all(outcome(run).sound for run in read_runs(str(folder), Request()))


def thinned(
    folder: Path, place: Path, ways: Mapping[str, slice], *, configured: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield how a log was thinned, and its verdict then."""
    for how, kept in ways.items():
        copy = shutil.copytree(folder, place / f"{folder.name}-{how}-{configured}")
        log = log_of(copy)
        assert log is not None
        if not configured:
            (copy / "config.json").unlink(missing_ok=True)
        THIN[log.suffix](log, kept)
        for framework, verdict in verdicts(copy).items():
            yield f"{folder.name} {framework} {how}", how, verdict


@pytest.mark.parametrize("configured", [True, False])
def test_no_thinned_log_of_a_sick_run_is_healthy(tmp_path, configured):
    assert len(SICK) > 15
    passed, judged = [], 0
    for folder in SICK:
        told = list(thinned(folder, tmp_path, KEPT, configured=configured))
        judged += len(told)
        healthy = [name for name, _, verdict in told if verdict == "healthy" and not rises(folder)]
        whole = thinned(folder, tmp_path, WHOLE, configured=configured) if healthy else ()
        passed += healthy if "healthy" not in {verdict for _, _, verdict in whole} else []
    assert passed == []
    assert judged > len(SICK)


def test_the_log_of_a_healthy_run_stays_healthy_where_half_of_its_records_are_left_out(tmp_path):
    for folder in sorted((ROOT / "sample_logs/healthy").iterdir()):
        if log_of(folder):
            told = {how: verdict for _, how, verdict in thinned(folder, tmp_path, KEPT, configured=True)}
            assert told["even"] == "healthy"


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_thinning_leaves_out_records_and_nothing_else(tmp_path):
    log = tmp_path / "progress.csv"
    log.write_text("a,b\n1,2\n3,4\n5,6\n")
    thin_lines(log, KEPT["even"])
    assert read_csv(log) == [["a", "b"], ["1", "2"], ["5", "6"]]


def generations(apart, every=1, **fields):
    """Return observations of 60 records `every` steps from each other, a batch every `apart` records."""
    steps = range(1, 60 * every, every)
    return observe(
        a_series("loss", [0.1] * 60, steps=steps),
        a_series("reward_mean", [0.5] * len(range(0, 60, apart)), steps=list(steps)[::apart]),
        a_series("clip_fraction", [fields.pop("clipped", 0.0)] * 60, steps=steps),
        facts={"generation_marker": "reward_mean"} | fields,
    )


@pytest.mark.parametrize(
    ("apart", "every", "fields", "hidden"),
    [
        (1, 2, {"updates_configured": 4.0}, True),
        (2, 2, {}, True),  # batches last longer than a record
        (1, 2, {"updates_configured": 1.0}, False),
        (1, 2, {}, False),
        (4, 1, {"updates_configured": 4.0}, False),  # each step is there
        (1, 2, {"updates_configured": 4.0, "clipped": 0.01}, False),  # the ratio leaves 1
    ],
)
def test_passes_are_hidden_where_records_leave_out_steps_and_no_ratio_shows(apart, every, fields, hidden):
    found = generations(apart, every, **fields).fact("passes_hidden")
    assert (found is not None) == hidden
