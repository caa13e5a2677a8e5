"""Which metrics to draw for a cause or a finding, and what to point out in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.html_plots import SIGNS, drawn, speaks_of
from ppo_doctor.report.plots import Mark, Marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model import Diagnosis, Evidence, Finding, RankedCause, Run

#: Plots of one cause; further metrics are in the view of all metrics.
MOST = 6


def for_cause(diagnosis: Diagnosis, cause: RankedCause, run: Run) -> list[tuple[str, Marks]]:
    """Return the metrics that speak for a cause with their marks, the weightiest first."""
    fired = {finding.rule: finding for finding in diagnosis.findings if finding.status == "fired"}
    ledger = sorted(cause.ledger, key=lambda entry: (not entry.counted, -entry.db))
    speaking = [fired[entry.finding] for entry in ledger if entry.db > 0 and entry.finding in fired]
    return for_findings(speaking, run)[:MOST]


def for_findings(findings: Sequence[Finding], run: Run) -> list[tuple[str, Marks]]:
    """Return the metrics that findings speak of with their marks, in the order of the findings."""
    names = dict.fromkeys(n for finding in findings for e in finding.evidence for n in drawn(e, run))
    return [(name, marks(name, findings, run)) for name in names]


def for_metric(diagnosis: Diagnosis, name: str, run: Run) -> Marks:
    """Return what fired findings point out in one metric."""
    return marks(name, [finding for finding in diagnosis.findings if finding.status == "fired"], run)


def marks(name: str, findings: Iterable[Finding], run: Run) -> Marks:
    """Return the onset, the windows and the bounds that findings put on a metric."""
    ours = [(finding, _of(finding, name, run)) for finding in findings]
    ours = [(finding, evidence) for finding, evidence in ours if evidence]
    series = run.series[name]
    bounds = [Mark(op=SIGNS[e.op], value=e.bound) for _, held in ours for e in held if speaks_of(e, series)]
    # Lesser findings would only blur the windows of the weightiest one.
    windows = next((w for f, held in ours if (w := _windows(f, held))), ())
    onset = next((finding.onset_step for finding, _ in ours if finding.onset_step is not None), None)
    return Marks(onset=onset, windows=windows, bounds=tuple(dict.fromkeys(bounds)))


def _of(finding: Finding, name: str, run: Run) -> list[Evidence]:
    return [evidence for evidence in finding.evidence if name in drawn(evidence, run)]


def _windows(finding: Finding, held: Sequence[Evidence]) -> tuple[tuple[int, int], ...]:
    if finding.status != "fired":
        return ()
    return tuple(sorted({e.steps for e in held if e.steps and e.satisfied}))
