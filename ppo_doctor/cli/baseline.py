"""A baseline: the JSON report of an earlier run, against which only what is new or worse fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.model import Severity
from ppo_doctor.opening import contents

#: Versions of our reports that have what a baseline needs.
READABLE = ("1", "2", "3")
#: Bytes of a report; one of a thousand runs has some 50 MiB.
LARGEST = 256 << 20


HINT = "write one with: ppo-doctor analyze RUN --format json -o main.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    """A cause that led, or a finding that made the run unhealthy, in the baseline."""

    severity: Severity
    confidence: str
    is_cause: bool = True

    def worse(self, severity: Severity, confidence: str) -> str:
        """Return how a cause has become worse, empty if it has not.

        A longer log proves more, so a likely cause that is now established is no worse; a suspicion that has become
        likely is, because a suspicion never failed the gate.
        """
        if severity.rank < self.severity.rank:
            return f"{self.severity.value} then, {severity.value} now"
        if self.confidence == "suspected" and confidence != "suspected":
            return f"suspected then, {confidence} now"
        return ""


KnownFaults: TypeAlias = Mapping[str, KnownFault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The faults of earlier runs, by run."""

    path: Path
    runs: Mapping[str, KnownFaults] = field(default_factory=dict)

    def known(self, runs: Iterable[str]) -> KnownFaults | None:
        """Return the faults of any of several seeds, each as it was at its worst; None if it has none of the seeds."""
        found = [known for run in runs if (known := self._of(run)) is not None]
        entries = [entry for known in found for entry in known.items()]
        # The worst comes last and stays.
        entries.sort(key=lambda entry: (-entry[1].severity.rank, entry[1].confidence != "suspected"))
        return dict(entries) if found else None

    def _of(self, run: str) -> KnownFaults | None:
        """Return a run's faults: by its path, else of the only run, else by a path that ends alike."""
        if run in self.runs:
            return self.runs[run]
        if len(self.runs) == 1:
            return next(iter(self.runs.values()))
        alike = [known for name, known in self.runs.items() if _tail(name) == _tail(run)]
        return alike[0] if len(alike) == 1 else None


def _tail(run: str) -> tuple[str, ...]:
    """Return folder and file, which stay the same when a job works elsewhere."""
    return PurePosixPath(run.replace("\\", "/")).parts[-2:]


def read_baseline(path: Path) -> Baseline:
    """Read a JSON report as a baseline.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    return Baseline(path=path, runs={d["run"]["id"]: _faults(d) for d in read_report(path)})


def read_report(path: Path) -> list[Mapping[str, Any]]:
    """Return the diagnoses of a JSON report.

    Raises:
        DoctorError: it cannot be read, or is no report of ours (exit code 2).
    """
    import json

    try:
        raw = json.loads(contents(path, LARGEST, pipes=True))
    except DoctorError as error:
        raise DoctorError(error.message, hint=HINT, code=ExitCode.USAGE) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise DoctorError(f"{path}: cannot read: {reason}", hint=HINT, code=ExitCode.USAGE) from error
    if why := _unusable(raw):
        raise DoctorError(f"{path}: {why}", hint=HINT, code=ExitCode.USAGE)
    return list(raw.get("diagnoses", [raw]))


def _unusable(raw: object) -> str:
    """Return why a JSON document cannot be a baseline, empty if it can."""
    match raw:
        case {"schema_version": version, **rest} if {"run", "diagnoses", "error"} & set(rest):
            diagnoses = rest.get("diagnoses", [raw])
            if version not in READABLE:
                return f"schema {version}, and this version reads {', '.join(READABLE)}"
            if isinstance(diagnoses, list) and diagnoses and all(map(_is_diagnosis, diagnoses)):
                return ""
            error = rest.get("error")
            return str(error["message"]) if isinstance(error, dict) and error.get("message") else "no diagnosis in it"
    return "no report of ppo-doctor"


def _is_diagnosis(raw: object) -> bool:
    match raw:
        case {"run": {"id": str(), **run}, "causes": [*causes]}:
            return isinstance(run.get("config") or {}, Mapping) and all(map(_is_cause, causes))
    return False


def _is_cause(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("id"), str) and raw.get("severity") in list(Severity)


def _faults(diagnosis: Mapping[str, Any]) -> KnownFaults:
    problems = diagnosis.get("problems")
    known: dict[str, KnownFault] = {}
    for problem in problems if isinstance(problems, list) else ():
        match problem:  # reports before version 3 do not say what makes a run unhealthy
            case {"verdict": "unhealthy", "severity": str(severity), "link": str(link)} if severity in list(Severity):
                name = str(problem.get("finding") or link)
                known[name] = KnownFault(severity=Severity(severity), confidence="likely", is_cause=False)
    return known | {
        cause["id"]: KnownFault(severity=Severity(cause["severity"]), confidence=str(cause.get("confidence")))
        for cause in diagnosis["causes"]
        if cause.get("leader") and not cause.get("benign")
    }
