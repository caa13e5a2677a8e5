"""The state of a run that a client keeps for the server."""

from __future__ import annotations

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.agents.cursor import Cursor, seen
from ppo_doctor.cli.watch.monitor import as_it_was
from ppo_doctor.diagnosis.analyze import diagnose, load_run
from ppo_doctor.model.errors import DoctorError
from tests.cli.agents.conftest import SAMPLES


def judge(run):
    return diagnose(run, load_pack())


@pytest.fixture(scope="module")
def run():
    return load_run(SAMPLES / "sick" / "lr-zero.canonical" / "run.jsonl")


def test_a_cursor_is_read_as_it_was_written(run):
    cursor, _ = seen(run, judge)
    assert Cursor.read(cursor.text()) == cursor
    assert cursor.causes == ("lr-zero",)
    assert cursor.verdict == "unhealthy"


def test_only_what_is_new_is_an_event(run):
    cursor, monitor = seen(run, judge)
    assert {event.kind for event in cursor.events_since(None, monitor, run)} == {"cause", "verdict"}
    assert cursor.events_since(cursor, monitor, run) == []


def test_a_cause_that_has_gone_is_cleared(run):
    cursor, monitor = seen(run, judge)
    before = Cursor(cursor.run, 10, cursor.verdict, (*cursor.causes, "nan-inf"))
    assert [event.kind for event in cursor.events_since(before, monitor, run)] == ["cleared"]


@pytest.mark.parametrize("change", ["run", "shorter"])
def test_another_run_begins_anew(run, change):
    cursor, monitor = seen(run, judge)
    before = Cursor("another" if change == "run" else cursor.run, cursor.updates + 5, "healthy", ())
    kinds = [event.kind for event in cursor.events_since(before, monitor, run)]
    assert kinds == ["run", "cause", "verdict"]


def test_a_young_run_has_no_verdict_yet(run):
    young = as_it_was(run, cursor_updates(run) - 4)
    assert seen(young, judge)[0].verdict == ""


def cursor_updates(run):
    return seen(run, judge)[0].updates


@pytest.mark.parametrize(
    "text", ["", "a:b", "a:b:c:d", "a:1:b", "a:1:b:c:d", "a:²:b:c", "a:" + 50 * "9" + ":b:c", ":" * 9000]
)
def test_what_is_no_cursor_is_refused(text):
    with pytest.raises(DoctorError, match="cursor"):
        Cursor.read(text)
