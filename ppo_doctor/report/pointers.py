"""What findings point out in the curve of a metric: which curves they speak of, bounds, windows that offend, onset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.evidence import drawn
from ppo_doctor.report.plots import Mark, Marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import Evidence, Finding, Run, Series

SIGNS: Mapping[str, str] = {"==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥"}
_COMPARED = {
    "==": "__eq__",
    "!=": "__ne__",
    "<": "__lt__",
    "<=": "__le__",
    ">": "__gt__",
    ">=": "__ge__",
}


def marks(name: str, findings: Sequence[Finding], run: Run) -> Marks:
    """Return the onset, the windows and the bounds that findings, the weightiest first, put on a metric."""
    series = run.series[name]
    ours = [e for finding in findings for e in finding.evidence if name in drawn(e, run)]
    bounds = [Mark(op=SIGNS[e.op], value=e.bound) for e in ours if speaks_of(e, series)]
    # Lesser findings would only blur the windows of the weightiest one.
    windows = next((w for finding in findings if (w := _windows(finding, name, run))), ())
    touching = (f for f in findings if any(name in drawn(e, run) for e in f.evidence))
    onset = next((f.onset_step for f in touching if f.onset_step is not None), None)
    return Marks(onset=onset, windows=tuple(_merged(windows)), bounds=tuple(dict.fromkeys(bounds)))


def _windows(finding: Finding, name: str, run: Run) -> tuple[tuple[int, int], ...]:
    """Return where a finding's evidence offends."""
    if finding.status != "fired":
        return ()
    return tuple(e.steps for e in finding.evidence if e.steps and e.satisfied and name in drawn(e, run))


def _merged(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of stretches of steps; a shade over a shade would look like something worse."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(windows):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def speaks_of(evidence: Evidence, series: Series) -> bool:
    """Tell whether a bound stands on this metric's own axis.

    Evidence on a derived quantity names the metric that it was derived from; its bound is drawn only when the logged
    numbers themselves are on its far side as often as the evidence says.
    """
    if evidence.metric == series.name:
        return True
    if evidence.of <= 1 or evidence.steps is None:
        return False
    first, last = evidence.steps
    inside = (series.axis.steps >= first) & (series.axis.steps <= last)
    crossed = getattr(series.values[inside], _COMPARED[evidence.op])(evidence.bound)
    return int(crossed.sum()) == evidence.satisfied > 0
