"""What an expert could say of each run from its files alone: read from `labels/TRAINER.csv`, which people wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).resolve().parent / "labels"
#: What somebody said who saw nothing but the bare log of some of the runs.
REVIEWS = FOLDER.parent / "reviews"
#: Causes of runs in which nothing is wrong.
SOUND = frozenset(
    {"HEALTHY", "benign-single-update", "benign-schedule", "benign-converged", "benign-ref-sync", "reward-saturated"}
    | {"loss-has-no-ratio", "critic-warmup-actor-frozen", "dtype-noise-floor", "log-rounding"}
)
Identifiable = Literal["yes", "partly", "no"]
#: The columns of a file of labels.
HEAD = ["case", "fault", "bare", "config", "bare_identifiable", "bare_accept", "config_identifiable", "config_accept"]
HEAD += ["note"]
#: The log alone, and the log with the configuration beside it.
COLUMNS = ("bare", "config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One question to the doctor: files of a run, and the causes that may be named first."""

    case: str
    trainer: str
    fault: str
    column: str
    files: tuple[str, ...]
    identifiable: Identifiable
    accept: frozenset[str]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with the run, though a remark on it may be true (completions that are cut)."""
        return "HEALTHY" in self.accept and (self.accept <= SOUND or self.fault == "healthy" or self.fault in SOUND)

    @property
    def group(self) -> str:
        """The group that the scoreboard counts it in."""
        return "sound" if self.sound else self.identifiable


def labels(trainer: str, folder: Path = FOLDER) -> Iterator[Label]:
    """Yield the labels of a trainer's runs, one for each column."""
    with (folder / f"{trainer}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for column in COLUMNS:
                yield _label(row, trainer, column)


def one_of(word: str) -> Identifiable:
    """Return the word if it is one of three.

    Raises:
        ValueError: it is none of them.
    """
    if word not in ("yes", "partly", "no"):
        raise ValueError(f"{word!r} is not yes, partly or no")
    return word  # type: ignore[return-value]  # checked in the line above


def _label(row: dict[str, str], trainer: str, column: str) -> Label:
    return Label(
        case=row["case"],
        trainer=trainer,
        fault=row["fault"],
        column=column,
        files=tuple(row[column].split(";")),
        identifiable=one_of(row[f"{column}_identifiable"]),
        accept=frozenset(filter(None, row[f"{column}_accept"].split(";"))),
    )


def agreement(trainer: str, folder: Path = REVIEWS) -> tuple[int, int, int]:
    """Return how many bare logs were reviewed blind, first answers that are accepted, and equal identifiability."""
    path = folder / f"{trainer}.csv"
    if not path.is_file():
        return 0, 0, 0
    bare = {label.case: label for label in labels(trainer) if label.column == "bare"}
    with path.open(encoding="utf-8", newline="") as file:
        pairs = [(row, bare[row["case"]]) for row in csv.DictReader(file)]
    agreed = sum(row["first"] in label.accept for row, label in pairs)
    return len(pairs), agreed, sum(row["identifiable"] == label.identifiable for row, label in pairs)


def labelled(folder: Path = FOLDER) -> list[str]:
    """Return the trainers that have labels."""
    return sorted(path.stem for path in folder.glob("*.csv"))
