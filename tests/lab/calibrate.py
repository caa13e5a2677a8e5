"""What the lab says about weights and the temperature, as a proposal: nothing is changed by itself.

    python -m tests.lab.calibrate DIR [--out docs] [--jobs 2]

Fitted on the training side of a corpus alone. Where it contradicts a weight by more than `LOUD_DB`, the page lists it;
where runs are few, an expert's weight stays, and twins stay equal.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ppo_doctor.model import Cause, Weight
from ppo_doctor.probabilities import HEALTHY

from .corpus import cases, sound
from .expected import FAR, Contradiction, contradictions
from .figures import Score, interval, led, loss
from .verdicts import Judged, built_in, judged

TEMPERATURES = tuple(round(1.0 + 0.25 * step, 2) for step in range(61))
#: Fewest logs of a cause, and of health, in which a finding was evaluated before the lab may contradict its weight.
ENOUGH = 20
#: A weight that is off by less than this is left alone.
LOUD_DB = 6
#: Largest weight of a finding that is no proof.
SOFT_DB = 20

#: (cause, rule) → (fired, evaluated)
Table = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A weight that the lab contradicts."""

    cause: str
    finding: str
    status: str
    now: int
    lab: int
    fired: tuple[int, int]
    fired_healthy: tuple[int, int]


def fit(seen: Iterable[Score]) -> float:
    """Return the temperature with the least mean negative log-likelihood of the first cause's being right or not."""
    ranked = led(seen)
    return min(TEMPERATURES, key=lambda temperature: sum(loss(s, temperature) for s in ranked))


def measured(seen: Sequence[Judged]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how often each finding fired under each cause, of the logs in which it was evaluated."""
    fired: Counter[tuple[str, str]] = Counter()
    evaluated: Counter[tuple[str, str]] = Counter()
    for entry in seen:
        for rule in entry.whole.fired:
            fired[entry.case.cause, rule] += 1
        for rule in (*entry.whole.fired, *entry.whole.clear):
            evaluated[entry.case.cause, rule] += 1
    return {key: (fired[key], of) for key, of in evaluated.items()}


def proposals(table: Table) -> list[Proposal]:
    """Return the weights that the lab clearly contradicts.

    A weight is 10·log10 of the rates under the cause and under health. What is proposed is the weight nearest to the
    present one that the 95 % intervals of both rates allow.
    """
    proofs = {rule.name for rule in built_in().rules if rule.proof}
    found = []
    for cause in built_in().causes:
        for weight in cause.weights:
            if weight.finding not in proofs:
                found += _contradictions(cause, weight, table)
    return _twins_alike(found)


def _contradictions(cause: Cause, weight: Weight, table: Table) -> list[Proposal]:
    ours, healthy = table.get((cause.id, weight.finding)), table.get((HEALTHY, weight.finding))
    if not ours or not healthy or min(ours[1], healthy[1]) < ENOUGH:
        return []
    silent = (ours[1] - ours[0], ours[1]), (healthy[1] - healthy[0], healthy[1])
    ranges = {"fired": _range(ours, healthy), "clear": _range(*silent)}
    now = {"fired": weight.fired, "clear": weight.clear}
    return [
        Proposal(
            cause=cause.id,
            finding=weight.finding,
            status=status,
            now=now[status],
            lab=_nearest(now[status], ranges[status]),
            fired=ours,
            fired_healthy=healthy,
        )
        for status in ranges
        if abs(now[status] - _nearest(now[status], ranges[status])) > LOUD_DB
    ]


def _nearest(now: int, within: tuple[float, float]) -> int:
    """Return the weight nearest to the present one that the lab allows: an expert's stays where data are thin."""
    low, high = within
    return max(-SOFT_DB, min(SOFT_DB, round(max(low, min(high, now)))))


def _range(ours: tuple[int, int], healthy: tuple[int, int]) -> tuple[float, float]:
    """Return the least and greatest weight, in decibans, that the 95 % intervals of both rates allow."""
    (low, high), (least, most) = interval(*ours), interval(*healthy)
    return _decibans(low, most), _decibans(high, least)


def _decibans(rate: float, healthy: float) -> float:
    if rate == 0 or healthy == 0:
        return -math.inf if rate == 0 else math.inf
    return 10 * math.log10(rate / healthy)


def _twins_alike(found: Sequence[Proposal]) -> list[Proposal]:
    """Leave out what is proposed for a cause but not, with the same sign, for its twins."""
    asked = {(p.cause, p.finding, p.status): p.lab > p.now for p in found}
    twins = {cause.id: cause.twins for cause in built_in().causes}
    return [
        p for p in found if all(asked.get((twin, p.finding, p.status)) == (p.lab > p.now) for twin in twins[p.cause])
    ]


def write_table(path: Path, table: Table) -> None:
    """Write causes × findings as CSV: how often each finding fired where it was evaluated."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("cause", "finding", "fired", "evaluated"))
        writer.writerows((*key, *counts) for key, counts in sorted(table.items()) if counts[0])


def page(found: Sequence[Proposal], against: Sequence[Contradiction], logs: int) -> str:
    """Return the proposals as Markdown."""
    head = "| cause | finding | status | now | lab | fired | fired on sound runs |\n|---|---|---|---|---|---|---|\n"
    rows = "".join(
        f"| {p.cause} | {p.finding} | {p.status} | {p.now} | {p.lab} | {p.fired[0]}/{p.fired[1]} | "
        f"{p.fired_healthy[0]}/{p.fired_healthy[1]} |\n"
        for p in found
    )
    return (
        f"# Weights that the lab contradicts\n\nGenerated by `make calibrate` from the {logs} logs of the training "
        f"side: a "
        f"proposal, for weights that are off by more than {LOUD_DB} dB even at the nearest end of what the 95 % "
        f"intervals allow, where at least {ENOUGH} logs of the cause, "
        f"and of "
        "health, could show the finding. Proofs are left out. A weight may still be right where the lab's faults are "
        "milder, or graver, than those that people meet; where a finding weighs for one link together with others, "
        "only "
        "the largest counts.\n\n" + head + rows + _expected(against)
    )


def _expected(against: Sequence[Contradiction]) -> str:
    rows = "".join(
        f"| {c.cause} | {c.finding} | {c.expected:.2f} | {c.fired}/{c.evaluated} | {c.fired / c.evaluated:.2f} |\n"
        for c in against
    )
    return (
        "\n# Where the lab contradicts what was expected\n\nRates that theory and toy runs had led us to expect "
        "of a ratio "
        f"that stays at 1, and that are off by more than {FAR}. The rules follow the measurement.\n\n"
        "| cause | finding | expected | fired | measured |\n|---|---|---|---|---|\n" + rows
    )


def main() -> None:
    """Propose weights, and write the table of causes × findings."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, default=Path("docs"))
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    training = [case for case in cases(given.folder) if case.split == "training"]
    seen = judged(training, given.folder, jobs=given.jobs)
    table = measured(seen)
    found = proposals(table)
    write_table(given.out / "measured.csv", table)
    (given.out / "calibration.md").write_text(page(found, contradictions(table), len(seen)), encoding="utf-8")
    sys.stdout.write(f"{len(seen)} logs, {sum(sound(e.case.fault) for e in seen)} sound; {len(found)} proposals\n")


if __name__ == "__main__":
    main()
