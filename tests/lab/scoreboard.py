"""How often the doctor is right: every figure of docs/scoreboard.md, from the logs of a corpus.

    python -m tests.lab.scoreboard DIR [--out docs] [--jobs 2]

Only the held-out side is scored; what is identifiable is decided by the training side alone (see `features`).
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppo_doctor.model import Diagnosis, Severity
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import load_pack

from .corpus import Case, cases
from .faults import FAULTS
from .features import IDENTIFIABLE, features, recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One log: the truth, and what was said of it."""

    fault: str
    cause: str
    family: str
    benign: bool
    split: str
    dialect: str
    variant: str
    severity: int
    seed: int
    configured: bool
    identifiable: bool
    verdict: str
    ranked: tuple[str, ...]
    level: tuple[str, ...]
    alarms: tuple[str, ...]
    abstained: bool
    probability: float | None = None

    @property
    def first(self) -> bool:
        """Whether the injected cause is ranked first."""
        return self.ranked[:1] == (self.cause,)

    @property
    def among_three(self) -> bool:
        """Whether the injected cause is among the first three."""
        return self.cause in self.ranked[:3]

    @property
    def in_level_set(self) -> bool:
        """Whether the injected cause is first, or level with the first."""
        return self.cause in self.level


#: Truths under which nothing may be alarmed of.
HEALTHY = "healthy"


def score(case: Case, *, configured: bool = True) -> Score:
    """Judge one log of a corpus, with the configuration beside it or without."""
    with tempfile.TemporaryDirectory() as folder:
        log = case.log if configured else _bare(case.log, Path(folder))
        diagnosis = diagnose(read_run(str(log), Request()), load_pack())
    return _scored(case, diagnosis, configured=configured)


def _bare(log: Path, folder: Path) -> Path:
    """Copy a log without any configuration: neither the file beside it nor the canonical first line."""
    bare = folder / log.name
    shutil.copy(log, bare)
    if log.suffix == ".jsonl":
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        bare.write_text("".join(line for line in lines if '"ppo_doctor"' not in line), encoding="utf-8")
    return bare


def _scored(case: Case, diagnosis: Diagnosis, *, configured: bool) -> Score:
    known = {cause.id: cause for cause in load_pack().causes}
    ours = known.get(case.cause)
    first = next((cause for cause in diagnosis.causes if cause.leader), None)
    grave = [c for c in diagnosis.causes if c.leader and not c.benign and c.confidence != "suspected"]
    open_causes = {entry.id for entry in diagnosis.not_ruled_out}
    return Score(
        **{name: getattr(case, name) for name in ("fault", "cause", "split", "dialect", "variant", "severity", "seed")},
        family=ours.family if ours else HEALTHY,
        benign=case.cause == HEALTHY or FAULTS[case.fault].verdict == "healthy" or (ours is not None and ours.benign),
        configured=configured,
        identifiable=False,
        verdict=diagnosis.verdict,
        ranked=tuple(cause.id for cause in diagnosis.causes),
        level=(first.id, *first.level_with) if first else (),
        alarms=tuple(cause.id for cause in grave if cause.severity.at_least(Severity.HIGH)),
        abstained=diagnosis.verdict == "inconclusive" or (diagnosis.verdict == "healthy" and case.cause in open_causes),
        probability=first.probability if first else None,
    )


def mapped(work: Callable[[Any], Any], asked: Sequence[Any], jobs: int) -> list[Any]:
    """Return the results of work in the order of what was asked, by as many processes as jobs."""
    if jobs == 1:
        return [work(entry) for entry in asked]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(work, asked, chunksize=16))


def _without(case: Case) -> Score:
    return score(case, configured=False)


def _log_features(case: Case) -> dict[str, float]:
    return features(case.log)


def scores(root: Path, jobs: int) -> tuple[list[Score], dict[tuple[str, str], float]]:
    """Return every held-out log's score, with and without configuration, and what the reference recognises."""
    from dataclasses import replace

    held = cases(root)
    training = [case for case in held if case.split == "training"]
    shares = recognised(training, mapped(_log_features, training, jobs))
    asked = [case for case in held if case.split == "held-out"]
    judged = [*mapped(score, asked, jobs), *mapped(_without, asked, jobs)]
    told = [replace(s, identifiable=shares.get((s.cause, s.dialect), 0.0) >= IDENTIFIABLE) for s in judged]
    return told, shares


# Figures


def share(hits: Iterable[bool]) -> tuple[int, int]:
    """Return (hits, of)."""
    counted = list(hits)
    return sum(counted), len(counted)


def upper_bound(hits: int, of: int, level: float = 0.95) -> float:
    """Return the one-sided upper confidence bound of a rate (Clopper and Pearson 1934), by bisection."""
    if of == 0 or hits >= of:
        return 1.0
    low, high = hits / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(hits + 1))
        low, high = (middle, high) if tail > 1 - level else (low, middle)
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The figures of one set of scores."""

    logs: int
    top_1: tuple[int, int]
    top_3: tuple[int, int]
    level_set: tuple[int, int]
    abstained: tuple[int, int]
    wrong: tuple[int, int]


def board(found: Sequence[Score]) -> Board:
    """Return the accuracy over faulty logs; `wrong` is a firm alarm of something else."""
    return Board(
        logs=len(found),
        top_1=share(s.first for s in found),
        top_3=share(s.among_three for s in found),
        level_set=share(s.in_level_set for s in found),
        abstained=share(s.abstained for s in found),
        wrong=share(bool(s.alarms) and not s.in_level_set and s.cause not in s.ranked[:3] for s in found),
    )


def page(found: Sequence[Score], shares: Mapping[tuple[str, str], float]) -> str:
    """Return the scoreboard as Markdown."""
    told = [s for s in found if s.configured]
    sick = [s for s in told if not s.benign]
    sound = [s for s in told if s.benign]
    known = [s for s in sick if s.identifiable]
    alarms = share(bool(s.alarms) for s in sound)
    parts = [
        "# Scoreboard\n",
        "Generated by `make scoreboard` from the fault lab; the held-out side only. Never edited by hand.\n",
        "## In short\n",
        _table(("cases", "logs", "top-1", "top-3", "level set", "abstained", "wrong"), _short(sick, known, found)),
        f"\nFalse alarms (established or likely, high or critical) on healthy and benign logs: {alarms[0]} of "
        f"{alarms[1]}; the true rate is below {100 * upper_bound(*alarms):.1f} % (95 %, one-sided).\n",
        f"Identifiable: {_percent(share(v >= IDENTIFIABLE for (c, _), v in shares.items() if c != HEALTHY))} of "
        "cause × dialect pairs, by a random forest on statistics of the training side.\n",
        "## By family (identifiable cases)\n",
        _table(("family", *HEAD), _grouped(known, lambda s: s.family)),
        "\n## By dialect (identifiable cases)\n",
        _table(("dialect", *HEAD), _grouped(known, lambda s: s.dialect)),
        "\n## By cause and dialect: top-1 of all held-out cases\n",
        _matrix(sick, shares),
        "\n## What is missed\n",
        _missed(known),
    ]
    return "\n".join(parts)


HEAD = ("logs", "top-1", "top-3", "level set", "abstained", "wrong")


def _short(sick: Sequence[Score], known: Sequence[Score], found: Sequence[Score]) -> list[tuple[str, ...]]:
    bare = [s for s in found if not s.configured and not s.benign]
    return [
        ("identifiable", *_row(board(known))),
        ("all", *_row(board(sick))),
        ("all, without configuration", *_row(board(bare))),
    ]


def _row(figures: Board) -> tuple[str, ...]:
    pairs = (figures.top_1, figures.top_3, figures.level_set, figures.abstained, figures.wrong)
    return (str(figures.logs), *(_percent(pair) for pair in pairs))


def _percent(pair: tuple[int, int]) -> str:
    hits, of = pair
    return f"{hits / of:.3f}" if of else "–"


def _grouped(found: Sequence[Score], key: Callable[[Score], str]) -> list[tuple[str, ...]]:
    names = sorted({key(s) for s in found})
    return [(name, *_row(board([s for s in found if key(s) == name]))) for name in names]


def _matrix(sick: Sequence[Score], shares: Mapping[tuple[str, str], float]) -> str:
    """Return cause × dialect; what is not identifiable stands in brackets."""
    dialects = sorted({s.dialect for s in sick})
    rows = []
    for cause in sorted({s.cause for s in sick}):
        cells = []
        for dialect in dialects:
            ours = [s for s in sick if (s.cause, s.dialect) == (cause, dialect)]
            words = "/".join(str(n) for n in share(s.first for s in ours)) if ours else ""
            cells.append(words if shares.get((cause, dialect), 0) >= IDENTIFIABLE or not words else f"({words})")
        rows.append((cause, *cells))
    return _table(("cause", *dialects), rows)


def _missed(known: Sequence[Score]) -> str:
    counted = Counter(
        (s.cause, s.dialect, s.verdict, s.ranked[0] if s.ranked else "nothing") for s in known if not s.first
    )
    rows = [(*key, str(number)) for key, number in sorted(counted.items())]
    return _table(("cause", "dialect", "verdict", "named instead", "logs"), rows) if rows else "Nothing.\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Score a corpus."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, default=Path("docs"))
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    found, shares = scores(given.folder, given.jobs)
    (given.out / "scoreboard.md").write_text(page(found, shares), encoding="utf-8")
    raw = {
        "scores": [asdict(s) for s in found],
        "recognised": {f"{cause} {dialect}": value for (cause, dialect), value in sorted(shares.items())},
    }
    (given.out / "scoreboard.json").write_text(json.dumps(raw, indent=0) + "\n", encoding="utf-8")
    sys.stdout.write(page(found, shares).split("## By family")[0])


if __name__ == "__main__":
    main()
