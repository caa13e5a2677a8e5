"""Find the lines of a script that computed something."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

#: Longest text of a line that is kept.
LONGEST = 200
#: Library frames between a call into torch and the user's code up to which the user's line is named.
LEVELS = 5
#: Frames of a stack that are kept; of one for a rare event.
DEEPEST, DEEP = 8, 40
#: Code and line of frames, the innermost first.
Stack = tuple[tuple[CodeType, int], ...]
#: Library frames from which on a call from the top of a script is not named, and the functions at the top.
NEAR = 2
_TOP = ("<module>", "main")
#: What a line does: "" is said of the line that a metric is about if nothing closer is known.
ROLES = ("", "called", "computed", "set", "built", "sampled", "scored", "chosen", "changed", "used", "left")
_SKIPPED, _LIBRARY, _OWN = range(3)
_NOT_OWN = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code: path, line from 1, the function that it is in, and what it does, one of `ROLES`."""

    file: str
    line: int
    function: str
    role: str = ""

    def text(self) -> str:
        """Return the source of the line, "" if it cannot be read."""
        return linecache.getline(self.file, self.line).strip()[:LONGEST]


class Places:
    """Finds the innermost relevant line of a stack: the user's code, or the trainer library that it called."""

    def __init__(self, folder: str, skipped: Iterable[str]) -> None:
        self._folder = f"{Path(folder).resolve()}{os.sep}"
        self._skipped = tuple(skipped)
        self._kinds: dict[str, int] = {}

    def stack(self, frame: FrameType | None, deepest: int = DEEPEST) -> Stack:
        """Return the innermost frames outside torch and this package, up to `deepest`, as code and line."""
        found: list[tuple[CodeType, int]] = []
        kinds = self._kinds
        while frame is not None and len(found) < deepest:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self._kind(code.co_filename)
            if kind != _SKIPPED:
                found.append((code, frame.f_lineno))
            frame = frame.f_back
        return tuple(found)

    def resolve(self, stack: Stack) -> Place | None:
        """Return the user's line if few library frames are in between, else the innermost library line.

        A call of a library from the top of a script, such as `model.learn()`, is not the line that anything is about.
        """
        for n, (code, line) in enumerate(stack[: LEVELS + 1]):
            if self._kind(code.co_filename) == _OWN and (n < NEAR or code.co_name not in _TOP):
                return Place(code.co_filename, line, code.co_name)
        return Place(stack[0][0].co_filename, stack[0][1], stack[0][0].co_name) if stack else None

    def callers(self, stack: Stack, place: Place, most: int) -> list[Place]:
        """Return the user's lines that called the code of a place, the innermost first, up to `most`."""
        lines = [(code.co_filename, line) for code, line in stack]
        at = lines.index((place.file, place.line)) if (place.file, place.line) in lines else len(lines)
        own = [each for each in stack[at + 1 :] if self._kind(each[0].co_filename) == _OWN]
        return [Place(code.co_filename, line, code.co_name, "called") for code, line in own[:most]]

    def apart(self, stack: Stack, other: Stack) -> Place | None:
        """Return the user's line at which a call leaves the path of another: the outermost that only its stack has."""
        for code, line in reversed(stack[: meets(stack, other)]):
            if self._kind(code.co_filename) == _OWN:
                return Place(code.co_filename, line, code.co_name)
        return self.resolve(stack)

    def innermost(self, stack: Stack) -> Place | None:
        """Return the innermost of the user's lines in a stack, or a library line if there is none."""
        own = [each for each in stack if self._kind(each[0].co_filename) == _OWN] or list(stack[:1])
        return Place(own[0][0].co_filename, own[0][1], own[0][0].co_name) if own else None

    def own(self, stack: Stack) -> Place | None:
        """Return the user's line that `resolve` names, None if it names a library's."""
        place = self.resolve(stack)
        return place if place is not None and self._kind(place.file) == _OWN else None

    def own_frames(self, frame: FrameType | None) -> list[FrameType]:
        """Return the frames of user and library code, innermost first."""
        frames = []
        while frame is not None:
            if self._kind(frame.f_code.co_filename) != _SKIPPED:
                frames.append(frame)
            frame = frame.f_back
        return frames

    def is_own(self, file: str) -> bool:
        """Return whether a file is the user's own code."""
        return self._kind(file) == _OWN

    def _kind(self, file: str) -> int:
        kind = self._kinds.get(file)
        if kind is None:
            kind = self._kinds[file] = self._classify(file)
        return kind

    def _classify(self, file: str) -> int:
        if file.startswith(("<", *self._skipped)) or file.endswith(("contextlib.py", "runpy.py")):
            return _SKIPPED
        real = os.path.realpath(file)
        if real.startswith(self._folder) and not any(part in real for part in _NOT_OWN):
            return _OWN
        return _LIBRARY


def meets(stack: Stack, other: Stack) -> int:
    """Return the first frame from which on two stacks are the same, as far as both are kept; all if there is none."""
    for n, frame in enumerate(stack):
        if frame in other and all(a == b for a, b in zip(stack[n:], other[other.index(frame) :], strict=False)):
            return n
    return len(stack)


def has_variables(value: object) -> bool:
    """Return whether a value is an object, or a module of the user, whose variables may be looked at.

    What a library's module holds may warn or be imported when it is looked at, such as `torch.distributed.reduce_op`.
    """
    if isinstance(value, ModuleType) and any(part in str(vars(value).get("__file__")) for part in _NOT_OWN):
        return False
    return hasattr(value, "__dict__") and not isinstance(value, type)


def variables(frame: FrameType) -> dict[str, Any]:
    """Return the local variables of a frame.

    Python before 3.13 keeps the dictionary that it makes of a function's variables as long as the function runs:
    tensors with a graph are taken out of it again.
    """
    kept = frame.f_locals
    copied = dict(kept)
    if isinstance(kept, dict) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        for name, value in copied.items():
            if getattr(type(value), "grad_fn", None) is not None and value.grad_fn is not None:
                del kept[name]
    return copied
