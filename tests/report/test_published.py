"""SARIF and JUnit against their published schemas; skipped where `make schemas` has not brought them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import xmlschema
from jsonschema import Draft7Validator

from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
from ppo_doctor.model.errors import ExitCode
from ppo_doctor.report import RenderOptions, render, render_error, render_many

from .cases import CASES, LOG
from .diseases import disease, ids, pack
from .published import JUNIT, SARIF, Published
from .test_hostile import ATTACKS, poisoned


def brought(schema: Published) -> str:
    if not schema.path.is_file():
        pytest.skip(f"no {schema.name}: make schemas")
    content = schema.path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == schema.sha256
    return content.decode("utf-8")


@pytest.fixture(scope="module")
def sarif() -> Draft7Validator:
    schema = json.loads(brought(SARIF))
    # The copy is of the year before the standard was final, which renamed this property and nothing else.
    suppression = schema["definitions"]["suppression"]["properties"]
    suppression["status"] = suppression.pop("state")
    return Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)


@pytest.fixture(scope="module")
def junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(brought(JUNIT))


def documents(format: str) -> list[str]:
    """Return every kind of document: each case, each disease, gates, several runs, hostile words, errors."""
    held = tuple(
        GateItem(kind=kind, name=name, outcome=outcome, message="because")
        for kind, name, outcome in (
            ("cause", "adv-exactly-zero", "allowed"),
            ("cause", "reward-constant", "known"),
            ("budget", "approx_kl.p95", "failed"),
            ("question", "movement", "open"),
        )
    )
    plain, quiet = RenderOptions(), RenderOptions(quiet=True)
    gated = RenderOptions(gate_results={LOG: GateResult(code=ExitCode.SICK, items=held)})
    found = [
        *CASES.values(),
        *(disease(cause)[0] for name in ids() if (cause := pack().cause(name))),
        *(poisoned(CASES["unhealthy"], attack) for attack in ATTACKS),
    ]
    made = [render(one, None, plain, format) for one in found]
    made += [render(one, None, options, format) for one in CASES.values() for options in (quiet, gated)]
    made += [render_many(list(CASES.values()), plain, format), render_many([], plain, format)]
    return made + [render_error(f"no file {attack}", "look again", 3, format) for attack in ("", *ATTACKS)]


def test_sarif_meets_the_standard_s_schema(sarif: Draft7Validator) -> None:
    for text in documents("sarif"):
        assert [error.message for error in sarif.iter_errors(json.loads(text))] == []


def test_junit_meets_the_schema_of_jenkins(junit: xmlschema.XMLSchema) -> None:
    for text in documents("junit"):
        assert [str(error.reason) for error in junit.iter_errors(text)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [(("version",), "2.0"), (("runs", 0, "results", 0, "kind"), "bad"), (("runs", 0, "tool"), {})],
)
def test_the_schema_of_sarif_refuses(sarif: Draft7Validator, path: tuple[str | int, ...], value: Any) -> None:
    log = json.loads(render(CASES["unhealthy"], None, RenderOptions(), "sarif"))
    place = log
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert list(sarif.iter_errors(log))


def test_the_schema_of_junit_refuses(junit: xmlschema.XMLSchema) -> None:
    text = render(CASES["unhealthy"], None, RenderOptions(), "junit")
    assert list(junit.iter_errors(text.replace("<testcase ", "<test ").replace("</testcase>", "</test>")))
    assert list(junit.iter_errors(text.replace(' time="0"', ' time="soon"')))
