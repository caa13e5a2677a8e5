"""The scoreboard: every labelled run judged, counted for each trainer, and compared with the committed board.

`python -m lab.board` prints it and what changed; `--write` makes it the committed one; `--ratchet` fails where it fell.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .corpus import manifest, unpacked
from .environments import REQUIREMENTS, ROOT
from .foreign import FOREIGN, REAL, foreign_runs, real_logs
from .labels import COLUMNS, Label, agreement, labelled, labels
from .met import MET, met_runs
from .rates import rules_without
from .score import Grade, graded

BOARD = ROOT / "board.json"
PAGE = ROOT.parent / "docs" / "scoreboard.md"
#: The lab in NumPy of lab/numpy_lab: the one trainer that is ours, and therefore in no sum.
OURS = "numpy_lab"
ALL = "all trainers"


@dataclass(frozen=True, slots=True)
class Judged:
    """A label with the grade of what was said."""

    label: Label
    grade: Grade

    @property
    def key(self) -> str:
        """Its name in the committed board."""
        return f"{self.label.trainer}/{self.label.case}/{self.label.column}"


def asked(trainers: Sequence[str]) -> Iterator[tuple[Label, Path]]:
    """Yield every label with the folder of its runs."""
    for trainer in trainers:
        if trainer == FOREIGN:
            yield from foreign_runs()
        elif trainer == REAL:
            yield from real_logs()
        elif trainer == MET:
            yield from met_runs()
        else:
            folder = unpacked(trainer)
            yield from ((label, folder) for label in labels(trainer))


def judged(trainers: Sequence[str], jobs: int | None = None, *, leave_out: bool = False) -> list[Judged]:
    """Judge what the trainers' labels ask; with `leave_out` each by rules that have not seen its own sound runs."""
    questions = list(asked(trainers))
    with rules_without(labelled() if leave_out else []) as rules:
        grades = graded(questions, jobs, rules)
    return [Judged(label, each) for (label, _), each in zip(questions, grades, strict=True)]


def _tally(found: Iterable[Judged], column: str) -> list[str]:
    """Return the cells of a row in one column: faults by what is identifiable, then sound runs."""
    kept = [each for each in found if each.label.column == column]
    by = {group: [e.grade for e in kept if e.label.group == group] for group in ("yes", "partly", "no", "sound")}
    faulty = by["yes"] + by["partly"]
    return [
        _of(by["yes"], "first"),
        _of(by["yes"], "third"),
        _of(by["partly"], "first"),
        _of(by["partly"], "third"),
        _of(by["no"], "first"),
        f"{sum(g.silent for g in faulty)}",
        f"{sum(g.wrong for g in faulty)}",
        f"{sum(g.alarm for g in by['sound'])} of {len(by['sound'])}",
    ]


def _of(grades: Sequence[Grade], name: str) -> str:
    return f"{sum(getattr(g, name) for g in grades) / len(grades):.2f} ({len(grades)})" if grades else "–"


HEAD = ["yes: first", "yes: among three", "partly: first", "partly: among three", "no: right to hold back", "silent"]
HEAD += ["wrong, and sure", "alarms on sound runs"]


def table(found: Sequence[Judged], column: str) -> str:
    """Return a table as Markdown: a row for each trainer, then all of them, then what others made."""
    names = list(dict.fromkeys(each.label.trainer for each in found))
    real = [name for name in names if name not in (FOREIGN, REAL, MET, OURS)]
    groups = {name: [e for e in found if e.label.trainer == name] for name in real}
    groups[ALL] = [each for each in found if each.label.trainer in real]
    groups |= {
        name: [e for e in found if e.label.trainer == name] for name in (FOREIGN, MET, REAL, OURS) if name in names
    }
    rows = [f"| {' | '.join(['trainer', *HEAD])} |", f"|---|{'---|' * len(HEAD)}"]
    for name, each in groups.items():
        if any(e.label.column == column for e in each):
            rows.append(f"| {_named(name)} | {' | '.join(_tally(each, column))} |")
    return "\n".join(rows) + "\n"


def paired(found: Sequence[Judged]) -> str:
    """Return, for each trainer, how many faulty runs are right bare and with configuration, of those told bare."""
    by = {(e.label.trainer, e.label.case, e.label.column): e for e in found if e.label.trainer not in (MET, REAL, OURS)}
    lines = []
    for trainer in dict.fromkeys(name for name, _, _ in by):
        bare = [e for (name, _, column), e in by.items() if (name, column) == (trainer, "bare")]
        pairs = [
            (e.grade.first, other.grade.first)
            for e in bare
            if e.label.group in ("yes", "partly") and (other := by.get((trainer, e.label.case, "config")))
        ]
        if pairs:
            lines.append(f"{trainer}: {len(pairs)} runs, bare {sum(b for b, _ in pairs)}, {sum(c for _, c in pairs)}\n")
    return "".join(lines)


def _named(name: str) -> str:
    bold = {
        ALL: f"**{ALL}**",
        FOREIGN: "foreign runs, made by others",
        REAL: "other people's logs (tuned with them in view)",
        MET: "trainers met once, after what they showed was looked at",
    }
    return bold.get(name, "our NumPy lab, one PPO in five disguises (tuned on it)" if name == OURS else name)


def makers(found: Sequence[Judged]) -> str:
    """Return a table of what was trained: versions, runs, faults, records, and the processor's time."""
    head = ["trainer", "installed", "sound runs", "faulty runs", "faults", "records", "CPU", "blind review"]
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name in dict.fromkeys(each.label.trainer for each in found if each.label.trainer not in (FOREIGN, REAL, MET)):
        kept = [each for each in found if each.label.trainer == name and each.label.column == "bare"]
        faulty = [each.label.fault for each in kept if not each.label.sound]
        records = [each.grade.records for each in kept if each.grade.records]
        seconds = sum(float(run["cpu_seconds"] or 0) for run in manifest(name))
        counts = [len(kept) - len(faulty), len(faulty), len(set(faulty))]
        spread = f"{min(records, default=0)} to {max(records, default=0)}"
        reviewed, agreed, alike = agreement(name)
        review = f"{agreed} of {reviewed} ({alike})" if reviewed else "–"
        cells = [name, _installed(name), *map(str, counts), spread, f"{seconds / 60:.1f} min", review]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _installed(trainer: str) -> str:
    """Return the versions that a trainer's environment pins, of what is not everybody's."""
    common = ("numpy==", "torch==", "torchao", "torchdata", "setuptools", "wheel", "-")
    lines = (REQUIREMENTS / f"{trainer}.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line.split("#")[0].strip() for line in lines]
    return ", ".join(each.replace("==", " ") for each in wanted[:6] if each and not each.startswith(common)) or "ours"


def told(found: Sequence[Judged]) -> dict[str, Any]:
    """Return what is committed of a board: each answer's marks, by name."""
    return {each.key: _marks(each.grade) for each in found}


def _marks(grade: Grade) -> str:
    marks = [name for name in ("first", "third", "alarm", "silent", "wrong") if getattr(grade, name)]
    return f"{' '.join(marks)}: {grade.says}"


def changes(before: Mapping[str, str], found: Sequence[Judged]) -> list[str]:
    """Return a line for each answer that the committed board has otherwise."""
    lines = []
    for each in found:
        old, new = before.get(each.key), _marks(each.grade)
        if old != new:
            better = "" if old is None else _direction(old, new)
            lines.append(f"{better or 'other':<7}{each.key} {each.label.fault}: {old or 'not there'} -> {new}")
    return sorted(lines)


def _worth(marks: str) -> int:
    words = marks.partition(":")[0].split()
    return (
        4 * ("first" in words)
        + 2 * ("third" in words)
        - ("silent" in words)
        - ("wrong" in words)
        - 8 * ("alarm" in words)
    )


def _direction(old: str, new: str) -> str:
    return "better" if _worth(new) > _worth(old) else "worse" if _worth(new) < _worth(old) else ""


def fallen(before: Mapping[str, str], found: Sequence[Judged]) -> list[str]:
    """Return where the ratchet is broken: fewer first, or more alarms, of our trainers' runs or of foreign ones."""
    lines = []
    for name, kept in {
        ALL: [e for e in found if e.label.trainer not in (FOREIGN, REAL, MET, OURS)],
        FOREIGN: [e for e in found if e.label.trainer == FOREIGN],
        OURS: [e for e in found if e.label.trainer == OURS],
    }.items():
        known = [(before[e.key].partition(":")[0].split(), e) for e in kept if e.key in before]
        for mark, worse in (("first", -1), ("alarm", 1)):
            old, new = sum(mark in words for words, _ in known), sum(getattr(e.grade, mark) for _, e in known)
            if (new - old) * worse > 0:
                lines.append(f"{name}: {mark} {old} -> {new}")
    return lines


def page(found: Sequence[Judged], left_out: Sequence[Judged]) -> str:
    """Return docs/scoreboard.md."""
    text = (ROOT / "scoreboard.md").read_text(encoding="utf-8")
    parts = {"{bare}": table(found, "bare"), "{config}": table(found, "config"), "{makers}": makers(found)}
    parts["{left_out}"] = table(left_out, "bare")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def main() -> None:
    """Judge, print, compare."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trainer", action="append", default=[])
    options.add_argument("--write", action="store_true")
    options.add_argument("--ratchet", action="store_true")
    options.add_argument("--misses", action="store_true")
    options.add_argument("--json", type=Path, help="write every answer with its label")
    options.add_argument("--leave-out", action="store_true", help="judge each trainer by what the others showed")
    options.add_argument("--jobs", type=int)
    given = options.parse_args()
    if given.write and given.trainer:
        options.error("the board and its page are of all trainers: --write takes no --trainer")
    begun = time.monotonic()
    found = judged(given.trainer or [*labelled(), FOREIGN, MET, REAL], given.jobs, leave_out=given.leave_out)
    before = json.loads(BOARD.read_text(encoding="utf-8")) if BOARD.is_file() else {}
    sys.stdout.write(f"bare log\n{table(found, 'bare')}\nwith configuration\n{table(found, 'config')}\n")
    sys.stdout.write(f"the same runs: right bare, right with configuration\n{paired(found)}\n")
    sys.stdout.write("".join(f"{line}\n" for line in _misses(found)) if given.misses else "")
    sys.stdout.write("".join(f"{line}\n" for line in changes(before, found)))
    sys.stdout.write(f"{len(found)} answers in {time.monotonic() - begun:.0f} s\n")
    if given.json:
        given.json.write_text(json.dumps([_row(each) for each in found], indent=1) + "\n", encoding="utf-8")
    if given.write:
        BOARD.write_text(json.dumps(told(found), indent=0, sort_keys=True) + "\n", encoding="utf-8")
        left_out = judged(labelled(), given.jobs, leave_out=True)
        PAGE.write_text(page(found, left_out), encoding="utf-8")
    if given.ratchet and (lines := fallen(before, found)):
        sys.exit("the scoreboard fell: " + "; ".join(lines))


def _row(each: Judged) -> dict[str, Any]:
    label = {**asdict(each.label), "accept": sorted(each.label.accept), "group": each.label.group}
    return {**label, **asdict(each.grade)}


def _misses(found: Sequence[Judged]) -> Iterator[str]:
    for column in COLUMNS:
        for each in found:
            label = each.label
            if label.column == column and not each.grade.first:
                wanted = ";".join(sorted(label.accept))
                yield f"miss {each.key} {label.group} {label.fault}: {each.grade.says}, accepted {wanted}"


if __name__ == "__main__":
    main()
