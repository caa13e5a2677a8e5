"""Name the lines of the script by which passes of one network differ: modes, dropout, normalisation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.record.script.lines.flow import factor_at, spot_of
from ppo_doctor.record.script.lines.samples import new_stack
from ppo_doctor.record.script.lines.sources import assigned_before, come_from, mentions, names_at, set_to
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.places import Place, Stack
from ppo_doctor.record.script.steps import temperature

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines.of_update import Lines
    from ppo_doctor.record.script.session import Session

_DROPOUT = re.compile(r"(?i)drop")
#: The metric that shows any difference, and is said of dropout and normalisation if these were seen to differ.
FIRST = "batch_start_ratio_dev"


def add_mode_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines of dropout, batch normalisation and observation statistics."""
    if any(step.dropout[True] for step in seen.steps):
        _add_dropout(lines, seen, session)
    modes = [set().union(*(step.batch_norm[kind] for step in seen.steps)) for kind in (True, False)]
    if any(modes):
        names = ("modes_differ", FIRST) if all(modes) and modes[0] != modes[1] else ("modes_differ",)
        for each in session.layers.training_at(seen.policy)[:1]:
            lines.add(names, each, "changed")
        lines.add(names, session.layers.norm_at, "built", deep=True)
    _add_normalisation(lines, seen, session)
    _add_temperature(lines, seen, session)


def _add_dropout(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the line that turns dropout on for training only, else the one that sets its rate, then the other."""
    files, layers = session.own_files(), session.layers
    dropped = next((step.dropout_place for step in seen.steps if step.dropout_place), ())
    names = ("dropout_active", FIRST)
    only_training = not any(step.dropout[False] for step in seen.steps)
    training_at = layers.training_at(seen.policy)
    for each in training_at[:only_training]:
        lines.add(names, each, "changed")
    acting = session.places.own(dropped)
    if acting is not None and not layers.dropout_at and "training" not in names_at(acting):
        lines.add(names, acting, "used")  # a function that no mode turns off
    kept_on = [each for each in set_to(files, False, (), _DROPOUT) if "disable" in each.name]
    rates = {rate for step in seen.steps for rate in step.dropout_rates}
    made = session.places.innermost(layers.dropout_at)
    used = come_from(files, names_at(made)) if made is not None and session.places.is_own(made.file) else ()
    given = [each for rate in rates for each in set_to(files, rate, used, _DROPOUT)]
    for setting in [*kept_on[:1], *given[:1]]:
        lines.add(names, setting.place, "set")
    if made is not None and session.places.is_own(made.file):
        by_library = made.file != layers.dropout_at[0][0].co_filename
        for place in assigned_before(made, names_at(made))[:by_library]:
            lines.add(names, place, "set")
        lines.add(names, layers.dropout_at, "built", deep=True)
    for each in training_at:
        lines.add(names, each, "changed")
    lines.add(names, dropped, "used", deep=True)


def _add_normalisation(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the line that changed statistics of observations, or normalised these anew, and the library's class."""
    stack = next((step.normalised_at for step in seen.steps if step.normalised_at), ())
    if not stack:
        return
    names = ("inputs_unseen", FIRST)
    place, caller = _changer(stack, session)
    if place is not None:
        lines.add(names, place, "changed")
        lines.add(names, caller, "called")
        return
    maker = stack[0][0].co_qualname.partition(".")[0]
    for each in mentions(session.own_files(), maker)[:1]:
        lines.add(names, each, "used")


def _add_temperature(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add where the training pass scores without the divisor if that is the user's line, and where sampling divides."""
    divisor = temperature(seen.steps)
    if divisor is None or divisor[0] == 1:
        return
    names = ("sampling_temperature", FIRST)
    last = [stack for size, stack in seen.steps[-1].scored if size == divisor[2] and stack]
    codes = {code for each in seen.ratios()[-1:] for code, _ in new_stack(each)[:1]}
    scored = next((stack for stack in last if stack[0][0] in codes), next(iter(last), ()))
    shared = set().union(*(step.scaled for step in seen.steps))
    apart = next((scored[n:] for n, frame in enumerate(scored) if frame not in shared), ())
    in_training = any(divisor[1] in step.divisors[True].values() for step in seen.steps)
    scaled = any(size == divisor[2] for step in seen.steps for size, _ in step.divisors[True])
    place, backward = session.places.own(apart), seen.steps[-1].backward_place
    whole = place is not None and any((c.co_filename, n) == (place.file, place.line) for c, n in backward)
    if place is not None and not whole and not scaled:  # not a call of a library's whole update
        lines.add(names, apart, "scored")  # otherwise training divides too, by another number
    spot = spot_of(divisor[1]) if session.places.own(divisor[1]) is not None else None
    given = factor_at(spot) if spot is not None else None
    lines.add(names, given.place() if given is not None else None, "set")
    lines.add(names, divisor[1], "scored" if in_training else "sampled")
    lines.add(names, apart, "scored")


def _changer(stack: Stack, session: Session) -> tuple[Place | None, Place | None]:
    """Return the user's line that had statistics changed, not the one in the class that keeps them, and its caller."""
    place = session.places.own(stack)
    if place is None:
        return None, None
    callers = session.places.callers(stack, place, 1)
    inside = (place.file, place.line) == (stack[0][0].co_filename, stack[0][1])
    if inside and callers and stack[0][0].co_argcount:
        return callers[0], place
    return place, next(iter(callers), None)
