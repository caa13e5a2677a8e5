"""Find configuration files beside a log, and read each format without running anything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.run import SourceRef
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.config_formats import UnreadableError, Written, followed, line_of, parse
from ppo_doctor.trainers.configuration import MOST_COMPARED, Found, flatten
from ppo_doctor.trainers.detection import OF_PPO
from ppo_doctor.trainers.names import setting_of

if TYPE_CHECKING:
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.trainers.profiles import Profile

#: Larger than any configuration: bounds against reading a dataset by mistake, and YAML is slow.
LARGEST, LARGEST_YAML = 4 << 20, 1 << 19
#: Larger than a configuration whose name does not say that it is one.
LARGEST_ALONE = 1 << 20
#: A file that says by nothing but its content that it is one holds at least so many known names.
ENOUGH_ALONE = 3
#: Lines of a text that are no settings: a log that prints its settings first goes on.
MOST_OTHER_LINES = 40
#: Files of commands, which nobody logs to.
COMMANDS = (".sh", ".bash")

#: Languages of blocks of code in Markdown that hold settings, and the suffix of their files; blocks that are looked at.
_LANGUAGES = {
    **dict.fromkeys(("python", "py", "python3"), ".py"),
    **dict.fromkeys(("yaml", "yml"), ".yaml"),
    **dict.fromkeys(("bash", "sh", "shell"), ".sh"),
    **{language: f".{language}" for language in ("json", "toml")},
}
_FENCED = re.compile(rf"^```({'|'.join(_LANGUAGES)})[^\S\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL | re.IGNORECASE)
MOST_BLOCKS = 20


def read_config(path: Path) -> Found:
    """Read a configuration file.

    Raises:
        DoctorError: missing, too large, or not in its format (exit code 2).
    """
    try:
        written = Written(values=_training_args(path)) if path.suffix == ".bin" else parse(path.suffix, _text(path))
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnreadableError as error:
        raise _unreadable(path, str(error), error.line) from error
    return _found(path, written)


def _found(path: Path, written: Written) -> Found:
    values = followed(flatten(written.values))
    lines = {key: line for key in values if (line := line_of(written.lines, key)) is not None}
    return Found(values=values, source=SourceRef(path=str(path)), lines=lines, imports=written.imports)


def fenced_settings(path: Path) -> Iterator[Found]:
    """Yield the settings of each block of code in a Markdown file whose language is one of configurations.

    A block that is not in its language, or holds no settings, is passed over: people paste parts of programs.
    """
    try:
        text = _text(path)
    except (OSError, UnreadableError):
        return
    for block in islice(_FENCED.finditer(text), MOST_BLOCKS):
        above = "\n" * text.count("\n", 0, block.start(2))  # a line keeps its number
        try:
            written = parse(_LANGUAGES[block[1].lower()], above + block[2])
        except UnreadableError:
            continue
        yield _found(path, written)


def _unreadable(path: Path, why: str, line: int | None = None) -> DoctorError:
    where = path if line is None else f"{path}:{line}"
    return DoctorError(f"{where}: cannot read this configuration: {why}", code=ExitCode.USAGE)


def _text(path: Path) -> str:
    """Return the text of a regular file: of a pipe or a device nobody knows how much will come, or when.

    Raises:
        UnreadableError: it is no such file, too large for a configuration, or not UTF-8.
        OSError: it cannot be opened.
    """
    limit = LARGEST_YAML if path.suffix.lower() in (".yaml", ".yml") else LARGEST
    with _plain(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UnreadableError(f"more than {limit >> 10} KiB are too many for a configuration")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("not UTF-8 text", data.count(b"\n", 0, error.start) + 1) from error


def _plain(path: Path) -> BinaryIO:
    try:
        return plain_file(path)
    except DoctorError as error:
        raise UnreadableError("it is no regular file") from error


def _training_args(path: Path) -> dict[str, ConfigValue]:
    """Return the plain settings in transformers' training_args.bin by reading opcodes, never by unpickling."""
    import struct
    import zipfile  # 3 ms, and hardly any run has this file
    import zlib

    # zipfile raises the errors of its decompressors, and of fields that contradict each other, as they are.
    damaged = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, RuntimeError, EOFError, OverflowError)
    try:
        with _plain(path) as file, zipfile.ZipFile(file) as archive:
            pickles = [info for info in archive.infolist() if info.filename.endswith("data.pkl")][:1]
            small = [archive.read(info) for info in pickles if info.file_size <= LARGEST]
            settings = dict(_plain_items(small[0])) if small else None
    except damaged as error:
        raise UnreadableError(f"the archive or its pickle is torn: {error}") from error
    if settings is None:
        raise UnreadableError("its pickle is too large for settings" if pickles else "no torch archive")
    return settings


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


#: Names of configurations, whatever their suffix.
_STEMS = frozenset(
    {
        *("config", "args", "params", "hparams", "hyperparameters", "configuration", "training_args"),
        *("torchtune_config", "agent"),
    }
)


#: Files that programs print into, and how often a name at the head of a line makes one a log.
CONSOLES, REPEATED = (".txt", ".log", ".out", ""), 5
#: What no settings hold: a program that failed wrote it.
TRACEBACK = "Traceback (most recent call last)"
#: A name and what follows it, behind what a console puts before each line: "(TaskRunner pid=5512)", "[train]".
_NAMED = re.compile(r"\s*(?:[(\[][^)\]\n]{0,80}[)\]]\s*)*([A-Za-z][\w./ -]{0,60}?)\s*[:=]")


def holds_settings(path: Path) -> bool:
    """Tell whether a file whose name does not say so holds the settings of a PPO run, and no log of one."""
    try:
        if path.stat().st_size > LARGEST_ALONE:
            return False
        text = _text(path)
        if path.suffix.lower() in CONSOLES and (_repeats(text) or TRACEBACK in text):
            return False
        found = parse(path.suffix, text)
        names = {key.rpartition(".")[2] for key in flatten(found.values)}
    except (OSError, UnreadableError, DoctorError):
        return False  # it is no configuration that we can read, so it is read as a log, which tells what is wrong
    if found.other_lines > MOST_OTHER_LINES and path.suffix.lower() not in COMMANDS:
        return False
    known, of_ppo, metrics = _known_names()
    meant = {name: setting for name in names - known if (setting := setting_of(name)) is not None}
    # One name of a metric may be chance, such as the length of an episode or the loss of one of several datasets.
    if max(len((names & metrics) - meant.keys()), len(_names_of_records(found.values) & metrics)) > 1:
        return False
    speaks_of_ppo = names & of_ppo or OF_PPO.intersection(meant.values())
    return len(names & known) + len(meant) >= ENOUGH_ALONE and bool(speaks_of_ppo or path.stem.lower() in _STEMS)


def _repeats(text: str) -> bool:
    """Tell whether lines begin with one name again and again, as those of a log do and those of settings do not."""
    names = (_NAMED.match(line) for line in text.splitlines())
    return max(Counter(found[1] for found in names if found).values(), default=0) >= REPEATED


def _names_of_records(values: Mapping[str, object]) -> set[str]:
    """Return the keys of lists of objects: a log that was saved with its settings holds its records so."""
    lists = [value for value in values.values() if isinstance(value, list)]
    return {str(key) for records in lists for record in records if isinstance(record, dict) for key in record}


def _known_names() -> tuple[set[str], set[str], set[str]]:
    """Return the last parts of names of settings, of those that speak of PPO, and names of metrics alone."""
    profiles = detection.profiles().values()
    settings = [(name, key.rpartition(".")[2]) for p in profiles for name, keys in p.config.items() for key in keys]
    known = {key for _, key in settings}
    metrics = {key for p in profiles for metric in p.metrics.values() for key in metric.keys}
    return known, {key for name, key in settings if name in OF_PPO}, metrics - known


def is_model(found: Found) -> bool:
    """Tell a Hugging Face model's config.json, which is no training configuration."""
    return "model_type" in found.values and bool({"vocab_size", "hidden_size", "architectures"} & set(found.values))


def known_settings(found: Found, profile: Profile) -> int:
    """Count the settings of a framework that a file holds, of a trainer that nobody knows by what their keys mean."""
    tails = {key.rpartition(".")[2] for key in found.values} | set(found.values)
    named = {name for name, keys in profile.config.items() if any(key in tails for key in keys)}
    meant = set(map(setting_of, islice(found.values, MOST_COMPARED))) if profile.name == detection.CANONICAL else set()
    return len(named | (meant - {None}))
