"""What the doctor says of the logs of a corpus, judged once for each state of log and doctor.

Verdicts are kept beside the corpus, in a file named after a digest of everything that judges. Another run of the
scoreboard or of the calibration takes them from there, so that both speak of the same judgements.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from ppo_doctor.cutting import cut
from ppo_doctor.model import Diagnosis, Run
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.probabilities import HEALTHY, UNKNOWN
from ppo_doctor.rulepack import Pack, load_pack

from .corpus import Case, begins, sound

ROOT = Path(__file__).resolve().parents[2]
#: A prefix of a run is judged after each of these shares of it.
STEP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One cause of a diagnosis."""

    id: str
    leader: bool
    benign: bool
    confidence: str
    severity: str
    level_with: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was said of one log, and what calibration needs to know of how it came about."""

    verdict: str
    causes: tuple[Named, ...]
    not_ruled_out: tuple[str, ...]
    fired: tuple[str, ...]
    clear: tuple[str, ...]
    #: candidate → score in decibans, in the complaint of the first cause; health and the unknown among them
    scores: Mapping[str, int]

    @property
    def first(self) -> Named | None:
        """The cause that leads, if any."""
        return next((cause for cause in self.causes if cause.leader), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One log: the truth, what was said of it with its configuration and (held out) without, and how soon."""

    case: Case
    whole: Verdict
    bare: Verdict | None
    #: the share of the run after which its cause was among the first for the first time; None: never, or not asked
    told_after: float | None


def judged(cases: Sequence[Case], root: Path, *, jobs: int, pack: Pack | None = None) -> list[Judged]:
    """Return the verdicts on logs, in their order: by the built-in pack from the cache, by another one anew."""
    if pack is not None:
        return [_told(case, raw) for case, raw in zip(cases, mapped(partial(_raw, pack), cases, jobs), strict=True)]
    store = root / f".verdicts-{digest_of(_sources())[:16]}.jsonl"
    known = _known(store)
    keys = [digest_of(_files(case), case.split) for case in cases]
    missing = {key: case for key, case in zip(keys, cases, strict=True) if key not in known}
    made = mapped(partial(_raw, None), list(missing.values()), jobs)
    known |= dict(zip(missing, made, strict=True))
    if made:
        _keep(store, known)
    return [_told(case, known[key]) for key, case in zip(keys, cases, strict=True)]


def mapped(work: Callable[[Any], Any], asked: Sequence[Any], jobs: int) -> list[Any]:
    """Return the results of work in the order of what was asked, by as many processes as jobs."""
    if jobs == 1 or len(asked) < 2:
        return [work(entry) for entry in asked]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, asked, chunksize=16))


# Judging one log


@cache
def built_in() -> Pack:
    """Return the built-in pack."""
    return load_pack(installed=False)


def _raw(pack: Pack | None, case: Case) -> dict[str, Any]:
    used = pack or built_in()
    run = read_run(str(case.log), Request(debug=True))
    whole = verdict(run, used)
    held_out = case.split == "held-out" and pack is None
    return {
        "whole": asdict(whole),
        "bare": asdict(verdict(_bare(case.log), used)) if held_out else None,
        "told_after": _told_after(case, run, used) if held_out and not sound(case.fault, case.dialect) else None,
    }


def verdict(run: Run, pack: Pack) -> Verdict:
    """Diagnose a run, and reduce what is said to what is scored."""
    diagnosis = diagnose(run, pack, Request(debug=True))
    return Verdict(
        verdict=diagnosis.verdict,
        causes=tuple(
            Named(
                id=c.id,
                leader=c.leader,
                benign=c.benign,
                confidence=c.confidence,
                severity=c.severity.value,
                level_with=c.level_with,
            )
            for c in diagnosis.causes
        ),
        not_ruled_out=tuple(entry.id for entry in diagnosis.not_ruled_out),
        fired=tuple(f.rule for f in diagnosis.findings if f.status == "fired"),
        clear=tuple(f.rule for f in diagnosis.findings if f.status == "clear"),
        scores=_scores(diagnosis),
    )


def _scores(diagnosis: Diagnosis) -> dict[str, int]:
    """Return the scores of the explanation that the first cause leads, without those that are hopeless."""
    first = next((cause for cause in diagnosis.causes if cause.leader), None)
    if first is None:
        return {}
    of_it = [c.scores for c in diagnosis.complaints if c.id == first.complaint and first.id in c.scores]
    scores = min(of_it, key=lambda scores: abs(scores[first.id] - first.score_db))
    return {name: score for name, score in scores.items() if score > first.score_db - 60 or name in (HEALTHY, UNKNOWN)}


def _bare(log: Path) -> Run:
    """Read a log without any configuration: neither the file beside it nor the canonical first line."""
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / log.name
        shutil.copy(log, bare)
        if log.suffix == ".jsonl":
            lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
            bare.write_text("".join(line for line in lines if '"ppo_doctor"' not in line), encoding="utf-8")
        return read_run(str(bare), Request(debug=True))


def _told_after(case: Case, run: Run, pack: Pack) -> float | None:
    """Judge the run as it grows, from where its fault begins."""
    steps = max((series.axis for series in run.series.values()), key=len).steps
    start = begins(case.fault, case.severity)
    for number in range(1, round((1 - start) / STEP) + 1):
        share = min(1.0, start + number * STEP)
        last = int(steps[max(0, round(share * len(steps)) - 1)])
        named = verdict_of_first(replace(run, series=cut(run.series, (None, last))), pack)
        if case.cause in named:
            return share
    return None


def verdict_of_first(run: Run, pack: Pack) -> tuple[str, ...]:
    """Return the first cause with those that are level with it."""
    first = next((cause for cause in diagnose(run, pack, Request(debug=True)).causes if cause.leader), None)
    return (first.id, *first.level_with) if first else ()


# Keeping


def _told(case: Case, raw: Mapping[str, Any]) -> Judged:
    bare = raw["bare"]
    whole = _verdict(raw["whole"])
    return Judged(case=case, whole=whole, bare=_verdict(bare) if bare else None, told_after=raw["told_after"])


def _verdict(raw: Mapping[str, Any]) -> Verdict:
    named = [Named(**(cause | {"level_with": tuple(cause["level_with"])})) for cause in raw["causes"]]
    lists = {name: tuple(raw[name]) for name in ("not_ruled_out", "fired", "clear")}
    return Verdict(verdict=raw["verdict"], causes=tuple(named), scores=raw["scores"], **lists)


def _known(store: Path) -> dict[str, Any]:
    if not store.is_file():
        return {}
    return dict(json.loads(line) for line in store.read_text(encoding="utf-8").splitlines())


def _keep(store: Path, known: Mapping[str, Any]) -> None:
    """Write as a whole, beside the old one, so that an interrupted run leaves no half of it."""
    part = store.with_suffix(".part")
    part.write_text("".join(json.dumps([key, raw]) + "\n" for key, raw in known.items()), encoding="utf-8")
    part.replace(store)


def _files(case: Case) -> list[Path]:
    return sorted(case.log.parent.iterdir())


def reading_sources() -> list[Path]:
    """Return what reads and measures a log: the package without its rooms for output, and the profiles."""
    package = ROOT / "ppo_doctor"
    rooms = [p for p in package.rglob("*.py") if not {"report", "tui", "watch", "record", "cli"} & set(p.parts)]
    return sorted([*rooms, *package.rglob("*.toml")])


def _sources() -> list[Path]:
    """Return everything that a verdict depends on besides the log."""
    return [*reading_sources(), *sorted((ROOT / "rules").rglob("*.toml")), Path(__file__)]


def digest_of(files: Iterable[Path], salt: str = "") -> str:
    digest = hashlib.sha256(salt.encode())
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
