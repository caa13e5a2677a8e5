"""Watching a folder of runs: which are followed, what is told of each, that none holds up another, and the end."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from ppo_doctor.cli.watch import several
from ppo_doctor.cli.watch.log import SeveralRuns, WatchedLog
from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.cli.watch.session import Options, Session
from ppo_doctor.cli.watch.several import WRITING, SeveralSessions
from ppo_doctor.cli.watch.several_live import draw
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.request import Request
from tests.watch_replay import SimulatedClock

from .conftest import SICK, SOUND, judged
from .test_processes import watcher

NAN = ("sick", "nan-inf.sb3", "progress.csv")


@dataclass
class Several:
    """Sessions of a folder, and what they told of each run."""

    sessions: SeveralSessions
    clock: SimulatedClock
    told: list[tuple[str, Event]] = field(default_factory=list)
    looked: int = 0

    def show(self, event: Event, run: str = "") -> None:
        self.told.append((run, event))

    def update(self, state: object) -> None:
        self.looked += state is self.sessions.state

    def look(self, times: int = 1, pause: float = 20.0) -> None:
        for _ in range(times):
            self.clock.sleep(pause)
            for _ in range(len(self.sessions.state.runs) + 5):  # each step judges one run at most
                self.clock.sleep(0.1)
                self.sessions.step()

    def of(self, run: str, *kinds: str) -> list[str]:
        return [event.text for name, event in self.told if name == run and event.kind in kinds]

    def verdicts(self) -> dict[str, str]:
        return {run.name: run.verdict for run in self.sessions.state.shown}


@pytest.fixture
def watching_several():
    """Return a function that watches a folder."""

    def start(folder, *, judge=judged, **options) -> Several:
        clock, request = SimulatedClock(), Request(debug=True)
        watched = Several(None, clock)  # type: ignore[arg-type]

        def session(log, screen):
            return Session(log, judge, screen, Options(findings=True, **options), clock=clock)

        def log_of(found):
            return WatchedLog(found.unit.source.log, request, found.unit.source)

        watched.sessions = SeveralSessions(folder, session, log_of, watched, Options(**options), clock=clock)
        return watched

    return start


@pytest.fixture
def grow(samples, append, tmp_path):
    """Return a function that adds some lines of a sample to a run of its name."""

    def add(name: str, parts, first: int = 0, last: int | None = None) -> Path:
        path = tmp_path / name / parts[-1]
        append(path, samples.joinpath(*parts).read_text().splitlines(keepends=True)[first:last])
        return path

    return add


def aged(path: Path, seconds: float) -> None:
    """Give a file another time of its last change."""
    os.utime(path, (time.time() - seconds,) * 2)


def test_runs_that_grow_are_judged_as_their_sample_is(watching_several, tmp_path, grow):
    grow("a", SICK, 0, 30)
    grow("b", SOUND, 0, 30)
    watched = watching_several(tmp_path)
    watched.look(2)
    assert set(watched.verdicts()) == {"a", "b"}
    for line in range(30, 60, 3):
        grow("a", SICK, line, line + 3)
        grow("b", SOUND, line, line + 3)
        watched.look()
    assert watched.verdicts() == {"a": "unhealthy", "b": "healthy"}
    assert any("learning rate is exactly 0" in text for text in watched.of("a", "cause"))
    assert watched.of("b", "cause", "finding") == []
    grow("a", SICK, 60)
    assert watched.sessions.finish() == ExitCode.OK
    assert watched.of("a", "end")[0].startswith("unhealthy")
    assert watched.of("b", "end")[0].startswith("healthy")
    assert watched.of("", "end") == ["1 unhealthy, 1 healthy"]


def test_a_run_that_appears_later_is_followed(watching_several, tmp_path, grow):
    grow("a", SOUND)
    watched = watching_several(tmp_path)
    watched.look(2)
    aged(grow("sub/later", SICK), 10 * WRITING)  # copied with its times
    watched.look(3)
    assert watched.verdicts() == {"a": "healthy", "sub/later": "unhealthy"}


def test_runs_that_rest_are_counted_and_never_opened(watching_several, tmp_path, grow):
    rest = [grow(f"old{number}", SICK) for number in range(20)]
    for path in rest:
        aged(path, 2 * WRITING)
        path.chmod(0)
    grow("new", SOUND, 0, 40)
    watched = watching_several(tmp_path)
    watched.look(3)
    assert watched.verdicts() == {"new": "healthy"}
    assert watched.sessions.state.others == 20
    rest[3].chmod(0o644)
    grow("old3", SICK)
    watched.look(3)
    assert watched.verdicts() == {"new": "healthy", "old3": "unhealthy"}
    assert watched.sessions.state.others == 19


def test_nothing_that_is_written(watching_several, tmp_path, grow):
    aged(grow("a", SICK), 2 * WRITING)
    aged(grow("b", SICK), 2 * WRITING)
    watched = watching_several(tmp_path)
    watched.look(3)
    assert len(watched.of("", "file")) == 1
    assert watched.sessions.finish() == ExitCode.NOTHING_TO_JUDGE


def test_a_run_that_is_silent_ends_and_one_that_goes_on_begins_again(watching_several, tmp_path, grow):
    grow("a", SICK, 0, 30)
    grow("b", SOUND, 0, 20)
    watched = watching_several(tmp_path)
    for line in range(20, 60):
        grow("b", SOUND, line, line + 1)
        watched.look()
    assert watched.of("a", "end")[0].startswith("unhealthy")
    assert [run.name for run in watched.sessions.state.shown if run.session is None] == ["a"]
    assert watched.of("b", "end") == []
    grow("a", SICK, 30)
    watched.look(2)
    assert len(watched.of("a", "run")) == 2


def test_the_one_that_waited_longest_is_judged_next(watching_several, tmp_path, grow):
    """A log that takes long is judged no more often than the others."""
    names = ("a", "b", "c")
    for name in names:
        grow(name, SOUND, 0, 10)
    order: list[str] = []

    def judge(run):
        order.append(Path(run.id).parent.name)
        return judged(run)

    watched = watching_several(tmp_path, judge=judge, interval=0.001)
    for line in range(10, 40):
        for name in names:
            grow(name, SOUND, line, line + 1)
        watched.clock.sleep(2.0)
        watched.sessions.step()
    counts = [order.count(name) for name in names]
    assert max(counts) - min(counts) <= 2
    assert min(counts) > 5


def test_judging_pauses_in_proportion_to_its_cost(watching_several, tmp_path, grow, monkeypatch):
    for number in range(10):
        grow(f"r{number}", SOUND)
    watched = watching_several(tmp_path)
    cost = iter(range(0, 10**6, 2))
    monkeypatch.setattr(several.time, "process_time", lambda: float(next(cost)))  # each measurement: 2 s
    watched.sessions.step()
    judgements = []
    for _ in range(100):
        watched.clock.sleep(1.0)
        watched.sessions.step()
        judgements.append(sum(run.judged is not None for run in watched.sessions.state.runs.values()))
    assert judgements[-1] == 10
    assert judgements.index(10) >= 9 * (1 + several.JUDGE_REST)


def test_fail_on_ends_it(watching_several, tmp_path, grow):
    grow("a", SOUND)
    grow("b", SICK)
    watched = watching_several(tmp_path, fail_on="high")
    assert watched.sessions.watch() == ExitCode.SICK
    assert any(text.startswith("--fail-on high") for text in watched.of("b", "end"))


def test_until_idle_counts_the_newest_of_all(watching_several, tmp_path, grow):
    grow("a", SOUND)
    grow("b", SOUND)
    watched = watching_several(tmp_path, until_idle=60.0)
    assert watched.sessions.watch() == ExitCode.OK
    assert watched.of("", "end")[0].startswith("nothing new for")


def test_what_is_wrong_with_one_run_ends_that_run_alone(watching_several, tmp_path, grow):
    grow("a", SOUND)
    grow("b", SICK)

    def judge(run):
        if "/b/" in run.id:
            raise RuntimeError("boom")
        return judged(run)

    watched = watching_several(tmp_path, judge=judge)
    watched.look(3)
    assert any("boom" in text for text in watched.of("b", "problem"))
    assert watched.verdicts()["a"] == "healthy"
    assert watched.sessions.finish() == ExitCode.BUG


def test_a_setting_that_means_nothing_ends_all(watching_several, tmp_path, grow):
    grow("a", SOUND)
    grow("b", SICK)

    def judge(run):
        raise DoctorError(f"{run.id}: no such setting", code=ExitCode.USAGE)

    with pytest.raises(DoctorError, match="no such setting"):
        watching_several(tmp_path, judge=judge).look()


def test_runs_whose_files_are_gone(watching_several, tmp_path, grow):
    grow("a", SICK)
    grow("b", SOUND)
    watched = watching_several(tmp_path)
    watched.look(2)
    shutil.rmtree(tmp_path / "a")
    watched.look(3)
    assert watched.of("a", "problem")[-1] == "its files are gone"
    assert watched.of("a", "end")[-1].startswith("unhealthy")
    assert watched.verdicts() == {"a": "unhealthy", "b": "healthy"}


def test_files_that_are_no_runs_are_not_mentioned(watching_several, tmp_path, grow):
    grow("a", SOUND)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "progress.csv")
    watched = watching_several(tmp_path)
    watched.look(8)
    assert watched.verdicts() == {"a": "healthy"}
    assert {run for run, _ in watched.told} <= {"a", ""}
    assert watched.sessions.finish() == ExitCode.OK


def test_a_second_interrupt_ends_with_what_is_known(watching_several, tmp_path, grow):
    for name in ("a", "b", "c"):
        grow(name, SICK, 0, 60)
    again: list[bool] = []

    def judge(run):
        if again:
            raise KeyboardInterrupt
        return judged(run)

    watched = watching_several(tmp_path, judge=judge, fail_on="high")
    watched.look(2)
    grow("b", SICK, 60)
    again.append(True)
    assert watched.sessions.finish() == ExitCode.SICK
    assert watched.of("", "end") == ["3 unhealthy"]


def test_too_many_runs_are_not_followed_all(watching_several, tmp_path, grow, monkeypatch):
    monkeypatch.setattr(several, "MOST_FOLLOWED", 3)
    for number in range(5):
        grow(f"r{number}", SOUND, 0, 10)
    watched = watching_several(tmp_path)
    watched.look(2)
    assert (len(watched.sessions.state.runs), watched.sessions.state.too_many) == (3, 2)


@pytest.mark.parametrize("size", [(30, 5), (60, 10), (100, 18), (200, 60)])
def test_the_table_fits_the_screen_with_the_worst_first(size, watching_several, tmp_path, grow):
    for number in range(6):
        grow(f"well{number}", SOUND)
    grow("e[red]vil\x1b[31m", SICK)
    watched = watching_several(tmp_path)
    watched.look(2)
    console = Console(width=size[0], height=size[1], file=io.StringIO(), force_terminal=False)
    console.print(draw(watched.sessions.state, *size), end="")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert lines[3].split()[0] == "unhealthy"
    assert "\x1b" not in "".join(lines)
    if size[1] == 10:
        assert any("more: " in line and "healthy" in line for line in lines)


def test_a_folder_of_one_run_is_watched_in_full_until_a_second_comes(watching, tmp_path, grow):
    grow("a", SOUND, 0, 30)
    watched = watching(tmp_path)
    watched.look(2)
    assert watched.session.view.monitor.diagnosis.verdict == "healthy"
    grow("b", SOUND, 0, 30)
    with pytest.raises(SeveralRuns):
        watched.look(2)


def test_the_command_follows_real_files_and_ends_by_a_signal(tmp_path, grow):
    grow("a", SICK, 0, 20)
    grow("b", SOUND, 0, 20)
    with watcher(tmp_path) as watched:
        watched.until("a         ")
        for line in range(20, 50, 5):
            grow("a", SICK, line, line + 5)
            grow("b", SOUND, line, line + 5)
            time.sleep(0.1)
        watched.until("cause critical")
        grow("c", NAN)
        assert "c    " in watched.until("a run: ppo of sb3")
        assert watched.end(signal.SIGTERM) == 0
    ends = [line for line in watched.lines if "  end  " in line]
    assert "stopped by hand" in ends[0]
    assert ["unhealthy" in line for line in ends[1:4]] == [True, False, True]
    assert "2 unhealthy, 1 healthy" in ends[4]


def test_the_command_of_a_finding_runs_for_each_run(tmp_path, grow):
    grow("a", SICK)
    grow("b", SOUND)
    out = tmp_path / "out.json"
    with watcher(tmp_path, "--on-finding", f"sh -c 'cat > {out}.new && mv {out}.new {out}.done'") as watched:
        watched.until("cause critical")
        for _ in range(300):
            time.sleep(0.1 * (not Path(f"{out}.done").exists()))
        assert watched.end() == 0
    assert json.loads(Path(f"{out}.done").read_text())["run"]["id"].endswith("a/run.jsonl")
