"""Sentences about evidence and outcomes: a number with its bound and its place, and how the reward developed."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import CONDITION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.model.diagnosis import Outcome
    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.model.words import OutcomeKind

#: The words for a comparison that holds, and for one that does not.
WORDS = {"==": "is", "!=": "differs from", "<": "is below", "<=": "is at most", ">": "is above", ">=": "is at least"}
DENIED = {
    "==": "is not",
    "!=": "is",
    "<": "is not below",
    "<=": "is above",
    ">": "is not above",
    ">=": "is below",
}


#: The best level is printed if at least this share of its height above the lower end of the run is lost at the end.
MUCH = 0.25
#: The most pieces of evidence of one finding that `brief` prints.
MOST_SEEN = 3
#: Matches a count of one that is followed by a plural.
_ONE = lazy_pattern(
    r"(?<![\d.,–-])1 (?!of )(?:[a-z]+ )?"
    r"(?:deviation|epoch|error|median|metric|nat|rate|record|sample|step|token|update)s\b"
)

#: Matches what separates names in a formula such as "1 - frac_reward_zero_std".
_JOINTS = lazy_pattern(r",| [-+*/] ")


class Parts(NamedTuple):
    """The parts of a sentence about evidence: subject, claim, and details such as its place."""

    subject: str
    claim: str
    rest: str


def number(value: float | None) -> str:
    """Return a number with four significant digits, whole numbers in full, and None as "unknown"."""
    if value is None:
        return "unknown"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return f"{value:.4g}"


#: How the reason of a verdict ends where updates were observed and no reward.
UNREWARDED = "whether the policy learns cannot be said, because no reward is in the observation"


def became(outcome: Outcome) -> str:
    """Return the outcome of the reward as a sentence without a full stop, with its levels and the step."""
    key = f"The reward ({outcome.key})" if outcome.key.lower() not in ("", "reward", "rewards") else "The reward"
    levels = way(outcome)
    since = f" from step {outcome.since_step}" if outcome.since_step is not None else ""
    sentences: Mapping[OutcomeKind, str] = {
        "learned": f"{key} rises{' through wide scatter' if outcome.leans else ''}: {levels}",
        "levelled_off": f"{key} rose and levelled off{since}: {levels}",
        "at_ceiling": f"{key} is at its known ceiling: {levels}",
        "flat": f"{key} {_no_rise(outcome)}: {levels}",
        "lost": f"{key} was lost, its median below {number(_rounded(outcome.kept_below))}{since} on: {levels}",
        "fell": f"{key} {'rose, then ' if outcome.first is not None else ''}fell: {levels}",
        "never_earned": f"{key} is 0 in all {outcome.records} records",
        "not_logged": f"No reward is read; “{outcome.key}” may be one" if outcome.key else "No reward is logged",
        "too_short": f"{key} has {_few(outcome.records)}",
    }
    return sentences[outcome.what]


def _no_rise(outcome: Outcome) -> str:
    if outcome.first is not None:
        return f"began at {number(_rounded(outcome.first))} and shows no clear rise since"
    return "leans upward without a clear rise" if outcome.leans else "shows no clear rise"


def gone(outcome: Outcome) -> str:
    """Return the title of the problem that the outcome of the reward shows, such as a decline."""
    best, start, end = (number(_rounded(level)) for level in (outcome.best, outcome.start, outcome.end))
    if outcome.what == "lost":
        return f"The reward fell from {best} to {end} and stays below {number(_rounded(outcome.kept_below))}"
    if outcome.what == "fell":
        return f"The reward fell from {start if outcome.first is None else best} to {end}"
    return became(outcome)


def brief(finding: Finding) -> str:
    """Return the evidence of a finding in short: without bounds and places of single numbers."""
    texts = list(dict.fromkeys(_seen(evidence) for evidence in finding.evidence))
    return "; ".join([*texts[:MOST_SEEN], *([f"{len(texts) - MOST_SEEN} more"] if len(texts) > MOST_SEEN else [])])


def _seen(evidence: Evidence) -> str:
    if _of_a_setting(evidence):
        return sentence(_with_file_name(evidence))
    if evidence.of > 1:
        span = f", steps {evidence.steps[0]}–{evidence.steps[1]}" if evidence.steps else ""
        return f"{evidence.raw} {_bounded(evidence)} in {_records(evidence)}{span}".replace("  ", " ")
    if evidence.steps is None and " " in evidence.claim:
        return _ONE.sub(_singular, evidence.claim)
    setting = evidence.source is not None and evidence.source.key == evidence.raw != evidence.metric
    named = replace(evidence, metric=evidence.raw) if setting and evidence.steps is None else evidence
    return sentence(named).removesuffix(f" ({evidence.source})" if evidence.source else "")


def _few(records: int) -> str:
    if not records:
        return "no number in any record: no episode has ended, or its reward is none"
    return f"{records} {'number' if records == 1 else 'numbers'}, too few to show a course"


def way(outcome: Outcome) -> str:
    """Return the levels of the reward at start and end, and the best level if much of it is lost at the end.

    If the reward did not fall, the best level is printed only if it is a peak, and after the other two.
    """
    fell = outcome.what in ("lost", "fell")
    start = number(_rounded(outcome.first if outcome.what == "fell" and outcome.first is not None else outcome.start))
    best, end = (number(_rounded(level)) for level in (outcome.best, outcome.end))
    if None in (outcome.start, outcome.best, outcome.end) or start == end == best:
        return f"{start} throughout"
    first, highest, last = (float(level or 0) for level in (outcome.start, outcome.best, outcome.end))
    lost = highest - last > MUCH * (highest - min(first, last))
    # The start itself may be the highest level.
    if not lost or highest <= first or best in (start, end) or not (fell or outcome.peaks):
        return f"{start} → {end}"
    if fell:
        at = f" near step {outcome.best_step}" if outcome.best_step is not None else ""
        return f"{start} → about {best}{at} → {end}"
    at = f" around step {outcome.best_step}" if outcome.best_step is not None else ""
    return f"{start} → {end}, and {best} in its best stretch{at}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def says(finding: Finding) -> str:
    """Return the evidence of a finding in full, or the reason why its check did not run."""
    if finding.status in ("skipped", "errored"):
        return finding.reason or ""
    return "; ".join(_folded([_parts(evidence) for evidence in finding.evidence]))


def _of_a_setting(evidence: Evidence) -> bool:
    """Return whether evidence is about a setting under its own key, not about records or a derived quantity."""
    key = evidence.source.key if evidence.source is not None else None
    return key is not None and key == evidence.raw == evidence.metric and evidence.of == 1


def _with_file_name(evidence: Evidence) -> Evidence:
    """Return evidence whose place has only the name of the file, because the folder is printed elsewhere."""
    source = evidence.source
    return evidence if source is None else replace(evidence, source=replace(source, path=Path(source.path).name))


def sentence(evidence: Evidence) -> str:
    """Return a piece of evidence as a sentence without a full stop."""
    return _folded([_parts(evidence)])[0]


def _parts(evidence: Evidence) -> Parts:
    where = f" ({evidence.source})" if evidence.source else ""
    if evidence.of > 1:
        span = f", steps {evidence.steps[0]}–{evidence.steps[1]}" if evidence.steps else ""
        return Parts(evidence.raw, _bounded(evidence), f" in {_records(evidence)}{span}{where}")
    if evidence.claim.endswith(" of 1 records"):
        return _of_the_only_record(evidence, where)
    if evidence.unit == CONDITION and evidence.claim:  # the claim is a sentence by itself
        return Parts(evidence.claim, "", where)
    observed = measured(evidence.observed, evidence.unit)
    detail = f" [{_ONE.sub(_singular, evidence.claim)}]" if evidence.claim else ""
    name = evidence.metric if evidence.steps is None else evidence.raw  # a series has its key in the log
    return Parts(f"{name} {observed}", f"{_verb(evidence)} {number(evidence.bound)}", f"{detail}{where}")


def _of_the_only_record(evidence: Evidence, where: str) -> Parts:
    if evidence.unit == CONDITION:
        return Parts(evidence.raw, "" if evidence.satisfied else "not", f" in the only record{where}")
    observed = measured(evidence.observed, evidence.unit)
    return Parts(
        f"{evidence.raw} {observed}", f"{_verb(evidence)} {number(evidence.bound)}", f" in the only record{where}"
    )


def _verb(evidence: Evidence) -> str:
    return (WORDS if evidence.satisfied else DENIED)[evidence.op]


def _folded(parts: list[Parts]) -> list[str]:
    """Return a sentence for each subject with the same details, in which its claims are joined by "and"."""
    claims: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        claims.setdefault((part.subject, part.rest), []).append(part.claim)
    return [" ".join(filter(None, (subject, _joined(each)))) + rest for (subject, rest), each in claims.items()]


def _joined(claims: list[str]) -> str:
    return " and ".join([claims[0], *(claim.removeprefix("is ") for claim in claims[1:])])


def _bounded(evidence: Evidence) -> str:
    """Return the comparison that holds for each record, such as "is above 0.2 nats"; "" for a condition."""
    if evidence.unit == CONDITION:
        return ""
    several = evidence.source is not None and evidence.source.key == evidence.raw and ", " in evidence.raw
    op = WORDS[evidence.op].replace("is", "are", 1) if several else WORDS[evidence.op]
    if evidence.bound == 0:  # zero needs no unit
        return f"{op} {'exactly ' if evidence.op == '==' else ''}0"
    return f"{op} {measured(evidence.bound, evidence.unit)}"


def _records(evidence: Evidence) -> str:
    return f"{evidence.satisfied or 'none'} of {evidence.of} records"


def measured(value: float | None, unit: str) -> str:
    """Return a number with its unit, which is singular after 1; the word "fraction" is omitted."""
    shown = unit.removeprefix("fraction").strip() if unit != CONDITION else ""
    return _ONE.sub(_singular, f"{number(value)} {shown}".rstrip())


def _singular(match: re.Match[str]) -> str:
    return match[0][:-1]


def drawn(evidence: Evidence, run: Run) -> list[str]:
    """Return the canonical names of the series that a piece of evidence is about."""
    if evidence.metric in run.series:
        return [evidence.metric]
    parts = {part.strip() for part in _JOINTS.split(evidence.raw)}
    # In a phrase such as "change of loss from pass to pass", the metric is one word of several.
    key = evidence.source.key if evidence.source and evidence.source.key else ""
    return _named(parts, run) or _named(set(evidence.raw.split()), run) or _named(set(key.split(", ")), run)


def _named(written: set[str], run: Run) -> list[str]:
    return [name for name, series in run.series.items() if series.raw in written or name in written]
