"""Group the files of a folder into runs, by the layouts of trainers and trackers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ppo_doctor.model.frozen import frozen
from ppo_doctor.readers.metric_files import is_csv_run, is_mlflow_run
from ppo_doctor.runs.folders import LOG_NAMES, TELLING, Folder, tells

#: Folders of which a run keeps a part of its own logs, under the folder that holds the rest.
PARTS = frozenset(
    {
        *("tb", "tensorboard", "tensorboard_logs", "tb_logs", "tb_log", "summaries", "summary", ".summary", "events"),
        *("logs", "log", "metrics", "eval", "evaluations", "completions", "scalars"),
    }
)
#: Files that may be logs beyond this number in one folder are not read.
MOST_TEXTS = 50
#: Tables of completions, of which a run may leave one per step: the last so many are read.
MOST_TABLES = 500
#: A console log larger than this is read only where nothing better is there: it holds the same run once more.
LARGEST_COPY = 64 << 20
_WANDB_RUN = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-(?P<id>.+)")


@frozen
class RunSource:
    """The files of one run, or of a few that only their contents tell apart.

    `logs` were written by one run as far as names tell; `perhaps` lie beside them and are looked into; `folders` are
    further places in which its configuration may be; `config` was named with it. `told` is what was left out.
    """

    logs: tuple[str, ...]
    perhaps: tuple[str, ...] = ()
    config: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    dumps: tuple[Path, ...] = ()
    told: tuple[str, ...] = ()
    #: dumps and checkpoints that were named, or are all there is: they are read; `dumps` only lie beside the logs
    tensors: tuple[Path, ...] = ()
    #: every file is a part of the same run, because somebody said so
    together: bool = False
    #: nothing says that there is a run in it, while its folder holds others beyond doubt
    doubtful: bool = False

    @property
    def log(self) -> str:
        """Return the file by which the run is named until more is known."""
        return (*self.logs, *self.perhaps, *map(str, self.tensors), *map(str, self.config))[0]

    @property
    def likeliest(self) -> str:
        """Return the file to read where only one can be: a log, else what is called like one, else the largest."""
        perhaps = sorted(map(Path, self.perhaps), key=_likelihood)
        return (*self.logs, *map(str, perhaps), self.log)[0]


def runs_in(folder: Folder, settings: tuple[Path, ...] = ()) -> Iterator[RunSource]:
    """Yield the runs in a folder; `settings` are the folders above that hold configurations, nearest first."""
    if folder.of("config"):
        settings = (folder.path, *settings)[:2]
    if _is_mlflow_run(folder) or _is_scalar_store(folder):
        yield RunSource(logs=(str(folder.path),), folders=settings)
    elif _is_wandb_run(folder):
        yield _whole(folder, settings)
    elif _states(folder):
        yield _checkpointed(folder, settings)
    else:
        yield from _plain(folder, settings)


def _plain(folder: Folder, settings: tuple[Path, ...]) -> Iterator[RunSource]:
    own = _own(folder)
    parts = [child for child in folder.folders if own is not None and _is_part(child, folder)]
    below = [source for child in folder.folders if child not in parts for source in runs_in(child, settings)]
    if own is not None:
        perhaps = [path for part in parts for path in _logs_below(part)]
        own = replace(own, perhaps=(*own.perhaps, *map(str, perhaps)), dumps=_dumps(folder, parts), folders=settings)
        if len(below) == 1 and not folder.of("log", "wandb", "events"):
            own, below = _with_printed(below[0], own), []
        yield own
    yield from below


def _with_printed(logged: RunSource, printed: RunSource) -> RunSource:
    """Return the one run below a folder with what the folder holds of its console; the values tell what is of it."""
    return replace(
        logged,
        logs=(*logged.logs, *printed.logs),
        perhaps=(*logged.perhaps, *printed.perhaps),
        folders=tuple(dict.fromkeys((*logged.folders, *printed.folders))),
        dumps=(*logged.dumps, *printed.dumps),
        told=(*logged.told, *printed.told),
    )


def _is_part(child: Folder, folder: Folder) -> bool:
    """Tell whether a folder may hold a part of the logs of the run above: by its name, or as TensorBoard's writers do.

    They put hyperparameters, and the curves of one chart, into event files of their own one folder below; tensorboardX
    puts those of a chart into a folder for its name and in it one for each curve.
    """
    if child.path.name.lower() in PARTS:
        return True
    return bool(folder.of("events")) and all(set(below.files) <= {"events"} for below in child.walk())


def _own(folder: Folder) -> RunSource | None:
    """Return the files of a folder that are logs, or may be."""
    named = sorted(folder.of("log"), key=lambda path: LOG_NAMES.index(path.name))
    logs = [*named, *folder.of("wandb", "events")]
    copies = [path for path in folder.of("console") if not logs or _size(path) <= LARGEST_COPY]
    spoken = [path for path in folder.of("text") if tells(path)]
    perhaps = [*spoken, *folder.of("database")]
    if not logs and not perhaps and not copies:
        return None
    if not logs and not copies:  # a name that tells may tell of something else: what lies beside it is looked into too
        perhaps = [*folder.of("text"), *folder.of("database")]
    kept, told = _bounded(folder.path, perhaps, copies=bool(logs))
    return RunSource(
        logs=_paths([*logs, *copies]),
        perhaps=_paths([*kept, *_extra(folder)]),
        dumps=tuple(folder.of("dump")),
        told=tuple(told),
    )


def _extra(folder: Folder) -> list[Path]:
    """Return what belongs to a run and is no log; a trainer saves its model again and again, with the same settings."""
    return [*folder.of("table")[-MOST_TABLES:], *folder.of("model")[-1:]]


def _bounded(folder: Path, perhaps: Sequence[Path], *, copies: bool) -> tuple[list[Path], list[str]]:
    """Leave out what costs more to look into than it can tell."""
    small = [path for path in perhaps if not copies or _size(path) <= LARGEST_COPY]
    kept = sorted(small, key=_likelihood)[:MOST_TEXTS]
    lost = len(perhaps) - len(kept)
    told = [f"{folder}: {lost} of {len(perhaps)} files that may be logs were not read"] if lost else []
    return sorted(kept), told


def _likelihood(path: Path) -> tuple[bool, int, str]:
    return not TELLING.search(path.name), -_size(path), path.name


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone since it was listed; reading it will say so
        return 0


def _is_mlflow_run(folder: Folder) -> bool:
    return any(child.path.name == "metrics" for child in folder.folders) and is_mlflow_run(folder.path)


def _is_scalar_store(folder: Folder) -> bool:
    """Tell a folder of headerless CSV files, one for each metric; its metrics may lie in folders one below."""
    if set(folder.files) - {"text"}:
        return False
    own = folder.of("text")
    below = [path for child in folder.folders for path in child.of("text")] if folder.path.name == "scalars" else []
    return is_csv_run([*own, *below])


def _is_wandb_run(folder: Folder) -> bool:
    named = _WANDB_RUN.fullmatch(folder.path.resolve().name) is not None
    return bool(folder.of("wandb")) or (named and any(child.path.name == "files" for child in folder.folders))


def _whole(folder: Folder, settings: tuple[Path, ...]) -> RunSource:
    """Return a W&B run: everything below its folder is the run's, unless somebody put the files of several there."""
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
    """Return where a Hugging Face trainer left its history: the last checkpoint's, and the final one."""
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
    """Return a run of a Hugging Face trainer, with the event files and tables under its output folder."""
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
        told=own.told,
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
    """Put the parts of a W&B run that was resumed together: each resume made a folder, all with one id."""
    by_id: dict[str, list[RunSource]] = {}
    for source in sources:
        match = _WANDB_RUN.fullmatch(Path(source.log).parent.name)
        by_id.setdefault(match["id"] if match else source.log, []).append(source)
    return [group[0] if len(group) == 1 else _joined(group) for group in by_id.values()]


def _joined(group: Sequence[RunSource]) -> RunSource:
    return RunSource(
        logs=tuple(log for source in group for log in source.logs),
        perhaps=tuple(log for source in group for log in source.perhaps),
        folders=tuple(dict.fromkeys(folder for source in reversed(group) for folder in source.folders)),
        dumps=tuple(dump for source in group for dump in source.dumps),
        told=tuple(text for source in group for text in source.told),
        together=True,
    )
