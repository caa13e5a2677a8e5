"""Evidence in words: one sentence with the number, the bound, and where the number stands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.model import Evidence, Finding

WORDS = {"==": "is", "!=": "differs from", "<": "is below", "<=": "is at most", ">": "is above", ">=": "is at least"}
DENIED = {
    "==": "is not",
    "!=": "is",
    "<": "is not below",
    "<=": "is above",
    ">": "is not above",
    ">=": "is below",
}


def number(value: float | None) -> str:
    """Return a number as people write it: four digits, whole numbers whole, `1` for one."""
    if value is None:
        return "unknown"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return f"{value:.4g}"


def says(finding: Finding) -> str:
    """Return what a finding found, or why it could not look."""
    if finding.status in ("skipped", "errored"):
        return finding.reason or ""
    return "; ".join(sentence(evidence, denied=finding.status == "clear") for evidence in finding.evidence)


def sentence(evidence: Evidence, *, denied: bool = False) -> str:
    """Return one piece of evidence as a sentence without its full stop."""
    unit = f" {evidence.unit}" if evidence.unit not in ("", "fraction") else ""
    where = f" ({evidence.source})" if evidence.source else ""
    if evidence.of > 1:
        op = WORDS[evidence.op]
        bound = "exactly 0" if evidence.op == "==" and evidence.bound == 0 else number(evidence.bound) + unit
        count = f"{evidence.satisfied or 'none'} of {evidence.of} records"
        span = f", steps {evidence.steps[0]}–{evidence.steps[1]}" if evidence.steps else ""
        return f"{evidence.raw} {op} {bound} in {count}{span}{where}"
    holds = evidence.satisfied == 1
    op = WORDS[evidence.op] if holds and not denied else (DENIED if not holds else WORDS)[evidence.op]
    detail = f" [{evidence.statistic}]" if evidence.statistic else ""
    return f"{evidence.metric} {number(evidence.observed)}{unit} {op} {number(evidence.bound)}{detail}{where}"
