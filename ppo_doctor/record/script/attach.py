"""Start and end the observer in the process that trains."""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.record.guard import tell_fault
from ppo_doctor.record.script.options import NOTES, OPTIONS, WatchOptions, options_from_json

if TYPE_CHECKING:
    from ppo_doctor.record.script.observer import Observer

#: Variables in which launchers of distributed training tell a process its rank.
RANKS = ("RANK", "LOCAL_RANK")
#: Files and folders at the root of a project.
PROJECT = (".git", "pyproject.toml", "setup.py")


def begin() -> None:
    """Start the observer with the options of the environment, unless another rank reports."""
    note("torch")
    if not is_first_rank():
        note("rank")
        return
    from ppo_doctor.record.script.observer import Observer

    observer = Observer(with_script(options_from_json(os.environ[OPTIONS])))
    atexit.register(_finish, observer, os.getpid())
    observer.start()


def note(text: str) -> None:
    """Append a line to the notes that the launcher prints if nothing was observed."""
    folder = os.environ.get(NOTES)
    if folder is None:
        return
    try:
        with (Path(folder) / "notes").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(" ".join(text.split("\n")) + "\n")
    except OSError:
        pass  # the launcher has ended


def is_first_rank() -> bool:
    """Return whether this process is the first of those that train together, as far as its environment says so."""
    ranks = [os.environ[name] for name in RANKS if name in os.environ]
    return not ranks or ranks[0] in ("", "0")


def with_script(options: WatchOptions) -> WatchOptions:
    """Return the options with the script of this process, and the folder of the user's code, where they are empty."""
    if options.script:
        return options
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    path = Path(script).resolve() if script else None
    # The main file of torchrun and its like is not the user's; that of a child of multiprocessing is not set yet.
    if path is None or path.is_relative_to(Path(sys.prefix).resolve()) or "site-packages" in path.parts:
        return replace(options, script=str(path or ""), folder=options.folder or str(Path.cwd()))
    return replace(options, script=str(path), folder=options.folder or str(project_of(path)))


def project_of(script: Path) -> Path:
    """Return the root of the project that a script belongs to, the folder of the script if there is no sign of one."""
    for folder in script.parents:
        if folder == Path.home() or folder == folder.parent:
            break
        if any((folder / name).exists() for name in PROJECT):
            return folder
    return script.parent


def _finish(observer: Observer, process: int) -> None:
    if os.getpid() != process:  # a forked child that ended by itself
        return
    try:
        observer.finish()
    except Exception as fault:  # noqa: BLE001 - the exit code stays that of the script
        tell_fault("the observation could not be completed", fault)
