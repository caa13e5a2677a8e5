"""Keep errors of the recorder away from training."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

import numpy as np

_FORKED = (
    "this process was forked from the one that records; it records nothing, for every step would be there twice. "
    "Make a recorder of its own, with a file of its own, in the process that trains"
)


class Turn:
    """A reentrant lock; a copy of its owner gets a new lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


class Guarded(Protocol):
    """An object with guarded methods, which do nothing once it is `quiet` or outside the process `pid` that made it."""

    quiet: bool
    pid: int

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Return the lock that a method holds, so that threads take turns."""

    def fail(self, fault: Exception) -> None:
        """Report a fault of a method."""


Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method) -> Method:
    """Return a method that reports its exceptions and then returns None, so that training goes on."""

    @functools.wraps(method)
    def call(self: Guarded, *args: object, **kwargs: object) -> object:
        if not self.quiet and os.getpid() != self.pid:
            self.quiet = True
            tell(_FORKED)
        if self.quiet:
            return None
        try:
            # NaN in a record is a finding, even if the script makes NumPy raise for it.
            with self.turn, np.errstate(all="ignore"):
                return method(self, *args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - training goes on after any fault
            self.fail(fault)
            return None

    return cast("Method", call)


def tell(message: str) -> None:
    """Write a line to stderr if it is available."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"ppo-doctor: {message}\n")


def tell_fault(what: str, fault: BaseException) -> None:
    """Write a fault to stderr with the line that raised it."""
    file, line = place_of(fault)
    tell(f"{what}: {type(fault).__name__}{_text_of(fault)}{f' ({file}:{line})' if line else ''}")


def _text_of(fault: BaseException) -> str:
    try:
        return f": {fault}"
    except Exception:  # noqa: BLE001 - exceptions of other libraries may fail to print
        return ""


def place_of(fault: BaseException) -> tuple[str, int]:
    """Return the file and line that raised a fault, an empty name and 0 if unknown."""
    trace: Any = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else ("", 0)
