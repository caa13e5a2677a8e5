"""What the lab says about weights and the temperature, as a proposal: nothing is changed by itself.

    python -m tests.lab.calibrate DIR [--out docs] [--jobs 2]

Fitted on the training side of a corpus; the expected calibration error is that of the held-out side. Where the corpus
contradicts a weight by more than `LOUD_DB`, the page lists it; where runs are few, an expert's weight stays.
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

from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.probabilities import HEALTHY, UNKNOWN, probabilities
from ppo_doctor.ranking import unknown_score
from ppo_doctor.rulepack import load_pack

from .corpus import Case, cases
from .scoreboard import mapped

TEMPERATURES = tuple(round(1.0 + 0.25 * step, 2) for step in range(61))
#: Fewest runs of a cause in which a finding was evaluated before the lab may contradict its weight.
ENOUGH = 20
#: A weight that is off by less than this is left alone.
LOUD_DB = 6
#: Largest weight of a finding that is no proof.
SOFT_DB = 20
BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One log: the truth, the status of every rule, and the scores of the candidates of the first complaint."""

    cause: str
    split: str
    statuses: Mapping[str, str]
    first: str | None
    scores: Mapping[str, int]


def look(case: Case) -> Seen:
    """Judge one log and keep what calibration needs."""
    pack = load_pack()
    diagnosis = diagnose(read_run(str(case.log), Request()), pack)
    first = next((cause for cause in diagnosis.causes if cause.leader), None)
    scores: dict[str, int] = {}
    if first is not None:
        findings = {finding.rule: finding for finding in diagnosis.findings}
        openers = next(c.openers for c in diagnosis.complaints if c.id == first.complaint)
        rivals = {c.id: c.score_db for c in diagnosis.causes if c.complaint == first.complaint}
        scores = {HEALTHY: 0, UNKNOWN: unknown_score([findings[name] for name in openers], pack)} | rivals
    return Seen(
        cause=case.cause,
        split=case.split,
        statuses={finding.rule: finding.status for finding in diagnosis.findings},
        first=first.id if first else None,
        scores=scores,
    )


def fit(seen: Iterable[Seen]) -> float:
    """Return the temperature with the least mean negative log-likelihood of the first cause being right or not."""
    ranked = [s for s in seen if s.first is not None]
    return min(TEMPERATURES, key=lambda temperature: sum(_loss(s, temperature) for s in ranked))


def _loss(seen: Seen, temperature: float) -> float:
    chance = chance_of_first(seen, temperature)
    return -math.log(max(chance if seen.first == seen.cause else 1 - chance, 1e-9))


def chance_of_first(seen: Seen, temperature: float) -> float:
    """Return the probability that the first cause is given."""
    return probabilities(seen.scores, temperature)[str(seen.first)]


def calibration(seen: Sequence[Seen], temperature: float) -> tuple[float, list[tuple[int, float, float]]]:
    """Return the expected calibration error and, per bin, its size, mean probability and share of right ones."""
    pairs = [(chance_of_first(s, temperature), s.first == s.cause) for s in seen if s.first is not None]
    rows = []
    for index in range(BINS):
        held = [(p, right) for p, right in pairs if min(int(p * BINS), BINS - 1) == index]
        if held:
            rows.append((len(held), sum(p for p, _ in held) / len(held), sum(right for _, right in held) / len(held)))
    error = sum(size * abs(said - was) for size, said, was in rows) / max(len(pairs), 1)
    return error, rows


def measured(seen: Sequence[Seen]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (cause, rule) → (fired, evaluated) over these logs."""
    fired: Counter[tuple[str, str]] = Counter()
    evaluated: Counter[tuple[str, str]] = Counter()
    for entry in seen:
        for rule, status in entry.statuses.items():
            evaluated[entry.cause, rule] += status in ("fired", "clear")
            fired[entry.cause, rule] += status == "fired"
    return {key: (fired[key], of) for key, of in evaluated.items() if of}


def proposals(table: Mapping[tuple[str, str], tuple[int, int]]) -> list[tuple[str, str, str, int, int, int]]:
    """Return (cause, rule, status, weight now, weight by the lab, runs) where the lab clearly says otherwise.

    The lab's weight is 10·log10 of the rates under the cause and under health, each with half a count added.
    """
    found = []
    proofs = {rule.name for rule in load_pack().rules if rule.proof}
    for cause in load_pack().causes:
        for weight in cause.weights:
            ours, healthy = table.get((cause.id, weight.finding)), table.get((HEALTHY, weight.finding))
            if weight.finding in proofs or not ours or not healthy or min(ours[1], healthy[1]) < ENOUGH:
                continue
            fired = _decibans(ours[0], ours[1], healthy[0], healthy[1])
            clear = _decibans(ours[1] - ours[0], ours[1], healthy[1] - healthy[0], healthy[1])
            for status, now, lab in (("fired", weight.fired, fired), ("clear", weight.clear, clear)):
                if abs(now - lab) > LOUD_DB:
                    found.append((cause.id, weight.finding, status, now, lab, ours[1]))
    return found


def _decibans(hits: int, of: int, healthy_hits: int, healthy_of: int) -> int:
    ratio = ((hits + 0.5) / (of + 1)) / ((healthy_hits + 0.5) / (healthy_of + 1))
    return max(-SOFT_DB, min(SOFT_DB, round(10 * math.log10(ratio))))


def write_table(path: Path, table: Mapping[tuple[str, str], tuple[int, int]]) -> None:
    """Write causes × findings as CSV: how often each finding fired where it was evaluated."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("cause", "finding", "fired", "evaluated"))
        writer.writerows((*key, *counts) for key, counts in sorted(table.items()) if counts[0])


def page(
    temperature: float, error: float, rows: Sequence[tuple[int, float, float]], found: Sequence[tuple[object, ...]]
) -> str:
    """Return what was found as Markdown."""
    bins = "\n".join(f"| {size} | {said:.2f} | {was:.2f} |" for size, said, was in rows)
    listed = "\n".join(f"| {' | '.join(str(cell) for cell in entry)} |" for entry in found)
    return (
        "# Calibration\n\nGenerated by `make calibrate`: a proposal, from the training side of the lab's corpus.\n\n"
        f"Temperature with the least loss: **{temperature:g}**. Expected calibration error of the first cause's "
        f"probability on the held-out side: **{error:.3f}** (probabilities are given where it is at most 0.10).\n\n"
        f"| logs | mean probability | share right |\n|---|---|---|\n{bins}\n\n"
        f"## Weights that the lab contradicts by more than {LOUD_DB} dB\n\nProofs are left out. A weight may still be "
        "right where the lab's faults are milder, or graver, than those that people meet; an expert decides.\n\n"
        f"| cause | finding | status | now | lab | runs |\n|---|---|---|---|---|---|\n{listed}\n"
    )


def main() -> None:
    """Propose a temperature and weights."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--out", type=Path, default=Path("docs"))
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    seen = mapped(look, cases(given.folder), given.jobs)
    training = [entry for entry in seen if entry.split == "training"]
    held_out = [entry for entry in seen if entry.split == "held-out"]
    temperature = fit(training)
    error, rows = calibration(held_out, temperature)
    table = measured(training)
    write_table(given.out / "measured.csv", table)
    (given.out / "calibration.md").write_text(page(temperature, error, rows, proposals(table)), encoding="utf-8")
    sys.stdout.write(f"temperature {temperature:g}, held-out calibration error {error:.3f}\n")


if __name__ == "__main__":
    main()
