"""Name the lines of the script that set what a metric shows: clip range, rate, optimizer, format, frozen parts."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ppo_doctor.record.script.graph import stack_of
from ppo_doctor.record.script.lines.flow import made_without_gradient, spot_of, without_gradient_at
from ppo_doctor.record.script.lines.modes import add_mode_lines
from ppo_doctor.record.script.lines.sources import (
    assigned_before,
    calls_of,
    come_from,
    functions_given,
    givens,
    horizons,
    is_helper,
    names_at,
    passed_at,
    passed_on,
    rates_assigned,
    set_to,
    used_as,
)
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.places import Place, Stack, meets

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines.of_update import Lines
    from ppo_doctor.record.script.session import Session

_CLIP = re.compile(r"(?i)clip|eps")
_NORM = re.compile(r"(?i)norm|grad|clip")
_KL = re.compile(r"(?i)kl")
_FORMAT = re.compile(r"(?i)type|precision")
_RATE = re.compile(r"(?i)^lr|_lr|learning_rate|alpha")
#: The assignment of a number.
_CONSTANT = re.compile(r"\w+\s*(:\s*\w+\s*)?=\s*[-+\d._e]+\s*(#.*)?")
_RATE_NAMES = ("learning_rate", "update_norm")
#: Names of what uses a small number that is no clip range.
_OTHER = re.compile(r"(?i)adam|optim|rmsprop|sgd|norm|std")


def add_setting_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that set the clip range, the learning rate and the bound of gradients, and that build networks."""
    config = session.config
    clamp = next((stack_of(each.nodes.clamp) for each in seen.ratios() if each.nodes.clamp is not None), ())
    clip = ("config.clip_range", "clip_range", "clip_fraction")
    _add_setting(lines, clip, config.get("clip_range"), _CLIP, clamp, session)
    norm = ("gradient_kept", "config.max_grad_norm")
    _add_setting(lines, norm, config.get("max_grad_norm"), _NORM, session.clipped_at, session)
    _add_setting(lines, ("target_kl", "config.target_kl"), config.get("target_kl"), _KL, (), session)
    _add_rate(lines, seen, session)
    _add_optimizer(lines, session)
    add_mode_lines(lines, seen, session)
    _add_frozen(lines, seen, session)


def _add_setting(
    lines: Lines,
    names: Sequence[str],
    value: float | None,
    fits: re.Pattern[str],
    acting: Stack,
    session: Session,
) -> None:
    """Add the lines that give a setting its value, that pass it on, and that use it.

    Where the number is that of something else, such as the optimizer's epsilon, the line that uses it here is first.
    """
    if value is not None and not math.isnan(value):
        files = session.own_files()
        place = session.places.own(acting)
        used = come_from(files, names_at(place)) if place is not None else ()
        given = set_to(files, value, used, fits)[:2]
        others = [each for first in given[:1] for each in used_as(files, first.name, _OTHER)] if fits is _CLIP else []
        passed = [each for first in given[:1] for each in passed_on(files, first.name, fits) if each not in others]
        for each in [*passed, place] if others else ():
            lines.add(names, each, "used")
        for first in given:
            lines.add(names, first.place, "set")
        for each in passed:
            lines.add(names, each, "used")
    lines.add(names, acting, "used")


def _add_optimizer(lines: Lines, session: Session) -> None:
    """Add the lines that made weights after their optimizer, that chose the format of weights, and the optimizer's."""
    operations, files = session.operations, session.own_files()
    optimizers = session.policy.optimizers()
    made = optimizers[-1][1] if optimizers else ()
    held = ("optimizer_params_matched", "weights_unheld")
    replaced = session.policy.orphaned()
    lines.add(held, session.places.apart(replaced, made) if replaced else None, "built")
    rounded = ("changed_fraction", "weights_rounded_away")
    cast = session.places.own(operations.cast_at)
    used = names_at(cast) if cast is not None else set()
    if cast is None or not {"bfloat16", "float16", "half"} & used:
        for name in ("bfloat16", "float16"):
            for given in set_to(files, name, come_from(files, used), _FORMAT)[:1]:
                lines.add(rounded, given.place, "set")
    lines.add(rounded, operations.cast_at or None, "changed")
    lines.add((*held, *rounded, "update_norm"), made, "used", deep=True)


def _add_frozen(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that froze, detached or ran without gradients what a metric shows without any."""
    operations = session.operations
    ungraded = session.policy.ungraded(operations.ran_ever)
    names = ("weights_without_gradient", "ratio_without_gradient")
    if not _add_cut_off(lines, names, operations.cut_off(ungraded), session):
        lines.add(names, _turned_off(seen, ungraded or session.policy.held.keys(), session), "changed")
    _add_cut_off(lines, ("weights_frozen",), operations.cut_off(set(operations.frozen)), session)


def _add_cut_off(lines: Lines, names: tuple[str, ...], stack: Stack, session: Session) -> bool:
    if stack in session.operations.detached:
        lines.add(names, stack, "changed")
    elif stack:
        thawed = session.operations.thawed_at
        again = thawed and thawed[0][0] is stack[0][0]  # the same function unfroze others, but not these
        for each in (thawed, stack) if again else (stack,):
            _add_chooser(lines, names, each, session)
    return bool(stack)


def _turned_off(seen: UpdateSeen, weights: Collection[int], session: Session) -> Place | None:
    """Return the block or the decorator without gradients in which training passes ran, or what they use was made."""
    places = session.places
    steps = [step for step in seen.steps if not step.sampled] or seen.steps  # without the rollout
    entered = [each.place for step in steps for each in step.inputs if not each.graded and each.weight in weights]
    dead = next((step for step in seen.steps if step.dead_clamps), None)
    made = dead.dead_made[: meets(dead.dead_made, dead.dead_clamps[0])] if dead is not None else ()
    passes = (Place(code.co_filename, n, code.co_name) for stack in (*entered[-1:], made) for code, n in stack)
    around = (without_gradient_at(each) for each in passes if places.is_own(each.file))
    acting = dead.dead_clamps[0] if dead is not None else session.operations.fed_at
    spots = (spot_of(acting[n:]) for n, (code, _) in enumerate(acting) if places.is_own(code.co_filename))
    used = (made_without_gradient(spot, session.own_files()) for spot in spots if spot is not None)
    return next((each for each in chain(around, *used) if each is not None), None)


def _add_chooser(lines: Lines, names: tuple[str, ...], stack: Stack, session: Session) -> None:
    """Add the line that chose weights to freeze: the caller of a function that freezes what it is given."""
    place = session.places.resolve(stack)
    callers = session.places.callers(stack, place, 1) if place is not None else []
    if place is not None and callers and is_helper(place):
        lines.add(names, callers[0], "changed")
    lines.add(names, stack, "changed")


def _add_rate(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that change the learning rate, by a schedule or otherwise, and those that set it first."""
    optimizers = session.policy.optimizers()
    optimizer, made = optimizers[-1] if optimizers else (None, ())
    rates = {step.learning_rate for step in seen.steps} | {session.config.get("learning_rate")}
    if optimizer is not None:
        rates.add(optimizer.defaults.get("lr"))
    names = _RATE_NAMES if 0 in rates else _RATE_NAMES[:1]
    given = _rates_given(made, rates, session) if len(rates) == 1 else []
    for each in given if rates == {0} else ():  # whatever a schedule does
        lines.add(names, each, "set")
    if session.schedules.built_at():
        _add_schedule(lines, names, session)
    elif len(rates) > 1:
        _add_assigned(lines, names, session)
    for each in given:
        lines.add(names, each, "set")
    lines.add(names, made, "used", deep=True)


def _rates_given(made: Stack, rates: Collection[float | None], session: Session) -> list[Place]:
    """Return the lines that give the rate of an optimizer its value; one that rounds may make it 0."""
    files, creation, rate = session.own_files(), session.places.innermost(made), next(iter(rates))
    if creation is None or rate is None:
        return []
    used = passed_at(creation, ("lr", "learning_rate"))
    given = set_to(files, rate, used, _RATE)
    if rate == 0:
        named = [each for each in givens(files) if _RATE.search(each.name) and each.value is None]
        given += [each for each in named if each.names & {"round", "int", "floor"}]
    return [*assigned_before(creation, used)[:1], *(each.place for each in given[:1])]


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
