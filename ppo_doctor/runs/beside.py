"""What lies beside the log of a run: the folders of the run, and its checkpoints, known by their names alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.diagnosis import Checkpoint
from ppo_doctor.model.opening import is_outside
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.runs.layouts import PARTS, is_named_as_log_file, role_of

if TYPE_CHECKING:
    from ppo_doctor.model.run import Run

#: The most entries of a folder that are looked at.
MOST_ENTRIES = 10_000
#: Folders beside a log, or beside the folder of the logs, that hold checkpoints.
_HOLDERS = lazy_pattern(
    r"_?(checkpoints?|ckpts?|models?|weights|saved?_?models?|snapshots?|nn|actor|policy)", re.IGNORECASE
)
#: Names of checkpoints whose number is the step in the log of the trainers after them, as their names begin.
_COUNTED_ALIKE: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"checkpoint-(\d{1,15})"), ("trl", "unsloth", "llama-factory", "ms-swift")),
    (re.compile(r"global_step_?(\d{1,15})"), ("verl", "openrlhf")),
    (re.compile(r".*_(\d{1,15})_steps(?:\.zip)?"), ("sb3",)),
    (re.compile(r"step_(\d{1,15})"), ("nemo-rl",)),
    (re.compile(r"model_(\d{1,15})\.pt"), ("rsl-rl",)),
)
#: Names of other checkpoints, whose number may count something else.
_OTHERS = re.compile(
    r"(?:[a-z][a-z_.-]*[_.-])?(?:iter|iteration|step|model|checkpoint|ckpt|agent|policy|actor|weights|ppo|grpo)s?"
    r"[_.=-]?(\d{1,15})(?:[_-]?(?:steps?|iters?))?(?:\.(?:pt|pth|ckpt|zip|safetensors|tar))?",
    re.IGNORECASE,
)
#: The share of the run in which the last of them has to lie to count the same.
LEAST_SHARE = 0.5


def homes(run: Run) -> list[Path]:
    """Return the folders of the logs of a run: for a part of a run's folder, such as tb/, the folder above it.

    There is none for what was not read from a file of this machine.
    """
    files = [Path(source.path) for source in run.sources if not source.again]
    folders = [path if path.is_dir() else path.parent for path in files if path.exists()]
    parts = (folder.name.lower() in PARTS or folder.name.startswith("checkpoint-") for folder in folders)
    found = (folder.parent if part else folder for folder, part in zip(folders, parts, strict=True))
    return [home for home in dict.fromkeys(found) if not is_outside(home)]


def checkpoints(run: Run) -> list[Checkpoint]:
    """Return the checkpoints beside the log whose steps are those of the log, in their order; they are not opened.

    There is none where the log has no steps of its own, or where other logs beside it may have written them.
    """
    if run.steps is None or "steps_numbered" in run.facts or any(n.event == "several_runs" for n in run.notes):
        return []
    found: dict[int, Checkpoint] = {}
    for home in homes(run)[:1]:
        entries = _entries(home)
        if _of_several_logs(run, entries):
            return []
        below = [entry for folder in entries if _HOLDERS.fullmatch(folder.name) for entry in _entries(Path(folder))]
        found |= _comparable(run, [*entries, *below])
    return [found[step] for step in sorted(found)]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as scan:
            return list(islice(scan, MOST_ENTRIES))
    except OSError:  # no folder, or closed to this user
        return []


def _of_several_logs(run: Run, entries: list[os.DirEntry[str]]) -> bool:
    """Return whether a folder holds other logs like that of the run, which may be those of other runs."""
    ours = {Path(source.path).name for source in run.sources}
    suffixes = {Path(name).suffix for name in ours}
    others = (Path(entry.name) for entry in entries if entry.name not in ours)
    return any(p.suffix in suffixes and role_of(p) in ("text", "log") and is_named_as_log_file(p) for p in others)


def _comparable(run: Run, entries: list[os.DirEntry[str]]) -> dict[int, Checkpoint]:
    """Return the checkpoints whose steps are those of the log: by their trainer, or as far as their range shows it."""
    alike = [pattern for pattern, trainers in _COUNTED_ALIKE if run.framework.startswith(trainers)]
    others = [*(pattern for pattern, _ in _COUNTED_ALIKE if pattern not in alike), _OTHERS]
    named = ((pattern, dict(_named(pattern, entries))) for pattern in (*alike, *others))
    pattern, found = next(((pattern, each) for pattern, each in named if each), (_OTHERS, {}))
    last = run.steps[1] if run.steps else 0
    least = 0 if pattern in alike else LEAST_SHARE * last
    return found if found and least <= max(found) <= last + _gap(run, sorted(found)) else {}


def _gap(run: Run, steps: list[int]) -> int:
    """Return the longest interval between checkpoints, or between the last records if that is longer."""
    between = [late - early for early, late in pairwise(steps)]
    logged = [int(s.axis.steps[-1] - s.axis.steps[-2]) for s in run.series.values() if len(s) > 1]
    return max([*between, *logged], default=0)


def _named(pattern: re.Pattern[str], entries: list[os.DirEntry[str]]) -> Iterator[tuple[int, Checkpoint]]:
    for entry in entries:
        match = pattern.fullmatch(entry.name)
        checkpoint = _checkpoint(entry, int(match[1])) if match else None
        if checkpoint is not None:
            yield checkpoint.step, checkpoint


def _checkpoint(entry: os.DirEntry[str], step: int) -> Checkpoint | None:
    """Return a checkpoint, None if it holds nothing."""
    try:
        status = entry.stat()
        folder = entry.is_dir()
        size = (
            sum(each.stat().st_size for each in _entries(Path(entry)) if each.is_file()) if folder else status.st_size
        )
        held = bool(_entries(Path(entry))) if folder else size > 0
    except OSError:  # deleted since it was listed
        return None
    return Checkpoint(path=entry.path, step=step, size=size, modified=status.st_mtime) if held else None
