"""Two faults in one run: `python -m lab.pairs --trainer sb3 --count 24 --seed 1` draws, trains, and judges them.

A pair is two of a trainer's recipes that can be followed at once. Accepted is what the labels accept of either fault
alone; two faults of which one hides the other are one, and which those are is for the eye to say.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from .__main__ import QUIET
from .cases import Case, apart
from .environments import BUILD, ROOT, python_of
from .labels import COLUMNS, Label, labels
from .score import Report, grade, judge

#: Of these the first fault's are taken.
PLACE = ("env", "task", "scale", "kind", "generations", "policy")
#: With two faults in a run, to say nothing is not accepted.
SILENCE = {"ABSTAIN", "HEALTHY"}
#: A run's own files, the log alone and with what the user's script says.
LOG = {"sb3": "progress.csv", "trl_grpo": "trainer_state.json"}


def merged(first: Any, second: Any) -> Any | None:
    """Return a recipe with what both change, None where they change the same."""
    changes: dict[str, Any] = {}
    for field in fields(first):
        usual = field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name in PLACE or other == usual:
            continue
        both = other if one == usual else _both(one, other)
        if both is None:
            return None
        changes[field.name] = both
    return replace(first, **changes)


def _both(one: Any, other: Any) -> Any | None:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {**one, **other} if not one.keys() & other.keys() else None
    if isinstance(one, type) and isinstance(other, type):
        mixed = one is not other and one.__bases__ == other.__bases__ == (object,)
        return type(f"{one.__name__}{other.__name__}", (one, other), {}) if mixed else None
    if callable(one) and callable(other) and not isinstance(one, type) and not isinstance(other, type):
        return _after(one, other)
    return None


def _after(one: Callable[[Any], Any], other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def both(given: Any) -> Any:
        made = one(given)
        return other(given if made is None else made)

    return both


def recipes(trainer: str) -> list[tuple[str, Any]]:
    """Return (fault, recipe) of all of a trainer's faulty runs; only in the trainer's own environment."""
    told = import_module(f"lab.trainers.{trainer}")._faulty()
    found = []
    for fault, *_, last in told:
        found += [(fault, each) for each in (last if isinstance(last, list) else [last])]
    return found


def drawn(trainer: str, seed: int, count: int) -> Iterator[tuple[str, str, Any]]:
    """Yield (fault, fault, recipe) of pairs drawn at random, none twice."""
    draw, known = random.Random(seed), recipes(trainer)
    seen: set[tuple[str, str]] = set()
    while len(seen) < count:
        (one, first), (other, second) = draw.sample(known, 2)
        both = merged(first, second) if one != other else None
        if both is not None and (one, other) not in seen:
            seen.add((one, other))
            yield one, other, both


def train(trainer: str, seed: int, count: int, folder: Path) -> None:
    """Train the pairs, each in a process of its own; in the trainer's environment. What is there stays."""
    library = getattr(import_module(f"lab.trainers.{trainer}"), "LIBRARY", None)
    for number, (one, other, recipe) in enumerate(drawn(trainer, seed, count), start=1):
        place = folder / f"{trainer}-{seed}-{number:02d}"
        if place.with_name(f"{place.name}.done.json").is_file():
            continue
        run = partial(library.train, recipe, 1) if library else partial(recipe.train, seed=1)
        apart(Case(name=place.name, fault=f"{one}+{other}", made="", task="", seed=1, train=run), place)
        (place / "pair.json").write_text(json.dumps([one, other]), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Pair:
    """What is said of a run with two faults: whether one of them stands first, and whether both are named."""

    first: bool
    both: bool
    line: str


def judged(trainer: str, seed: int, folder: Path, column: str) -> Iterator[Pair]:
    """Judge every pair of a seed that was trained, as bare logs or with the configuration."""
    accepted: dict[str, frozenset[str]] = {}
    for label in labels(trainer):
        if label.column == column:
            accepted[label.fault] = accepted.get(label.fault, frozenset()) | label.accept
    files = (LOG[trainer], *(["config.json"] if column == "config" else []))
    for path in sorted(folder.glob(f"{trainer}-{seed}-*/pair.json")):
        faults = json.loads(path.read_text(encoding="utf-8"))
        told = [accepted[fault] - SILENCE for fault in faults]
        asked = Label(
            case=path.parent.name,
            trainer=trainer,
            fault="+".join(faults),
            column=column,
            files=files,
            identifiable="yes",
            accept=told[0] | told[1],
        )
        yield _graded(asked, judge(asked, folder), told)


def _graded(asked: Label, report: Report, accepted: Sequence[frozenset[str]]) -> Pair:
    graded = grade(asked, report)
    ids = {cause["id"] for cause in report.get("causes", ())}
    both = all(map(ids.intersection, accepted))
    grades = f"{'first' if graded.first else '-':<6}{'both' if both else '-':<5}"
    return Pair(graded.first, both, f"{asked.case} {asked.column:<7}{asked.fault:<52}{grades}{graded.says}")


def main() -> None:
    """Draw, train and judge."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trainer", choices=sorted(LOG), required=True)
    options.add_argument("--count", type=int, default=24)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--in-trainer", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.in_trainer:
        train(given.trainer, given.seed, given.count, given.in_trainer)
        return
    folder = BUILD / "pairs" / given.trainer
    folder.mkdir(parents=True, exist_ok=True)
    words = ["--trainer", given.trainer, "--count", str(given.count), "--seed", str(given.seed)]
    command = [str(python_of(given.trainer)), "-m", "lab.pairs", *words, "--in-trainer", str(folder)]
    place = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT.parent)}
    subprocess.run(command, check=True, env=place, cwd=ROOT.parent)
    for column in COLUMNS:
        found = list(judged(given.trainer, given.seed, folder, column))
        sys.stdout.writelines(f"{pair.line}\n" for pair in found)
        first, both = (sum(getattr(pair, name) for pair in found) / len(found) for name in ("first", "both"))
        sys.stdout.write(f"{given.trainer} {column}: one first {first:.2f}, both named {both:.2f}, of {len(found)}\n")


if __name__ == "__main__":
    main()
