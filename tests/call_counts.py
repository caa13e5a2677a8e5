"""What work costs without a clock: the functions that it calls."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions of ours and of C a piece of work calls from Python."""
    made = 0

    def counted(_: object, event: str, __: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
