"""The local engine: every unit once, whatever becomes of the processes."""

from __future__ import annotations

import itertools
import os

import pytest

from ppo_doctor.diagnosis.processes import ENDED
from ppo_doctor.fleets.engines import LocalEngine, engine_named
from ppo_doctor.model.errors import DoctorError
from tests.fleets.deadly import Unreadable, judge, unit


def rows_of(names, processes=2):
    found = list(LocalEngine(processes).map(map(unit, names), judge))
    assert sorted(unit.key for unit, _ in found) == sorted(names)
    return {unit.key: rows[0] for unit, rows in found}


def test_every_unit_is_judged_once():
    rows = rows_of([f"unit {i}" for i in range(100)])
    assert {row.status for row in rows.values()} == {"judged"}


def test_nothing_to_do_starts_nothing():
    assert list(LocalEngine(2).map(iter(()), judge)) == []


def test_a_process_that_dies_once_costs_no_unit(tmp_path):
    names = [*map(str, range(30)), f"once:{tmp_path / 'a'}", *map(str, range(30, 40)), f"once:{tmp_path / 'b'}"]
    assert {row.status for row in rows_of(names).values()} == {"judged"}


def test_a_unit_that_always_ends_its_process_is_a_failed_row_and_takes_no_other_with_it():
    rows = rows_of(["0", "kills", *map(str, range(1, 40)), "kills too"])
    failed = {name: row for name, row in rows.items() if row.status == "failed"}
    assert set(failed) == {"kills", "kills too"}
    assert all(row.error == ENDED and row.again for row in failed.values())


def test_units_are_taken_as_they_are_needed():
    taken = []
    endless = (taken.append(i) or unit("slow") for i in itertools.count())
    rows = LocalEngine(2).map(endless, judge)
    next(rows)
    assert len(taken) <= 2 * 16
    rows.close()


def test_its_processes_end_with_it():
    rows = LocalEngine(2).map((unit("slow") for _ in range(1000)), judge)
    next(rows)
    children = _children()
    assert len(children) >= 2
    rows.close()
    assert not children & _children()


def _children():
    import multiprocessing

    return {process.pid for process in multiprocessing.active_children() if process.pid != os.getpid()}


def test_processes_that_cannot_be_started_are_an_error():
    with pytest.raises(DoctorError, match="cannot be started"):
        list(LocalEngine(2).map(iter([unit("a")]), Unreadable()))


@pytest.mark.parametrize(("name", "jobs"), [("local", None), ("ray", 4), ("nothing", None)])
def test_options_that_contradict_each_other_are_refused(name, jobs):
    with pytest.raises(DoctorError) as raised:
        engine_named(name, "127.0.0.1:6379", jobs)
    assert raised.value.code == 2
