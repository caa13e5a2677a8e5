"""Group the files of a folder into runs, by the layouts of trainers and trackers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.readers.metric_files import is_csv_run, is_mlflow_run

if TYPE_CHECKING:
    from ppo_doctor.runs.walking import Folder

#: What a file probably is. `log`: it has the name of a trainer's log; `text`: it may be a log; `console`: it may be the
#: printed text of a run; `episodes`: a Monitor file; `page`: notes, into which somebody may have copied a log; `model`:
#: an archive with settings; `junk`: it is not read.
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

#: Names of the logs of trainers, the most reliable first.
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
#: Suffixes of files that are logs only if their name also contains one of the words in `TELLING`.
DOUBTFUL = (".json", ".txt", ".dat", ".out", ".gz", ".zst")
#: Notebooks mostly show what a log in the same folder holds, and are read only in a folder without any.
NOTEBOOK = ".ipynb"
#: Suffixes of pages of text, and the names of those that describe a project.
PAGES = (".md", ".markdown")
_OF_A_PROJECT = lazy_pattern(
    r"(?:readme|licen[cs]e|changelog|contributing|code_of_conduct|security|authors|citation|model_?card)\b.*", re.I
)
TELLING = lazy_pattern(r"log|metric|histor|progress|result|train|stat|loss|reward|scalar|record|output|run|step", re.I)
#: Names of files in run folders that are no logs.
NOT_LOGS = lazy_pattern(
    r"requirements.*\.txt|evaluations\.csv|.*metadata\.json|.*summary\.json|timers\.json"
    r"|training_status\.json|player(-\d+)?\.log|debug(-core|-internal)?\.log"
    r"|ppo-doctor\.toml|pyproject\.toml"
    r"|(special_tokens_map|tokenizer.*|vocab|generation_config|added_tokens|merges|pytorch_model.*\.index|.*\.index|trainer_args|all_results|train_results|eval_results)"
    r"\.(json|txt)|experiment_(state|stats).*\.json|readme.*|license.*|.*\.meta|.*\.profile-empty",
    re.I,
)
#: "monitor.csv", "0.monitor.csv", "env_3.monitor.csv"
_MONITOR = lazy_pattern(r"(.*[._-])?monitor\.csv", re.I)
CONFIG_NAMES = ("config.json", "args.json", "params.json", "hparams.json", "hyperparameters.json", "training_args.bin")
#: Names of JSON files of settings: they contain one of these words.
CONFIG_WORD = lazy_pattern(
    r"(?:.*[ ._-])?(?:config|configs|configuration|cfg|args|arguments|hparams|hyper_?params|hyper_?parameters|settings)"
    r"(?:[ ._-].*)?\.json",
    re.I,
)
CONFIG_SUFFIXES = (".toml", ".yaml", ".yml")
#: Suffixes of programs. One that is named on the command line is read for settings; in a folder they are not read.
SCRIPT_SUFFIXES = (".py",)
#: Suffixes of files that hold a log or settings, which only their contents show.
MAY_HOLD_SETTINGS = (".json", ".txt", ".sh", ".bash", ".args", ".cfg", ".conf", ".ini", ".log", ".out", "")
DATABASES = (".db", ".sqlite", ".sqlite3")
DUMPS = (".pt", ".pth", ".ckpt", ".safetensors", ".npz", ".npy", ".distcp")
#: Suffixes of tensors and of other things: such a file is read as a dump only if it is named itself.
NAMED_DUMPS = (".bin", ".idx")
#: Samples, one per line, which NeMo-RL writes for each step.
SAMPLES = lazy_pattern(r"train_data_step\d+\.jsonl")
#: TRL's completions: read as samples if they are named, as a part of the log in the folder of a run.
COMPLETIONS = lazy_pattern(r"completions_\d+\.parquet")


def role_of(path: Path) -> Role:
    """Return what a file probably is, by its name."""
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


def is_named_as_log_file(path: Path) -> bool:
    """Return whether the name of a file that may be a log is one of a log, if its suffix is shared with other files."""
    suffix = path.suffix.lower()
    return suffix != NOTEBOOK and (suffix not in DOUBTFUL or bool(TELLING.search(path.name)))


def is_read(path: Path) -> bool:
    """Return whether a file in a run folder is read, by its name."""
    role = role_of(path)
    return role not in ("junk", "page") and (role != "text" or is_named_as_log_file(path))


def named_as_log(path: str) -> bool:
    """Return whether a name leaves little doubt that the file is a log."""
    file = Path(path)
    return (
        role_of(file) not in ("text", "page")
        or file.suffix.lower() in (".jsonl", ".ndjson")
        or bool(TELLING.search(file.name))
    )


def is_project_page(path: Path) -> bool:
    """Return whether a page describes a project, such as README.md."""
    return _OF_A_PROJECT.fullmatch(path.name) is not None


def is_config(path: Path) -> bool:
    """Return whether a file has the name of a configuration."""
    suffix = path.suffix.lower()
    if suffix == ".json" and CONFIG_WORD.fullmatch(path.name):
        return True
    return suffix in CONFIG_SUFFIXES or path.name.lower() in CONFIG_NAMES


def is_script(path: Path) -> bool:
    """Return whether a file is a program. Its settings are read; it is never run."""
    return path.suffix.lower() in SCRIPT_SUFFIXES


#: Names of folders in which a run keeps some of its logs, below the folder with the others.
PARTS = frozenset(
    {
        *("tb", "tensorboard", "tensorboard_logs", "tb_logs", "tb_log", "summaries", "summary", ".summary", "events"),
        *("logs", "log", "metrics", "eval", "evaluations", "completions", "scalars"),
    }
)
#: Files of one folder that may be logs and are read.
MOST_TEXTS = 50
#: Tables of completions that are read, the last ones: a run may write one per step.
MOST_TABLES = 500
#: Bytes of console text that are read beside another log of the same run.
LARGEST_COPY = 64 << 20
#: Name of a file that may hold the answers of a step.
_OF_A_STEP = lazy_pattern(r"\d+\.jsonl")
#: Folders in which a run keeps other files than logs, or each metric's.
_OF_A_RUN = frozenset({"files", "scalars", "params", "tags"})
_WANDB_RUN = lazy_pattern(r"(?:offline-)?run-\d{8}_\d{6}-(?P<id>.+)")


@frozen
class RunSource:
    """The files of one run, or of several runs that only their contents separate.

    `logs` have names of logs; `perhaps` are further files that may be logs; `folders` may hold its configuration;
    `config` was named on the command line; `remarks` are sentences on files that were left out, or by the service that
    keeps the run; `fetched` is (path, URL) of each file or folder that comes from a URL.
    """

    logs: tuple[str, ...]
    perhaps: tuple[str, ...] = ()
    config: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    dumps: tuple[Path, ...] = ()
    remarks: tuple[str, ...] = ()
    fetched: tuple[tuple[str, str], ...] = ()
    #: a service that keeps runs gave each file as one
    one_run: bool = False
    #: dumps and checkpoints to read: named, or all that there is; those in `dumps` are not read
    tensors: tuple[Path, ...] = ()
    #: the folder whose run or runs these are, which stays while files come and go; None of files that were named
    home: Path | None = field(default=None, compare=False)
    #: the user or the layout declares all files to be of one run
    together: bool = False
    #: no file has the name of a log, while other sources of the folder have one: it may hold no run
    doubtful: bool = False

    @property
    def log(self) -> str:
        """Return the file that the source is named after."""
        return (*self.logs, *self.perhaps, *map(str, self.tensors), *map(str, self.config))[0]

    @property
    def likeliest(self) -> str:
        """Return the file to follow if only one can be: a log, or the one most like a log by its name and size."""
        perhaps = sorted(map(Path, self.perhaps), key=_likelihood)
        return (*self.logs, *map(str, perhaps), self.log)[0]

    def named(self, text: str) -> str:
        """Return a text with the URLs of files that were fetched instead of their paths."""
        for path, url in self.fetched:
            text = text.replace(path, url)
        return text


def runs_in(folder: Folder, settings: tuple[Path, ...] = ()) -> Iterator[RunSource]:
    """Yield the sources in a folder; `settings` are the folders above that hold configurations, the nearest first."""
    for source in _found(folder, (folder.path, *settings)[:2] if folder.of("config") else settings):
        yield source if source.home is not None else replace(source, home=folder.path)


def _found(folder: Folder, settings: tuple[Path, ...]) -> Iterator[RunSource]:
    mlflow = any(child.path.name == "metrics" for child in folder.folders) and is_mlflow_run(folder.path)
    if mlflow or _is_scalar_store(folder):
        yield RunSource(logs=(str(folder.path),), folders=settings)
    elif _is_wandb_run(folder):
        yield _whole(folder, settings)
    elif _states(folder):
        yield _checkpointed(folder, settings)
    else:
        yield from _plain(folder, settings)


def _plain(folder: Folder, settings: tuple[Path, ...]) -> Iterator[RunSource]:
    own = own_of(folder, settings)
    parts = [child for child in folder.folders if own is not None and _is_part(child, folder)]
    below = [source for child in folder.folders if child not in parts for source in runs_in(child, settings)]
    if own is not None:
        perhaps = [path for part in parts for path in _logs_below(part)]
        own = replace(own, perhaps=(*own.perhaps, *map(str, perhaps)), dumps=_dumps(folder, parts))
    yield from with_own(folder, own, below)


def with_own(folder: Folder, own: RunSource | None, below: Iterable[RunSource]) -> Iterator[RunSource]:
    """Yield the source of a folder's own files and those below it; text without a log belongs to a single run below."""
    if own is None:
        yield from below
        return
    further = iter(below)
    first = list(islice(further, 2))
    if len(first) == 1 and not folder.of("log", "wandb", "events"):
        # It holds the console text of the one run below; values show whether it is of that run.
        yield combined([first[0], own], together=first[0].together)
        return
    yield own
    yield from first
    yield from further


def holds_others(folder: Folder, below: Sequence[Path]) -> bool:
    """Return whether the folders in a folder hold runs of their own, so that they can be read one by one.

    `folder` has its own files alone, perhaps a stray log among them; `below` are the folders in it.
    """
    names = [path.name for path in below]
    parts = (
        name.lower() in PARTS | _OF_A_RUN or name.startswith("checkpoint-") or _WANDB_RUN.fullmatch(name)
        for name in names
    )
    of_one_run = folder.of("wandb", "events") or _states(folder) or _is_scalar_store(folder)
    return bool(names) and not of_one_run and not any(parts)


def combined(sources: Sequence[RunSource], *, together: bool = False) -> RunSource:
    """Return several sources as one; `together` declares that their files are of one run."""
    return RunSource(
        logs=tuple(log for source in sources for log in source.logs),
        perhaps=tuple(log for source in sources for log in source.perhaps),
        folders=tuple(dict.fromkeys(folder for source in sources for folder in source.folders)),
        dumps=tuple(dump for source in sources for dump in source.dumps),
        tensors=tuple(path for source in sources for path in source.tensors),
        remarks=tuple(text for source in sources for text in source.remarks),
        fetched=tuple(place for source in sources for place in source.fetched),
        one_run=all(source.one_run for source in sources),
        together=together,
    )


def own_of(folder: Folder, settings: tuple[Path, ...]) -> RunSource | None:
    """Return the files of a folder itself that are logs or may be, None if there are none."""
    own = _own(folder)
    return replace(own, folders=settings, home=folder.path) if own is not None else None


def _is_part(child: Folder, folder: Folder) -> bool:
    """Return whether a folder may hold logs of the run in the folder above: by its name, or because of event files.

    TensorBoard's writers put hyperparameters, and the curves of one chart, into event files one folder below.
    tensorboardX makes a folder for each chart, and in it one for each curve.
    """
    if child.path.name.lower() in PARTS:
        return True
    return bool(folder.of("events")) and all(set(below.files) <= {"events"} for below in child.walk())


def _own(folder: Folder) -> RunSource | None:
    """Return the files of a folder that are logs or may be, None if there are none."""
    named = sorted(folder.of("log"), key=lambda path: LOG_NAMES.index(path.name))
    logs = [*named, *folder.of("wandb", "events")]
    copies = [path for path in folder.of("console") if not logs or _size(path) <= LARGEST_COPY]
    texts = texts_of(folder)
    named_so = [path for path in texts if is_named_as_log_file(path)]
    perhaps = [*named_so, *folder.of("database")]
    if not logs and not perhaps and not copies:
        return None
    if not logs and not copies:  # the name may mislead, so all others are read, too
        perhaps = [*texts, *folder.of("database")]
    kept, skipped = _bounded(folder.path, perhaps, copies=bool(logs))
    return RunSource(
        logs=_paths([*logs, *copies]),
        perhaps=_paths([*kept, *_extra(folder)]),
        dumps=tuple(folder.of("dump")),
        remarks=tuple(skipped),
    )


def texts_of(folder: Folder) -> list[Path]:
    """Return the texts of a folder that may be logs: not the answers of each step, whose first file shows them."""
    texts = folder.of("text")
    numbered = [path for path in texts if _OF_A_STEP.fullmatch(path.name)]
    if not numbered:
        return texts
    from ppo_doctor.readers.samples import is_rollout_dump

    return [path for path in texts if path not in numbered] if is_rollout_dump(numbered[0]) else texts


def _extra(folder: Folder) -> list[Path]:
    """Return tables and the last saved model of a run; every saved model has the same settings."""
    return [*folder.of("table")[-MOST_TABLES:], *folder.of("model")[-1:]]


def _bounded(folder: Path, perhaps: Sequence[Path], *, copies: bool) -> tuple[list[Path], list[str]]:
    """Return the files to read, without large and too many ones, and a sentence on those left out."""
    small = [path for path in perhaps if not copies or _size(path) <= LARGEST_COPY]
    kept = sorted(small, key=_likelihood)[:MOST_TEXTS]
    lost = len(perhaps) - len(kept)
    skipped = [f"{folder}: {lost} of {len(perhaps)} files that may be logs were not read"] if lost else []
    return sorted(kept), skipped


def _likelihood(path: Path) -> tuple[bool, int, str]:
    return not TELLING.search(path.name), -_size(path), path.name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted since it was listed; reading it will fail with a message
        return 0


def _is_scalar_store(folder: Folder) -> bool:
    """Return whether a folder holds one CSV file without a header per metric, perhaps in folders one below."""
    if set(folder.files) - {"text"}:
        return False
    own = folder.of("text")
    below = [path for child in folder.folders for path in child.of("text")] if folder.path.name == "scalars" else []
    return is_csv_run([*own, *below])


def _is_wandb_run(folder: Folder) -> bool:
    named = _WANDB_RUN.fullmatch(folder.path.resolve().name) is not None
    return bool(folder.of("wandb")) or (named and any(child.path.name == "files" for child in folder.folders))


def _whole(folder: Folder, settings: tuple[Path, ...]) -> RunSource:
    """Return a W&B run: everything below its folder, unless it holds the files of several runs."""
    logs = folder.of("wandb")
    below = [path for path in _logs_below(folder) if path not in logs]
    files = tuple(child.path for child in folder.folders if child.path.name == "files")
    several = len(logs) > 1
    return RunSource(
        logs=_paths(logs if several else [*logs, *below]),
        perhaps=_paths(below if several else []),
        folders=(*files, *settings),
        dumps=_dumps(folder, folder.folders),
        together=not several,
    )


def _states(folder: Folder) -> list[Path]:
    """Return the files with the history of a Hugging Face trainer: the final one, and that of the last checkpoint."""
    of_checkpoints = [
        path
        for child in sorted(folder.folders, key=lambda f: _number(f.path))
        if child.path.name.startswith("checkpoint-")
        for path in child.of("log")
        if path.name == "trainer_state.json"
    ]
    final = [path for path in folder.of("log") if path.name == "trainer_state.json"]
    return final + of_checkpoints[-1:]


def _number(checkpoint: Path) -> int:
    tail = checkpoint.name.rpartition("-")[2]
    return int(tail) if tail.isdigit() else -1


def _checkpointed(folder: Folder, settings: tuple[Path, ...]) -> RunSource:
    """Return the run of a Hugging Face trainer, with the event files and tables below its output folder."""
    states = _states(folder)
    rest = [child for child in folder.folders if not child.path.name.startswith("checkpoint-")]
    own = _own(folder) or RunSource(logs=())
    below = [*own.logs, *own.perhaps, *(str(path) for child in rest for path in _logs_below(child))]
    logs = _paths(states)
    return RunSource(
        logs=logs,
        perhaps=tuple(path for path in dict.fromkeys(below) if path not in logs),
        folders=tuple(dict.fromkeys([folder.path, *(state.parent for state in states), *settings])),
        dumps=_dumps(folder, folder.folders),
        remarks=own.remarks,
    )


def _logs_below(folder: Folder) -> list[Path]:
    found: list[Path] = []
    for below in folder.walk():
        own = _own(below)
        found += map(Path, (*own.logs, *own.perhaps)) if own else _extra(below)
    return found


def _dumps(folder: Folder, parts: Sequence[Folder]) -> tuple[Path, ...]:
    return tuple(path for held in (folder, *parts) for path in held.of("dump"))


def _paths(paths: Sequence[Path]) -> tuple[str, ...]:
    return tuple(map(str, paths))


def regrouped(sources: Sequence[RunSource]) -> list[RunSource]:
    """Return sources with the folders of a resumed W&B run, which have the same id, as one."""
    by_id: dict[str, list[RunSource]] = {}
    for source in sources:
        match = _WANDB_RUN.fullmatch(Path(source.log).parent.name)
        by_id.setdefault(match["id"] if match else source.log, []).append(source)
    return [group[0] if len(group) == 1 else _resumed(group) for group in by_id.values()]


def _resumed(group: Sequence[RunSource]) -> RunSource:
    """Return the parts of a run as one, with the settings of the last part first."""
    return replace(combined(group, together=True), folders=combined(group[::-1]).folders)
