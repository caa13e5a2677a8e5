"""A baseline: the JSON report of an earlier run, against which only what is new or worse fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.model import Severity
from ppo_doctor.opening import contents

#: Versions of our reports that hold what a baseline needs.
READABLE = ("1", "2", "3")
#: Bytes of a report; one of a thousand runs has some 50 MiB.
LARGEST = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """How a cause led, or a finding made the run unhealthy, in the baseline."""

    severity: Severity
    confidence: str
    is_cause: bool = True

    def worse(self, severity: Severity, confidence: str) -> str:
        """Return in what a cause has become worse, empty when in nothing.

        A longer log proves more, so a likely cause that is now established is no worse; a suspicion that has become
        likely is, because a suspicion never failed the gate.
        """
        if severity.rank < self.severity.rank:
            return f"{self.severity.value} then, {severity.value} now"
        if self.confidence == "suspected" and confidence != "suspected":
            return f"suspected then, {confidence} now"
        return ""


Known: TypeAlias = Mapping[str, Before]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The leading faults of earlier runs and what made them unhealthy, by run."""

    path: Path
    runs: Mapping[str, Known] = field(default_factory=dict)

    def of(self, run: str) -> Known | None:
        """Return a run's causes: by its path, else by the only run, else by a path that ends alike."""
        if run in self.runs:
            return self.runs[run]
        if len(self.runs) == 1:
            return next(iter(self.runs.values()))
        alike = [known for name, known in self.runs.items() if _tail(name) == _tail(run)]
        return alike[0] if len(alike) == 1 else None

    def of_all(self, runs: Iterable[str]) -> Known | None:
        """Return what led in any of several seeds, each cause as it was at its worst; None when no seed is held."""
        found = [known for run in runs if (known := self.of(run)) is not None]
        entries = [entry for known in found for entry in known.items()]
        # The worst comes last and stays.
        entries.sort(key=lambda entry: (-entry[1].severity.rank, entry[1].confidence != "suspected"))
        return dict(entries) if found else None


def _tail(run: str) -> tuple[str, ...]:
    """Return folder and file, which stay the same when a job works elsewhere."""
    return PurePosixPath(run.replace("\\", "/")).parts[-2:]


def read_baseline(path: Path) -> Baseline:
    """Read a JSON report as a baseline.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    return Baseline(path=path, runs={d["run"]["id"]: _known(d) for d in read_report(path)})


def read_report(path: Path) -> list[Mapping[str, Any]]:
    """Return the diagnoses of a JSON report.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    import json

    hint = "write one with: ppo-doctor analyze RUN --format json -o main.json"
    try:
        raw = json.loads(contents(path, LARGEST, pipes=True))
    except DoctorError as error:
        raise DoctorError(error.message, hint=hint, code=ExitCode.USAGE) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise DoctorError(f"{path}: cannot read: {reason}", hint=hint, code=ExitCode.USAGE) from error
    if not is_report(raw):
        raise DoctorError(f"{path}: no report of ppo-doctor", hint=hint, code=ExitCode.USAGE)
    if raw["schema_version"] not in READABLE:
        known = f"schema {raw['schema_version']}, and this version reads {', '.join(READABLE)}"
        raise DoctorError(f"{path}: {known}", hint=hint, code=ExitCode.USAGE)
    diagnoses = raw.get("diagnoses", [raw])
    if not isinstance(diagnoses, list) or not diagnoses or not all(_complete(d) for d in diagnoses):
        failed = raw.get("error")
        told = failed.get("message") if isinstance(failed, Mapping) else None
        raise DoctorError(f"{path}: {told or 'no diagnosis in it'}", hint=hint, code=ExitCode.USAGE)
    return diagnoses


def is_report(raw: object) -> bool:
    """Tell whether a JSON document is a report of ours."""
    return isinstance(raw, Mapping) and "schema_version" in raw and bool({"run", "diagnoses", "error"} & set(raw))


def _complete(diagnosis: object) -> bool:
    if not isinstance(diagnosis, Mapping):
        return False
    run, causes = diagnosis.get("run"), diagnosis.get("causes")
    named = isinstance(run, Mapping) and isinstance(run.get("id"), str)
    named = named and isinstance(run, Mapping) and isinstance(run.get("config") or {}, Mapping)
    return named and isinstance(causes, list) and all(_is_cause(cause) for cause in causes)


def _is_cause(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("id"), str) and raw.get("severity") in list(Severity)


def _is_unhealthy(raw: object) -> bool:
    """Tell whether a problem of a report makes its run unhealthy; reports before version 3 do not say."""
    known = isinstance(raw, Mapping) and raw.get("severity") in list(Severity) and isinstance(raw.get("link"), str)
    return known and isinstance(raw, Mapping) and raw.get("verdict") == "unhealthy"


def _known(diagnosis: Mapping[str, Any]) -> Known:
    told = diagnosis.get("problems")
    problems = [p for p in told if _is_unhealthy(p)] if isinstance(told, list) else []
    known = {
        str(p.get("finding") or p["link"]): Before(
            severity=Severity(p["severity"]), confidence="likely", is_cause=False
        )
        for p in problems
    }
    return known | {
        cause["id"]: Before(severity=Severity(cause["severity"]), confidence=str(cause.get("confidence")))
        for cause in diagnosis["causes"]
        if cause.get("leader") and not cause.get("benign")
    }
