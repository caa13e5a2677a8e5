"""Find the sources that the command line names: files, folders and patterns, each source the files of a run."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.readers import holds_records
from ppo_doctor.readers.sniffing import holds_lines_of_numbers
from ppo_doctor.runs.layouts import (
    COMPLETIONS,
    LOG_NAMES,
    MAY_HOLD_SETTINGS,
    NAMED_DUMPS,
    NOT_LOGS,
    RunSource,
    combined,
    holds_others,
    is_config,
    is_project_page,
    is_read,
    is_script,
    named_as_log,
    own_of,
    regrouped,
    role_of,
    runs_in,
    texts_of,
    with_own,
)
from ppo_doctor.runs.walking import Folder, Walker

#: Files of a folder that are opened although their names are not those of logs.
MOST_LOOKED_INTO = 500
#: Configurations that are opened in a folder without a log.
MOST_SETTINGS = 50


@dataclass(slots=True, repr=False, eq=False)
class _Arguments:
    """The files that the arguments name, by kind."""

    logs: list[str] = field(default_factory=list)
    folders: list[RunSource] = field(default_factory=list)
    configs: list[Path] = field(default_factory=list)
    dumps: list[Path] = field(default_factory=list)
    missing: list[DoctorError] = field(default_factory=list)


def gather(
    given: Sequence[str], *, fetched: Sequence[RunSource] = (), together: bool = False, separate: bool = False
) -> tuple[list[RunSource], list[DoctorError]]:
    """Return the sources that arguments name, and an error for each argument that names nothing.

    Each log is a source; a single log with a configuration, dumps or checkpoints is one source. `together` makes
    one source of everything, `separate` one of each file. A configuration in the folder of the logs, or above it,
    belongs to all of them. Configurations alone are a source each. Sources that were `fetched` are taken like folders.

    Raises:
        DoctorError: a configuration of another folder among several logs (exit code 2).
    """
    if together and separate:
        raise DoctorError("--together and --separate contradict each other", code=ExitCode.USAGE)
    found = _sorted(given)
    found.folders += fetched
    sources = [*_explicit(found.logs, separate=separate), *found.folders]
    if separate:
        sources = [one for source in sources for one in _one_each(source)]
    elif sources and (together or (len(sources) > 1 and _of_one_folder(found))):
        one_run = bool(found.configs) and _of_other_kinds(found)
        sources = [combined(sources, together=together or one_run)]
    return _with_named(sources, found, together=together, separate=separate), found.missing


def _sorted(given: Sequence[str]) -> _Arguments:
    found = _Arguments()
    for text in given:
        try:
            for path in expand(text):
                _sort_in(path, found)
        except DoctorError as error:
            found.missing.append(error)
    return found


def _sort_in(path: str, found: _Arguments) -> None:
    if path == "-":
        found.logs.append(path)
    elif Path(path).is_dir():
        sources, dumps = _in_folder(Path(path))
        found.folders += sources
        found.dumps += dumps
    elif is_config(Path(path)) or is_script(Path(path)) or _reads_as_config(Path(path)):
        found.configs.append(Path(path))
    elif is_dump(Path(path)):
        found.dumps.append(Path(path))
    else:
        found.logs.append(path)


def _reads_as_config(path: Path) -> bool:
    """Return whether a file without the name of a configuration holds settings: args.txt, run.sh."""
    if role_of(path) not in ("text", "junk") or path.suffix.lower() not in MAY_HOLD_SETTINGS:
        return False
    from ppo_doctor.trainers.config_files import holds_settings

    return holds_settings(path)


def named(given: Sequence[str], file: Path) -> list[str]:
    """Return the files that arguments name; of a folder, the names under which `file` is read from it."""
    found: list[str] = []
    for text in given:
        for path in _matches(text):
            found += _same(path, file.stat()) if os.path.isdir(path) else [path]  # noqa: PTH112 - any text
    return found


def _same(folder: str, file: os.stat_result) -> list[str]:
    """Return the paths below a folder that lead to a file, links included, and that may be read as a log."""
    found: list[str] = []
    for place, below, _ in os.walk(folder):
        below.sort()
        with suppress(OSError), os.scandir(place) as entries:
            near = [entry for entry in entries if entry.is_symlink() or entry.inode() == file.st_ino]
            found += [e.path for e in near if is_read(Path(e.path)) and os.path.samestat(e.stat(), file)]
    return found


def _refused(text: str) -> str | None:
    """Return why it cannot be known whether a file exists: its folder is closed to this user. None if it can."""
    try:
        os.stat(text)  # noqa: PTH116 - any text, however long
    except PermissionError as error:
        return error.strerror
    except (OSError, ValueError):  # no such file, or no name that could be one
        return None
    return None


def _matches(text: str) -> list[str]:
    if text == "-" or os.path.exists(text):  # noqa: PTH110 - any text, however long
        return [text]
    return sorted(glob.glob(text, recursive=True)) if glob.has_magic(text) else []  # noqa: PTH207 - may be absolute


def expand(text: str) -> list[str]:
    """Return the files and folders that an argument names, itself or as a pattern.

    Raises:
        DoctorError: there is none (exit code 3).
    """
    found = _matches(text)
    if not found and glob.has_magic(text):
        raise DoctorError(f"{text}: no file matches")
    if not found and (reason := _refused(text)):
        raise DoctorError(f"{text} cannot be read: {reason}")
    if not found:
        hint = "check the path; quote a pattern such as 'runs/*.csv'"
        raise DoctorError(f"{text}: no such file or folder", hint=hint)
    return found


def sources_in(folder: Path) -> list[RunSource]:
    """Return the sources in a folder; dumps and checkpoints without any log are one.

    Raises:
        DoctorError: there is neither in it (exit code 3).
    """
    sources, dumps = _in_folder(folder)
    return sources or [RunSource(logs=(), tensors=tuple(dumps))]


def is_dump(path: Path) -> bool:
    """Return whether a file named on the command line is a dump or a checkpoint, by its name."""
    named = path.suffix.lower() in NAMED_DUMPS or COMPLETIONS.fullmatch(path.name)
    return bool(named) or role_of(path) == "dump"


def _in_folder(folder: Path) -> tuple[list[RunSource], list[Path]]:
    """Return the sources in a folder, and its dumps if it holds no log.

    Raises:
        DoctorError: there is neither in it (exit code 3).
    """
    walker = Walker()
    tree = walker.read(folder)
    sources = regrouped(list(runs_in(tree)))
    if not sources:
        sources = [RunSource(logs=tuple(map(str, held))) for below in tree.walk() if (held := below.of("episodes"))]
    if not sources:
        sources = _looked_into(_doubtful(tree, walker))
    if any(source.logs for source in sources):
        sources = list(map(_doubted, sources))
    dumps = [] if sources else [path for below in tree.walk() for path in below.of("dump")]
    if not sources and not dumps:
        sources = _of_settings(tree) or _looked_into(_last_resort(tree))
    if not sources and not dumps:
        usual = f"looked for {', '.join(LOG_NAMES)}, *.jsonl, event files, *.wandb and more"
        hint = "; ".join(walker.skipped) or usual
        raise DoctorError(f"{folder}: no log in this folder", hint=hint)
    if sources and walker.skipped:
        sources[0] = replace(sources[0], remarks=(*sources[0].remarks, *walker.skipped))
    return sources, dumps


def _doubted(source: RunSource) -> RunSource:
    """Return a source that may hold no run unless a file has the name of a log."""
    return replace(source, doubtful=not any(map(named_as_log, source.logs + source.perhaps)))


def sources_below(folder: Path, walker: Walker) -> Iterator[RunSource]:
    """Yield the sources below a folder with any number of runs, those of one folder after those of another.

    A folder whose folders hold runs of their own is listed alone, so that memory does not grow with the number of runs;
    what is in the folders below it is grouped as by `sources_in`.

    Raises:
        DoctorError: there is none (exit code 3).
    """
    found = _one_by_one(folder, walker, (), 0)
    first = next(found, None)
    if first is None:
        yield from sources_in(folder)
        return
    yield _doubted(first)
    yield from map(_doubted, found)


def sources_if_any(folder: Path, walker: Walker) -> Iterator[RunSource]:
    """Yield the sources below a folder as `sources_below`, none where there is no log."""
    try:
        yield from sources_below(folder, walker)
    except DoctorError as error:
        if error.code != ExitCode.NOTHING_TO_JUDGE:
            raise


def _one_by_one(path: Path, walker: Walker, settings: tuple[Path, ...], depth: int) -> Iterator[RunSource]:
    listed, below = walker.listed(path)
    if not holds_others(listed, below):
        yield from regrouped(list(runs_in(walker.completed(listed, below, depth), settings)))
        return
    above = (path, *settings)[:2] if listed.of("config") else settings
    children = (_one_by_one(child, walker, above, depth + 1) for child in walker.entered(below, depth))
    yield from with_own(listed, own_of(listed, above), chain.from_iterable(children))


def _looked_into(paths: Sequence[Path]) -> list[RunSource]:
    """Return files that may be logs as one source; nothing without files."""
    return [RunSource(logs=(), perhaps=tuple(map(str, paths)))] if paths else []


def _doubtful(tree: Folder, walker: Walker) -> list[Path]:
    """Return the files that may be logs in a folder without a clear one; pages of text if only these hold records."""
    found = [path for below in tree.walk() for path in (*texts_of(below), *below.of("table", "model"))]
    if len(found) > MOST_LOOKED_INTO:
        walker.skipped.append(f"only {MOST_LOOKED_INTO:,} of {len(found):,} files that may be logs were looked into")
        found = sorted(found, key=lambda path: not named_as_log(str(path)))[:MOST_LOOKED_INTO]
    pages = _pages(tree, of_project=False)
    if not pages or any(map(holds_records, found)):
        return found
    return list(filter(holds_records, pages)) or found


def _last_resort(tree: Folder) -> list[Path]:
    """Return the pages of a project (README.md) that hold records, or else files of any suffix that hold numbers."""
    pages = list(filter(holds_records, _pages(tree, of_project=True)))
    files = (path for below in tree.walk() for path in below.of("junk") if not NOT_LOGS.fullmatch(path.name))
    return pages or [path for path in islice(files, MOST_LOOKED_INTO) if holds_lines_of_numbers(path)]


def _pages(tree: Folder, *, of_project: bool) -> list[Path]:
    """Return the pages of text in a folder or below it, those of a project (README.md) or all others."""
    pages = (path for below in tree.walk() for path in below.of("page") if is_project_page(path) == of_project)
    return list(islice(pages, MOST_LOOKED_INTO))


def _of_settings(folder: Folder) -> list[RunSource]:
    """Return a source for each configuration of a folder without a log."""
    from ppo_doctor.trainers.config_files import holds_settings

    held = [path for path in folder.of("config")[:MOST_SETTINGS] if holds_settings(path)]
    return [RunSource(logs=(), config=(path,)) for path in held]


def _explicit(paths: Sequence[str], *, separate: bool) -> list[RunSource]:
    """Return the sources of files that were named one by one.

    Files of one folder are one source if their names are those of a trainer's logs or event files.
    """
    groups: dict[object, list[str]] = {}
    for path in paths:
        kind = role_of(Path(path)) if path != "-" else "text"
        one_run = not separate and kind in ("log", "events", "console", "episodes")
        groups.setdefault(Path(path).parent if one_run else (path, len(groups)), []).append(path)
    return [RunSource(logs=tuple(group)) for group in groups.values()]


def _of_one_folder(found: _Arguments) -> bool:
    """Return whether the named logs are read as their folder would be, so that their values show which runs they are.

    With one configuration, all lie in its folder or below. Without, all lie in one folder and have different suffixes,
    or are event files of one name, which tensorboardX writes for the curves of one chart.
    """
    if len(found.configs) > 1 or found.folders or "-" in found.logs:
        return False
    if not found.configs:
        files = [Path(log) for log in found.logs]
        alike = len({file.name for file in files}) == 1 and "tfevents" in files[0].name
        return alike or (_of_other_kinds(found) and len({file.parent for file in files}) == 1)
    place = found.configs[0].parent
    return all(place in (Path(log).parent, *Path(log).parent.parents) for log in found.logs)


def _of_other_kinds(found: _Arguments) -> bool:
    """Return whether each log has another suffix: console text and a table, for example, are one run."""
    return len({Path(path).suffix for path in found.logs}) == len(found.logs)


def _one_each(source: RunSource) -> list[RunSource]:
    """Return a source for each file; a file that is no log by its name may hold no run."""
    logs = [replace(source, logs=(log,), perhaps=()) for log in source.logs]
    doubtful = source.doubtful or bool(logs)
    logs += [replace(source, logs=(), perhaps=(path,), doubtful=doubtful) for path in source.perhaps]
    return [replace(one, remarks=source.remarks if one is logs[0] else ()) for one in logs]


def _with_named(sources: list[RunSource], found: _Arguments, *, together: bool, separate: bool) -> list[RunSource]:
    """Return the sources with the configurations and dumps that were named."""
    named = [*found.configs, *found.dumps]
    if not named or (not sources and found.missing):
        return sources
    if not sources and found.dumps:
        return [RunSource(logs=(), tensors=tuple(found.dumps), config=tuple(found.configs))]
    if not sources:
        apart: list[tuple[Path, ...]] = [tuple(found.configs)] if together else [(path,) for path in found.configs]
        return [RunSource(logs=(), config=config) for config in apart]
    if len(sources) > 1 and not separate:
        what = "a configuration" if found.configs else "a tensor dump"
        hint = "give one log, or say --together (one run) or --separate (it belongs to each)"
        raise DoctorError(f"{what} among several logs", hint=hint, code=ExitCode.USAGE)
    configs, dumps = tuple(found.configs), tuple(found.dumps)
    return [replace(source, config=configs, tensors=dumps) for source in sources]
