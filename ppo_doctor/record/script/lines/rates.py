"""Name the lines of the script that set and change the learning rate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.record.script.lines.sources import (
    assigned_before,
    calls_of,
    functions_given,
    horizons,
    passed_at,
    rates_assigned,
    set_to,
)
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.places import Place

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines.of_update import Lines
    from ppo_doctor.record.script.session import Session

_RATE = re.compile(r"(?i)^lr|_lr|learning_rate|alpha")
#: The assignment of a number.
_CONSTANT = re.compile(r"\w+\s*(:\s*\w+\s*)?=\s*[-+\d._e]+\s*(#.*)?")
NAMES = ("learning_rate", "update_norm")


def add_rate_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that change the learning rate, by a schedule or otherwise, and those that set it first."""
    files, optimizers = session.own_files(), session.policy.optimizers()
    optimizer, made = optimizers[-1] if optimizers else (None, ())
    rates = {step.learning_rate for step in seen.steps} | {session.config.get("learning_rate")}
    if optimizer is not None:
        rates.add(optimizer.defaults.get("lr"))
    names = NAMES if 0 in rates else NAMES[:1]
    built = session.schedules.built_at()
    if built:
        _add_schedule(lines, names, session)
    elif len(rates) > 1:
        _add_assigned(lines, names, session)
    creation = session.places.innermost(made)
    rate = seen.steps[-1].learning_rate if len(rates) == 1 else None
    if creation is not None and rate is not None:
        used = passed_at(creation, ("lr", "learning_rate"))
        for each in assigned_before(creation, used)[:1]:
            lines.add(names, each, "set")
        for given in set_to(files, rate, used, _RATE)[:1]:
            lines.add(names, given.place, "set")
    lines.add(names, made, "used", deep=True)


def _add_schedule(lines: Lines, names: tuple[str, ...], session: Session) -> None:
    """Add the line that steps a schedule at each step, the function that computes its rates, and where it was made."""
    schedules = session.schedules
    direct = session.places.own(schedules.stepped_at[:1])
    codes = [code for code in schedules.functions() if session.places.is_own(code.co_filename)]
    functions = [Place(code.co_filename, code.co_firstlineno, code.co_name) for code in codes[:1]]
    lengths = [each for place in functions for each in horizons(session.own_files(), place)][:1]
    for each in lengths:
        if "step" in each.name.lower():  # a length in steps is to be counted in them
            lines.add(names, each.place, "set")
    if schedules.each_step and direct is not None:
        lines.add(names, schedules.stepped_at, "changed")
    for place in (*(each.place for each in lengths), *functions):
        lines.add(names, place, "computed")
    lines.add(names, schedules.built_at(), "built", deep=True)
    lines.add(names, direct, "changed")


def _add_assigned(lines: Lines, names: tuple[str, ...], session: Session) -> None:
    """Add the lines that compute and assign a rate, or the function that a library asks for it.

    If it changes from step to step, the line that calls the function with the assignment is first.
    """
    files = session.own_files()
    for place, read in rates_assigned(files)[:1]:
        calls = [each for each in calls_of(files, place.function) if place.function not in ("", "main")]
        if session.schedules.varied and calls:
            lines.add(names, calls[0], "called")
        for each in assigned_before(place, read)[:1]:
            if not _CONSTANT.fullmatch(each.text()):  # the rate is another number by now
                lines.add(names, each, "computed")
        lines.add(names, place, "changed")
        for each in calls[:2]:
            lines.add(names, each, "called")
    for function in functions_given(files, _RATE)[:1]:
        lines.add(names, function, "computed")
