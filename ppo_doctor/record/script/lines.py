"""Name the lines of the script that the metrics of an update are about."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ppo_doctor.record.script.graph import stack_of
from ppo_doctor.record.script.metrics import UpdateSeen, clipped_early, temperature
from ppo_doctor.record.script.mode import indexed
from ppo_doctor.record.script.places import Place, Stack, assignment_line, constant_line, loop_line, rate_line
from ppo_doctor.record.script.steps import RatioSeen

if TYPE_CHECKING:
    from ppo_doctor.record.script.session import Session

_CLIP = re.compile(r"(?i)clip|eps")
_RATE = re.compile(r"(?i)lr|rate|alpha")
_NORM = re.compile(r"(?i)norm|grad|clip")


def places_of(seen: UpdateSeen, session: Session) -> dict[str, Place]:
    """Return the lines of the script that the metrics of an update are about."""
    ratios = seen.ratios()
    found: dict[str, Place | Stack | None] = {}
    surrogate = next((each.place for each in ratios if each.place), None)
    for name in ("policy_pull", "surrogate_takes_larger", "advantages_std", "advantages_abs_max", "advantages_mean"):
        found[name] = surrogate
    found |= _old_log_prob_places(seen, session)
    product = next((stack_of(each.nodes.product) for each in ratios), None)
    found["surrogate_broadcast"] = found["advantage_repeat_corr"] = product
    if any(each.nodes.sense < 0 for each in ratios):
        found["policy_pull"] = stack_of(ratios[0].nodes.difference)
    made_by = next((each.made_by for each in ratios), ())
    found["advantage_repeat_corr"] = indexed(made_by) or product
    found["surrogate_broadcast"] = next((each.column for each in ratios if each.column), product)
    clamp = next((stack_of(each.nodes.clamp) for each in ratios if each.nodes.clamp is not None), None)
    found["clip_bounds_swapped"] = clamp
    found |= _step_places(seen, session, clamp)
    resolved = {
        name: session.places.resolve(each) if isinstance(each, tuple) else each for name, each in found.items() if each
    }
    return {name: place for name, place in resolved.items() if place is not None}


def _old_log_prob_places(seen: UpdateSeen, session: Session) -> dict[str, Place | Stack | None]:
    """Return the line that computes old log-probs, or overwrites the network that does."""
    ratios = [(step, each) for step in seen.steps for each in step.ratios]
    traced = [(step, each) for step, each in ratios if each.origin is not None]
    began = seen.steps[0].number
    again = [each for _, each in traced if each.origin is not None and each.origin.last > began]
    chosen = next(iter(again), None) or next((each for _, each in traced), None)
    place: Place | Stack | None = None
    if chosen is not None and chosen.origin is not None:
        place = session.places.apart(chosen.origin.stack, _new_stack(chosen))
    loads = [stack for step in seen.steps[1:] for name, stack in step.events if name == "load_state_dict"]
    place = next(iter(loads), None) or place
    assigned = _assigned(seen, session)
    place = assigned or place
    graded = next((each for _, each in ratios if each.nodes.both_graded), None)
    names = ("repeated_ratio_dev", "epoch_start_ratio_dev", "ratio_std", "old_policy_shared", "batch_start_ratio_dev")
    second = _graded_place(graded, session) if graded is not None else None
    return {**dict.fromkeys(names, place), "old_log_prob_with_gradient": second or place}


def _assigned(seen: UpdateSeen, session: Session) -> Place | None:
    """Return the line that gives the policy a second name."""
    if seen.alias is None:
        return None
    lines = (assignment_line(file, seen.alias.other, seen.alias.policy) for file in session.own_files())
    return next((each for each in lines if each), None)


def _new_stack(each: RatioSeen) -> Stack:
    """Return the frames that computed the new log-probs."""
    difference = each.nodes.difference
    if difference is None:
        return ()
    side = 0 if each.nodes.sense > 0 else 1
    sides = difference.next_functions
    return stack_of(sides[side][0]) if len(sides) > side and sides[side][0] is not None else ()


def _graded_place(each: RatioSeen, session: Session) -> Place | None:
    """Return the line that made the second side of a difference."""
    sides = each.nodes.difference.next_functions
    if len(sides) < 2 or sides[1][0] is None:
        return None
    return session.places.apart(stack_of(sides[1][0]), stack_of(sides[0][0]))


def _step_places(seen: UpdateSeen, session: Session, clamp: Stack | None) -> dict[str, Place | Stack | None]:
    operations = session.operations
    first = seen.steps[0]
    config = session.config
    files = session.own_files()
    rate = (
        rate_line(files)
        if len({step.learning_rate for step in seen.steps} | {config.get("learning_rate")}) > 1
        else None
    )
    orphaned = session.policy.orphaned(operations.initialised, session.places)
    made = next((place for optimizer, place in reversed(session.policy.optimizers()) if place), None)
    backward = next((step.backward_place for step in seen.steps if step.backward_place), None)
    clip_after = next(
        (p for step in seen.steps for name, p in step.events if name == "clip" and clipped_early(step)), None
    )
    divisor = temperature(seen)
    line = session.places.resolve(backward) if backward else None
    sampled = [
        n for step in seen.steps for code, n in step.sampled_at if line is not None and code.co_filename == line.file
    ]
    loop = loop_line(line, sampled) if line is not None else None
    found: dict[str, Place | Stack | None] = {
        "config.clip_range": _constant(files, config.get("clip_range"), _CLIP) or clamp,
        "clip_range": _constant(files, config.get("clip_range"), _CLIP) or clamp,
        "clip_fraction": _constant(files, config.get("clip_range"), _CLIP) or clamp,
        "gradient_kept": _constant(files, config.get("max_grad_norm"), _NORM) or session.clip_place(),
        "config.max_grad_norm": _constant(files, config.get("max_grad_norm"), _NORM) or session.clip_place(),
        "learning_rate": session.scheduler_place() or rate or _constant(files, first.learning_rate, _RATE) or made,
        "optimizer_params_matched": orphaned or made,
        "weights_unheld": orphaned or made,
        "update_norm": made,
        "changed_fraction": operations.cast_at or made,
        "weights_rounded_away": operations.cast_at or made,
        "weights_without_gradient": operations.cut_off(session.policy.ungraded(operations.ran_ever)),
        "weights_frozen": operations.cut_off(set(operations.frozen)),
        "reference_shared": _assigned(seen, session)
        or next((s.reference_place for s in seen.steps if s.reference_place), None),
        "ratio_without_gradient": next((p for step in seen.steps for p in step.dead_clamps), None),
        "clip_unused": next((p for step in seen.steps for p in step.unused_clamps), None),
        "clip_after_step": clip_after,
        "gradients_left_over": backward,
        "passes": loop,
        "optimizer_steps": loop,
        "dropout_active": next((step.dropout_place for step in seen.steps if step.dropout_place), None),
        "sampling_temperature": divisor[1] if divisor else None,
        "value_target_with_gradient": next((s.value_target for s in seen.steps if s.value_target), None),
        "value_broadcast": next((s.value_place for s in seen.steps if s.value_place), None),
    }
    found |= _sample_places(seen)
    if operations.not_finite:
        found |= dict.fromkeys(
            ("loss", "advantages_mean", "advantages_std", "ratio_mean", "grad_norm"), operations.not_finite
        )
    return found


def _sample_places(seen: UpdateSeen) -> dict[str, Place | Stack | None]:
    """Return the lines that call the network in training, and that choose its samples."""
    entered = [each for step in seen.steps for each in step.trained if each.weight in seen.entries]
    trained = next((each.place for each in entered), None)
    taken = next((each.taken for each in entered if each.taken), None) or trained
    names = ("rollouts_behind", "rollout_trained", "minibatches_alike", "samples_trained_before")
    return {"inputs_unseen": trained, **dict.fromkeys(names, taken)}


def _constant(files: Iterable[str], value: float | None, names: re.Pattern[str]) -> Place | None:
    return None if value is None or math.isnan(value) else constant_line(files, value, names)
