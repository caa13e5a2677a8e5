"""Read and save names of users for metrics and settings: `--alias NAME=METRIC`, `[alias]` in `ppo-doctor.toml`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.metrics import METRICS, loggable
from ppo_doctor.model.opening import contents
from ppo_doctor.model.toml_files import parse_toml
from ppo_doctor.trainers.settings import SETTINGS

FILE = "ppo-doctor.toml"
#: Targets that number records.
CLOCKS = ("step", "update", "epoch", "minibatch")
#: Largest number of names in one file, and largest size of the file in bytes.
MOST_ALIASES, LARGEST = 200, 1 << 18
#: Metrics that a hint lists if a wrong name resembles none.
COMMON = ("episode_return", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "learning_rate")


@cache
def targets() -> tuple[str, ...]:
    """Return the valid targets of aliases: metrics of logs, settings and clocks."""
    return tuple(sorted({*filter(loggable, METRICS), *SETTINGS, *CLOCKS}))


def parse_alias(text: str) -> tuple[str, str]:
    """Return name and target of one `NAME=METRIC` of `--alias`; names may contain `=`.

    Raises:
        DoctorError: there is no `=`, or no such metric or setting (exit code 2).
    """
    name, equals, target = text.rpartition("=")
    if not equals or not name.strip():
        hint = "for example --alias G=episode_return"
        raise DoctorError(f"--alias {text}: expected NAME=METRIC", hint=hint, code=ExitCode.USAGE)
    return name.strip(), checked(target.strip(), f"--alias {text}")


def checked(target: str, where: str) -> str:
    """Return the target of an alias if it is valid; "-policy_loss" is a metric with its sign reversed.

    Raises:
        DoctorError: there is no such metric or setting (exit code 2); the hint lists the nearest names.
    """
    if target.removeprefix("-") in targets():
        return target
    near = get_close_matches(target.lower(), targets(), n=3, cutoff=0.5)
    hint = f"near: {', '.join(near)}" if near else f"for example {', '.join(COMMON)}"
    raise DoctorError(f"{where}: no metric or setting '{target}'", hint=hint, code=ExitCode.USAGE)


def read_table(raw: object, where: str) -> dict[str, str]:
    """Return the names of an `[alias]` table.

    Raises:
        DoctorError: it is no table of strings, has too many names, or an invalid target (exit code 2).
    """
    if not isinstance(raw, Mapping) or not all(isinstance(target, str) for target in raw.values()):
        hint = '[alias] then "G" = "episode_return"'
        raise DoctorError(f"{where}: alias: expected a table of names", hint=hint, code=ExitCode.USAGE)
    if len(raw) > MOST_ALIASES:
        raise DoctorError(f"{where}: alias: more than {MOST_ALIASES} names", code=ExitCode.USAGE)
    return {str(name): checked(target, f"{where}: alias.{name}") for name, target in raw.items()}


def beside(log: Path) -> dict[str, str]:
    """Return the aliases in the `ppo-doctor.toml` in the folder of a log, empty without such a file.

    Raises:
        DoctorError: the file cannot be read or is invalid (exit code 2).
    """
    file = log.parent / FILE
    if not file.is_file():
        return {}
    if file.stat().st_size > LARGEST:
        raise DoctorError(f"{file}: too large, more than {LARGEST >> 10} KiB", code=ExitCode.USAGE)
    return read_table(parse_toml(file).get("alias", {}), str(file))


def save(folder: Path, aliases: Mapping[str, str]) -> Path:
    """Add names to the `[alias]` table of a folder's `ppo-doctor.toml`, keep its other content, and return its path.

    Raises:
        DoctorError: the file cannot be written, or its table has a form that these lines cannot extend (exit code 2).
    """
    file = folder / FILE
    tables = parse_toml(file) if file.is_file() else {}
    text = contents(file, LARGEST).decode("utf-8") if tables else ""
    written = _with_names(text.splitlines(), aliases, before=tables.get("alias", {}))
    wanted = {**tables, "alias": {**tables.get("alias", {}), **aliases}}
    if not _means(written, wanted):
        hint = f"write into its [alias] table: {'; '.join(_lines(aliases))}"
        raise DoctorError(f"{file}: cannot add names to this file", hint=hint, code=ExitCode.USAGE)
    try:
        file.write_text(written, encoding="utf-8")
    except OSError as error:
        raise DoctorError(f"{file}: cannot write: {error.strerror or error}", code=ExitCode.USAGE) from error
    return file


def _means(text: str, wanted: Mapping[str, object]) -> bool:
    """Return whether a TOML text consists of exactly these tables."""
    import tomllib  # needed only for saving

    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _lines(aliases: Mapping[str, str]) -> list[str]:
    return [f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(target)}" for name, target in aliases.items()]


def _with_names(lines: Sequence[str], aliases: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Return the text of a file with names added below `[alias]` and their previous lines removed."""
    replaced = {line for name in aliases.keys() & before.keys() for line in _lines({name: before[name]})}
    kept = [line for line in lines if line.strip() not in replaced]
    if "[alias]" not in map(str.strip, kept):
        kept += [*([""] if kept else []), "[alias]"]
    at = next(place for place, line in enumerate(kept) if line.strip() == "[alias]") + 1
    return "\n".join([*kept[:at], *_lines(aliases), *kept[at:]]) + "\n"
