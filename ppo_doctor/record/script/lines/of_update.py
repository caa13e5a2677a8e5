"""Name the lines of the script that the metrics of an update are about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.record.script.graph import stack_of
from ppo_doctor.record.script.lines.flow import matched_at, reward_at, shaped_at, spot_of
from ppo_doctor.record.script.lines.samples import add_sample_lines, new_stack
from ppo_doctor.record.script.lines.settings import add_setting_lines
from ppo_doctor.record.script.lines.sources import named_again
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.operations import indexed
from ppo_doctor.record.script.places import Place, Places, Stack
from ppo_doctor.record.script.steps import RatioSeen, clipped_early

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session

#: Lines of one metric that are kept, and lines that called the first of them.
MOST, CALLERS = 5, 2
_BROKEN = (
    *("loss", "grad_norm", "deviation_of_one", "advantages_mean", "advantages_std", "ratio_mean"),
    *("weights_nonfinite", "log_probs_nonfinite"),
)
_ADVANTAGES = ("advantages_std", "advantages_abs_max", "advantages_mean")

#: Operations by which a batch becomes flat.
FLATTENING = ("flatten", "reshape", "view", "t", "transpose", "permute", "swapaxes")


class Lines:
    """The lines of each metric: the guilty one as far as known first, then others that are part of the matter."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._found: dict[str, list[Place]] = {}
        self._callers: dict[str, list[Place]] = {}

    def add(
        self, names: str | Iterable[str], line: Place | Stack | None, role: str = "", *, deep: bool = False
    ) -> None:
        """Add a line to those of one or several metrics; the first that is added to a metric is its main one.

        Of frames, the user's innermost line is added however many of a library are further in if `deep` is True.
        """
        resolve = self._places.innermost if deep else self._places.resolve
        place = resolve(line) if isinstance(line, tuple) else line
        if place is None:
            return
        place = replace(place, role=role)
        for name in (names,) if isinstance(names, str) else names:
            found = self._found.setdefault(name, [])
            if not found and isinstance(line, tuple):
                self._callers[name] = self._places.callers(line, place, CALLERS)
            found.append(place)

    def all(self) -> dict[str, tuple[Place, ...]]:
        """Return the lines of each metric; those that called the main one are last."""
        return {name: _distinct([*found, *self._callers.get(name, ())]) for name, found in self._found.items()}


def _distinct(places: Iterable[Place]) -> tuple[Place, ...]:
    first: dict[tuple[str, int], Place] = {}
    for each in places:
        first.setdefault((each.file, each.line), each)
    return tuple(first.values())[:MOST]


def places_of(seen: UpdateSeen, session: Session) -> dict[str, tuple[Place, ...]]:
    """Return the lines of the script that the metrics of an update are about."""
    lines = Lines(session.places)
    sizes = (each for step in seen.steps for each in (*step.losses, step.grad_norm or 0.0))
    broken = not all(map(math.isfinite, sizes))
    if broken:
        _add_not_finite(lines, session)
    _add_loss_lines(lines, seen, session)
    add_setting_lines(lines, seen, session)
    _add_old_log_prob_lines(lines, seen, session)
    _add_step_lines(lines, seen, session)
    add_sample_lines(lines, seen, session)
    if not broken:
        _add_not_finite(lines, session, _BROKEN[2:])
    return lines.all()


def broken_places(session: Session) -> dict[str, tuple[Place, ...]]:
    """Return the lines at which the values of a script broke outside the updates that were observed."""
    lines = Lines(session.places)
    _add_not_finite(lines, session)
    return lines.all()


def _add_not_finite(lines: Lines, session: Session, names: Sequence[str] = _BROKEN) -> None:
    odd = session.operations.odd
    lines.add(names, odd.not_finite or odd.arrived or None)
    lines.add(names, odd.infinite or None, "computed")


def _add_loss_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines of the surrogate and of its parts."""
    ratios = seen.ratios()
    product = next((stack_of(each.nodes.product) for each in ratios), None)
    if any(each.nodes.sense < 0 for each in ratios):
        lines.add("policy_pull", stack_of(ratios[0].nodes.difference), "computed")
    surrogate = next((each.place for each in ratios if each.place), None)
    _add_zeroed(lines, seen, session)
    lines.add(("policy_pull", "surrogate_takes_larger", *_ADVANTAGES), surrogate)
    joined = next((stack_of(each.nodes.joined) for each in ratios if each.nodes.joined is not None), None)
    lines.add("policy_pull", joined, "used")
    made_by = next((each.made_by for each in ratios), ())
    lines.add("advantage_repeat_corr", indexed(made_by) or product)
    lines.add("advantages_off_prompts", next((each.computed[1] for each in ratios if each.computed), None), "computed")
    flattened = next((stack for name, stack in made_by if name in FLATTENING), None)
    lines.add("advantages_transposed", flattened or indexed(made_by) or product)
    lines.add("surrogate_broadcast", next((each.column for each in ratios if each.column), None))
    lines.add("surrogate_broadcast", product, "used")
    lines.add("clip_bounds_swapped", _clamp(seen))


def _add_zeroed(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add what made all advantages 0: the line that grouped single samples, or made equal values, and the others."""
    step = next((each for each in seen.steps if each.zeroed), None)
    zeroed = step.zeroed if step is not None else ()
    centred = spot_of(zeroed) if zeroed and session.places.is_own(zeroed[0][0].co_filename) else None
    made = shaped_at(centred) if centred is not None else []
    for each in made if step is not None and step.zeroed_alone else made[::-1]:
        lines.add(_ADVANTAGES, each.place(), "built")
    if centred is None and all(each.advantages is not None and not each.advantages.any() for each in seen.ratios()):
        rewarded = reward_at(session.own_files())
        matched = matched_at(rewarded, session.own_files()) if rewarded is not None else None
        for each in (found for found in (matched, rewarded) if found is not None):
            lines.add(_ADVANTAGES, each.place(), "computed")
    lines.add(_ADVANTAGES, zeroed or None, "computed")


def _clamp(seen: UpdateSeen) -> Stack | None:
    return next((stack_of(each.nodes.clamp) for each in seen.ratios() if each.nodes.clamp is not None), None)


def _add_old_log_prob_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the line that computes old log-probs, or overwrites the network that does."""
    ratios = [(step, each) for step in seen.steps for each in step.ratios]
    traced = [(step, each) for step, each in ratios if each.origin is not None]
    began = seen.steps[0].number
    again = [each for _, each in traced if each.origin is not None and each.origin.last > began]
    chosen = next(iter(again), None) or next((each for _, each in traced), None)
    names = ["repeated_ratio_dev", "epoch_start_ratio_dev", "ratio_std", "old_policy_shared", "batch_start_ratio_dev"]
    graded = next((each for _, each in ratios if each.nodes.both_graded), None)
    if graded is not None:
        place = _graded_place(graded, session)
        lines.add(("old_log_prob_with_gradient", "grad_norm"), place, "computed")
    names = [*names, "old_log_prob_with_gradient"]
    detached = next((each.detached for _, each in ratios if each.detached), ())
    lines.add(names, session.places.innermost(detached) if detached else None, "set")
    lines.add(names, assigned(seen, session), "set")
    loads = [stack for step in seen.steps[1:] for name, stack in step.events if name == "load_state_dict"]
    lines.add(names, next(iter(loads), None), "changed")
    if chosen is not None and chosen.origin is not None:
        stack = chosen.origin.stack
        lines.add(names, session.places.apart(stack, new_stack(chosen)), "computed")
        lines.add(names, stack, "computed")


def assigned(seen: UpdateSeen, session: Session) -> Place | None:
    """Return the line that gives the policy a second name."""
    if seen.alias is None:
        return None
    return named_again(session.own_files(), seen.alias.other, seen.alias.policy)


def _graded_place(each: RatioSeen, session: Session) -> Place | None:
    """Return the line that made the second side of a difference."""
    sides = each.nodes.difference.next_functions
    if len(sides) < 2 or sides[1][0] is None:
        return None
    one, other = (stack_of(side) for side, _ in sides[:2])
    if one == other:  # a difference of something and itself
        return session.places.resolve(stack_of(each.nodes.difference))
    return session.places.apart(other, one)


def _add_step_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines of backward passes, of clipping, and of what has no gradient."""
    steps = seen.steps
    lines.add("gradients_left_over", next((step.backward_place for step in steps if step.backward_place), None))
    clips = ((place, step) for step in steps for name, place in step.events if name == "clip")
    lines.add("clip_after_step", next((place for place, step in clips if clipped_early(step)), None))
    lines.add("ratio_without_gradient", next((p for step in steps for p in step.dead_clamps), None))
    lines.add("clip_unused", next((p for step in steps for p in step.unused_clamps), None))
    lines.add("policy_gradient_cut", next((s.cut_at for s in steps if s.cut_at), None), "computed")
    lines.add("reference_shared", assigned(seen, session), "set")
    loads = [stack for step in steps for name, stack in step.events if name == "load_state_dict"]
    lines.add("reference_shared", next(iter(loads), None), "changed")
    made = next((s.reference_made for s in steps if s.reference_made), ())
    old = next((each.origin.stack for each in seen.ratios() if each.origin is not None), ())
    lines.add("reference_shared", session.places.apart(made, old) if old else made, "computed")
    lines.add("reference_shared", next((s.reference_place for s in steps if s.reference_place), None))
    lines.add("reference_shared", steps[0].equal_at or None)
    target, error = next(((s.value_target, s.value_error) for s in steps if s.value_target), ((), ()))
    lines.add("value_target_with_gradient", session.places.apart(target, error) if error else target, "called")
    lines.add("value_target_with_gradient", target)
    lines.add("value_broadcast", next((s.value_place for s in steps if s.value_place), None))
