"""What to read: files, folders, globs and stdin, grouped into runs."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.errors import DoctorError, ExitCode

#: Names under which trainers leave the log of a run, the most telling first.
LOG_NAMES = ("trainer_state.json", "progress.csv", "progress.json", "log_history.json", "result.json", "progress.txt")
LOG_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".log", ".out", ".txt", ".json")
#: Files that lie in run folders and are no logs of a run.
NOT_LOGS = (
    "monitor.csv",
    "requirements.txt",
    "evaluations.csv",
    "metadata.json",
    "summary.json",
    "timers.json",
    "training_status.json",
)
CONFIG_SUFFIXES = (".toml", ".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSource:
    """The log of one run, and the configuration named with it."""

    log: str
    config: tuple[Path, ...] = ()


def gather(given: Sequence[str]) -> tuple[list[RunSource], list[DoctorError]]:
    """Return the runs that were asked for, and what could not be found.

    Each log is a run; a configuration belongs to the only log.

    Raises:
        DoctorError: only a configuration, or one among several logs (exit code 2).
    """
    paths: list[str] = []
    missing: list[DoctorError] = []
    for text in given:
        try:
            paths += _expand(text)
        except DoctorError as error:
            missing.append(error)
    configs = tuple(Path(path) for path in paths if _is_config(path))
    logs = [path for path in paths if not _is_config(path)]
    if configs and not logs:
        hint = "name the log that belongs to it"
        raise DoctorError("only a configuration was given", hint=hint, code=ExitCode.USAGE)
    if configs and len(logs) > 1:
        hint = "name it with --config, or give one log"
        raise DoctorError("a configuration among several logs", hint=hint, code=ExitCode.USAGE)
    return [RunSource(log=log, config=configs) for log in logs], missing


def _expand(text: str) -> list[str]:
    if text == "-":
        return ["-"]
    path = Path(text)
    if path.is_dir():
        return [str(log_in(path))]
    if not path.exists() and glob.has_magic(text):
        found = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - a pattern may be absolute
        if not found:
            raise DoctorError(f"{text}: no file matches")
        return [hit for match in found for hit in _expand(match)]
    if not path.exists():
        raise DoctorError(
            f"{text}: no such file or folder", hint="check the path; quote a pattern such as 'runs/*.csv'"
        )
    return [text]


def log_in(folder: Path) -> Path:
    """Return the log in a run's folder: a name that trainers use, else the largest file that looks like a log.

    Raises:
        DoctorError: there is none.
    """
    for name in LOG_NAMES:
        if (folder / name).is_file():
            return folder / name
    checkpoints = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=_checkpoint_number)
    if checkpoints:
        return checkpoints[-1]
    logs = [path for path in _files(folder) if _may_be_log(path)]
    if not logs:
        raise DoctorError(f"{folder}: no log in this folder", hint=f"looked for {', '.join(LOG_NAMES)} and *.jsonl")
    return max(logs, key=lambda path: (path.stat().st_size, path.name))


def _may_be_log(path: Path) -> bool:
    return path.suffix in LOG_SUFFIXES and not path.name.endswith(NOT_LOGS) and not _is_config(str(path))


def _checkpoint_number(path: Path) -> int:
    tail = path.parent.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in sorted(folder.iterdir()) if path.is_file())


def _is_config(path: str) -> bool:
    name = Path(path).name.lower()
    return Path(name).suffix in CONFIG_SUFFIXES or name in ("config.json", "args.json", "params.json", "hparams.json")
