"""The runs as one archive for each trainer, so that a clone can score without training."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Set
from pathlib import Path

from .environments import BUILD, ROOT
from .labels import labels

ARCHIVES = ROOT / "corpus"
MANIFEST = ("case", "name", "fault", "task", "seed", "cpu_seconds", "ended", "made")
#: Bytes of all archives together.
MOST_BYTES = 25_000_000


def pack(trainer: str, runs: Path = BUILD / "runs") -> Path:
    """Put the files that labels name into an archive that is the same for the same files; list its runs beside it."""
    ARCHIVES.mkdir(exist_ok=True)
    target = ARCHIVES / f"{trainer}.tar.xz"
    names = sorted({(label.case, name) for label in labels(trainer) for name in label.files})
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for case, name in names:
            data = _neutral((runs / trainer / case / name).read_bytes())
            told = tarfile.TarInfo(f"{case}/{name}")
            told.size = len(data)
            archive.addfile(told, io.BytesIO(data))
    _list(trainer, runs / trainer, {case for case, _ in names})
    return target


def _neutral(data: bytes) -> bytes:
    """Return a file without the place where it was made, which tracebacks name; nothing else in it is changed."""
    return data if b"\0" in data else data.replace(bytes(ROOT.parent), b"/project")


def _list(trainer: str, runs: Path, kept: Set[str]) -> None:
    """Write what each run is, how it was made, how it ended and what it cost."""
    cases = [json.loads(line) for line in (runs / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
    with (ARCHIVES / f"{trainer}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, MANIFEST, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for case in cases:
            if case["case"] in kept:
                done = json.loads((runs / f"{case['case']}.done.json").read_text(encoding="utf-8"))
                writer.writerow(case | done)


def manifest(trainer: str) -> list[dict[str, str]]:
    """Return the list of a trainer's runs."""
    with (ARCHIVES / f"{trainer}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def unpacked(trainer: str) -> Path:
    """Return the folder of a trainer's runs out of its archive."""
    return extracted(ARCHIVES / f"{trainer}.tar.xz")


def extracted(archive: Path) -> Path:
    """Return the folder of an archive's files, which is unpacked when it is new."""
    folder = BUILD / archive.parent.name / archive.name.partition(".")[0]
    digest, mark = hashlib.sha256(archive.read_bytes()).hexdigest(), folder / "archive.sha256"
    if not mark.is_file() or mark.read_text(encoding="utf-8") != digest:
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        mark.write_text(digest, encoding="utf-8")
    return folder
