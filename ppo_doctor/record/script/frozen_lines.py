"""Name the lines of the script that freeze weights, or cut them off from the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.record.script.places import Stack
from ppo_doctor.record.script.sources import is_helper, without_gradient_before

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines import Lines
    from ppo_doctor.record.script.session import Session


def add_frozen_lines(lines: Lines, session: Session) -> None:
    """Add the lines that froze, detached or ran without gradients what a metric shows without any."""
    operations = session.operations
    ungraded = operations.cut_off(session.policy.ungraded(operations.ran_ever))
    _add(lines, ("weights_without_gradient", "ratio_without_gradient"), ungraded, session)
    _add(lines, ("weights_frozen",), operations.cut_off(set(operations.frozen)), session)


def _add(lines: Lines, names: tuple[str, ...], stack: Stack, session: Session) -> None:
    if stack in session.operations.detached:
        lines.add(names, stack, "changed")
        return
    if stack:
        thawed = session.operations.thawed_at
        again = thawed and thawed[0][0] is stack[0][0]  # the same function unfroze others, but not these
        for each in (thawed, stack) if again else (stack,):
            _add_chooser(lines, names, each, session)
        return
    for code, line in session.operations.fed_at:
        place = session.places.own(((code, line),))
        block = without_gradient_before(place) if place is not None else None
        if block is not None:
            lines.add(names, block, "changed")
            break


def _add_chooser(lines: Lines, names: tuple[str, ...], stack: Stack, session: Session) -> None:
    """Add the line that chose weights to freeze: the caller of a function that freezes what it is given."""
    place = session.places.resolve(stack)
    callers = session.places.callers(stack, place, 1) if place is not None else []
    if place is not None and callers and is_helper(place):
        lines.add(names, callers[0], "changed")
    lines.add(names, stack, "changed")
