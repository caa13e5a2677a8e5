"""Two faults in one run: `python -m lab.pairs --trainer sb3 --count 24 --seed 1` draws, trains, and judges them.

A pair is two of a trainer's recipes that can be followed at once. Accepted is what the labels accept of either fault
alone; two faults of which one hides the other are one, and which those are is for the eye to say.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

#: Of these the first fault's are taken.
PLACE = ("env", "task", "scale", "kind", "generations", "policy")
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
    told = import_module(f"lab.trainers.{trainer}")._faulty()  # noqa: SLF001 - what a trainer's cases are made of
    found = []
    for fault, *_, last in told:
        found += [(fault, each) for each in (last if isinstance(last, list) else [last])]
    return found


def drawn(trainer: str, seed: int, count: int) -> Iterator[tuple[str, str, Any]]:
    """Yield (fault, fault, recipe) of pairs drawn at random, none twice."""
    draw, known, seen = random.Random(seed), recipes(trainer), set()  # noqa: S311 - no secret
    while len(seen) < count:
        (one, first), (other, second) = draw.sample(known, 2)
        both = merged(first, second) if one != other else None
        if both is not None and (one, other) not in seen:
            seen.add((one, other))
            yield one, other, both


def _train(trainer: str, seed: int, count: int, folder: Path) -> None:
    """Train the pairs, each in a process of its own; in the trainer's environment."""
    from lab.cases import Case, _apart

    module = import_module(f"lab.trainers.{trainer}")
    for number, (one, other, recipe) in enumerate(drawn(trainer, seed, count), start=1):
        place = folder / f"{trainer}-{seed}-{number:02d}"
        if place.with_name(f"{place.name}.done.json").is_file():
            continue
        library = getattr(module, "LIBRARY", None)
        train = partial(library.train, recipe, 1) if library else partial(recipe.train, seed=1)
        _apart(Case(name=place.name, fault=f"{one}+{other}", made="", task="", seed=1, train=train), place)
        (place / "pair.json").write_text(json.dumps([one, other]), encoding="utf-8")


def _judged(trainer: str, folder: Path) -> None:
    from lab.labels import Label, labels
    from lab.score import judge

    accepted: dict[tuple[str, str], frozenset[str]] = {}
    for label in labels(trainer):
        key = label.fault, label.column
        accepted[key] = accepted.get(key, frozenset()) | label.accept
    totals: dict[str, list[tuple[bool, bool]]] = {"bare": [], "config": []}
    for pair in sorted(folder.glob("*/pair.json")):
        faults = json.loads(pair.read_text(encoding="utf-8"))
        for column in totals:
            files = (LOG[trainer], *(["config.json"] if column == "config" else []))
            told = {"case": pair.parent.name, "trainer": trainer, "fault": "+".join(faults), "identifiable": "yes"}
            report = judge(Label(column=column, files=files, accept=frozenset(), **told), folder)  # type: ignore[arg-type]
            said = [f"{c['id']}({c['confidence'][0]})" for c in report.get("causes", ()) if not c["benign"]][:5]
            ids = [each.partition("(")[0] for each in said]
            each = [accepted[fault, column] for fault in faults]
            first, both = bool(ids) and any(ids[0] in one for one in each), all(set(ids) & one for one in each)
            totals[column].append((first, both))
            line = f"{pair.parent.name} {column:<6} {'+'.join(faults):<52} {'first' if first else '-':<5} {'both' if both else '-':<4}"
            sys.stdout.write(f"{line} {report.get('verdict')} {' '.join(said)}\n")
    for column, found in totals.items():
        count = max(1, len(found))
        sys.stdout.write(
            f"{trainer} {column}: one of the two first {sum(f for f, _ in found) / count:.2f}, "
            f"both named {sum(b for _, b in found) / count:.2f}, of {len(found)}\n"
        )


def main() -> None:
    """Draw, train and judge."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trainer", choices=sorted(LOG), required=True)
    options.add_argument("--count", type=int, default=24)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--in-trainer", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.in_trainer:
        _train(given.trainer, given.seed, given.count, given.in_trainer)
        return
    from lab.__main__ import QUIET
    from lab.environments import BUILD, ROOT, python_of

    import os

    folder = BUILD / "pairs" / given.trainer
    folder.mkdir(parents=True, exist_ok=True)
    words = ["--trainer", given.trainer, "--count", str(given.count), "--seed", str(given.seed)]
    command = [str(python_of(given.trainer)), "-m", "lab.pairs", *words, "--in-trainer", str(folder)]
    place = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT.parent)}
    subprocess.run(command, check=True, env=place, cwd=ROOT.parent)
    _judged(given.trainer, folder)


if __name__ == "__main__":
    main()
