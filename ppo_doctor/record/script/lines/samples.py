"""Name the lines of the script that draw, choose and repeat samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.record.script.graph import stack_of
from ppo_doctor.record.script.lines.flow import (
    Spot,
    chosen_at,
    common,
    data_at,
    left_early,
    loops_around,
    made_once,
    skipped_at,
    spot_of,
    stopped_at,
)
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.places import Place, Places, Stack
from ppo_doctor.record.script.steps import masked_apart

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines.of_update import Lines
    from ppo_doctor.record.script.session import Session
    from ppo_doctor.record.script.steps import RatioSeen, Step

#: How many functions around a backward pass are looked at for loops.
OUTWARDS = 3
_KL = re.compile(r"(?i)kl")
_CHOSEN = ("rollout_trained", "minibatches_alike")
_OLD = ("rollouts_behind", "samples_trained_before")


def add_sample_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that call the network in training, choose its samples, and repeat passes over them."""
    _add_loops(lines, seen, session)
    entered = [each for step in seen.steps for each in step.trained if each.weight in seen.entries]
    trained = next((each.place for each in entered), None)
    taken = next((each.taken for each in entered if each.taken), None) or trained
    lines.add("inputs_unseen", trained)
    backward = next((step.backward_place for step in seen.steps if step.backward_place), ())
    used = [each for each in (trained, *(stack_of(each.nodes.difference) for each in seen.ratios()[:1])) if each]
    acting = next((shared for each in used if (shared := common(each, backward))), ())
    spot, files = spot_of(acting), session.own_files()
    if spot is not None:
        lines.add(_CHOSEN, _own(chosen_at(spot, files), session), "chosen")
        made = _own(data_at(spot, files, rollout_lines(seen.steps, spot.file)), session)
        lines.add(_OLD, made, "chosen")
        lines.add(_OLD, skipped_at(files) if made is None else None, "left")
    lines.add((*_CHOSEN, *_OLD), taken, "chosen")
    _add_masked(lines, seen)


def _add_masked(lines: Lines, seen: UpdateSeen) -> None:
    """Add where the training pass leaves the path of passes with a mask, and where these normalise logits."""
    shared = {frame for step in seen.steps for kind in step.masked.values() for each in kind.values() for frame in each}
    step = next((each for each in seen.steps if each.logits and each.ratios), seen.steps[0])
    scored = next((stack for size, stack in step.scored if size == step.logits), ())
    lines.add(
        "logits_masked_apart", next((scored[n:] for n, each in enumerate(scored) if each not in shared), ()), "scored"
    )
    lines.add("logits_masked_apart", masked_apart(seen.steps) or None, "computed")


def new_stack(each: RatioSeen) -> Stack:
    """Return the frames that computed the new log-probs."""
    difference = each.nodes.difference
    if difference is None:
        return ()
    side = 0 if each.nodes.sense > 0 else 1
    sides = difference.next_functions
    return stack_of(sides[side][0]) if len(sides) > side and sides[side][0] is not None else ()


def _own(spot: Spot | None, session: Session) -> Place | None:
    return spot.place() if spot is not None and session.places.is_own(spot.file) else None


def rollout_lines(steps: Sequence[Step], file: str) -> list[int]:
    """Return the lines of a file that ran when the rollout of an update began."""
    first = steps[0]
    began = first.sampled_at or next((each.place for each in first.inputs if not each.graded), ())
    return [line for code, line in began if code.co_filename == file]


def left_line(steps: Sequence[Step], places: Places) -> Place | None:
    """Return the line that leaves a loop around the optimizer step in its first iteration, whatever happens."""
    for spot in _around(steps, places):
        left = left_early(spot, rollout_lines(steps, spot.file))
        if left is not None:
            return replace(spot.place(), line=left.lineno)
    return None


def _around(steps: Sequence[Step], places: Places) -> list[Spot]:
    """Return the user's statements that called a backward pass, the innermost first."""
    backward = next((step.backward_place for step in steps if step.backward_place), ())
    spots = (spot_of(backward[n:]) for n, (code, _) in enumerate(backward) if places.is_own(code.co_filename))
    return [spot for spot in spots if spot is not None][:OUTWARDS]


def _add_loops(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the line that leaves a loop early, or what a loop runs over, and the outermost loop without the rollout."""
    names = ("passes", "optimizer_steps")
    lines.add((*names, *_CHOSEN, "loop_left_early"), seen.left, "left")
    for spot in _around(seen.steps, session.places):
        outside = rollout_lines(seen.steps, spot.file)
        loops = loops_around(spot.scope, spot.statement.lineno, outside)
        if loops:
            once = made_once(spot, outside)
            lines.add(names, once.place() if once is not None else None, "built")
            early = stopped_at(spot, _KL) if "target_kl" in session.config else None
            lines.add(names, replace(spot.place(), line=early.lineno) if early is not None else None, "left")
            lines.add((*names, "loop_left_early"), replace(spot.place(), line=loops[0].lineno))
            return
