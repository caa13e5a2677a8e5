"""Long paths told once: a diagnosis whose sentences name files relative to the folder of the run."""

from __future__ import annotations

from dataclasses import replace
from os.path import commonprefix
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import ChainLink, Diagnosis, Evidence, Finding, RankedCause

#: Shorter paths are printed as given everywhere.
SHORT_ENOUGH = 32


def folder(diagnosis: Diagnosis) -> str:
    """Return the folder, with its separator, that all long paths of a run share; empty when paths stay as they are."""
    paths = [source.path for source in diagnosis.run.sources]
    if not paths or max(map(len, paths)) <= SHORT_ENOUGH:
        return ""
    shared = commonprefix(paths)
    return shared[: max(shared.rfind("/"), shared.rfind("\\")) + 1]


def relative(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with the shared folder taken off the paths in sentences; the run's id keeps its own."""
    prefix = folder(diagnosis)
    if not prefix:
        return diagnosis
    return replace(
        diagnosis,
        run=replace(diagnosis.run, notes=tuple(note.replace(prefix, "") for note in diagnosis.run.notes)),
        causes=tuple(_cause(cause, prefix) for cause in diagnosis.causes),
        findings=tuple(_finding(finding, prefix) for finding in diagnosis.findings),
        chain=tuple(_link(link, prefix) for link in diagnosis.chain),
    )


def apart(paths: Sequence[str]) -> list[str]:
    """Return what tells paths apart: without the folders and the ending that all of them share."""
    if len(set(paths)) < 2:
        return list(paths)
    shared = commonprefix(list(paths))
    rest = [path[shared.rfind("/") + 1 :] for path in paths]
    tail = commonprefix([path[::-1] for path in rest])[::-1]
    end = len(tail) - tail.index("/") if "/" in tail else 0
    return [part[: len(part) - end] or part for part in rest]


def _cause(cause: RankedCause, prefix: str) -> RankedCause:
    ledger = tuple(replace(entry, says=entry.says.replace(prefix, "")) for entry in cause.ledger)
    return replace(cause, ledger=ledger)


def _finding(finding: Finding, prefix: str) -> Finding:
    reason = finding.reason.replace(prefix, "") if finding.reason else finding.reason
    return replace(finding, reason=reason, evidence=tuple(_evidence(evidence, prefix) for evidence in finding.evidence))


def _evidence(evidence: Evidence, prefix: str) -> Evidence:
    if evidence.source is None:
        return evidence
    return replace(evidence, source=replace(evidence.source, path=evidence.source.path.replace(prefix, "")))


def _link(link: ChainLink, prefix: str) -> ChainLink:
    return replace(link, witness=link.witness.replace(prefix, "")) if link.witness else link
