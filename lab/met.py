"""Runs of trainers met once: made to be judged unseen, and kept since, for whoever repairs what they showed.

`python -m lab.met FOLDER…` packs sets of such runs, `FOLDER/labels/TRAINER.csv` beside `FOLDER/TRAINER/CASE/FILES`,
into `lab/met`. What trained them is not kept: a figure of theirs counts once, before anybody has looked.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .corpus import extracted
from .environments import ROOT
from .labels import COLUMNS, HEAD, Label, labels

FOLDER = ROOT / "met"
MET = "trainers met once"
#: What another project's code is written in: of a run only what was logged and configured is kept.
CODE = (".py",)


def met_runs(folder: Path = FOLDER) -> Iterator[tuple[Label, Path]]:
    """Yield the labels of all such runs, each with the folder that its case lies in."""
    for path in sorted((folder / "labels").glob("*.csv")):
        runs = extracted(folder / f"{path.stem}.tar.xz")
        for label in labels(path.stem, folder / "labels"):
            yield replace(label, trainer=MET, case=f"{path.stem}/{label.case}"), runs


def pack(source: Path, trainer: str) -> None:
    """Put the files that a trainer's labels name into an archive, without where they were made."""
    (FOLDER / "labels").mkdir(parents=True, exist_ok=True)
    rows = list(csv.DictReader((source / "labels" / f"{trainer}.csv").read_text(encoding="utf-8").splitlines()))
    files = sorted({(row["case"], name) for row in rows for c in COLUMNS for name in _kept(row[c])})
    with tarfile.open(FOLDER / f"{trainer}.tar.xz", "w:xz", preset=9) as archive:
        for case, name in files:
            data = _neutral((source / trainer / case / name).read_bytes(), source)
            told = tarfile.TarInfo(f"{trainer}/{case}/{_anywhere(name)}")
            told.size = len(data)
            archive.addfile(told, io.BytesIO(data))
    with (FOLDER / "labels" / f"{trainer}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            names = {c: ";".join(map(_anywhere, _kept(row[c]))) for c in COLUMNS}
            label = _of_bare(row) if names["bare"] == names["config"] else {}
            writer.writerow(row | names | label | {"note": row["note"].replace(str(source), "")})


def _of_bare(row: dict[str, str]) -> dict[str, str]:
    """Return what a configuration tells that was code, and is not kept: no more than the log."""
    return {f"config_{part}": row[f"bare_{part}"] for part in ("identifiable", "accept")}


def _kept(names: str) -> list[str]:
    return [name for name in names.split(";") if not name.endswith(CODE)]


def _anywhere(name: str) -> str:
    """Return a name without the machine's, which event files carry."""
    parts = [part.replace(".vm.", ".host.") for part in name.split("/")]
    return "/".join(part.removesuffix(".vm") + ".host" * part.endswith(".vm") for part in parts)


def _neutral(data: bytes, source: Path) -> bytes:
    if b"\0" in data:
        return data
    data = data.replace(bytes(source.parent), b"/runs").replace(b"/tmp/", b"/runs/")
    return re.sub(rb"/[^\s\"':]*(?=/lib/python)", b"/env", data)


def main() -> None:
    """Pack the sets that are named."""
    for folder in map(Path, sys.argv[1:]):
        for path in sorted((folder / "labels").glob("*.csv")):
            pack(folder.resolve(), path.stem)


if __name__ == "__main__":
    main()
