"""TOML folders parsed once: what evaluation needs is kept as JSON, because reading 250 TOML files costs 0.1 s.

A wheel carries the built-in packs compiled (see hatch_build.py). A checkout or a user's pack is cached in the user's
cache folder, keyed by tool version and by each file's path, size and modification time. Without a writable cache the
TOML is parsed every time. JSON, never pickle: a cache file is as untrusted as any other. One that somebody else may
have written, or that is not what was written, is parsed anew.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo_doctor import __version__, toml_text
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.opening import contents, plain_file

Compiled = dict[str, Any]
#: file path relative to the pack's root → its parsed TOML
Parsed = Mapping[str, Compiled]

#: Raise when the compiled form changes within a version.
FORMAT = 12
_BINARY = getattr(os, "O_BINARY", 0)
#: Bytes of one TOML file, and of a pack that was compiled.
LARGEST, LARGEST_CACHE = 4 << 20, 64 << 20


def parse_toml(path: Path) -> Compiled:
    """Parse one TOML file.

    Raises:
        DoctorError: the file cannot be read, is not UTF-8 or not TOML (exit code 2); the message names file and line.
    """
    try:
        return toml_text.loads(contents(path, LARGEST).decode("utf-8").replace("\r\n", "\n"))
    except DoctorError as error:
        raise DoctorError(error.message, hint=error.hint, code=ExitCode.USAGE) from error
    except OSError as error:
        raise DoctorError(f"{path}: cannot read it: {error.strerror or error}", code=ExitCode.USAGE) from error
    except RecursionError as error:
        raise DoctorError(f"{path}: not valid TOML: it is nested too deeply", code=ExitCode.USAGE) from error
    except ValueError as error:  # TOMLDecodeError, text that is not UTF-8, and integers of more than 4,300 digits
        raise DoctorError(f"{path}: not valid TOML: {error}", code=ExitCode.USAGE) from error


def toml_files(root: Path) -> list[Path]:
    """Return every TOML file under `root`, in a fixed order."""
    return sorted(root.rglob("*.toml"))


def parse_folder(root: Path, build: Callable[[Parsed], Compiled]) -> Compiled:
    """Parse a folder's TOML and reduce it with `build`, without any cache."""
    return build({path.relative_to(root).as_posix(): parse_toml(path) for path in toml_files(root)})


def load(kind: str, root: Path, build: Callable[[Parsed], Compiled]) -> Compiled:
    """Return `build` of a folder's TOML: from the wheel, from the cache, or parsed now."""
    shipped = shipped_pack(kind, root)
    if shipped is not None:
        return shipped
    # crc32, for hashlib costs 10 ms to import; the stamp holds the root, so that two roots never share a cache
    name = f"{kind}-{zlib.crc32(str(root).encode()):08x}"
    return cached(name, [str(root), stamp_of(root)], lambda: parse_folder(root, build))


def cached(name: str, stamp: list[object], make: Callable[[], Compiled]) -> Compiled:
    """Return what `make` returned when the stamp was last the same; the stamp and the result are JSON."""
    stamp = [__version__, FORMAT, *stamp]
    cache = cache_folder() / f"{name}.json"
    found = _read_cache(cache, stamp)
    if found is not None:
        return found
    made = make()
    _write_cache(cache, stamp, made)
    return made


def shipped_pack(kind: str, root: Path) -> Compiled | None:
    """Return the pack that the wheel carries compiled, if `root` is the wheel's own folder."""
    package = Path(__file__).parent
    compiled = package / "_compiled" / f"{kind}.json"
    if package not in root.parents or not compiled.is_file():
        return None
    import orjson  # not at the top: building a wheel compiles packs, and has no orjson

    found: Compiled = orjson.loads(compiled.read_bytes())
    return found


def cache_folder() -> Path:
    """Return the folder for our cache files on this platform; it may not exist."""
    if configured := os.environ.get("PPO_DOCTOR_CACHE"):
        return Path(configured)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "ppo-doctor"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ppo-doctor"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ppo-doctor"


def stamp_of(root: Path) -> list[object]:
    """Return name, size and time of every TOML file below a folder; pathlib takes five times as long (4 ms)."""
    files: list[object] = []
    for folder, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            if name.endswith(".toml"):
                stat = os.stat(f"{folder}{os.sep}{name}")  # noqa: PTH116
                files.append([f"{folder}{os.sep}{name}", stat.st_size, stat.st_mtime_ns])
    return files


def _read_cache(cache: Path, stamp: list[object]) -> Compiled | None:
    import orjson

    # A missing, foreign or torn cache file only costs the parse that it would have saved.
    with suppress(OSError, ValueError, TypeError, KeyError, DoctorError):
        with plain_file(cache) as file:
            if not _is_ours(os.fstat(file.fileno())):
                return None
            head, pack = file.readline(LARGEST), file.read(LARGEST_CACHE)
        held = orjson.loads(head)
        if held["stamp"] == stamp and held["checksum"] == zlib.crc32(pack):
            found: Compiled = orjson.loads(pack)
            return found
    return None


def _is_ours(status: os.stat_result) -> bool:
    """Tell whether nobody but this user, or root, can have written a file; where there are no users, anybody's is."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write_cache(cache: Path, stamp: list[object], built: Compiled) -> None:
    pack = json.dumps(built).encode()
    head = json.dumps({"stamp": stamp, "checksum": zlib.crc32(pack)}).encode()
    # A read-only home must not stop a diagnosis; the file appears whole or not at all.
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = cache.with_suffix(f".{os.getpid()}.part")
        part.unlink(missing_ok=True)
        # Never through a link that somebody else laid, and for nobody else to write.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "wb") as file:
            file.write(head + b"\n" + pack)
        part.replace(cache)
