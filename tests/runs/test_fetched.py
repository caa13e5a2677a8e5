"""Runs of files that were fetched: every text names the URL, and everything else stays as it was."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.layouts import RunSource
from ppo_doctor.runs.merging import read_source
from tests.runs.folders import as_csv, sb3_rows, write

URL = "s3://bucket/runs/a"


def texts(value, seen):
    """Return every text in a run, whatever holds it."""
    if isinstance(value, str):
        return {value}
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    elif hasattr(value, "items"):
        value = [*value.keys(), *value.values()]
    elif not isinstance(value, tuple):
        return set()
    return set().union(*(texts(each, seen) for each in value))


def fetched(folder):
    (source,), _ = gather([str(folder)])
    return RunSource(logs=source.logs, folders=source.folders, perhaps=source.perhaps, fetched=((str(folder), URL),))


def test_a_run_names_the_url_wherever_it_named_the_path(tmp_path):
    write(tmp_path, {"progress.csv": as_csv(sb3_rows()) + b"torn,", "config.yml": "n_epochs: 4\nbatch_size: 64\n"})
    (run,) = read_source(fetched(tmp_path), Request()).runs
    assert [text for text in texts(run, set()) if str(tmp_path) in text] == []
    assert run.id == f"{URL}/progress.csv"
    assert run.series["approx_kl"].source(0).path == f"{URL}/progress.csv"
    assert {setting.source.path for setting in run.config.values()} >= {f"{URL}/config.yml"}


def test_values_stay_and_series_of_one_axis_still_share_it(tmp_path):
    write(tmp_path, {"progress.csv": as_csv(sb3_rows())})
    (there,), _ = gather([str(tmp_path)])
    (local,), (far,) = read_source(there, Request()).runs, read_source(fetched(tmp_path), Request()).runs
    assert local.series.keys() == far.series.keys()
    for name, series in local.series.items():
        assert np.array_equal(series.values, far.series[name].values, equal_nan=True)
    axes = [{id(series.axis) for series in run.series.values()} for run in (local, far)]
    assert len(axes[0]) == len(axes[1])
    assert [type(note.kind) for note in far.notes] == [type(note.kind) for note in local.notes]


def test_an_error_names_the_url(tmp_path):
    write(tmp_path, {"progress.csv": "a,b\n"})
    with pytest.raises(DoctorError) as error:
        read_source(fetched(tmp_path), Request())
    assert str(tmp_path) not in error.value.message + error.value.hint
    assert URL in error.value.message
