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
    return min((step for step in (*stopped, numbers_broke(explanations), collapse) if step), default=None)


def numbers_broke(explanations: Sequence[Explanation]) -> int | None:
    """Return the first step at which numbers were no longer finite, by a fault that is named; None where none is."""
    broke = [onset(e.openers) for e in explanations if e.complaint == "numbers-break" and e.names_a_fault]
    return min((step for step in broke if step), default=None)


def joined(
    whole: Sequence[Explanation], earlier: Sequence[Explanation], step: int, pack: Pack
) -> tuple[Explanation, ...]:
    """Return the explanations of a run, with those of its part before a step that the whole shows less surely, or not.

    Of the earlier part only what is firm counts, or what its openers open one by one, or what opened the whole run's
    complaint as well, which was then judged by the later part, or what is suspected where the whole run shows no more
    than a weaker suspicion. What is said of either side of the step stands beside the other; and so does what others
    have been folded into.
    """
    kept = list(whole)
    led = {e.leader for e in whole if e.names_a_fault and not e.folded_into}
    for entry in earlier:
        same = [index for index, e in enumerate(kept) if e.complaint == entry.complaint]
        later = bool(same) and all((kept[index].since_step or 0) >= step for index in same)
        alone = all(enough((opener,), pack) for opener in entry.openers)
        others = [kept[index] for index in same]
        guessed = bool(others) and all(e.names_a_fault and not e.firm and not e.folded_into for e in others)
        sure = entry.firm or alone or guessed or (later and _opened(entry, others))
        if entry.complaint in TIMELESS or entry.leader in led or not entry.names_a_fault or not sure:
            continue
        marked = replace(entry, until_step=step)
        if later or not same:
            kept.append(marked)
        elif all(_yields(kept[index], entry) for index in same):
            explains = any(e.folded_into == kept[same[0]].leader for e in kept)
            kept[same[0] : same[0] + 1] = [marked, kept[same[0]]] if explains else [marked]
    return tuple(kept)


def _opened(entry: Explanation, whole: Sequence[Explanation]) -> bool:
    """Tell whether what opened a complaint in the earlier part opened it in the whole run too."""
    return {opener.rule for opener in entry.openers} <= {opener.rule for e in whole for opener in e.openers}


def _yields(entry: Explanation, earlier: Explanation) -> bool:
    """Tell whether what the whole run says of a complaint is less than what the part before the break says."""
    if entry.folded_into or not entry.names_a_fault:
        return True
    return (-entry.doubt, entry.causes[0].score_db) < (-earlier.doubt, earlier.causes[0].score_db)
