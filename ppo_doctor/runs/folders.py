"""The kind of a file in a run folder, by its name; readers check its content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from ppo_doctor.readers.methods import PPO, method_of, of_family

#: `log`: trainers write a run's metrics under this name; `text`: may be a log; `console`: the same run once more, for
#: people; `episodes`: what a Monitor wrote; `page`: notes, into which somebody may have copied a log; `model`: an
#: archive that holds settings; `junk`: of no use to us.
Role = Literal[
    "log",
    "events",
    "wandb",
    "database",
    "text",
    "console",
    "episodes",
    "table",
    "page",
    "model",
    "config",
    "dump",
    "junk",
]

#: Names under which trainers leave the log of a run, the most telling first.
LOG_NAMES = (
    "trainer_state.json",
    "result.json",
    "progress.csv",
    "progress.json",
    "log_history.json",
    "progress.txt",
    "metrics.csv",
    "metrics.jsonl",
    "trainer_log.jsonl",
)
CONSOLE_NAMES = ("log.txt", "output.log", "console.log", "console.txt", "stdout.log", "stdout.txt", "nohup.out")
LOG_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".log", ".out", ".txt", ".dat", ".json", ".gz", ".zst", ".ipynb")
#: Suffixes of files that mostly hold something else: their name has to say that they are logs.
DOUBTFUL = (".json", ".txt", ".dat", ".out", ".gz", ".zst")
#: A notebook mostly shows what a log beside it holds; it is looked into where a folder holds nothing better.
NOTEBOOK = ".ipynb"
#: Pages of text, and those that tell of a project rather than of a run.
PAGES = (".md", ".markdown")
_OF_A_PROJECT = re.compile(
    r"(?:readme|licen[cs]e|changelog|contributing|code_of_conduct|security|authors|citation|model_?card)\b.*", re.I
)
TELLING = re.compile(r"log|metric|histor|progress|result|train|stat|loss|reward|scalar|record|output|run|step", re.I)
#: Files that lie in run folders and are no logs of a run.
NOT_LOGS = re.compile(
    r"requirements.*\.txt|evaluations\.csv|.*metadata\.json|.*summary\.json|timers\.json"
    r"|training_status\.json|player(-\d+)?\.log|debug(-core|-internal)?\.log"
    r"|ppo-doctor\.toml|pyproject\.toml"
    r"|(special_tokens_map|tokenizer.*|vocab|generation_config|added_tokens|merges|pytorch_model.*\.index|.*\.index|trainer_args|all_results|train_results|eval_results)"
    r"\.(json|txt)|experiment_(state|stats).*\.json|readme.*|license.*|.*\.meta|.*\.profile-empty",
    re.I,
)
#: "monitor.csv", "0.monitor.csv", "env_3.monitor.csv"
_MONITOR = re.compile(r"(.*[._-])?monitor\.csv", re.I)
CONFIG_NAMES = ("config.json", "args.json", "params.json", "hparams.json", "hyperparameters.json", "training_args.bin")
#: What a JSON file of settings has in its name, whatever else stands there.
CONFIG_WORD = re.compile(
    r"(?:.*[ ._-])?(?:config|configs|configuration|cfg|args|arguments|hparams|hyper_?params|hyper_?parameters|settings)"
    r"(?:[ ._-].*)?\.json",
    re.I,
)
CONFIG_SUFFIXES = (".toml", ".yaml", ".yml")
#: Programs: settings where one is named, nothing in a folder, and never a log.
SCRIPT_SUFFIXES = (".py",)
#: Suffixes of files that hold a log or settings: what is in them has to tell.
MAY_HOLD_SETTINGS = (".json", ".txt", ".sh", ".bash", ".args", ".cfg", ".conf", ".ini", ".log", ".out", "")
DATABASES = (".db", ".sqlite", ".sqlite3")
DUMPS = (".pt", ".pth", ".ckpt", ".safetensors", ".npz", ".npy", ".distcp")
#: Suffixes that tensors share with other things: a file is one only where it is named by itself.
NAMED_DUMPS = (".bin", ".idx")
#: Samples, one per line, as NeMo-RL leaves them for each step.
SAMPLES = re.compile(r"train_data_step\d+\.jsonl")
#: TRL's completions: samples where they are named by themselves, a part of the log in the folder of a run.
COMPLETIONS = re.compile(r"completions_\d+\.parquet")


def role_of(path: Path) -> Role:
    """Return what a file probably is; `text` stands for "may be a log, if nothing better is there"."""
    name, suffix = path.name, path.suffix.lower()
    if suffix in PAGES:
        return "page"
    if NOT_LOGS.fullmatch(name):
        return "junk"
    if _MONITOR.fullmatch(name):
        return "episodes"
    if SAMPLES.fullmatch(name):
        return "dump"
    if "tfevents" in name:
        return "events"
    if name in LOG_NAMES:
        return "log"
    if is_config(path):
        return "config"
    if name in CONSOLE_NAMES:
        return "console"
    return _by_suffix(name, suffix)


def _by_suffix(name: str, suffix: str) -> Role:
    if name == "evaluations.npz" or suffix == ".parquet":
        return "table"
    if suffix in DATABASES:
        return "database"
    if suffix in DUMPS:
        return "dump"
    if suffix in (".wandb", ".zip"):
        return "wandb" if suffix == ".wandb" else "model"
    return "text" if suffix in LOG_SUFFIXES else "junk"


def tells(path: Path) -> bool:
    """Tell whether a file that may be a log says so by its name, where its suffix does not."""
    suffix = path.suffix.lower()
    return suffix != NOTEBOOK and (suffix not in DOUBTFUL or bool(TELLING.search(path.name)))


def is_read(path: Path) -> bool:
    """Tell by its name whether a file in a run folder is one that a run is read from."""
    role = role_of(path)
    return role not in ("junk", "page") and (role != "text" or tells(path))


def says_log(path: str) -> bool:
    """Tell whether a name leaves little doubt that the file is a log of a run."""
    file = Path(path)
    return (
        role_of(file) not in ("text", "page")
        or file.suffix.lower() in (".jsonl", ".ndjson")
        or bool(TELLING.search(file.name))
    )


def of_a_project(path: Path) -> bool:
    """Tell a page that a project has, whatever was trained in it: README.md."""
    return _OF_A_PROJECT.fullmatch(path.name) is not None


def is_config(path: Path) -> bool:
    """Tell a configuration by its name."""
    named = path.name.lower() in CONFIG_NAMES or CONFIG_WORD.fullmatch(path.name) is not None
    return named or path.suffix.lower() in CONFIG_SUFFIXES


def other_algorithm(path: str) -> str | None:
    """Return the method outside the PPO family that a file, or else its folder, is named after; None for any other."""
    file = Path(path)
    found = filter(None, map(method_of, (file.stem, file.parent.name)))
    return next((None if method == PPO else method for method in found), None)


def of_groups(path: str) -> bool:
    """Tell whether a file, or else its folder, is named after GRPO, and not after PPO as well."""
    file = Path(path)
    name = next((name.lower() for name in (file.stem, file.parent.name) if of_family(name)), "")
    return "grpo" in name and "ppo" not in name.replace("grpo", "")


def is_script(path: Path) -> bool:
    """Tell a program, whose settings are read and which is never run."""
    return path.suffix.lower() in SCRIPT_SUFFIXES


#: Folders below this depth are not looked into, nor more folders than this, nor more entries of one of them; of more
#: names than are listed nobody knows which are logs.
DEEPEST = 12
MOST_FOLDERS = 5_000
MOST_ENTRIES = 20_000
MOST_LISTED = 400_000
#: Folders that never hold a run's log: caches, environments, what trackers keep of images and models.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "artifacts", "media"})
#: Hidden folders that hold logs all the same (Sample Factory).
NOT_HIDDEN = frozenset({".summary"})


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Folder:
    """One folder: its files by role in the order of their names, and the folders in it."""

    path: Path
    files: dict[Role, list[Path]] = field(default_factory=dict)
    folders: list[Folder] = field(default_factory=list)

    def of(self, *roles: Role) -> list[Path]:
        """Return the files of some roles."""
        return [path for role in roles for path in self.files.get(role, ())]

    def walk(self) -> Iterator[Folder]:
        """Yield this folder and all below it."""
        yield self
        for folder in self.folders:
            yield from folder.walk()


class Walker:
    """Reads folders once; `told` says afterwards what was not looked at."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._seen: set[str] = set()
        self._missed = 0

    def read(self, path: Path, depth: int = 0) -> Folder:
        """Return a folder with everything below it that may matter."""
        folder = Folder(path=path)
        self._seen.add(os.path.realpath(path))
        below: list[Path] = []
        for entry in self._scanned(path):
            if _is_folder(entry):
                below.append(path / entry.name)
            elif _is_file(entry):
                folder.files.setdefault(role_of(path / entry.name), []).append(path / entry.name)
        # Links last: of a folder and a link to it the folder itself is kept (W&B's latest-run).
        for child in sorted(below, key=lambda p: (p.is_symlink(), p.name)):
            if os.path.realpath(child) in self._seen:
                continue
            if not os.access(child, os.R_OK | os.X_OK):  # who asked for what lies in it would be refused
                self.told.append(f"{child} is closed to this user and was not looked into")
            elif depth >= DEEPEST:
                self.told.append(f"{child} lies too deep and was not looked into")
            elif len(self._seen) >= MOST_FOLDERS:
                self._missed += 1
            else:
                folder.folders.append(self.read(child, depth + 1))
        if not depth and self._missed:
            self.told.append(f"{self._missed} folders below {path} were not looked into, for there are too many")
        return folder

    def _scanned(self, path: Path) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(path) as scan:
                entries = list(islice(scan, MOST_LISTED))
        except OSError as error:
            self.told.append(f"{path} cannot be listed: {error.strerror}")
        if len(entries) > MOST_ENTRIES:
            self.told.append(f"{path} holds more than {MOST_ENTRIES} files; the rest was not looked at")
            entries.sort(key=lambda entry: (not _is_folder(entry) and not is_read(Path(entry.name)), entry.name))
        return sorted(entries[:MOST_ENTRIES], key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    if entry.name in SKIPPED or (entry.name.startswith(".") and entry.name not in NOT_HIDDEN):
        return False
    return _safely(entry.is_dir)


def _is_file(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and _safely(entry.is_file)


def _safely(test: object) -> bool:
    """Tell what a test of an entry tells, and False for a link that leads in a circle."""
    try:
        return bool(test()) if callable(test) else False
    except OSError:
        return False
