"""A watcher with a clock of its own and a screen that remembers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.cli.watch.log import WatchedLog
from ppo_doctor.cli.watch.session import Options, Session
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.request import Request
from tests.watch_replay import Recorder, SimulatedClock

SICK = ("sick", "lr-zero.canonical", "run.jsonl")
SOUND = ("healthy", "healthy.canonical", "run.jsonl")


@dataclass
class Watched:
    """A session and what it told."""

    session: Session
    log: WatchedLog
    screen: Recorder
    clock: SimulatedClock

    def look(self, times: int = 1, pause: float = 20.0) -> None:
        for _ in range(times):
            self.clock.sleep(pause)
            self.session.step()

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.screen.events if event.kind == kind]


def judged(run):
    """Judge a run as `analyze` does."""
    return diagnose(run, load_pack(), Request(debug=True))


@pytest.fixture
def watching():
    """Return a function that watches a path."""

    def start(path, *, hook=None, judge=judged, **options) -> Watched:
        log, screen, clock = WatchedLog(path, Request(debug=True)), Recorder(), SimulatedClock()
        session = Session(log, judge, screen, Options(**options), clock=clock, hook=hook)
        return Watched(session, log, screen, clock)

    return start


@pytest.fixture
def lines(samples):
    """Return a function that gives the lines of a sample log, with their ends."""

    def read(parts) -> list[str]:
        return samples.joinpath(*parts).read_text(encoding="utf-8").splitlines(keepends=True)

    return read


@pytest.fixture
def append():
    """Return a function that adds text to a file."""

    def add(path: Path, text) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write("".join(text))

    return add


def copied(samples, name, folder):
    """Copy a sample run and return its log."""
    shutil.copytree(samples / name, folder)
    return next(path for path in sorted(folder.iterdir()) if path.name != "config.json")
