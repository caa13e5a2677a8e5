"""What was wrong before something broke: a collapse, or numbers that are no numbers, hide what was there already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.complaints import enough, onset

if TYPE_CHECKING:
    from ppo_doctor.complaints import Explanation
    from ppo_doctor.rulepack import Pack

#: Complaints that the part before a break is not asked for: settings have no time, and broken numbers are a break.
TIMELESS = frozenset({"config-contradicts", "numbers-break"})


def break_step(explanations: Sequence[Explanation], collapse: int | None) -> int | None:
    """Return the first step from which a run is another one by what was found in it: it broke, stopped, or collapsed.

    `collapse` is the step at which the reward was lost for good, None where it was not.
    """
    if not any(e.names_a_fault for e in explanations):
        return None
    stopped = [e.since_step for e in explanations if e.names_a_fault and e.since_step is not None]
    broke = [onset(e.openers) for e in explanations if e.complaint == "numbers-break" and e.names_a_fault]
    return min((step for step in (*stopped, *broke, collapse) if step), default=None)


def joined(
    whole: Sequence[Explanation], earlier: Sequence[Explanation], step: int, pack: Pack
) -> tuple[Explanation, ...]:
    """Return the explanations of a run, with those of its part before a step that the whole shows less surely, or not.

    Of the earlier part only what is firm counts, or what its openers open one by one.
    """
    kept = list(whole)
    led = {e.leader for e in whole if e.names_a_fault and not e.folded_into}
    for entry in earlier:
        alone = all(enough((opener,), pack) for opener in entry.openers)
        if entry.complaint in TIMELESS or entry.leader in led or not entry.names_a_fault or not (entry.firm or alone):
            continue
        marked = replace(entry, until_step=step)
        same = [index for index, e in enumerate(kept) if e.complaint == entry.complaint]
        if not same:
            kept.append(marked)
        elif all(_yields(kept[index], entry) for index in same):
            kept[same[0]] = marked
    return tuple(kept)


def _yields(entry: Explanation, earlier: Explanation) -> bool:
    """Tell whether what the whole run says of a complaint is less than what the part before the break says."""
    if entry.folded_into or not entry.names_a_fault:
        return True
    return (-entry.doubt, entry.causes[0].score_db) < (-earlier.doubt, earlier.causes[0].score_db)
