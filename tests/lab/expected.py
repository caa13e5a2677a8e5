"""What theory and toy runs had led us to expect of findings under causes, held against what the lab measured.

The rates are those that the first weights were written from: P(finding | cause) for the causes of a ratio that stays at
1. Where the lab contradicts one, a rule follows the lab, and `calibrate` lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Findings that say what a column of the expectation says.
COLUMNS = (
    "gradient-exactly-zero",
    "advantages-all-zero",
    "weights-do-not-move",
    "clipped-within-tiny-range",
    "fewer-updates-than-configured",
    "learning-rate-below-usual",
    "no-token-in-loss",
    "optimizer-steps-skipped",
)
#: Cause → the expected rate of each of these findings.
EXPECTED: Mapping[str, tuple[float, ...]] = {
    "benign-single-update": (0.02, 0.05, 0.02, 0.02, 0.02, 0.05, 0.02, 0.02),
    "adv-exactly-zero": (0.85, 0.97, 0.85, 0.02, 0.05, 0.05, 0.02, 0.02),
    "no-grad-path": (0.97, 0.05, 0.95, 0.02, 0.05, 0.05, 0.02, 0.02),
    "loss-mask-empty": (0.95, 0.05, 0.95, 0.02, 0.05, 0.05, 0.97, 0.02),
    "lr-zero": (0.02, 0.05, 0.97, 0.02, 0.05, 0.97, 0.02, 0.02),
    "lr-too-small": (0.02, 0.05, 0.10, 0.02, 0.05, 0.75, 0.02, 0.02),
    "grad-clip-starves": (0.02, 0.10, 0.10, 0.02, 0.05, 0.05, 0.02, 0.02),
    "bf16-swallowed-update": (0.02, 0.05, 0.20, 0.02, 0.05, 0.35, 0.02, 0.02),
    "amp-step-skipped": (0.10, 0.05, 0.97, 0.02, 0.05, 0.05, 0.02, 0.97),
    "optimizer-orphaned-params": (0.02, 0.05, 0.97, 0.02, 0.05, 0.05, 0.02, 0.02),
    "clip-range-too-small": (0.02, 0.05, 0.02, 0.97, 0.05, 0.05, 0.02, 0.02),
    "kl-penalty-too-strong": (0.02, 0.05, 0.02, 0.05, 0.05, 0.05, 0.02, 0.02),
    "target-kl-stops-early": (0.02, 0.05, 0.02, 0.10, 0.97, 0.05, 0.02, 0.02),
    "old-policy-aliased": (0.02, 0.05, 0.02, 0.02, 0.05, 0.05, 0.02, 0.02),
    "old-logp-resynced-per-epoch": (0.02, 0.05, 0.02, 0.05, 0.05, 0.05, 0.02, 0.02),
    "epochs-not-executed": (0.02, 0.05, 0.02, 0.02, 0.97, 0.05, 0.02, 0.02),
    "healthy": (0.02, 0.05, 0.02, 0.10, 0.05, 0.05, 0.02, 0.02),
}
#: A rate that is off by more than this is a contradiction.
FAR = 0.3
ENOUGH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """An expected rate that the lab contradicts."""

    cause: str
    finding: str
    expected: float
    fired: int
    evaluated: int


def contradictions(table: Mapping[tuple[str, str], tuple[int, int]]) -> list[Contradiction]:
    """Return the expectations that are far from what was measured, where enough logs could show the finding."""
    found = []
    for cause, rates in EXPECTED.items():
        for finding, rate in zip(COLUMNS, rates, strict=True):
            fired, of = table.get((cause, finding), (0, 0))
            if of >= ENOUGH and abs(fired / of - rate) > FAR:
                found.append(Contradiction(cause=cause, finding=finding, expected=rate, fired=fired, evaluated=of))
    return found
