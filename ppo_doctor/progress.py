"""How far work has come, on a terminal and only when it takes longer than a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

#: Seconds of work before anything is shown.
PATIENCE = 1.0
#: Longest label, in characters.
WIDTH = 40


@contextmanager
def progress(names: Sequence[str], patience: float = PATIENCE, *, shown: bool = True) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr while runs are judged; yields what is to be called after each.

    Nothing is shown, and rich not imported, where stderr is no terminal or the work is done within `patience` seconds.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    bar = _Shown(names)
    timer = Timer(patience, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


class _Shown:
    """The bar, or the count that it will begin with."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._done = 0
        self._bar: Progress | None = None

    def start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        # Not by way of stderr: reports may be written while the bar is shown.
        bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        bar.add_task(self._label(), total=len(self._names) if len(self._names) > 1 else None, completed=self._done)
        bar.start()
        self._bar = bar

    def advance(self) -> None:
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=self._label())

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _label(self) -> str:
        from ppo_doctor.report.escape import plain

        name = self._names[min(self._done, len(self._names) - 1)] if self._names else ""
        short = plain("/".join(Path(name).parts[-2:]))
        return short if len(short) <= WIDTH else f"{short[: WIDTH - 1]}…"
