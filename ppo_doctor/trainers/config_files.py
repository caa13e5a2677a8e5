"""Read configuration files without running anything, and recognise which files are configurations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.opening import plain_file
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import SourceRef
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.config_formats import UnreadableError, Written, followed, line_of, parse
from ppo_doctor.trainers.configuration import MOST_COMPARED, Found, flatten
from ppo_doctor.trainers.detection import OF_PPO
from ppo_doctor.trainers.names import setting_of

if TYPE_CHECKING:
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.trainers.profiles import Profile

#: Largest configuration in bytes, so that no dataset is read by mistake; YAML has its own limit because it is slow.
LARGEST, LARGEST_YAML = 4 << 20, 1 << 19
#: Largest configuration in bytes that is recognised by content alone.
LARGEST_ALONE = 1 << 20
#: Fewest known names of settings in a configuration that is recognised by content alone.
ENOUGH_ALONE = 3
#: Largest number of other lines in a text of settings; a log that prints its settings first has more.
MOST_OTHER_LINES = 40
#: Suffixes of scripts of commands, which are never logs.
COMMANDS = (".sh", ".bash")

#: Language of a code block in Markdown → suffix of such files; MOST_BLOCKS is the number of blocks that are examined.
_LANGUAGES = {
    **dict.fromkeys(("python", "py", "python3"), ".py"),
    **dict.fromkeys(("yaml", "yml"), ".yaml"),
    **dict.fromkeys(("bash", "sh", "shell"), ".sh"),
    **{language: f".{language}" for language in ("json", "toml")},
}
_FENCED = lazy_pattern(rf"^```({'|'.join(_LANGUAGES)})[^\S\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL | re.IGNORECASE)
MOST_BLOCKS = 20


def read_config(path: Path) -> Found:
    """Return the settings of a configuration file.

    Raises:
        DoctorError: the file is missing, too large, or not in its format (exit code 2).
    """
    try:
        written = Written(values=_training_args(path)) if path.suffix == ".bin" else parse(path.suffix, _text(path))
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except UnreadableError as error:
        raise _unreadable(path, str(error), error.line) from error
    return _found(path, written)


def settings_in(path: Path, text: str) -> Found:
    """Return the settings that a file would have with this text.

    Raises:
        UnreadableError: the text is not in the format of the file.
    """
    return _found(path, parse(path.suffix, text))


def _found(path: Path, written: Written) -> Found:
    values = followed(flatten(written.values))
    lines = {key: line for key in values if (line := line_of(written.lines, key)) is not None}
    return Found(values=values, source=SourceRef(path=str(path)), lines=lines, imports=written.imports)


def fenced_settings(path: Path) -> Iterator[Found]:
    """Yield the settings of each code block in a Markdown file whose language is that of configurations.

    Blocks that cannot be parsed or have no settings are skipped, because people paste parts of programs.
    """
    try:
        text = _text(path)
    except (OSError, UnreadableError):
        return
    for block in islice(_FENCED.finditer(text), MOST_BLOCKS):
        lines_before = "\n" * text.count("\n", 0, block.start(2))  # keeps line numbers
        try:
            written = parse(_LANGUAGES[block[1].lower()], lines_before + block[2])
        except UnreadableError:
            continue
        yield _found(path, written)


def _unreadable(path: Path, why: str, line: int | None = None) -> DoctorError:
    where = path if line is None else f"{path}:{line}"
    return DoctorError(f"{where}: cannot read this configuration: {why}", code=ExitCode.USAGE)


def _text(path: Path) -> str:
    """Return the text of a regular file; pipes and devices could block or never end.

    Raises:
        UnreadableError: the file is not regular, too large for a configuration, or not UTF-8.
        OSError: the file cannot be opened.
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

    # zipfile does not wrap errors of its decompressors and of contradictory fields.
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
    """Yield (key, value) for every string that is followed by a literal; objects built by code are skipped."""
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


#: Suffixes of files with console output, and how many lines that begin with the same name make a file a log.
CONSOLES, REPEATED = (".txt", ".log", ".out", ""), 5
#: Text that occurs in the output of failed programs and never in settings.
TRACEBACK = "Traceback (most recent call last)"
#: A name and its separator, after a prefix of the console such as "(TaskRunner pid=5512)" or "[train]".
_NAMED = lazy_pattern(r"\s*(?:[(\[][^)\]\n]{0,80}[)\]]\s*)*([A-Za-z][\w./ -]{0,60}?)\s*[:=]")


def holds_settings(path: Path) -> bool:
    """Return whether a file of any name contains the settings of a PPO run, and is not its log."""
    try:
        if path.stat().st_size > LARGEST_ALONE:
            return False
        text = _text(path)
        if path.suffix.lower() in CONSOLES and (_repeats(text) or TRACEBACK in text):
            return False
        written = parse(path.suffix, text)
        names = {key.rpartition(".")[2] for key in flatten(written.values)}
    except (OSError, UnreadableError, DoctorError):
        return False  # it is then read as a log, which reports what is wrong
    if written.other_lines > MOST_OTHER_LINES and path.suffix.lower() not in COMMANDS:
        return False
    known, of_ppo, metrics = _known_names()
    meant = {name: setting for name in names - known if (setting := setting_of(name)) is not None}
    # One name of a metric may be accidental, such as the length of an episode or the loss of one of several datasets.
    if max(len((names & metrics) - meant.keys()), len(_names_of_records(written.values) & metrics)) > 1:
        return False
    has_ppo_setting = names & of_ppo or OF_PPO.intersection(meant.values())
    return len(names & known) + len(meant) >= ENOUGH_ALONE and bool(has_ppo_setting or path.stem.lower() in _STEMS)


def _repeats(text: str) -> bool:
    """Return whether REPEATED lines begin with the same name, as in a log and not in settings."""
    names = (_NAMED.match(line) for line in text.splitlines())
    return max(Counter(match[1] for match in names if match).values(), default=0) >= REPEATED


def _names_of_records(values: Mapping[str, object]) -> set[str]:
    """Return the keys of objects in lists, which are records if a log was saved together with its settings."""
    lists = [value for value in values.values() if isinstance(value, list)]
    return {str(key) for records in lists for record in records if isinstance(record, dict) for key in record}


def _known_names() -> tuple[set[str], set[str], set[str]]:
    """Return the last parts of names of settings, those of settings of PPO only, and names of metrics alone."""
    profiles = detection.profiles().values()
    settings = [(name, key.rpartition(".")[2]) for p in profiles for name, keys in p.config.items() for key in keys]
    known = {key for _, key in settings}
    metrics = {key for p in profiles for metric in p.metrics.values() for key in metric.keys}
    return known, {key for name, key in settings if name in OF_PPO}, metrics - known


def is_model(found: Found) -> bool:
    """Return whether this is the config.json of a Hugging Face model, which is no training configuration."""
    return "model_type" in found.values and bool({"vocab_size", "hidden_size", "architectures"} & set(found.values))


def known_settings(found: Found, profile: Profile) -> int:
    """Return how many settings of a framework a file contains; for unknown trainers, by the meaning of keys."""
    tails = {key.rpartition(".")[2] for key in found.values} | set(found.values)
    tails |= {key.lower() for key in tails if key.isupper()}  # constants of a program
    named = {name for name, keys in profile.config.items() if any(key in tails for key in keys)}
    meant = set(map(setting_of, islice(found.values, MOST_COMPARED))) if profile.name == detection.CANONICAL else set()
    return len(named | (meant - {None}))
