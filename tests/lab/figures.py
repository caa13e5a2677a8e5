"""Figures of a scoreboard: pure functions of what was said of logs and of what is true of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ppo_doctor.model import Severity
from ppo_doctor.probabilities import HEALTHY, probabilities

from .corpus import AFTERWARDS, NEW, UNSEEN, UPDATES, begins, sound
from .faults import FAULTS
from .verdicts import Judged, Verdict, built_in

BINS = 10
#: What is said of a log that nothing leads.
NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One log: the truth, and what was said of it."""

    fault: str
    cause: str
    family: str
    benign: bool
    split: str
    dialect: str
    variant: str
    severity: int
    seed: int
    configured: bool
    identifiable: bool
    verdict: str
    ranked: tuple[str, ...]
    level: tuple[str, ...]
    alarms: tuple[str, ...]
    listed: bool
    #: updates from where the fault began until its cause was among the first; None: never, or not asked
    delay: float | None
    #: candidate → score in decibans, of the first cause's complaint
    scores: Mapping[str, int]
    #: whether a probability is given: not of what is harmless
    weighed: bool

    @property
    def first(self) -> bool:
        """Whether the injected cause is ranked first."""
        return self.said == self.cause

    @property
    def said(self) -> str:
        """The cause that is ranked first."""
        return self.ranked[0] if self.ranked else NOTHING

    @property
    def among_three(self) -> bool:
        """Whether the injected cause is among the first three."""
        return self.cause in self.ranked[:3]

    @property
    def in_level_set(self) -> bool:
        """Whether the injected cause is first, or level with the first."""
        return self.cause in self.level

    @property
    def abstained(self) -> bool:
        """Whether the log is said not to tell: an inconclusive verdict, or the cause is listed as not ruled out."""
        return not self.in_level_set and (self.verdict == "inconclusive" or (not self.alarms and self.listed))

    @property
    def wrong(self) -> bool:
        """Whether something else is alarmed of, and the injected cause is not even level with it."""
        return bool(self.alarms) and not self.in_level_set

    @property
    def new_task(self) -> bool:
        """Whether the training side has no run of this task."""
        return any(self.variant in variants for tasks in (UNSEEN, NEW, AFTERWARDS) for variants in tasks.values())

    @property
    def afterwards(self) -> bool:
        """Whether it was trained when what was alarmed of on the held-out side had been mended."""
        return any(self.variant in variants for variants in AFTERWARDS.values())


@cache
def families() -> Mapping[str, str]:
    """Return cause → family."""
    return {cause.id: cause.family for cause in built_in().causes}


def score(judged: Judged, said: Verdict, *, identifiable: bool) -> Score:
    """Hold a verdict against the truth."""
    case, first = judged.case, said.first
    firm = [c for c in said.causes if c.leader and not c.benign and c.confidence != "suspected"]
    whole = said is judged.whole
    began = begins(case.fault, case.severity)
    told = judged.told_after if whole else None
    return Score(
        **{name: getattr(case, name) for name in ("fault", "cause", "split", "dialect", "variant", "severity", "seed")},
        family=families().get(case.cause, HEALTHY),
        benign=sound(case.fault, case.dialect),
        configured=whole,
        identifiable=identifiable,
        verdict=said.verdict,
        ranked=tuple(cause.id for cause in said.causes),
        level=(first.id, *first.level_with) if first else (),
        alarms=tuple(cause.id for cause in firm if Severity(cause.severity).at_least(Severity.HIGH)),
        listed=case.cause in said.not_ruled_out,
        delay=None if told is None else round((told - began) * UPDATES, 1),
        scores=said.scores,
        weighed=first is not None and not first.benign,
    )


# Rates


def share(hits: Iterable[bool]) -> tuple[int, int]:
    """Return (hits, of)."""
    counted = list(hits)
    return sum(counted), len(counted)


def upper_bound(hits: int, of: int, level: float = 0.95) -> float:
    """Return the one-sided upper confidence bound of a rate (Clopper and Pearson 1934), by bisection."""
    if of == 0 or hits >= of:
        return 1.0
    low, high = hits / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(hits + 1))
        low, high = (middle, high) if tail > 1 - level else (low, middle)
    return high


def interval(hits: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Return the two-sided 95 % interval of a rate (Wilson 1927)."""
    if of == 0:
        return 0.0, 1.0
    rate, extra = hits / of, z * z / of
    middle = (rate + extra / 2) / (1 + extra)
    half = z * math.sqrt(rate * (1 - rate) / of + extra / (4 * of)) / (1 + extra)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The figures of one set of scores, each as (hits, of)."""

    logs: int
    top_1: tuple[int, int]
    top_3: tuple[int, int]
    level_set: tuple[int, int]
    abstained: tuple[int, int]
    wrong: tuple[int, int]


def board(found: Sequence[Score]) -> Board:
    """Return the accuracy over faulty logs."""
    return Board(
        logs=len(found),
        top_1=share(s.first for s in found),
        top_3=share(s.among_three for s in found),
        level_set=share(s.in_level_set for s in found),
        abstained=share(s.abstained for s in found),
        wrong=share(s.wrong for s in found),
    )


def grouped(found: Sequence[Score], key: Callable[[Score], str]) -> dict[str, list[Score]]:
    """Return the scores by a key, in the order of its values."""
    return {name: [s for s in found if key(s) == name] for name in sorted({key(s) for s in found})}


def confusions(found: Iterable[Score]) -> list[tuple[str, str, int]]:
    """Return (injected, said, logs), the most frequent first, where the two differ."""
    counted = Counter((s.cause, s.said) for s in found if not s.first)
    return [(*pair, number) for pair, number in sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))]


def delays(found: Iterable[Score]) -> dict[str, float | int]:
    """Return how soon causes are told: runs, the share told at all, and the quartiles of the delay in updates."""
    asked = list(found)
    told = sorted(s.delay for s in asked if s.delay is not None)
    if not told:
        return {"runs": len(asked), "told": 0}
    at = {
        name: told[min(len(told) - 1, int(q * len(told)))] for name, q in (("q25", 0.25), ("q50", 0.5), ("q75", 0.75))
    }
    return {"runs": len(asked), "told": len(told), **at}


def reason(entry: Score) -> str:
    """Say in what way a fault was missed."""
    twins = FAULTS[entry.fault].twins(entry.dialect)
    if entry.in_level_set:
        return "level with the first"
    if {*twins} & {*entry.level}:
        return "a cause that this log cannot tell from it"
    if entry.abstained:
        return "openly undecided"
    if entry.cause in entry.ranked[:3]:
        return "second or third"
    if entry.alarms:
        return "another cause, firmly"
    return "another cause, suspected" if entry.ranked else "nothing said"


# Calibration


def right(entry: Score) -> bool:
    """Tell whether the first cause is true; of a converged run "it has converged" is."""
    return entry.said in (entry.cause, entry.fault)


def chance(entry: Score, temperature: float) -> float:
    """Return the probability that the first cause is given."""
    return probabilities(entry.scores, temperature)[entry.said]


def loss(entry: Score, temperature: float) -> float:
    """Return the negative log-likelihood of the first cause's being right or not."""
    p = chance(entry, temperature)
    return -math.log(max(p if right(entry) else 1 - p, 1e-9))


def led(found: Iterable[Score]) -> list[Score]:
    """Return those that a harmful cause leads, so that a probability is given."""
    return [s for s in found if s.weighed]


def reliability(found: Sequence[Score], temperature: float) -> list[tuple[int, float, float]]:
    """Return (logs, mean probability of the first cause, share of right ones) of each tenth that holds any."""
    pairs = [(chance(s, temperature), right(s)) for s in led(found)]
    bins = [[pair for pair in pairs if min(int(pair[0] * BINS), BINS - 1) == index] for index in range(BINS)]
    return [(len(b), sum(p for p, _ in b) / len(b), sum(r for _, r in b) / len(b)) for b in bins if b]


def calibration_error(rows: Sequence[tuple[int, float, float]]) -> float:
    """Return the expected calibration error (Naeini et al. 2015): the mean gap over bins, by their logs."""
    return sum(size * abs(said - was) for size, said, was in rows) / max(sum(size for size, _, _ in rows), 1)
