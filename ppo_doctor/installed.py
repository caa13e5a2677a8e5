"""Rule packs that are installed as packages: found by their entry point, without importing any of their code.

Reading every package's metadata costs more than the rest of a start, so the answer is cached, keyed by the size and the
modification time of every `entry_points.txt` on the import path. Without a writable cache it is looked up every time.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.compiled import cached
from ppo_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "ppo_doctor.rules"
_METADATA = (".dist-info", ".egg-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One pack that a package brings: the entry point's name, the package with its version, the pack's folder."""

    name: str
    package: str
    folder: Path


def installed_packs() -> tuple[Installed, ...]:
    """Return the packs of installed packages, by the name of their entry point.

    Raises:
        DoctorError: an entry point that names no folder with a `pack.toml` (exit code 2).
    """
    name = f"packs-{zlib.crc32(sys.prefix.encode()):08x}"  # environments that take turns keep a cache each
    found = cached(name, _stamp(sys.path), lambda: {"packs": [_row(entry) for entry in _entries()]})
    return tuple(Installed(name=row["name"], package=row["package"], folder=_checked(row)) for row in found["packs"])


def _stamp(places: Sequence[str]) -> list[object]:
    return [[path, stat.st_size, stat.st_mtime_ns] for path, stat in sorted(_metadata(places))]


def _metadata(places: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    for place in dict.fromkeys(places):
        # What is no folder (a zip, nothing at all) holds no pack: its files could not be read as files.
        with suppress(OSError), os.scandir(os.path.abspath(place or os.curdir)) as entries:  # noqa: PTH100
            for entry in entries:
                if entry.name.endswith(_METADATA):
                    path = f"{entry.path}{os.sep}entry_points.txt"
                    with suppress(OSError):
                        yield path, os.stat(path)  # noqa: PTH116 - many


def _entries() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))


def _row(entry: EntryPoint) -> dict[str, str]:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    folder = _folder(entry.module)
    return {"name": entry.name, "package": package, "value": entry.value, "folder": str(folder or "")}


def _folder(module: str) -> Path | None:
    """Return the folder of a module that holds a pack; none of the code in it runs.

    `find_spec` of a module inside a package would import that package.
    """
    from importlib.util import find_spec

    first, *rest = module.split(".")
    with suppress(ImportError, ValueError):
        spec = find_spec(first)
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        if spec is not None and not places and spec.origin and not rest:
            places = [str(Path(spec.origin).parent)]
        found = (_below(Path(place), rest) for place in places)
        return next((folder for folder in found if (folder / "pack.toml").is_file()), None)
    return None


def _below(folder: Path, parts: Sequence[str]) -> Path:
    """Return the folder of a module in a package: its own, or the one that its file stands in."""
    for part in parts:
        if (folder / part).is_dir():
            folder = folder / part
    return folder


def _checked(row: dict[str, str]) -> Path:
    if row["folder"] and (folder := Path(row["folder"])).joinpath("pack.toml").is_file():
        return folder
    message = f"{row['package']}: its entry point {row['name']} = {row['value']} leads to no rule pack"
    hint = "a rule pack is a folder with pack.toml; repair or uninstall the package"
    raise DoctorError(message, hint=hint, code=ExitCode.USAGE)
