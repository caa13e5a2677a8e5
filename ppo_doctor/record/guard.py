"""Nothing that goes wrong in here may reach training."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import numpy as np

_FORKED = (
    "this process was forked from the one that records; it records nothing, for every step would be there twice. "
    "Make a recorder of its own, with a file of its own, in the process that trains"
)


class Guarded(Protocol):
    """What has fallen quiet does nothing more; `pid` is the process that made it, the only one in which it works."""

    quiet: bool
    pid: int

    def fail(self, fault: Exception) -> None:
        """Tell the fault once and fall quiet."""


Method = TypeVar("Method", bound=Callable[..., Any])


def guarded(method: Method) -> Method:
    """Turn a fault of a method into silence: it is told once, training goes on, the method returns None."""

    @functools.wraps(method)
    def call(self: Guarded, *args: object, **kwargs: object) -> object:
        if not self.quiet and os.getpid() != self.pid:
            self.quiet = True
            tell(_FORKED)
        if self.quiet:
            return None
        try:
            with np.errstate(all="ignore"):  # what training raises for is no fault here: NaN in a record is a finding
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
    trace: Any = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""
    tell(f"{what}: {type(fault).__name__}: {fault}{where}")
