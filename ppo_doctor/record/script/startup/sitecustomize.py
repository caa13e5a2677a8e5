"""Wait in every Python process below `ppo-doctor run` until it imports torch, then attach the observer.

Python imports this module at start-up because its folder comes first in PYTHONPATH. The module runs in interpreters
from 3.7 on and imports nothing that a script may want to import later itself: NumPy and torch read variables such as
OMP_NUM_THREADS once. It removes its folder from `sys.path` and passes on to the environment's own `sitecustomize`.
"""

# ruff: noqa: PTH100, PTH118, PTH120
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing it from typing would import that
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import ModuleType

#: The variable that names the folder of notes to the launcher.
NOTES = "PPO_DOCTOR_RUN_NOTES"
FOLDER = os.path.dirname(os.path.abspath(__file__))


def note(text: str) -> None:
    """Append a line to the notes that the launcher reads when the command has ended."""
    try:
        handle = os.open(os.path.join(os.environ[NOTES], "notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, (text.replace("\n", " ") + "\n").encode("utf-8", "backslashreplace"))
        finally:
            os.close(handle)
    except OSError:
        pass  # the launcher has ended


def attach() -> None:
    """Start the observer in this process; if that fails, print one line and let the script run."""
    try:
        make_importable()
        from ppo_doctor.record.script.attach import begin

        begin()
    except Exception as fault:  # noqa: BLE001 - training goes on after any fault of ours
        line = f"the observer did not start: {type(fault).__name__}: {fault}".replace("\n", " ")
        note(f"failed {line}")
        if sys.stderr is not None:
            sys.stderr.write(f"ppo-doctor: {line}; the script runs on unobserved\n")


def make_importable() -> None:
    """Make the launcher's copy of ppo_doctor importable without a change of `sys.path`: the two have to match."""
    from importlib.util import module_from_spec, spec_from_file_location

    if "ppo_doctor" in sys.modules:
        return
    package = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
    spec = spec_from_file_location("ppo_doctor", os.path.join(package, "__init__.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"no package in {package}")
    module = module_from_spec(spec)
    sys.modules["ppo_doctor"] = module
    spec.loader.exec_module(module)


class _TorchFinder:
    """Finds torch as the other finders do, and attaches the observer once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    self._follow(spec.loader)  # type: ignore[arg-type]
                return spec
        return None

    def _follow(self, loader: SourceFileLoader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            del loader.exec_module  # the attribute of this object
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                attach()

        # Tracebacks leave out the frames of Python's import system, and by these names also this one.
        exec_module.__code__ = exec_module.__code__.replace(
            co_filename="<frozen importlib._bootstrap>", co_name="_call_with_frames_removed"
        )
        loader.exec_module = exec_module  # type: ignore[method-assign]


def prepare() -> None:
    """Make this process attach the observer as soon as it has imported torch."""
    if NOTES not in os.environ:
        return
    if sys.version_info < (3, 11):  # noqa: UP036 - the script may have an older one
        note("failed Python {}.{} cannot be observed: 3.11 or later is needed".format(*sys.version_info))
        return
    note("started")
    if "torch" in sys.modules:
        attach()
    else:
        sys.meta_path.insert(0, _TorchFinder())


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != FOLDER]
prepare()
# Where the environment has no sitecustomize this raises the ImportError that Python expects and ignores.
del sys.modules["sitecustomize"]
__import__("sitecustomize")
