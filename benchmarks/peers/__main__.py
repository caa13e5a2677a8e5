"""Run rivals and ppo-doctor on the same logs: `python -m benchmarks.peers CORPUS [--venvs DIR] [--json FILE]`.

With `--held-out N` they run on a fixed sample of the held-out side of the lab's corpus: one log of each fault, and N of
sound runs, in each dialect. `--summary docs/rivals.json` puts the counts where the scoreboard takes them from.

CORPUS is what `tests.lab.corpus` or `tests.lab.real` made: folders with a log and its truth.json. Each rival gets an
environment of its own in a folder that is thrown away, unless `--venvs` names one.

A hit names the cause, or its exact mechanism; a symptom is any other finding at warning or above; a miss is silence.
On sound runs every such finding is a false alarm. A rival that fails on a log has missed it, and is counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import load_pack
from tests.lab.faults import FAULTS

from .rivals import RIVALS, Rival

SOUND = frozenset({"healthy", *(cause.id for cause in load_pack().causes if cause.benign)})
OURS, BARE = "ppo-doctor", "ppo-doctor, log alone"
COLUMNS = ("hit", "symptom", "undecided", "miss", "failed", "false alarm", "quiet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One log and its truth."""

    log: Path
    dialect: str
    fault: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one tool made of one log."""

    tool: str
    dialect: str
    cause: str
    outcome: str
    says: tuple[str, ...]


def cases(root: Path, dialects: Iterable[str]) -> list[Case]:
    """Return the logs of a corpus in the given dialects."""
    told = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(root.rglob("truth.json"))]
    wanted = set(dialects)
    return [
        Case(log=path.parent / t["log"], dialect=t["dialect"], fault=t["fault"], cause=t["cause"])
        for path, t in told
        if t["dialect"] in wanted
    ]


def held_out(root: Path, dialects: Iterable[str], sound: int) -> list[Case]:
    """Return one log of each fault, and some of sound runs, spread over their tasks, in each dialect."""
    from tests.lab import corpus

    logs = [case for case in corpus.cases(root) if case.split == "held-out"]
    chosen: list[corpus.Case] = []
    for dialect in dialects:
        ours = [case for case in logs if case.dialect == dialect]
        calm = [case for case in ours if corpus.sound(case.fault, case.dialect)]
        sick = [case for case in ours if not corpus.sound(case.fault, case.dialect)]
        for place, fault in enumerate(sorted({case.fault for case in sick})):
            of = [case for case in sick if case.fault == fault]
            chosen.append(of[place % len(of)])
        chosen += [calm[index * len(calm) // sound] for index in range(min(sound, len(calm)))]
    return [Case(log=c.log, dialect=c.dialect, fault=c.fault, cause=c.cause) for c in chosen]


def summary(outcomes: Sequence[Outcome], sound: int) -> dict[str, Any]:
    """Return the table with a sentence on what was run, for the scoreboard."""
    rows = []
    for tool, dialect in dict.fromkeys((o.tool, o.dialect) for o in outcomes):
        counted = Counter(o.outcome for o in outcomes if (o.tool, o.dialect) == (tool, dialect))
        rows.append([tool, dialect, counted.total(), *(counted[name] for name in COLUMNS)])
    about = (
        f"One held-out log of each fault and {sound} of sound runs in each dialect, the same for all, chosen by place "
        "in the plan (`python -m benchmarks.peers`; [how a rival's findings are read](lab.md)). *Hit*: the "
        "cause, or its exact mechanism, is named; ours must be first, or said to be level with the first. *Symptom*: "
        "any other finding at warning or above."
    )
    return {"about": about, "columns": ["tool", "logs of", "n", *COLUMNS], "rows": rows}


def _sound(case: Case) -> bool:
    return case.cause in SOUND or FAULTS[case.fault].sound(case.dialect)


def of_rival(rival: Rival, venvs: Path, case: Case) -> Outcome:
    """Run a rival on one log."""
    said = rival.findings(venvs, case.log)
    sound, named = _sound(case), any(case.cause in rival.names.get(f, ()) for f in said or ())
    if said is None:
        outcome = "failed"
    elif sound:
        outcome = "false alarm" if said else "quiet"
    else:
        outcome = "hit" if named else "symptom" if said else "miss"
    return _outcome(rival.name, case, outcome, said or [])


def ours(case: Case, *, alone: bool) -> Outcome:
    """Diagnose one log, with the configuration beside it or without."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(shutil.copy(case.log, folder)) if alone else case.log
        diagnosis = diagnose(read_run(str(log), Request()), load_pack())
    leaders = [c for c in diagnosis.causes if c.leader and not c.benign]
    firm = [c.id for c in leaders if c.confidence != "suspected"]
    first = next((c for c in diagnosis.causes if c.leader), None)
    if _sound(case):
        outcome = "false alarm" if firm else "quiet"
    elif first and case.cause in (first.id, *first.level_with):
        outcome = "hit"
    else:
        outcome = "symptom" if leaders else "undecided" if diagnosis.verdict == "inconclusive" else "miss"
    return _outcome(BARE if alone else OURS, case, outcome, firm or [c.id for c in leaders])


def _outcome(tool: str, case: Case, outcome: str, says: Sequence[str]) -> Outcome:
    return Outcome(tool=tool, dialect=case.dialect, cause=case.cause, outcome=outcome, says=tuple(says))


def table(outcomes: Sequence[Outcome]) -> str:
    """Return tool × dialect with counts, as Markdown."""
    lines = [f"| tool | logs of | n | {' | '.join(COLUMNS)} |", f"|---|---|---|{'---|' * len(COLUMNS)}"]
    for tool, dialect in dict.fromkeys((o.tool, o.dialect) for o in outcomes):
        theirs = [o for o in outcomes if (o.tool, o.dialect) == (tool, dialect)]
        counted = Counter(o.outcome for o in theirs)
        lines.append(f"| {tool} | {dialect} | {len(theirs)} | {' | '.join(str(counted[c]) for c in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def compare(given: argparse.Namespace, venvs: Path) -> list[Outcome]:
    """Run everything; a rival that cannot be installed is left out, with a line."""
    logs = cases(given.corpus, given.dialect)
    if given.held_out:
        logs = held_out(given.corpus, given.dialect, given.held_out)
    theirs = earlier(given.theirs) if given.theirs else of_rivals(logs, venvs)
    return theirs + [ours(case, alone=alone) for alone in (False, True) for case in logs]


def earlier(kept: Path) -> list[Outcome]:
    """Return what the rivals said in an earlier run of the same cases (`--json`)."""
    outcomes = [Outcome(**{**row, "says": tuple(row["says"])}) for row in json.loads(kept.read_text(encoding="utf-8"))]
    return [outcome for outcome in outcomes if outcome.tool not in (OURS, BARE)]


def of_rivals(logs: Sequence[Case], venvs: Path) -> list[Outcome]:
    """Run each rival on the logs of the dialects that it reads."""
    found: list[Outcome] = []
    for rival in RIVALS:
        reason = rival.install(venvs)
        if reason:
            sys.stderr.write(f"{rival.name} could not be installed: {reason}\n")
            continue
        found += [of_rival(rival, venvs, case) for case in logs if case.dialect in rival.reads]
    return found


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("corpus", type=Path)
    options.add_argument("--dialect", nargs="+", default=["sb3", "trl-grpo", "trl-ppo"])
    options.add_argument("--venvs", type=Path, help="where the rivals' environments stay")
    options.add_argument("--json", type=Path, help="every outcome")
    options.add_argument("--theirs", type=Path, help="a file of --json: the rivals are not run, only ours is")
    options.add_argument("--held-out", type=int, metavar="N", help="a sample of the held-out side, with N sound logs")
    options.add_argument("--summary", type=Path, help="the counts, for the scoreboard")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as thrown_away:
        found = compare(given, given.venvs or Path(thrown_away))
    sys.stdout.write(table(found))
    if given.summary:
        told = json.dumps(summary(found, given.held_out or 0), indent=1)
        given.summary.write_text(told + "\n", encoding="utf-8")
    if given.json:
        given.json.write_text(json.dumps([asdict(o) for o in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
