"""A watcher with a clock of its own and a screen that remembers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ppo_doctor.pipeline import Request
from ppo_doctor.rulepack import load_pack
from ppo_doctor.watch.command import PipelineJudge
from ppo_doctor.watch.follower import Follower
from ppo_doctor.watch.session import Options, Session
from tests.watch_replay import Recorder, SimulatedClock

SICK = ("sick", "lr-zero.canonical", "run.jsonl")
SOUND = ("healthy", "healthy.canonical", "run.jsonl")


@dataclass
class Watched:
    """A session and what it told."""

    session: Session
    feed: Follower
    screen: Recorder
    clock: SimulatedClock

    def look(self, times: int = 1, pause: float = 20.0) -> None:
        for _ in range(times):
            self.clock.sleep(pause)
            self.session.step()

    def told(self, kind: str) -> list[str]:
        return [event.text for event in self.screen.events if event.kind == kind]


@pytest.fixture
def watching():
    """Return a function that watches a path."""
    feeds = []

    def start(path, *, hook=None, judge=None, **options) -> Watched:
        feed, screen, clock = Follower(path), Recorder(), SimulatedClock()
        feeds.append(feed)
        judge = judge or PipelineJudge(load_pack(), Request(debug=True))
        session = Session(feed, judge, screen, clock, Options(**options), hook(clock) if hook else None)
        return Watched(session, feed, screen, clock)

    yield start
    for feed in feeds:
        feed.close()


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
