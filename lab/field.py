"""Published runs with what their reward did, where they lie beside the project: `python -m lab.field` judges them.

The labels were made from the numbers alone, without this tool, and are weak: about one in twenty is not what a person
would say. `--ratchet` fails where the committed counts (lab/field.json) are exceeded; `--write` commits them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .environments import ROOT
from .foreign import SHARED

FIELD, FLOOR = SHARED / "field", ROOT / "field.json"
PARTS = ("classic", "llm")
GOOD, LOST = ("learned", "solved"), ("collapsed", "fell", "zero", "nonfinite")
VERDICTS = ("healthy", "warning", "inconclusive", "unhealthy", "unread")
#: Checks of an evaluation, of which a label that was read off the training reward says nothing.
NOT_LABELLED = frozenset({"evaluation-falls-while-reward-rises", "evaluation-far-behind", "evaluation-beats-training"})
#: Runs of one repository that count for the rates of checks.
MOST_OF_ONE = 5


@dataclass(frozen=True, slots=True)
class FieldRun:
    """A published run: its part and name, what its reward did, and whether it is of the PPO family."""

    part: str
    name: str
    outcome: str
    ppo: bool

    @property
    def repository(self) -> str:
        """The repository that it was published in."""
        return f"{self.part}/{self.name.partition('/')[0]}"


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a run: verdict, of how many runs, the checks that answered, and the leading causes."""

    run: FieldRun
    verdict: str
    runs: int = 1
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    #: findings, the gravest first
    shown: tuple[str, ...] = ()
    leaders: tuple[str, ...] = ()


def field_runs(folder: Path = FIELD) -> Iterator[FieldRun]:
    """Yield the runs that are there."""
    for part in PARTS:
        table = folder / part / "outcomes.csv"
        rows = _rows(table) if table.is_file() else []
        for row in rows:
            if (folder / part / row["id"]).exists():
                yield FieldRun(part, row["id"], row["outcome"], row.get("ppo") != "0")


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def judge(run: FieldRun) -> Said:
    """Judge a run as it lies, by the command line; of several runs in it the gravest is taken."""
    from ppo_doctor.cli import application

    os.chdir(FIELD / run.part)
    out = io.StringIO()
    sys.argv = ["ppo-doctor", "analyze", run.name, "--format", "json", "--all"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        application.run()
    try:
        report = json.loads(out.getvalue())
    except ValueError:
        return Said(run, "unread")
    judged = [each for each in report.get("diagnoses", [report]) if "verdict" in each]
    if not judged:
        return Said(run, "unread")
    worst = min(judged, key=lambda each: ("unhealthy", "warning", "inconclusive", "healthy").index(each["verdict"]))
    return _said(run, worst, len(judged))


def _said(run: FieldRun, report: dict[str, Any], runs: int) -> Said:
    answers = {check["name"]: check["answer"] for check in report["checks"]}
    return Said(
        run,
        report["verdict"],
        runs,
        tuple(name for name, answer in answers.items() if answer == "yes"),
        tuple(name for name, answer in answers.items() if answer == "no"),
        tuple(finding["id"] for finding in report["findings"]),
        tuple(c["id"] for c in report["causes"] if c["leader"] and not c["benign"]),
    )


def judged(jobs: int | None = None) -> list[Said]:
    """Judge all runs.

    Raises:
        SystemExit: the folder is not there.
    """
    runs = list(field_runs())
    if not runs:
        raise SystemExit(f"{FIELD} is not there: nothing was judged")
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("fork")) as pool:
        return list(pool.map(judge, runs, chunksize=2))


def counts(found: Iterable[Said]) -> dict[str, int]:
    """Return what the floor holds: of learned runs alarms and warnings, of others what is called healthy, unread."""
    ours = [each for each in found if each.run.ppo]
    good = [each for each in ours if each.run.outcome in GOOD]
    return {
        "learned": len(good),
        "alarms": sum(each.verdict == "unhealthy" for each in good),
        "warned": sum(each.verdict == "warning" for each in good),
        "lost_but_healthy": sum(e.verdict == "healthy" and e.run.outcome in LOST for e in ours),
        "flat_but_healthy": sum(e.verdict == "healthy" and e.run.outcome == "flat" for e in ours),
        "unread": sum(each.verdict == "unread" for each in ours),
        "several": sum(each.runs > 1 for each in ours),
        "others_judged": sum(each.verdict != "unread" for each in found if not each.run.ppo),
    }


def table(found: Sequence[Said]) -> str:
    """Return outcome × verdict, then what alarms and warns runs that learned."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        rows[each.run.outcome if each.run.ppo else "not PPO"][each.verdict] += 1
    lines = [f"{'outcome':12}{'runs':>6}" + "".join(f"{verdict:>14}" for verdict in VERDICTS)]
    for name, row in sorted(rows.items()):
        lines.append(f"{name:12}{sum(row.values()):6}" + "".join(f"{row[verdict]:14}" for verdict in VERDICTS))
    good = [each for each in found if each.run.ppo and each.run.outcome in GOOD]
    for verdict in ("unhealthy", "warning"):
        by = Counter(name for each in good if each.verdict == verdict for name in each.shown[:1] or ("-",))
        lines.append(f"learned, {verdict}: " + (", ".join(f"{n} {name}" for name, n in by.most_common()) or "none"))
    return "\n".join(lines) + "\n"


def rates(found: Iterable[Said]) -> dict[str, tuple[int, int]]:
    """Return check → (yes, answered) of runs that learned, at most five of a repository."""
    taken: Counter[str] = Counter()
    told: dict[str, tuple[int, int]] = {}
    for each in found:
        if each.run.outcome not in GOOD or not each.run.ppo or taken[each.run.repository] >= MOST_OF_ONE:
            continue
        taken[each.run.repository] += 1
        for name in {*each.yes, *each.no} - NOT_LABELLED:
            yes, of = told.get(name, (0, 0))
            told[name] = (yes + (name in each.yes), of + 1)
    return told


def exceeded(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """Return what is worse than the floor."""
    held = [name for name in before if name != "learned"]
    return [f"{name}: {before[name]} -> {now[name]}" for name in held if now[name] > before[name]]


def main() -> None:
    """Judge, print and hold against the floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratchet", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true", help="alarms on runs that learned, and lost ones called healthy")
    asked = parser.parse_args()
    if asked.ratchet and not FIELD.is_dir():
        sys.stdout.write(f"{FIELD} is not there: nothing was judged\n")
        return
    found = judged()
    now = counts(found)
    sys.stdout.write(table(found) + ", ".join(f"{name} {count}" for name, count in now.items()) + "\n")
    if asked.list:
        for each in found:
            alarm = each.run.outcome in GOOD and each.verdict == "unhealthy"
            if each.run.ppo and (alarm or (each.run.outcome in LOST and each.verdict == "healthy")):
                sys.stdout.write(f"{each.run.name}: {each.run.outcome}, {each.verdict}, {each.shown[:2]}\n")
    if asked.write:
        FLOOR.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
    if asked.ratchet and (worse := exceeded(json.loads(FLOOR.read_text(encoding="utf-8")), now)):
        raise SystemExit("worse than lab/field.json: " + "; ".join(worse))


if __name__ == "__main__":
    main()
