"""Where a result of a SARIF log stands: file, line and metric, and the fingerprint that survives a re-run."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING
from urllib.parse import quote

from ppo_doctor.report.escape import plain
from ppo_doctor.report.markup import slashes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model import Diagnosis, Evidence
    from ppo_doctor.report.json_text import Json

#: Containers whose places are lines; elsewhere a place is a record's number.
LINES = ("jsonl", "csv", "console", "json", "notebook")


def location(path: str) -> dict[str, Json]:
    """Return a file's location: relative to the root of the sources where the path is relative."""
    posix = slashes("stdin" if path == "-" else path)
    quoted = quote(posix.encode("utf-8", "backslashreplace"), safe="/:" if PureWindowsPath(posix).drive else "/")
    if PurePosixPath(posix).is_absolute():
        return {"uri": f"file://{quoted}"}
    if PureWindowsPath(posix).drive:
        return {"uri": f"file:///{quoted}"}
    return {"uri": quoted, "uriBaseId": "%SRCROOT%"}


def locations(evidence: Iterable[Evidence], diagnosis: Diagnosis) -> list[Json]:
    """Return the place of each piece of evidence, each once; without any, the run's first file."""
    lined = {source.path for source in diagnosis.run.sources if source.container in LINES}
    found = [_place(e, lined) for e in evidence if e.source]
    unique = [place for index, place in enumerate(found) if place not in found[:index]]
    if unique:
        return [*unique]
    return [{"physicalLocation": {"artifactLocation": location(s.path)}} for s in diagnosis.run.sources[:1]]


def _place(evidence: Evidence, lined: set[str]) -> dict[str, Json]:
    source = evidence.source
    path = source.path if source else "-"
    physical: dict[str, Json] = {"artifactLocation": location(path)}
    if source and source.line and (path in lined or path.endswith((".json", ".toml", ".yaml", ".yml"))):
        physical["region"] = {"startLine": source.line}
    metric: Json = {"name": plain(evidence.metric), "fullyQualifiedName": plain(evidence.raw or evidence.metric)}
    return {"physicalLocation": physical, "logicalLocations": [metric]}


def fingerprints(name: str, evidence: Evidence | None, diagnosis: Diagnosis) -> Json:
    """Return a hash over rule, file and metric, under our name and under the one that GitHub reads."""
    path = slashes(diagnosis.run.id)
    metric = evidence.metric if evidence else ""
    identity = "\0".join((name, path, metric)).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(identity).hexdigest()[:32]
    # Without this key GitHub's upload hashes the log's line, which is another number in every run.
    return {"ppoDoctor/v1": digest, "primaryLocationLineHash": f"{digest[:16]}:1"}
