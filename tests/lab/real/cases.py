"""What a real run is: its truth, its place, and the registry that each trainer fills."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

#: Trains into a folder with a seed and returns the log; what it leaves beside the log is the run's configuration.
Train = Callable[[Path, int], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run to make: a fault of the lab (or "healthy") in a trainer, and how a user comes to make it."""

    dialect: str
    fault: str
    cause: str
    variant: str
    seed: int
    made: str
    train: Train

    def folder(self, root: Path) -> Path:
        """Return where it goes: laid out as a corpus of the lab is."""
        name = f"{self.dialect}.{self.variant.replace(' ', '-')}.2-{self.seed}"
        return root / "held-out" / self.fault / name


class Recipe(Protocol):
    """How one run differs from a sound one, in whichever trainer."""

    @property
    def variant(self) -> str:
        """What the run is of."""

    def train(self, folder: Path, seed: int) -> Path:
        """Train into a folder and return the log."""


#: Fault, how a user comes to make it, and the run.
Cases = Iterator[tuple[str, str, Recipe]]


def plans_of(
    dialect: str, healthy: Callable[[], Iterator[tuple[str, Recipe]]], faulty: Callable[[], Cases]
) -> Iterator[Plan]:
    """Yield the runs of one trainer: sound ones, faulty ones, and the sound ones with another seed."""
    told: list[tuple[str, str, Recipe, int]] = [("healthy", *case, 201) for case in healthy()]
    told += [(*case, 211) for case in faulty()]
    told += [("healthy", *case, 202) for case in healthy()]
    for fault, made, recipe, seed in told:
        yield Plan(
            dialect=dialect,
            fault=fault,
            cause=fault,
            variant=recipe.variant,
            seed=seed,
            made=made.strip(),
            train=recipe.train,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One log of a real trainer with the truth about it."""

    dialect: str
    fault: str
    cause: str
    variant: str
    seed: int
    made: str
    trainer: str
    ended: str
    seconds: float
    log: Path


def make(root: Path, plan: Plan, trainer: str) -> Made:
    """Train one run unless it is there already; a trainer that crashes leaves what it had written until then."""
    folder = plan.folder(root)
    if not (folder / "truth.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begun = time.process_time()
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            log, ended = _trained(plan, folder)
        _tell(plan, folder, log=log.name, trainer=trainer, ended=ended, seconds=time.process_time() - begun)
    return _made(folder / "truth.json")


def _trained(plan: Plan, folder: Path) -> tuple[Path, str]:
    try:
        return plan.train(folder, plan.seed), "finished"
    except (RuntimeError, ValueError, AssertionError) as error:  # what NaN weights end in; the log stays
        left = [path for name in ("progress.csv", "trainer_state.json") for path in folder.glob(name)]
        if not left:
            raise
        return left[0], f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"


def _tell(plan: Plan, folder: Path, **more: Any) -> None:
    names = ("dialect", "fault", "cause", "variant", "seed", "made")
    truth = {name: getattr(plan, name) for name in names} | {"split": "held-out", "severity": 2} | more
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


def _made(path: Path) -> Made:
    truth = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: truth[name] for name in Made.__dataclass_fields__ if name != "log"}
    return Made(**kept, log=path.parent / truth["log"])


def made(root: Path) -> list[Made]:
    """Return every run under a folder, in a fixed order."""
    return [_made(path) for path in sorted(root.glob("*/*/*/truth.json"))]


def chosen(plans: Iterable[Plan], dialects: Iterable[str], faults: Iterable[str]) -> Iterator[Plan]:
    """Yield the plans of the dialects and faults that are asked for; none named means all."""
    wanted, kinds = set(faults), set(dialects)
    return (p for p in plans if (not kinds or p.dialect in kinds) and (not wanted or p.fault in wanted))


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings that a user's script holds, in the trainer's own names."""
    text = json.dumps(settings, indent=2, sort_keys=True, default=str)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
