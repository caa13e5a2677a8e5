"""An environment for scripts under `ppo-doctor run`: a torch of three lines, and an observer that counts its steps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

#: Seconds after which a test gives up.
LONGEST = 60.0
TORCH = """
import os
if os.environ.get("BROKEN"):
    raise ImportError("libcudart.so is missing")
steps = []
def step():
    for hook in steps:
        hook()
"""
#: The environment's own sitecustomize, which has to run after ours: it puts the observer of the tests in place.
SITE = """
import os, sys
sys.dont_write_bytecode = True
from types import ModuleType
class Observer:
    def __init__(self, options):
        self.options, self.steps = options, 0
        if os.environ.get("FAULT") == "init":
            raise RuntimeError("no room")
    def start(self):
        if os.environ.get("FAULT") == "start":
            raise RuntimeError("no hooks")
        sys.modules["torch"].steps.append(self.step)
    def step(self):
        self.steps += 1
        if self.options.stop and self.steps == self.options.updates:
            raise SystemExit(0)
        if self.steps == 1:
            try:
                file = open(self.options.out, "x")
            except FileExistsError:
                return
            with file, open(os.environ["RECORDS"]) as records:
                file.write(records.read())
    def finish(self):
        if os.environ.get("FAULT") == "finish":
            raise RuntimeError("no end")
        if "SEEN" in os.environ:
            with open(os.environ["SEEN"], "a") as seen:
                print(self.steps, self.options.script, self.options.folder, file=seen)
module = ModuleType("ppo_doctor.record.script.observer")
module.Observer = Observer
sys.modules[module.__name__] = module
"""


class Stage:
    """A folder with the environment in `env` and scripts in `work`."""

    def __init__(self, folder: Path, records: Path) -> None:
        self.env, self.work = folder / "env", folder / "work"
        self.seen, self.records = folder / "seen", folder / "records.jsonl"
        shutil.copy(records, self.records)
        (self.env / "torch").mkdir(parents=True)
        self.work.mkdir()
        (self.env / "torch" / "__init__.py").write_text(TORCH)
        (self.env / "sitecustomize.py").write_text(SITE)
        places = {"PYTHONPATH": str(self.env), "RECORDS": str(self.records), "SEEN": str(self.seen)}
        self.variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **places}

    def write(self, name: str, text: str) -> None:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def start(self, *command: str, **more) -> subprocess.Popen[str]:
        """Start a command in the folder of scripts."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        variables = {**self.variables, **more.pop("env", {})}
        return subprocess.Popen(command, **{**pipes, "cwd": self.work, "env": variables, "text": True, **more})

    def plain(self, *arguments: str, stdin: str = "", **env: str) -> tuple[int, str, str]:
        """Run Python without us; return the exit code and the two streams."""
        return self._end(self.start(sys.executable, *arguments, env=env), stdin)

    def observed(self, *arguments: str, stdin: str = "", **env: str) -> tuple[int, str, str]:
        """Run `ppo-doctor run` with these arguments."""
        return self._end(self.start(sys.executable, "-m", "ppo_doctor", "run", *arguments, env=env), stdin)

    @staticmethod
    def _end(process: subprocess.Popen[str], stdin: str) -> tuple[int, str, str]:
        out, err = process.communicate(stdin, timeout=LONGEST)
        return process.returncode, out, err
