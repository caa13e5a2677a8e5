"""Exit codes, and the one exception that users see."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a shell learns from us; the table in README.md is this one."""

    OK = 0
    SICK = 1
    USAGE = 2
    NOTHING_TO_JUDGE = 3
    INCONCLUSIVE = 4
    BUG = 70


#: With several runs the worst code wins, in this order.
WORST_FIRST = (
    ExitCode.BUG,
    ExitCode.USAGE,
    ExitCode.SICK,
    ExitCode.NOTHING_TO_JUDGE,
    ExitCode.INCONCLUSIVE,
    ExitCode.OK,
)


class DoctorError(Exception):
    """A failure that a person can act on: what happened, where, and what to do next."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.NOTHING_TO_JUDGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def worst(codes: list[ExitCode]) -> ExitCode:
    """Return the worst of several exit codes; no code at all is OK."""
    return min(codes, key=WORST_FIRST.index, default=ExitCode.OK)
