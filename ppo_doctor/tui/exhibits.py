"""Which metrics to draw for a finding, and what to point out in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.evidence import drawn
from ppo_doctor.report.plots import marks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Finding, Run
    from ppo_doctor.report.plots import Marks


def for_findings(findings: Sequence[Finding], run: Run) -> list[tuple[str, Marks]]:
    """Return the metrics that findings speak of with their marks, in the order of the findings."""
    names = dict.fromkeys(n for finding in findings for e in finding.evidence for n in drawn(e, run))
    return [(name, marks(name, findings, run)) for name in names]


def for_metric(diagnosis: Diagnosis, name: str, run: Run) -> Marks:
    """Return what fired findings point out in one metric."""
    return marks(name, [finding for finding in diagnosis.findings if finding.status == "fired"], run)
