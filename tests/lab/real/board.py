"""What the doctor makes of real runs: `python -m tests.lab.real.board DIR [--markdown]`. Needs no trainer installed."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.model import Diagnosis
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import load_pack

from ..faults import FAULTS
from ..sweep import grade
from .cases import Made, made

#: How a diagnosis stands to the truth, best first. A sound run is calm, or wrongly alarmed of.
GRADES = ("first", "level", "calm", "leads", "open", "weak", "silent", "wrong")
RIGHT = frozenset({"first", "level", "calm", "open"})
SOUND = frozenset({"healthy", *(cause.id for cause in load_pack().causes if cause.benign)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One real run, its grade, and what was said of it."""

    run: Made
    grade: str
    verdict: str
    says: str

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the run."""
        return self.run.cause in SOUND


def judge(run: Made) -> Judged:
    """Diagnose one log with the configuration beside it."""
    diagnosis = diagnose(read_run(str(run.log), Request(debug=True)), load_pack())
    twins = FAULTS[run.fault].twins(run.dialect)
    shown = [
        f"{'' if c.leader else '('}{c.id} {c.score_db} {c.confidence}{'' if c.leader else ')'}"
        for c in diagnosis.causes
    ]
    return Judged(
        run=run,
        grade=_sound(diagnosis) if run.cause in SOUND else grade(diagnosis, run.cause, twins),
        verdict=diagnosis.verdict,
        says=", ".join(shown[:3]) or "nothing",
    )


def _sound(diagnosis: Diagnosis) -> str:
    alarms = [c for c in diagnosis.causes if c.leader and not c.benign and c.confidence != "suspected"]
    return "wrong" if alarms else "calm"


def matrix(judged: Sequence[Judged]) -> str:
    """Return fault × trainer as Markdown: the grades of its runs."""
    dialects = sorted({j.run.dialect for j in judged})
    lines = [f"| injected | {' | '.join(dialects)} |", f"|---|{'---|' * len(dialects)}"]
    for fault in sorted({j.run.fault for j in judged}):
        cells = [_cell([j for j in judged if (j.run.fault, j.run.dialect) == (fault, name)]) for name in dialects]
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(judged: Sequence[Judged]) -> str:
    counted = Counter(j.grade for j in judged)
    return ", ".join(f"{counted[name]} {name}" for name in GRADES if counted[name]) or "–"


def summary(judged: Sequence[Judged]) -> str:
    """Return the counts: what is named, and the alarms on what is sound."""
    sick, sound = [j for j in judged if not j.sound], [j for j in judged if j.sound]
    named, right = sum(j.grade in ("first", "level") for j in sick), sum(j.grade in RIGHT for j in sick)
    alarms = sum(j.grade == "wrong" for j in sound)
    return (
        f"{len(sick)} faulty runs: {named} named (first or level), {right} named or openly undecided, "
        f"{sum(j.grade == 'wrong' for j in sick)} wrong. {len(sound)} sound runs: {alarms} false alarms.\n"
    )


def missed(judged: Sequence[Judged]) -> str:
    """Return a line for each run that is not right."""
    wrong = [j for j in judged if j.grade not in RIGHT or (j.sound and j.verdict != "healthy")]
    return "".join(
        f"{j.grade:<7}{j.run.dialect:<9}{j.run.fault:<27}{j.run.variant:<18}{j.run.seed} {j.verdict:<12}{j.says}\n"
        for j in wrong
    )


def main() -> None:
    """Print the table, the counts, and what was missed."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--all", action="store_true", help="a line for every run")
    given = options.parse_args()
    judged = [judge(run) for run in made(given.folder)]
    sys.stdout.write(f"{matrix(judged)}\n{summary(judged)}\n{missed(judged)}")
    if given.all:
        sys.stdout.write(
            "\n"
            + "".join(
                f"{j.grade:<7}{j.run.log.parent.relative_to(given.folder)} {j.verdict} {j.says}\n" for j in judged
            )
        )


if __name__ == "__main__":
    main()
