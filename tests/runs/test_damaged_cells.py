"""A log in which each metric holds one number that it cannot be, or lacks one, is judged as the sound log is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model import metrics
from ppo_doctor.model.run import Run
from tests.layouts import SETTINGS, Log, Written, logs_in, read, read_back, write

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"
LOGS = [path for path in logs_in([SAMPLES / "healthy", SAMPLES / "sick"]) if "nan-inf" not in path.parent.name]
DAMAGE = {"far above": 9e18, "far below": -9e18, "beyond float32": 1e300, "negative": -1.0}


def runs(log: Log, folder: Path, settings: list[Path]) -> list[Run]:
    folder.mkdir()
    return read_back(Written({log.name: write(log)}), folder, settings)


def told(found: list[Run]) -> object:
    """Return of each run the verdict and its leading causes, whenever they begin."""
    diagnoses = [diagnose(run, load_pack()) for run in found]
    return [(d.verdict, sorted(cause.id for cause in d.causes if cause.leader)) for d in diagnoses]


def with_cells(log: Log, keys: list[str], value: float | None) -> Log:
    """Put a number into one cell of each key, or take it out, each in a record of its own."""
    records = [dict(record) for record in log.records]
    free = set(range(1, len(records) - 1))
    rng = random.Random(log.name)
    for key in keys:
        places = sorted(at for at in free if records[at].get(key) not in (None, ""))
        if places:
            at = rng.choice(places)
            free -= {at}
            if value is None and log.form != "csv":
                del records[at][key]
            else:
                records[at][key] = "" if value is None else value
    return replace(log, records=records)


def limited(found: list[Run], value: float) -> Iterator[str]:
    for series in found[0].series.values():
        low, high = metrics.limits(series.name)
        if not low <= value <= high and len(series) >= 20:
            yield series.raw


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_numbers_that_cannot_be_change_no_diagnosis(path, tmp_path):
    log, settings = read(path), [path.parent / name for name in SETTINGS if (path.parent / name).is_file()]
    sound = runs(log, tmp_path / "sound", settings)
    for name, value in DAMAGE.items():
        keys = list(limited(sound, value))
        damaged = runs(with_cells(log, keys, value), tmp_path / name, settings)
        assert keys
        assert {note.source.key for run in damaged for note in run.notes if note.kind == "dropped"} == set(keys)
        assert told(damaged) == told(sound), name


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_a_lost_cell_of_each_metric_changes_no_diagnosis(path, tmp_path):
    log, settings = read(path), [path.parent / name for name in SETTINGS if (path.parent / name).is_file()]
    sound = runs(log, tmp_path / "sound", settings)
    keys = [series.raw for series in sound[0].series.values()]
    torn = runs(with_cells(log, keys, None), tmp_path / "torn", settings)
    assert told(torn) == told(sound)


@pytest.mark.parametrize(
    "path", [path for path in LOGS if path.parent.parent.name == "sick"], ids=lambda path: path.parent.name
)
def test_large_numbers_make_no_sick_run_healthy(path, tmp_path):
    log, settings = read(path), [path.parent / name for name in SETTINGS if (path.parent / name).is_file()]
    keys = [series.raw for series in runs(log, tmp_path / "as it is", settings)[0].series.values()]
    for name, value in DAMAGE.items():
        damaged = runs(with_cells(log, keys, value), tmp_path / name, settings)
        assert "healthy" not in {verdict for verdict, _ in told(damaged)}, name
