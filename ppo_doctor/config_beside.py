"""Which configurations beside a log are its run's: those of a known name, and others that the log links to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.config_files import COMMANDS, fenced_settings, is_model, known_settings, read_config
from ppo_doctor.configs import SCRIPTS
from ppo_doctor.errors import DoctorError
from ppo_doctor.model import Note, SourceRef
from ppo_doctor.model.frozen import frozen
from ppo_doctor.opening import plain_file

if TYPE_CHECKING:
    from ppo_doctor.configuration import Found
    from ppo_doctor.frameworks import Profile

#: Files that hold a run's settings when they lie beside its log, in the order in which they are believed.
KNOWN = (
    "config.json",
    "args.json",
    "params.json",
    "hparams.json",
    "hyperparameters.json",
    "config.yaml",
    "config.yml",
    "args.yaml",
    "args.yml",
    "configuration.yaml",
    "hparams.yaml",
    "training_args.yaml",
    "torchtune_config.yaml",
    "agent.yaml",
    "config.toml",
    ".hydra/config.yaml",
    "files/config.yaml",
    "params/agent.yaml",
    "training_args.bin",
)
_NAMES = frozenset(Path(name).name for name in KNOWN)
#: Other names that may be one: any YAML or TOML, a script, and what else says so (a JSON beside a log is mostly another
#: log).
OTHERS = re.compile(r".*\.(ya?ml|toml|sh|py)|.*(config|args|param).*\.(json|txt)", re.IGNORECASE)
MOST_OTHERS = 10
#: Our own settings, and a Python project's: never a training run's.
NEVER = ("ppo-doctor.toml", "pyproject.toml")
#: Words in a name that say that a file configures a run.
_WORD = re.compile(
    r"(?:^|[\W_]|(?<=[a-z]))(?:config|configuration|conf|cfg|args|arguments|params|parameters|hparams|hyper\w*|settings)"
    r"(?:$|[\W_\d])",
    re.IGNORECASE,
)
#: Files that start a run: of several in a folder nobody says which started it.
LAUNCHERS = frozenset({*COMMANDS, *SCRIPTS})
#: A file of another name counts as a configuration when this many of the framework's settings are in it.
ENOUGH = 2
#: Documents that a log is pasted into.
MARKDOWN = (".md", ".markdown")
#: Bytes at the head of a log that are searched for the name of a file.
HEAD = 1 << 18


@frozen
class Beside:
    """A configuration beside a log; `linked` tells whether its name, or the log, says that it is the run's."""

    found: Found
    linked: bool

    @property
    def path(self) -> Path:
        """Return the file."""
        return Path(self.found.source.path)


def beside(log: Path, profile: Profile, folders: Sequence[Path] = ()) -> tuple[list[Beside], list[Note]]:
    """Return the configurations that lie beside a log, most believed first; an unreadable one becomes a note.

    `folders` are further places to look in, after the log's own.
    """
    found: list[Beside] = []
    notes: list[Note] = []
    for path in _candidates(log, folders):
        try:
            config = _of_section(read_config(path), log.parent.name)
        except DoctorError as error:
            if path.suffix.lower() not in SCRIPTS:  # a program without settings is no broken configuration
                notes.append(Note(text=error.message, source=SourceRef(path=str(path))))
            continue
        if not is_model(config) and (path.name in _NAMES or known_settings(config, profile) >= ENOUGH):
            found.append(Beside(found=config, linked=False))
    launchers = sum(_starts(one.path) for one in found)
    found = [replace(one, linked=_linked(one.path, log, alone=launchers == 1)) for one in found]
    if log.suffix.lower() in MARKDOWN:  # pasted above its own log
        inside = (one for one in fenced_settings(log) if known_settings(one, profile) >= ENOUGH)
        found = [*(Beside(found=one, linked=True) for one in inside), *found]
    return found, notes


def _starts(path: Path) -> bool:
    return path.suffix.lower() in LAUNCHERS


def _linked(path: Path, log: Path, *, alone: bool) -> bool:
    """Tell whether a configuration's name is a known one, the log's, or in the log; of scripts whether it is alone."""
    if path.name in _NAMES or path.name == f"{log.stem}.config.json" or (_starts(path) and alone):
        return True
    stems = {log.stem.casefold(), log.parent.resolve().name.casefold()}
    if path.stem.casefold() in stems or (_WORD.search(path.stem) and not _starts(path)):
        return True
    try:
        with plain_file(log) as file:
            return path.name.encode() in file.read(HEAD)
    except (DoctorError, OSError):
        return False


def _of_section(found: Found, name: str) -> Found:
    """Leave out the settings of other sections than the one that the log's folder is named for.

    ML-Agents keeps every behaviour's settings in one file, under `behaviors.<name>`, and logs each to its own folder.
    """
    section = f".{name}."
    owner = next((key[: key.index(section) + 1] for key in found.values if section in key), None)
    if owner is None:
        return found
    kept = {
        key: v for key, v in found.values.items() if not key.startswith(owner) or key.startswith(owner + name + ".")
    }
    return replace(found, values=kept)


def _candidates(log: Path, further: Sequence[Path]) -> list[Path]:
    folders = [log.parent]
    if log.parent.name.startswith("checkpoint-") or log.parent.name in ("logs", "log"):
        folders.append(log.parent.parent)
    folders += [folder for folder in further if folder not in folders]
    named = [log.parent / f"{log.stem}.config.json"]
    held = {folder: _held_in(folder) for folder in folders}  # one listing instead of asking for each of nineteen
    named += [folder / name for folder in folders for name in _known_in(held[folder])]
    names = sorted(set(held[log.parent] or ()).difference(NEVER))
    others = [log.parent / name for name in names if OTHERS.fullmatch(name)]
    settings = [path for path in others if not _starts(path)][:MOST_OTHERS]
    scripts = [path for path in others if _starts(path)][:MOST_OTHERS]
    unique = dict.fromkeys(path for path in [*named, *settings, *scripts] if path.is_file() and path.name != log.name)
    return list(unique)


def _held_in(folder: Path) -> list[str] | None:
    """Return the names in a folder, None for one that may be entered but not listed."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are enough
    except OSError:
        return None


def _known_in(held: Sequence[str] | None) -> Sequence[str]:
    """Return the known names that a folder of these names may hold: any where they are not known."""
    if held is None:
        return KNOWN
    folded = {name.casefold() for name in held}
    return [name for name in KNOWN if name.partition("/")[0].casefold() in folded]
