"""What a crossed guard-rail costs, as a share of what was generated or computed, where the log counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.arrays import finite_of, mean_of
from ppo_doctor.model import Cost

if TYPE_CHECKING:
    from ppo_doctor.model import Finding, Run

EQUAL, CUT, CLIPPED = "generations without a gradient", "completions that were cut", "samples that were clipped"
_FLAT = "frac_reward_zero_std"
#: Check → the metric whose mean over the run is the share, and of what.
COSTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    dict.fromkeys(("groups-mostly-flat", "groups-alike-at-first", "advantages-all-zero"), (_FLAT, EQUAL))
    | dict.fromkeys(("most-completions-cut", "completions-grow-into-limit"), ("truncated_fraction", CUT))
    | dict.fromkeys(("clipped-much", "clipped-from-the-start", "first-update-clipped"), ("clip_fraction", CLIPPED))
)


def costs(findings: Iterable[Finding], run: Run) -> dict[str, Cost]:
    """Return what each check that answered yes costs, of those whose cost the log counts."""
    told: dict[str, Cost] = {}
    for finding in findings:
        metric, what = COSTS.get(finding.rule, ("", ""))
        series = run.series.get(metric)
        if finding.status == "fired" and series is not None and len(values := finite_of(series.values)):
            told[finding.rule] = Cost(what=what, share=mean_of(values))
    return told
