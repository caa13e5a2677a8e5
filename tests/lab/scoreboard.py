"""How often the doctor is right: every figure of docs/scoreboard.md, from the logs of a corpus.

    python -m tests.lab.scoreboard DIR [--out docs] [--jobs 2]

The held-out side is scored, and beside it the other two; what is identifiable, and the temperature of the
probabilities, are decided by the training side alone (see `features` and `calibrate`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .calibrate import fit
from .corpus import SPLITS, cases, possible, trainings
from .features import IDENTIFIABLE, Shares, recognised
from .figures import (
    Score,
    board,
    calibration_error,
    chance,
    confusions,
    delays,
    grouped,
    reliability,
    score,
    share,
    upper_bound,
)
from .plots import confusion_plot, reliability_plot
from .scoreboard_page import page
from .verdicts import judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Every score that the page speaks of, and what the reference classifier recognises."""

    held_out: Sequence[Score]
    #: the held-out logs once more, without any configuration
    bare: Sequence[Score]
    training: Sequence[Score]
    #: logs whose misses were read, and mended by
    development: Sequence[Score]
    shares: Shares
    #: the same by forests that were grown on the development side as well
    wide_shares: Shares
    temperature: float
    #: logs that the plan has, on both sides
    planned: int

    @property
    def sick(self) -> list[Score]:
        """The held-out logs of faults that harm."""
        return [s for s in self.held_out if not s.benign]

    @property
    def known(self) -> list[Score]:
        """Those of them whose cause the reference classifier can tell."""
        return [s for s in self.sick if s.identifiable]

    @property
    def known_to_more(self) -> list[Score]:
        """Those whose cause it can tell when it has learned from the development side too."""
        return [s for s in self.sick if _told(s.cause, s.dialect, self.wide_shares)]

    @property
    def harmful(self) -> Shares:
        """What is recognised of the causes that harm."""
        causes = {s.cause for s in self.sick}
        return {key: value for key, value in self.shares.items() if key[0] in causes}

    @property
    def sound(self) -> list[Score]:
        """The held-out logs of runs that nothing is wrong with."""
        return [s for s in self.held_out if s.benign]


def scored(root: Path, jobs: int) -> Scored:
    """Judge a corpus, and hold each verdict against the truth."""
    every = judged(cases(root), root, jobs=jobs)
    sides = {split: [entry for entry in every if entry.case.split == split] for split in SPLITS}
    training = [entry.case for entry in sides["training"]]
    shares = recognised(training, root, jobs)
    wide = recognised([*training, *(entry.case for entry in sides["development"])], root, jobs)
    scores = {
        split: [score(e, e.whole, identifiable=_told(e.case.cause, e.case.dialect, shares)) for e in entries]
        for split, entries in sides.items()
    }
    return Scored(
        held_out=scores["held-out"],
        bare=[score(e, e.bare, identifiable=False) for e in sides["held-out"] if e.bare],
        training=scores["training"],
        development=scores["development"],
        shares=shares,
        wide_shares=wide,
        temperature=fit(scores["training"]),
        planned=sum(len(t.dialects) for t in trainings() if possible(t)),
    )


def _told(cause: str, dialect: str, shares: Shares) -> bool:
    return shares.get((cause, dialect), 0.0) >= IDENTIFIABLE


def figures(found: Scored) -> dict[str, Any]:
    """Return the figures that the page shows and a test holds: rates as [hits, of]."""
    rows = reliability(found.held_out, found.temperature)
    alarms = share(bool(s.alarms) for s in found.sound)
    return {
        "identifiable": asdict(board(found.known)),
        "all": asdict(board(found.sick)),
        "all without configuration": asdict(board([s for s in found.bare if not s.benign])),
        "training side": asdict(board([s for s in found.training if not s.benign])),
        "identifiable by both sides": asdict(board(found.known_to_more)),
        "development": asdict(board([s for s in found.development if not s.benign and s.identifiable])),
        "development, all": asdict(board([s for s in found.development if not s.benign])),
        "false alarms on the development side": {"hits": share(bool(s.alarms) for s in found.development if s.benign)},
        "logs": {"held out": len(found.held_out), "training side": len(found.training), "planned": found.planned},
        "false alarms": {"hits": alarms, "below": round(upper_bound(*alarms), 4)},
        "false alarms on healthy runs": {"hits": share(bool(s.alarms) for s in found.sound if s.fault == "healthy")},
        "false alarms without configuration": {"hits": share(bool(s.alarms) for s in found.bare if s.benign)},
        "false alarms on new tasks": {"hits": share(bool(s.alarms) for s in found.sound if s.new_task)},
        "false alarms on what was trained afterwards": {
            "hits": share(bool(s.alarms) for s in found.sound if s.afterwards)
        },
        "false alarms on the training side": {"hits": share(bool(s.alarms) for s in found.training if s.benign)},
        "pairs identifiable": {"hits": share(v >= IDENTIFIABLE for v in found.harmful.values())},
        "logs identifiable": {"hits": share(s.identifiable for s in found.sick)},
        "logs identifiable by both sides": {"hits": [len(found.known_to_more), len(found.sick)]},
        "calibration": {
            "temperature": found.temperature,
            "error": round(calibration_error(rows), 4),
            "error on the training side": round(calibration_error(reliability(found.training, found.temperature)), 4),
            "bins": [[size, round(said, 4), round(was, 4)] for size, said, was in rows],
        },
        "delay": {name: delays(of) for name, of in {"all": found.sick, **grouped(found.sick, _dialect)}.items()},
        "by family": {name: asdict(board(of)) for name, of in grouped(found.known, lambda s: s.family).items()},
        "by dialect": {name: asdict(board(of)) for name, of in grouped(found.known, _dialect).items()},
    }


def _dialect(entry: Score) -> str:
    return entry.dialect


def document(found: Scored) -> str:
    """Return the figures, and a line for every held-out log, as JSON."""
    lines = [json.dumps(row) for row in map(partial(_row, found.temperature), found.held_out)]
    told = json.dumps({"figures": figures(found), "columns": COLUMNS}, indent=1)
    return told[: told.rindex("\n}")] + ',\n "logs": [\n' + ",\n".join(lines) + "\n]}\n"


COLUMNS = (
    "fault",
    "dialect",
    "variant",
    "severity",
    "seed",
    "identifiable",
    "verdict",
    "said",
    "level",
    "alarms",
    "probability",
    "delay",
)


def _row(temperature: float, entry: Score) -> list[Any]:
    p = round(chance(entry, temperature), 3) if entry.weighed else None
    held = asdict(entry) | {"said": entry.said, "probability": p}
    return [held[name] for name in COLUMNS]


def write(found: Scored, out: Path, rivals: Mapping[str, Any] | None) -> None:
    """Write the page, its plots and its figures."""
    known = figures(found)
    (out / "scoreboard.md").write_text(page(found, known, rivals), encoding="utf-8")
    (out / "scoreboard.json").write_text(document(found), encoding="utf-8")
    images = out / "images"
    images.mkdir(exist_ok=True)
    plot = reliability_plot(known["calibration"]["bins"])
    (images / "scoreboard-calibration.svg").write_text(plot, encoding="utf-8")
    (images / "scoreboard-confusion.svg").write_text(confusion_plot(_cells(found.sick)), encoding="utf-8")


def _cells(sick: Iterable[Score]) -> dict[tuple[str, str], int]:
    counted = list(sick)
    right = {(s.cause, s.cause): 0 for s in counted if s.first}
    for s in counted:
        if s.first:
            right[s.cause, s.cause] += 1
    return right | {(injected, said): number for injected, said, number in confusions(counted)}


def main() -> None:
    """Score a corpus."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, default=Path("docs"))
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    found = scored(given.folder, given.jobs)
    rivals = given.out / "rivals.json"
    write(found, given.out, json.loads(rivals.read_text(encoding="utf-8")) if rivals.is_file() else None)
    sys.stdout.write((given.out / "scoreboard.md").read_text(encoding="utf-8").split("## By family")[0])


if __name__ == "__main__":
    main()
