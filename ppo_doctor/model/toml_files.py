"""Read untrusted TOML, refuse input for which the parser needs quadratic time, and cache parsed folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppo_doctor import __version__
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import contents
from ppo_doctor.model.patterns import lazy_pattern

#: The most parts of a dotted key; for a key of 20,000 parts the parser needs ten seconds and 1.6 GB.
MOST_PARTS = 100
_PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = lazy_pattern(rf"(?<![\w-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MOST_PARTS}}}")


def loads(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        ValueError: it is not TOML, or has a key of more than `MOST_PARTS` parts; the message names the line.
        RecursionError: it is nested too deeply.
    """
    if match := _LONG_KEY.search(text):
        line = text.count("\n", 0, match.start()) + 1
        raise ValueError(f"a key of more than {MOST_PARTS} parts (at line {line})")
    import tomllib  # not needed if a compiled pack is available

    return tomllib.loads(text)


Compiled = dict[str, Any]
#: file path relative to the folder → its parsed TOML
Parsed = Mapping[str, Compiled]

#: The version of the compiled form; increase it when the form changes within a version of the package.
FORMAT = 14
#: The largest TOML file in bytes.
LARGEST = 4 << 20
PACKAGE = Path(__file__).parent.parent
CACHE = PACKAGE / "__pycache__"


def parse_toml(path: Path) -> Compiled:
    """Parse one TOML file.

    Raises:
        DoctorError: the file cannot be read, is not UTF-8 or not TOML (exit code 2); the message names file and line.
    """
    try:
        return loads(contents(path, LARGEST).decode("utf-8").replace("\r\n", "\n"))
    except DoctorError as error:
        raise DoctorError(error.message, hint=error.hint, code=ExitCode.USAGE) from error
    except OSError as error:
        raise DoctorError(f"{path}: cannot read it: {error.strerror or error}", code=ExitCode.USAGE) from error
    except RecursionError as error:
        raise DoctorError(f"{path}: not valid TOML: it is nested too deeply", code=ExitCode.USAGE) from error
    except ValueError as error:  # TOMLDecodeError, text that is not UTF-8, and integers of more than 4,300 digits
        raise DoctorError(f"{path}: not valid TOML: {error}", code=ExitCode.USAGE) from error


def toml_files(root: Path) -> list[Path]:
    """Return every TOML file below `root`, sorted by path."""
    return sorted(root.rglob("*.toml"))


def parse_folder(root: Path, build: Callable[[Parsed], Compiled]) -> Compiled:
    """Parse all TOML files of a folder and return what `build` makes of them, without a cache."""
    return build({path.relative_to(root).as_posix(): parse_toml(path) for path in toml_files(root)})


def load(kind: str, root: Path, build: Callable[[Parsed], Compiled]) -> Compiled:
    """Return what `build` makes of a folder of the package: from the wheel, from the cache, or parsed now."""
    import orjson  # not at the top: the build of the wheel imports this module and has no orjson

    compiled: Compiled
    if (shipped := PACKAGE / "_compiled" / f"{kind}.json").is_file():
        compiled = orjson.loads(shipped.read_bytes())
        return compiled
    cache, stamp = CACHE / f"{kind}.json", [__version__, FORMAT, stamp_of(root)]
    with suppress(OSError, ValueError):  # there is no cache yet, or it is not JSON
        cached = orjson.loads(cache.read_bytes())
        if cached["stamp"] == stamp:
            compiled = cached["made"]
            return compiled
    compiled = parse_folder(root, build)
    with suppress(OSError):  # a read-only checkout must not stop a diagnosis
        CACHE.mkdir(exist_ok=True)
        part = cache.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(orjson.dumps({"stamp": stamp, "made": compiled}))
        part.replace(cache)
    return compiled


def stamp_of(root: Path) -> list[object]:
    """Return path, size and modification time of every TOML file below a folder."""
    # pathlib would take five times as long (4 ms).
    files: list[object] = []
    for folder, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            if name.endswith(".toml"):
                stat = os.stat(f"{folder}{os.sep}{name}")  # noqa: PTH116
                files.append([f"{folder}{os.sep}{name}", stat.st_size, stat.st_mtime_ns])
    return files
