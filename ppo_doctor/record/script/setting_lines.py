"""Name the lines of the script that set what a metric shows: clip range, learning rate, optimizer, modes of modules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ppo_doctor.record.script.graph import stack_of
from ppo_doctor.record.script.metrics import UpdateSeen
from ppo_doctor.record.script.places import Place, constant_line, rate_line

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines import Lines
    from ppo_doctor.record.script.session import Session

_CLIP = re.compile(r"(?i)clip|eps")
_RATE = re.compile(r"(?i)lr|rate|alpha")
_NORM = re.compile(r"(?i)norm|grad|clip")


def add_setting_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that set the clip range, the learning rate and the bound of gradients, and that build networks."""
    operations, config, files = session.operations, session.config, session.own_files()
    clip = ("config.clip_range", "clip_range", "clip_fraction")
    lines.add(clip, _constant(files, config.get("clip_range"), _CLIP), "set")
    clamp = next((stack_of(each.nodes.clamp) for each in seen.ratios() if each.nodes.clamp is not None), None)
    lines.add(clip, clamp, "used")
    norm = ("gradient_kept", "config.max_grad_norm")
    lines.add(norm, _constant(files, config.get("max_grad_norm"), _NORM), "set")
    lines.add(norm, session.clip_place(), "used")
    made = next((place for optimizer, place in reversed(session.policy.optimizers()) if place), None)
    lines.add("learning_rate", session.scheduler_place(), "built")
    rates = {step.learning_rate for step in seen.steps} | {config.get("learning_rate")}
    if len(rates) > 1:
        lines.add("learning_rate", rate_line(files), "changed")
    lines.add("learning_rate", _constant(files, seen.steps[0].learning_rate, _RATE), "set")
    lines.add("learning_rate", made, "used")
    held = ("optimizer_params_matched", "weights_unheld")
    lines.add(held, session.policy.orphaned(operations.initialised, session.places), "built")
    rounded = ("changed_fraction", "weights_rounded_away")
    lines.add(rounded, operations.cast_at or None, "changed")
    lines.add((*held, *rounded, "update_norm"), made, "used")
    dropout = next((step.dropout_place for step in seen.steps if step.dropout_place), None)
    lines.add("dropout_active", dropout)


def _constant(files: Iterable[str], value: float | None, names: re.Pattern[str]) -> Place | None:
    return None if value is None or math.isnan(value) else constant_line(files, value, names)
