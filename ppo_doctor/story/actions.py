"""What to do about a cause, with the user's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.story.model import Action
from ppo_doctor.story.numbers import short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import ConfigValue, Remedy

#: Remedies of a story: the first, and the next resort.
MOST_ACTIONS = 2


def actions(ours: Sequence[Remedy]) -> tuple[Action, ...]:
    """Return the first remedies for a run, with a value where they have one; a setting is told about only once."""
    told: list[Action] = []
    for each in map(action, ours):
        if each.key not in {before.key for before in told if before.to}:
            told.append(each)
    return tuple(told[:MOST_ACTIONS])


def action(remedy: Remedy) -> Action:
    """Return a remedy as it is told."""
    return Action(say=remedy.do, key=remedy.key or "", now=_value(remedy.now), to=_value(remedy.then))


def _value(value: ConfigValue) -> str:
    """Return a setting's value as it is told; nothing for none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return short(value)
    return "" if value is None else str(value)
