"""Runs that this lab did not make, where they lie beside the project: foreign runs, and logs that an expert judged."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from .environments import ROOT
from .labels import Label, one_of

#: Where shared material lies: beside the clone, unless PPO_DOCTOR_SHARED names another folder.
SHARED = Path(os.environ.get("PPO_DOCTOR_SHARED", ROOT.parent.parent / "shared"))
FOREIGN, REAL = "foreign runs", "real logs"
#: What the table of real logs says of a log that no cause is asked of.
_NOT_ASKED = frozenset({"*", "NODATA", "NOTPPO"})


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def foreign_runs(folder: Path = SHARED / "foreign-runs") -> Iterator[tuple[Label, Path]]:
    """Yield the bare log of each foreign run, and the log with its configuration where there is one."""
    rows = _rows(folder / "labels.csv")
    bare = {row["case"]: row["form"] for row in rows if row["primary"] == "1"}
    for row in rows:
        form = row["form"].removesuffix("+config")
        if row["primary"] == "1" or (row["form"] != form and form == bare[row["case"]]):
            yield _foreign(row, "bare" if row["primary"] == "1" else "config"), folder


def _foreign(row: dict[str, str], column: str) -> Label:
    return Label(
        case=row["case"],
        trainer=FOREIGN,
        fault=row["fault"],
        column=column,
        files=tuple(name.removeprefix(f"{row['case']}/") for name in row["files"].split(";")),
        identifiable=one_of(row["identifiable"]),
        accept=frozenset(row["accept"].split(";")),
    )


def real_logs(folder: Path = SHARED / "real-logs") -> Iterator[tuple[Label, Path]]:
    """Yield the logs of other people's runs of which an expert said something, with all that lies beside them."""
    sure = {row["id"]: row["confidence"] in ("stated", "confirmed") for row in _rows(folder / "manifest.csv")}
    for row in _rows(folder / "expected.csv"):
        said = frozenset(row["expect"].replace("INCONCLUSIVE", "ABSTAIN").split(";"))
        if not said & _NOT_ASKED:
            yield _real(row["id"], said, sure[row["id"]]), folder


def _real(case: str, said: frozenset[str], sure: bool) -> Label:
    return Label(
        case=case,
        trainer=REAL,
        fault="healthy" if "HEALTHY" in said else "",
        column="config",
        files=(".",),
        identifiable="yes" if sure else "partly",
        accept=said,
    )
