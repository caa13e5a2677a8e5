"""Name the lines of the script that draw, choose and repeat samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.record.script.metrics import UpdateSeen, temperature
from ppo_doctor.record.script.places import loop_line

if TYPE_CHECKING:
    from ppo_doctor.record.script.lines import Lines
    from ppo_doctor.record.script.session import Session


def add_sample_lines(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the lines that call the network in training, choose its samples, and repeat passes over them."""
    entered = [each for step in seen.steps for each in step.trained if each.weight in seen.entries]
    trained = next((each.place for each in entered), None)
    taken = next((each.taken for each in entered if each.taken), None) or trained
    lines.add("inputs_unseen", trained)
    lines.add(("rollouts_behind", "rollout_trained", "minibatches_alike", "samples_trained_before"), taken, "chosen")
    _add_loop(lines, seen, session)
    divisor = temperature(seen)
    lines.add("sampling_temperature", divisor[1] if divisor else None, "sampled")


def _add_loop(lines: Lines, seen: UpdateSeen, session: Session) -> None:
    """Add the loop over passes: the outermost around the backward pass that is not around the rollout."""
    backward = next((step.backward_place for step in seen.steps if step.backward_place), None)
    line = session.places.resolve(backward) if backward else None
    if line is None:
        return
    sampled = [n for step in seen.steps for code, n in step.sampled_at if code.co_filename == line.file]
    lines.add(("passes", "optimizer_steps"), loop_line(line, sampled))
