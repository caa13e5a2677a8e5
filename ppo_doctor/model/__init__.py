"""The core types: what a run is, what a rule finds, and what a diagnosis says.

Everything here is frozen. Nothing here imports another room of ours, and numpy only for type checkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model.diagnosis import (
    ChainLink,
    Coverage,
    Diagnosis,
    LedgerEntry,
    OpenComplaint,
    PackInForce,
    RankedCause,
    RunSummary,
    Unjudged,
    UpdatesPerBatch,
)
from ppo_doctor.model.rules import Cause, Clause, Complaint, Evidence, Finding, Measurement, Param, Remedy, Rule, Weight
from ppo_doctor.model.run import (
    CONDITION,
    EXACT,
    Axis,
    Fact,
    Note,
    Resolution,
    Run,
    Series,
    Setting,
    SourceRef,
    SourceSummary,
)
from ppo_doctor.model.words import (
    ASKED,
    CHAIN,
    CONFIDENCES,
    LINKS,
    PRIORS,
    QUESTIONS,
    SIDE_LINKS,
    Confidence,
    ConfigValue,
    How,
    LinkState,
    NoteKind,
    Operator,
    Severity,
    Status,
    Verdict,
)

if TYPE_CHECKING:
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray

__all__ = [
    "ASKED",
    "CHAIN",
    "CONDITION",
    "CONFIDENCES",
    "EXACT",
    "LINKS",
    "PRIORS",
    "QUESTIONS",
    "SIDE_LINKS",
    "Axis",
    "BoolArray",
    "Cause",
    "ChainLink",
    "Clause",
    "Complaint",
    "Confidence",
    "ConfigValue",
    "Coverage",
    "Diagnosis",
    "Evidence",
    "Fact",
    "Finding",
    "FloatArray",
    "How",
    "IntArray",
    "LedgerEntry",
    "LinkState",
    "Measurement",
    "Note",
    "NoteKind",
    "OpenComplaint",
    "Operator",
    "PackInForce",
    "Param",
    "RankedCause",
    "Remedy",
    "Resolution",
    "Rule",
    "Run",
    "RunSummary",
    "Series",
    "Setting",
    "Severity",
    "SourceRef",
    "SourceSummary",
    "Status",
    "Unjudged",
    "UpdatesPerBatch",
    "Verdict",
    "Weight",
]
