"""`python -m tests.fuzz --minutes 60`: mutate every kind of file, read it, and save what breaks a promise.

Bounded to one core: a parent that draws nothing and reads nothing, and one worker at a time, forked for each batch of
cases. A worker that dies, hangs or takes too much memory costs the case it was at. Another run goes on where the last
one ended, in the same folder; `--again NUMBER` runs one case and shows what came of it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.cases import LARGEST, LONGEST, Result, drawn, run_case, with_baseline
from tests.fuzz.seeds import Seed, all_seeds

#: Cases of a worker, and the seconds without a word after which it is killed: far more than its processor time may be.
BATCH, SILENT = 40, 1_800.0
#: Address space of a worker in bytes: far above what is allowed, so that a bomb is told and not felt.
MOST_MEMORY = 3 << 30
#: Cases saved of one fault.
MOST_SAVED = 3


class HangsError(Exception):
    """A case took more processor time than it may."""


@dataclass
class Tally:
    """What came of all cases so far, by kind of file."""

    next: int = 0
    seconds: float = 0.0
    codes: dict[str, Counter[str]] = field(default_factory=dict)
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    biggest: dict[str, tuple[int, int]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    remains: Counter[str] = field(default_factory=Counter)

    def take(self, number: int, told: Mapping[str, Any]) -> None:
        kind = told["kind"]
        self.codes.setdefault(kind, Counter())[str(told["code"])] += 1
        self.slowest[kind] = max(self.slowest.get(kind, (0.0, 0)), (told["seconds"], number))
        self.biggest[kind] = max(self.biggest.get(kind, (0, 0)), (told["megabytes"], number))
        if told["fault"]:
            self.faults[f"{kind}: {told['fault']}"] += 1
        if told["look"]:
            self.looks[f"{kind}: {told['look']}"] += 1
        self.remains[kind] += told["remains"]

    def table(self) -> Iterator[str]:
        yield f"{'reader':<18}{'cases':>8}  {'exit codes':<34}{'slowest':>9}{'case':>8}{'biggest':>9}{'case':>8}"
        for kind, codes in sorted(self.codes.items()):
            told = " ".join(f"{code}:{count}" for code, count in sorted(codes.items()))
            (seconds, slow), (size, big) = self.slowest[kind], self.biggest[kind]
            yield f"{kind:<18}{codes.total():>8}  {told:<34}{seconds:>7.1f} s{slow:>8}{size:>6} MB{big:>8}"
        total = sum(codes.total() for codes in self.codes.values())
        spent = f"{self.seconds / 60:.1f} minutes of processor time"
        yield f"{total} cases in {spent}; {self.faults.total()} broke a promise"
        yield from (f"  {count:>5}  {fault}" for fault, count in self.faults.most_common())
        yield from (f"  {count:>5}  {look}: to be looked at" for look, count in self.looks.most_common())
        sound = ((kind, count) for kind, count in self.remains.most_common() if count)
        yield from (
            f"  {count:>5}  {kind}: sick and now healthy, as are its whole lines alone" for kind, count in sound
        )


def main() -> int:
    options = _options()
    seeds = with_baseline(all_seeds(real=not options.samples))
    if options.only:
        seeds = {kind: held for kind, held in seeds.items() if kind in options.only.split(",")}
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    if options.again is not None:
        return _once(options, seeds)
    tally = _load(folder / f"state-{options.seed}.json") if not options.only else Tally()
    begun, done = _spent(), tally.seconds
    while _spent() - begun < 60 * options.minutes and tally.next < options.cases:
        _batch(tally, seeds, options.seed, folder)
        tally.seconds = done + _spent() - begun
        if not options.only:
            _save(folder / f"state-{options.seed}.json", tally)
        if options.verbose:
            print(f"\r{tally.next} cases, {tally.faults.total()} faults", end="", file=sys.stderr, flush=True)
    print("\n".join(tally.table()))
    return int(bool(tally.faults))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="of processor time, on one core")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="stop at this case at the latest")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other cases")
    parser.add_argument("--only", help="kinds of file, with commas between")
    parser.add_argument("--samples", action="store_true", help="leave out the real logs")
    parser.add_argument("--again", type=int, help="run this case alone and tell what came of it")
    parser.add_argument("--out", default="build/fuzz", help="where the state and the cases that failed go")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def _once(options: argparse.Namespace, seeds: Mapping[str, Sequence[Seed]]) -> int:
    case = drawn(options.again, seeds, options.seed)
    result = run_case(case)
    path = Path(options.out) / f"again-{case.number}-{case.seed.name}"
    path.write_bytes(case.data)
    print(json.dumps({**case.told, **asdict(result), "file": str(path)}, indent=1))
    return int(bool(result.fault))


def _spent() -> float:
    """Return the processor time of this process and its workers in seconds."""
    ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime


def _batch(tally: Tally, seeds: Mapping[str, Sequence[Seed]], start: int, folder: Path) -> None:
    """Run some cases in a forked worker; the one at which it dies or falls silent is a fault."""
    numbers = range(tally.next, tally.next + BATCH)
    reading, writing = os.pipe()
    worker = os.fork()
    if not worker:
        os.close(reading)
        _work(numbers, seeds, start, writing)
    os.close(writing)
    at = numbers.start
    for told in _told(reading, worker):
        tally.take(at, told)
        if told["fault"] or told["look"] or told["remains"]:
            _keep(folder, drawn(at, seeds, start), told, tally)
        at += 1
    _, status = os.waitpid(worker, 0)
    if at < numbers.stop and status:
        case = drawn(at, seeds, start)
        fault = f"the worker ended with {os.waitstatus_to_exitcode(status)}"
        told = {**asdict(Result(case.seed.kind, -1, SILENT, "", fault)), "megabytes": 0}
        tally.take(at, told)
        _keep(folder, case, told, tally)
        at += 1
    tally.next = at


def _told(reading: int, worker: int) -> Iterator[dict[str, Any]]:
    """Yield what a worker tells, line by line; kill it when it falls silent."""
    left = b""
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], SILENT)
            if not ready:
                os.kill(worker, signal.SIGKILL)
                return
            block = stream.read(1 << 16)
            if not block:
                return
            *lines, left = (left + block).split(b"\n")
            yield from map(json.loads, lines)


def _work(numbers: Sequence[int], seeds: Mapping[str, Sequence[Seed]], start: int, writing: int) -> None:
    """Run the cases and leave; a case that takes too long is interrupted by its processor time.

    One that listens to no signal, as a search for a pattern does not, ends its worker ten seconds later.
    """
    _limit(resource.RLIMIT_AS, MOST_MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    signal.signal(signal.SIGPROF, _hangs)
    for number in numbers:
        case = drawn(number, seeds, start)
        signal.setitimer(signal.ITIMER_PROF, 2 * LONGEST)
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + 3 * LONGEST))
        try:
            result = run_case(case)
        except HangsError:
            result = Result(case.seed.kind, -1, 2 * LONGEST, "", "hangs")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        told = {**asdict(result), "megabytes": size}
        if not result.fault and result.seconds > LONGEST:
            told["fault"] = "takes too long"
        if not result.fault and size > LARGEST:
            told["fault"] = "takes too much memory"
        os.write(writing, json.dumps(told).encode() + b"\n")
        if size > LARGEST:  # a peak stays; the next case gets a worker of its own
            break
    os._exit(0)


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _hangs(_signal: int, _frame: object) -> None:
    raise HangsError


def _keep(folder: Path, case: Any, told: Mapping[str, Any], tally: Tally) -> None:
    kind, fault, look = told["kind"], told["fault"], told["look"]
    counts = tally.faults[f"{kind}: {fault}"], tally.looks[f"{kind}: {look}"], tally.remains[kind] * told["remains"]
    if max(counts) > MOST_SAVED:
        return
    room = "failed" if fault else "look" if look else "remains"
    place = folder / room / f"{case.number}-{case.seed.kind}"
    place.mkdir(parents=True, exist_ok=True)
    (place / case.seed.name).write_bytes(case.data)
    (place / "case.json").write_text(json.dumps({**case.told, **told}, indent=1))


def _load(path: Path) -> Tally:
    if not path.is_file():
        return Tally()
    raw = json.loads(path.read_text())
    codes = {kind: Counter(counts) for kind, counts in raw.pop("codes").items()}
    pairs = {key: {kind: tuple(pair) for kind, pair in raw.pop(key).items()} for key in ("slowest", "biggest")}
    counted = {key: Counter(raw.pop(key)) for key in ("faults", "looks", "remains") if key in raw}
    return Tally(codes=codes, **counted, **pairs, **raw)


def _save(path: Path, tally: Tally) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(vars(tally)))
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
