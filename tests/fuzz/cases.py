"""One case: a mutated file in a folder of its own, read by the command that is there for it, and what came of it.

**What is destroyed.** A log that was sick and is healthy now is to be looked at by a person, unless nobody could see
what is wrong with it: the lines that were left whole, by themselves, make a log that is healthy as well. So it is where
the end with the fault is cut off, where a line of settings is gone (a log that executes one epoch is sound where nobody
says that four were asked for), or where whole lines of another, sound log stand in place of its own. Such cases are
counted apart. As long as the whole lines of the log itself still show the fault, or no whole lines are healthy, it is
to be looked at, unless the end was cut off and the log itself is healthy up to there. The records of an event file are
what lines are elsewhere. Of a container that is made of neither only a cut end is excused.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ppo_doctor.readers.notes import Ledger
from ppo_doctor.readers.source import Source
from ppo_doctor.readers.tfrecord import FOOTER, HEADER, Batch, batches
from tests.fuzz.mutations import inside
from tests.fuzz.seeds import Seed, records

#: Exit codes that a command may give for any input whatever: 1 only where a gate found a cause.
ANALYZE, GATE = frozenset((0, 2, 3)), frozenset((0, 1, 2, 3, 4))
JUDGED = frozenset((0,))
#: Kinds that have two turns, for they have the most seeds, sick ones among them.
LOGS = ("console", "csv", "json", "jsonl", "tfevents", "wandb")
SICK = ("unhealthy", "warning")
#: Kinds of which a line, or a record, by itself holds what it says.
OF_PIECES = frozenset(("console", "csv", "jsonl", "tfevents"))
#: Seconds of processor time after which a case hangs.
LONGEST = 10.0
#: Megabytes that a process may take in all.
LARGEST = 500
#: Kinds that are no log: read beside a sound one, and named.
CONFIGURATIONS = frozenset(("yaml", "toml", "config-json", "shell", "training-args"))


@dataclass(frozen=True, slots=True)
class Result:
    """What a case gave; `fault` is empty, or says what promise it broke, `look` what a person has to judge.

    `remains` tells that it was sick and is healthy, and that what was left whole is as well.
    """

    kind: str
    code: int
    seconds: float
    verdict: str = ""
    fault: str = ""
    trace: str = ""
    look: str = ""
    remains: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A mutated seed, by its number alone; the same on every machine with the same seeds."""

    number: int
    seed: Seed
    other: Seed
    data: bytes
    mutations: tuple[str, ...]

    @property
    def told(self) -> dict[str, Any]:
        return {"number": self.number, "kind": self.seed.kind, "origin": self.seed.origin, "mutations": self.mutations}


def with_baseline(seeds: Mapping[str, Sequence[Seed]]) -> dict[str, Sequence[Seed]]:
    """Return the seeds with a report of ours among them, which a gate reads as its baseline."""
    folder = Path(tempfile.mkdtemp(prefix="ppo-doctor-fuzz-"))
    try:
        _, out = _called(["analyze", str(_log(folder)), "--format", "json"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**seeds, "baseline": [Seed("baseline", "written", "main.json", out.encode())]}


def drawn(number: int, seeds: Mapping[str, Sequence[Seed]], start: int) -> Case:
    """Return a case; kinds take turns, so that each reader gets as many."""
    rng = random.Random(f"{start}/{number}")
    kinds = sorted([*seeds, *(kind for kind in LOGS if kind in seeds)])
    kind = kinds[number % len(kinds)]
    seed = rng.choice(seeds[kind])
    other = rng.choice(seeds[kind if rng.random() < 0.7 else rng.choice(kinds)])
    data, names = inside(rng, seed.data, other.data, seed.tokens)
    return Case(number, seed, other, data, tuple(names))


def run_case(case: Case) -> Result:
    """Run the command for a case; what was sick and is healthy now is looked at, or what was left of it is sound."""
    result = run_file(case.seed, case.data)
    if result.verdict != "healthy" or case.seed.kind in CONFIGURATIONS or _verdict_of(case.seed) not in SICK:
        return result
    if _remains_sound(case):
        return replace(result, remains=True)
    return replace(result, look="sick and now healthy")


def _remains_sound(case: Case) -> bool:
    """Tell whether what was left whole is healthy and no longer shows what was wrong, or the log is up to there."""
    kind, name = case.seed.kind, case.seed.name
    if kind not in OF_PIECES:
        return set(case.mutations) <= {"cut the end"}
    pieces, own, lent = _pieces(kind, name, case.data), _known(case.seed), _known(case.other)
    left = [piece for piece in pieces if _bare(piece) in own]
    whole = [piece for piece in pieces if _bare(piece) in own | lent]
    judged = [_verdict_of_pieces(case.seed, held) for held in (left, whole)]
    if judged[0] not in SICK and judged[1] == "healthy":
        return True
    before = _pieces(kind, name, case.seed.data)[: len(pieces)]
    return "cut the end" in case.mutations and _verdict_of_pieces(case.seed, before) == "healthy"


def _verdict_of_pieces(seed: Seed, pieces: Sequence[bytes]) -> str:
    between = b"" if seed.kind == "tfevents" else b"\n"
    return run_file(seed, between.join([*pieces, b""])).verdict


@cache
def _known(seed: Seed) -> frozenset[bytes]:
    return frozenset(map(_bare, _pieces(seed.kind, seed.name, seed.data)))


def _pieces(kind: str, name: str, data: bytes) -> list[bytes]:
    """Return what a file is made of, each of which holds what it says: lines, however they are packed, or records."""
    if kind == "tfevents":
        found = batches([data], Ledger(name))
        return [batch.data[at - HEADER : at + size + FOOTER] for batch in found for at, size in _places(batch)]
    text = b"\n".join(line for _, line in Source(name, io.BytesIO(data)).numbered())
    return [line for line in text.replace(b"\r", b"\n").split(b"\n") if line.strip()]


def _places(batch: Batch) -> Iterator[tuple[int, int]]:
    return zip(batch.starts.tolist(), batch.sizes.tolist(), strict=True)


def _bare(line: bytes) -> bytes:
    return line.replace(b" ", b"")


@cache
def _verdict_of(seed: Seed) -> str:
    return run_file(seed, seed.data).verdict


def run_file(seed: Seed, data: bytes) -> Result:
    """Run the command that is there for a kind of file on this content."""
    folder = Path(tempfile.mkdtemp(prefix="ppo-doctor-fuzz-"))
    try:
        commands = _commands(seed, data, folder)
        results = [_run(seed.kind, arguments, allowed) for arguments, allowed in commands]
        return max(results, key=lambda result: (bool(result.fault), result.seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _commands(seed: Seed, data: bytes, folder: Path) -> list[tuple[list[str], frozenset[int]]]:
    path = folder / seed.name
    path.write_bytes(data)
    analyze = ["analyze", str(path), "--format", "json"]
    if seed.kind in CONFIGURATIONS:
        log = _log(folder)
        beside = ["analyze", str(log), "--format", "json"]
        return [
            (beside, JUDGED),
            ([*beside, "--config", str(path)], ANALYZE),
            (["check-config", str(path)], GATE),
        ]
    if seed.kind == "policy":
        return [(["gate", str(_log(folder)), "--policy", str(path)], GATE)]
    if seed.kind == "baseline":
        return [(["gate", str(_log(folder)), "--baseline", str(path)], GATE)]
    if seed.kind == "mlflow":
        return [(["analyze", str(_store(folder, path)), "--format", "json"], ANALYZE)]
    return [(analyze, ANALYZE)]


def _log(folder: Path) -> Path:
    log = folder / "run.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in records()), encoding="utf-8")
    return log


def _store(folder: Path, metric: Path) -> Path:
    run = folder / "run"
    (run / "metrics").mkdir(parents=True)
    (run / "params").mkdir()
    (run / "meta.yaml").write_text("run_id: abc\n", encoding="utf-8")
    for name in ("approx_kl", "entropy"):
        shutil.copy(metric, run / "metrics" / name)
    shutil.copy(metric, run / "params" / "lr")
    return run


def _run(kind: str, arguments: list[str], allowed: frozenset[int]) -> Result:
    began = time.process_time()
    try:
        code, out = _called(arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Result(kind, -1, time.process_time() - began, "", _signature(error), traceback.format_exc())
    seconds = time.process_time() - began
    if code == 70:
        return _again(kind, arguments, seconds)
    if code not in allowed:
        return Result(kind, code, seconds, "", f"exit code {code}")
    try:
        return Result(kind, code, seconds, _verdict(out) if "--format" in arguments else "")
    except ValueError as error:
        return Result(kind, code, seconds, "", f"not JSON: {error}")


def _again(kind: str, arguments: list[str], seconds: float) -> Result:
    """Return what a bug of ours is, with its place."""
    from ppo_doctor.cli import application

    def again(error: Exception) -> None:
        raise error

    told, application._bug = application._bug, again
    try:
        _called(arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Result(kind, 70, seconds, "", _signature(error), traceback.format_exc())
    finally:
        application._bug = told
    return Result(kind, 70, seconds, "", "exit code 70, and not again")


def _signature(error: BaseException) -> str:
    places = traceback.extract_tb(error.__traceback__)
    ours = [place for place in places if "ppo_doctor" in place.filename] or places
    return f"{type(error).__name__} at {Path(ours[-1].filename).name}:{ours[-1].lineno}: {str(error)[:80]}"


def _called(arguments: list[str]) -> tuple[int, str]:
    from ppo_doctor.cli.application import run

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    before, sys.argv = sys.argv, ["ppo-doctor", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = int(run())
            out.flush()
    finally:
        sys.argv = before
    return code, out.buffer.getvalue().decode("utf-8")


def _verdict(out: str) -> str:
    report = json.loads(out, parse_constant=_no_constant)
    if "diagnoses" in report:
        verdicts = {diagnosis["verdict"] for diagnosis in report["diagnoses"]}
        return verdicts.pop() if len(verdicts) == 1 else "several"
    return str(report.get("verdict", "error"))


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} in a report")
