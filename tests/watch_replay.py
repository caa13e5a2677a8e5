"""Lab runs written update by update under the eyes of a watcher, with a clock of our own: nothing here sleeps.

    python -m tests.watch_replay faults [NAME …] [--severity 2] [--seeds 1] [--dialects canonical sb3 trl-grpo]
    python -m tests.watch_replay sound [--seed-offset 0]

`faults` prints the update at which a fault begins (the first one that differs from the sound run of the same seed),
the update at which a harmful cause is confirmed, and the lag between the two; `sound` prints every alarm.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.numpy_lab import FAULTS, RunRecord, run, write
from lab.numpy_lab.presets import dialect_task
from lab.numpy_lab.sound_runs import sound_runs
from ppo_doctor.checks.rulepack import Pack, load_pack
from ppo_doctor.cli.watch.log import WatchedLog
from ppo_doctor.cli.watch.monitor import Event
from ppo_doctor.cli.watch.session import Clock, Options, Session, View
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.model.request import Request

#: Seconds between two updates of a replayed run, more than a judgement has to wait.
PACE = 60.0


@dataclass
class SimulatedClock(Clock):
    """Time that passes when somebody sleeps, or when we say so."""

    time: float = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass(slots=True)
class Recorder:
    """A screen that remembers."""

    events: list[Event] = field(default_factory=list)

    def show(self, event: Event) -> None:
        self.events.append(event)

    def update(self, view: View) -> None:
        pass

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a watcher said of one run: events with the update after which each came, and the last verdict."""

    told: tuple[tuple[int, Event], ...]
    verdict: str
    code: ExitCode
    leaders: tuple[str, ...]

    def first(self, kind: str) -> int | None:
        """Return the update at which the first event of a kind came."""
        return next((update for update, event in self.told if event.kind == kind), None)


def replay(record: RunRecord, dialect: str, pack: Pack, *, fail_on: str = "never") -> Replay:
    """Write a run update by update as its framework would, and let a watcher look after each."""
    with tempfile.TemporaryDirectory() as folder:
        now, whole = Path(folder) / "now", Path(folder) / "then"
        clock, screen = SimulatedClock(), Recorder()
        log = now / write(record, dialect, whole).name
        request = Request(debug=True)
        session = Session(
            WatchedLog(log, request),
            lambda run: diagnose(run, pack, request),
            screen,
            Options(fail_on=fail_on),
            clock=clock,
        )
        told: list[tuple[int, Event]] = []
        for update in range(len(record.updates) + 1):
            if update:
                grow(log, write(replace(record, updates=record.updates[:update]), dialect, whole))
            for _ in range(2):  # a document is read when it has come to rest
                clock.sleep(PACE / 2)
                session.step()
            told += [(update, event) for event in screen.events]
            screen.events.clear()
        code = session.finish()
        diagnosis = session.view.monitor.diagnosis
        leaders = tuple(cause.id for cause in diagnosis.causes if cause.leader)
        return Replay(told=tuple(told), verdict=diagnosis.verdict, code=code, leaders=leaders)


def grow(log: Path, now: Path) -> None:
    """Bring a log to its present state as a trainer does: by adding to it where it can be, else as a whole."""
    log.parent.mkdir(exist_ok=True)
    for other in now.parent.glob("*.json"):
        if other.name != now.name:
            (log.parent / other.name).write_bytes(other.read_bytes())
    data = now.read_bytes()
    held = log.read_bytes() if log.exists() else b""
    if data.startswith(held):
        with log.open("ab") as file:
            file.write(data[len(held) :])
    else:
        log.write_bytes(data)


def onset(record: RunRecord, dialect: str) -> int:
    """Return the first update, counted from 1, that differs from the sound run of the same seed."""
    sound = run("healthy", task=record.task, seed=record.seed, updates=len(record.updates), dialect=dialect)
    pairs = zip(record.updates, sound.updates, strict=True)
    return next((i for i, (ours, theirs) in enumerate(pairs, 1) if repr(ours) != repr(theirs)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How long a watcher took to confirm a harmful cause."""

    name: str
    dialect: str
    severity: int
    begins: int
    confirmed: int | None
    warned: int | None
    #: first update at which the injected cause, or one that its log cannot tell from it, was told, suspected or not
    diagnosed: int | None
    right: bool
    leaders: tuple[str, ...]

    @property
    def updates(self) -> float:
        return float("inf") if self.confirmed is None else self.confirmed - self.begins


def measure(name: str, dialect: str, pack: Pack, *, severity: int, seed: int, updates: int = 60) -> Lag | None:
    """Replay one fault; None where fault and dialect do not go together."""
    spec = FAULTS[name]
    try:
        record = run(name, task=dialect_task(dialect), seed=seed, severity=severity, updates=updates, dialect=dialect)
        seen = replay(record, dialect, pack)
    except ValueError:
        return None
    begins = onset(record, dialect)
    after = [(update, event) for update, event in seen.told if update >= begins]
    return Lag(
        name=name,
        dialect=dialect,
        severity=severity,
        begins=begins,
        confirmed=next((update for update, event in after if event.kind == "cause"), None),
        warned=next((u for u, e in after if e.kind == "verdict" and e.text.startswith(("unhealthy", "warning"))), None),
        diagnosed=next(
            (update for update, event in after if _names(event, {spec.cause, *spec.twins(dialect)}, pack)), None
        ),
        right=bool({spec.cause, *spec.twins(dialect)} & set(seen.leaders)),
        leaders=seen.leaders,
    )


def _names(event: Event, causes: Collection[str], pack: Pack) -> bool:
    """Tell whether an event names one of these causes."""
    titles = [cause.title.lower() for cause in pack.causes if cause.id in causes]
    return event.kind in ("verdict", "cause") and any(title in event.text.lower() for title in titles)


def faults(names: Sequence[str], dialects: Sequence[str], severity: int, seeds: int) -> Iterator[Lag]:
    """Replay faults that harm, in several dialects."""
    pack = load_pack()
    for name in names or sorted(FAULTS):
        if FAULTS[name].cause == "healthy" or FAULTS[name].verdict == "healthy":
            continue
        for dialect in dialects:
            for seed in range(seeds):
                lag = measure(name, dialect, pack, severity=severity, seed=seed)
                if lag is not None:
                    yield lag


def summary(lags: Sequence[Lag]) -> str:
    """Return the medians: over all runs, with those never confirmed as infinite, and over those confirmed."""
    every = [lag.updates for lag in lags]
    told = [lag.updates for lag in lags if lag.confirmed is not None]
    warned = [lag.warned - lag.begins for lag in lags if lag.warned is not None]
    named = [float("inf") if lag.diagnosed is None else lag.diagnosed - lag.begins for lag in lags]
    soon = sum(updates <= 20 for updates in every)
    tells = [lag.updates for lag in lags if lag.right]
    return (
        f"{len(lags)} runs, {len(told)} confirmed ({soon} within 20 updates), {len(warned)} warned; median lag "
        f"{statistics.median(every):g} of all, {statistics.median(told or [0]):g} of the confirmed, "
        f"{statistics.median(warned or [0]):g} to the first warning; "
        f"its cause told {sum(map(math.isfinite, named))} times, median lag {statistics.median(named):g} of all; "
        f"the finished log names it {len(tells)} times, median lag to confirm {statistics.median(tells or [0]):g}"
    )


def main() -> None:
    """Print one line per run."""
    options = argparse.ArgumentParser(prog="python -m tests.watch_replay", description=(__doc__ or "").split("\n")[0])
    options.add_argument("what", choices=("faults", "sound"))
    options.add_argument("names", nargs="*")
    options.add_argument("--dialects", nargs="*", default=["canonical", "sb3", "trl-grpo"])
    options.add_argument("--severity", type=int, default=2)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--seed-offset", type=int, default=0)
    given = options.parse_args()
    if given.what == "sound":
        _print_sound(given.seed_offset)
        return
    lags = []
    for lag in faults(given.names, given.dialects, given.severity, given.seeds):
        lags.append(lag)
        delay = "never" if lag.confirmed is None else f"{lag.updates:g}"
        named = "named" if lag.right else "-"
        print(f"{lag.dialect:<12} {lag.name:<30} begins {lag.begins:<3} lag {delay:<6} {named:<6} {lag.leaders}")
        sys.stdout.flush()
    for dialect in dict.fromkeys(lag.dialect for lag in lags):
        print(f"{dialect}: {summary([lag for lag in lags if lag.dialect == dialect])}")


def _print_sound(offset: int) -> None:
    pack, wrong, total = load_pack(), 0, 0
    for sound in sound_runs():
        seen = replay(replace(sound, seed=sound.seed + offset).record(), sound.dialect, pack)
        alarms = [(update, event.text) for update, event in seen.told if event.kind == "cause"]
        wrong, total = wrong + bool(alarms), total + 1
        print(f"{'BAD' if alarms else 'ok '} {sound.dialect:<15} {sound.name:<28} {seen.verdict:<12} {alarms or ''}")
        sys.stdout.flush()
    print(f"{wrong} of {total} raised an alarm")


if __name__ == "__main__":
    main()
