"""The part of the SARIF 2.1.0 schema that our logs use, closed: a property that is not here is a mistake.

Written by hand from the standard. With SARIF_SCHEMA naming a copy of the official schema, that one is asked
as well.
"""

from __future__ import annotations

from typing import Any


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


TEXT = {"type": "string"}
FILLED = {"type": "string", "minLength": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed(["text"], text=TEXT)
BAG = {"type": "object"}
FILE = closed(["uri"], uri={"type": "string", "format": "uri-reference"}, uriBaseId=FILLED)
PHYSICAL = closed(
    ["artifactLocation"],
    artifactLocation=FILE,
    region=closed(["startLine"], startLine={"type": "integer", "minimum": 1}, snippet=closed(["text"], text=TEXT)),
)
PLACE = closed(
    ["physicalLocation"],
    id={"type": "integer", "minimum": 0},
    message=MESSAGE,
    physicalLocation=PHYSICAL,
    logicalLocations=listed(closed(["name"], name=FILLED, fullyQualifiedName=FILLED), uniqueItems=True),
)
RULE = closed(
    ["id"],
    id=FILLED,
    name=FILLED,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=closed([], level=LEVEL),
    properties=BAG,
)
RESULT = closed(
    ["message", "ruleId", "ruleIndex", "kind", "level", "locations", "partialFingerprints"],
    ruleId=FILLED,
    ruleIndex={"type": "integer", "minimum": 0},
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    level=LEVEL,
    message=MESSAGE,
    locations=listed(PLACE, uniqueItems=True, minItems=1),
    relatedLocations=listed(PLACE, uniqueItems=True),
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    suppressions=listed(
        closed(["kind"], kind={"enum": ["inSource", "external"]}, status={"enum": ["accepted"]}, justification=TEXT)
    ),
    baselineState={"enum": ["new", "unchanged", "updated", "absent"]},
    properties=BAG,
)
NOTICE = closed(["message"], level=LEVEL, message=MESSAGE, associatedRule=closed(["id"], id=FILLED))
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    exitCode={"type": "integer"},
    toolExecutionNotifications=listed(NOTICE),
)
DRIVER = closed(["name"], name=FILLED, version=FILLED, rules=listed(RULE, uniqueItems=True))
RUN = closed(
    ["tool", "results"],
    tool=closed(["driver"], driver=DRIVER),
    invocations=listed(INVOCATION),
    artifacts=listed(closed([], location=FILE)),
    results=listed(RESULT),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    properties=BAG,
)
SCHEMA = closed(["version", "runs"], **{"$schema": TEXT}, version={"const": "2.1.0"}, runs=listed(RUN))
