"""TensorBoard's own application with the tab, over folders of runs."""

from __future__ import annotations

import shutil
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorBoard's own
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend import application
    from werkzeug.test import Client, TestResponse

    from ppo_doctor.tensorboard_plugin import run_list
    from ppo_doctor.tensorboard_plugin.plugin import DoctorPlugin

PATIENCE = 60.0


class Board:
    """TensorBoard over a log directory, as its page asks it."""

    made: ClassVar[list[Board]] = []

    def __init__(self, **flags: str) -> None:
        given = {"logdir": "", "logdir_spec": "", "path_prefix": "", "samples_per_plugin": {}, "window_title": ""}
        self.plugins: list[DoctorPlugin] = []

        class Kept(DoctorPlugin):
            def __init__(own, context: Any) -> None:  # noqa: N805
                super().__init__(context)
                self.plugins.append(own)

        Board.made.append(self)
        self.client = Client(application.TensorBoardWSGIApp(Namespace(**{**given, **flags}), [Kept]))

    def get(self, path: str, **query: str) -> TestResponse:
        return self.client.get(f"/data/plugin/ppo_doctor/{path}", query_string=query)

    def runs(self, opened: str = "") -> dict[str, dict[str, Any]]:
        return {run["name"]: run for run in self.get("runs", open=opened).json["runs"]}

    def until(self, done: Callable[[dict[str, dict[str, Any]]], object], opened: str = "") -> dict[str, dict[str, Any]]:
        end = time.monotonic() + PATIENCE
        while not done(found := self.runs(opened)):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def judged(self) -> dict[str, dict[str, Any]]:
        return self.until(lambda runs: runs and all(run["state"] != "waiting" for run in runs.values()))

    def opened(self, name: str) -> TestResponse:
        """Open a run and return its report."""
        key = self.until(lambda runs: name in runs)[name]["key"]
        self.until(lambda runs: runs[name]["report"], opened=key)
        return self.get("report", run=key)

    def close(self) -> None:
        """End the thread."""
        for listed in (plugin._list for plugin in self.plugins):
            listed._until = 0.0
            if (thread := listed._thread) is not None:
                thread.join(PATIENCE)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"PAUSE": 0.0, "SHARE": 0, "NAP": 0.01, "REST": 0.0}.items():
        monkeypatch.setattr(run_list, name, value)
    yield
    while Board.made:
        Board.made.pop().close()


@pytest.fixture
def runs(tmp_path: Path, samples: Path) -> Path:
    """Return a log directory with a sound run and a sick one."""
    for name, sample in (("sound", "healthy/healthy.sb3"), ("sweep/sick", "sick/lr-zero.sb3")):
        shutil.copytree(samples / sample, tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.fixture
def board(runs: Path) -> Board:
    return Board(logdir=str(runs))
