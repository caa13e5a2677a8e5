"""Configuration files: where trainers leave them beside a log, and how each format is read without running anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.configuration import Found, flatten, parse_value
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.model import Note, SourceRef

if TYPE_CHECKING:
    import yaml

    from ppo_doctor.frameworks import Profile
    from ppo_doctor.model import ConfigValue

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
#: Other names that may be one: any YAML or TOML, and JSON that says so (a JSON beside a log is mostly another log).
OTHERS = re.compile(r".*\.(ya?ml|toml)|.*(config|args|param).*\.json", re.IGNORECASE)
MOST_OTHERS = 10
#: Larger than any configuration: bounds against reading a dataset by mistake, and YAML is slow.
LARGEST, LARGEST_YAML = 4 << 20, 1 << 20
#: A file of another name counts as the configuration when this many of the framework's settings are in it.
ENOUGH = 2


def read_config(path: Path) -> Found:
    """Read a configuration file.

    Raises:
        DoctorError: missing, too large, or not in its format (exit code 2).
    """
    try:
        size = path.stat().st_size
        if size > (LARGEST_YAML if path.suffix in (".yaml", ".yml") else LARGEST):
            raise _unreadable(path, f"{size} bytes are too many for a configuration")
        raw = _training_args(path) if path.suffix == ".bin" else _parse(path, path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or "not UTF-8 text") from error
    return Found(values=flatten(raw), source=SourceRef(path=str(path)))


def _unreadable(path: Path, why: str) -> DoctorError:
    return DoctorError(f"{path}: cannot read this configuration: {why}", code=ExitCode.USAGE)


def _parse(path: Path, text: str) -> Mapping[str, Any]:
    try:
        raw = _PARSERS.get(path.suffix, json.loads)(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, " ".join(str(error).split())) from error
    if not isinstance(raw, dict):
        raise _unreadable(path, "it is no table of settings")
    return raw


def _toml(text: str) -> object:
    import tomllib

    return tomllib.loads(text)


def _yaml(text: str) -> object:
    """Parse YAML with a safe loader that takes foreign tags for what they wrap, such as the zoo's OrderedDict."""
    import yaml

    class Tolerant(yaml.SafeLoader):
        pass

    Tolerant.add_multi_constructor("", lambda loader, _tag, node: _untagged(loader, node))
    try:
        return _pairs(yaml.load(text, Loader=Tolerant))  # noqa: S506 - Tolerant is a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _untagged(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    from yaml import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)  # type: ignore[arg-type]


def _pairs(raw: object) -> object:
    """Return an OrderedDict that came as `[[[key, value], …]]` as a dict, with numbers in text read as numbers."""
    if isinstance(raw, list) and len(raw) == 1 and isinstance(raw[0], list) and raw[0]:
        entries = raw[0]
        if all(isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries):
            return {key: _number(value) for key, value in entries}
    return raw


def _number(value: object) -> object:
    return parse_value(value) if isinstance(value, str) else value


_PARSERS: Mapping[str, Any] = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml}


def _training_args(path: Path) -> dict[str, ConfigValue]:
    """Return the plain settings in transformers' training_args.bin by reading opcodes, never by unpickling."""
    import zipfile  # 3 ms, and hardly any run has this file

    try:
        with zipfile.ZipFile(path) as archive:
            member = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
            if member.file_size > LARGEST:
                raise _unreadable(path, "its pickle is too large for settings")
            data = archive.read(member)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise _unreadable(path, "no torch archive") from error
    try:
        return dict(_plain_items(data))
    except ValueError as error:
        raise _unreadable(path, f"its pickle is torn: {error}") from error


_LITERALS = ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG1")
_CONSTANTS: Mapping[str, ConfigValue] = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}


def _plain_items(data: bytes) -> Iterator[tuple[str, ConfigValue]]:
    """Yield (key, value) for every text that is followed by a literal; anything built by code is passed over."""
    import pickletools

    memo: dict[int, ConfigValue] = {}
    key: str | None = None
    last: ConfigValue = None
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
            memo[len(memo) if argument is None else int(argument)] = last
            continue
        if name in _LITERALS:
            last = argument
        elif name in _CONSTANTS:
            last = _CONSTANTS[name]
        elif name in ("BINGET", "LONG_BINGET") and argument is not None:
            last = memo.get(int(argument))
        else:
            key = last = None
            continue
        if key is None:
            key = last if isinstance(last, str) else None
        else:
            yield key, last
            key = None


def beside(log: Path, profile: Profile, folders: Sequence[Path] = ()) -> tuple[list[Found], list[Note]]:
    """Return the configurations that lie beside a log, most believed first; an unreadable one becomes a note.

    `folders` are further places to look in, after the log's own.
    """
    found: list[Found] = []
    notes: list[Note] = []
    for path in _candidates(log, folders):
        try:
            config = _of_section(read_config(path), log.parent.name)
        except DoctorError as error:
            notes.append(Note(text=error.message, source=SourceRef(path=str(path))))
            continue
        if not _is_model(config) and (path.name in _NAMES or known_settings(config, profile) >= ENOUGH):
            found.append(config)
    return found, notes


_NAMES = frozenset(Path(name).name for name in KNOWN)


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
    named += [folder / name for folder in folders for name in KNOWN]
    others = [path for path in _files(log.parent) if OTHERS.fullmatch(path.name)][:MOST_OTHERS]
    unique = dict.fromkeys(path for path in [*named, *others] if path.is_file() and path.name != log.name)
    return list(unique)


def _files(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # a folder that may be entered but not listed; the named files above were tried
        return []


def _is_model(found: Found) -> bool:
    """Tell a Hugging Face model's config.json, which is no training configuration."""
    return "model_type" in found.values and bool({"vocab_size", "hidden_size", "architectures"} & set(found.values))


def known_settings(found: Found, profile: Profile) -> int:
    """Count the settings of a framework that a file holds."""
    tails = {key.rpartition(".")[2] for key in found.values} | set(found.values)
    return sum(any(key in tails for key in keys) for keys in profile.config.values())
