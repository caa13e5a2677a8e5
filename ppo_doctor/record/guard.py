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
    """A lock that one thread may take again; a copy of what holds it has one of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


class Guarded(Protocol):
    """What has fallen quiet does nothing more; `pid` is the process that made it, the only one in which it works."""

    quiet: bool
    pid: int

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """What a method holds while it works: threads come one after the other."""

    def fail(self, fault: Exception) -> None:
        """Tell the fault once."""


Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method) -> Method:
    """Keep a fault of a method from training: it is told, and the method returns None."""

    @functools.wraps(method)
    def call(self: Guarded, *args: object, **kwargs: object) -> object:
        if not self.quiet and os.getpid() != self.pid:
            self.quiet = True
            tell(_FORKED)
        if self.quiet:
            return None
        try:
            # What training raises for is no fault here: NaN in a record is a finding.
            with self.turn, np.errstate(all="ignore"):
                return method(self, *args, **kwargs)
        except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on
            self.fail(fault)
            return None

    return cast("Method", call)


def tell(message: str) -> None:
    """Write a line to stderr, as long as there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"ppo-doctor: {message}\n")


def tell_fault(what: str, fault: BaseException) -> None:
    """Tell a fault with the line of ours that it came from."""
    file, line = place_of(fault)
    tell(f"{what}: {type(fault).__name__}{_text_of(fault)}{f' ({file}:{line})' if line else ''}")


def _text_of(fault: BaseException) -> str:
    try:
        return f": {fault}"
    except Exception:  # noqa: BLE001 - a stranger's fault may not even have a text
        return ""


def place_of(fault: BaseException) -> tuple[str, int]:
    """Return file and line that a fault came from; an empty name and 0 where nothing tells."""
    trace: Any = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else ("", 0)
