"""The JSON report: the contract's fields, finite numbers, and a schema that accepts nothing else."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.run import ROLES
from ppo_doctor.report import RenderOptions, render, render_error, render_many

from .cases import CASES, CODE, TOGETHER, ZERO, diagnosis, hostile, observed, unhealthy
from .golden import check_golden

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/diagnosis.schema.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
OPTIONS = RenderOptions(all=True)


def strict(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


def report(name: str) -> Any:
    return strict(render(CASES[name], None, OPTIONS, "json"))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", CASES)
def test_every_diagnosis_is_valid(name: str) -> None:
    VALIDATOR.validate(report(name))


def test_a_run_that_learns_is_valid_although_its_log_shows_no_more() -> None:
    """Its reward alone makes it healthy: no rule about the policy has to have been answered."""
    sound = next(found for found in CASES.values() if found.verdict == "healthy")
    coverage = replace(sound.coverage, movement=False, signal=False)
    VALIDATOR.validate(strict(render(replace(sound, coverage=coverage), None, OPTIONS, "json")))


def test_golden() -> None:
    check_golden("unhealthy.json", render(unhealthy(), None, OPTIONS, "json"))


@pytest.mark.parametrize("name", [name for name in CASES if name != "hostile"])
def test_a_report_holds_every_part_of_its_diagnosis_in_order(name: str) -> None:
    found, shown = CASES[name], report(name)
    assert shown["verdict"] == found.verdict
    assert [cause["id"] for cause in shown["causes"]] == [cause.id for cause in found.causes]
    assert [problem["id"] for problem in shown["problems"]] == [problem.id for problem in found.problems]
    assert [check["name"] for check in shown["checks"]] == [finding.rule for finding in found.findings]
    assert [link["link"] for link in shown["chain"]] == [link.link for link in found.chain]
    assert [source["path"] for source in shown["run"]["sources"]] == [source.path for source in found.run.sources]


def test_several_runs_are_valid() -> None:
    text = render_many(list(CASES.values()), OPTIONS, "json")
    VALIDATOR.validate(strict(text))
    assert len(strict(text)["diagnoses"]) == len(CASES)


def test_an_error_is_valid() -> None:
    found = strict(render_error("run.csv: empty", "did it crash early?", 3, "json"))
    VALIDATOR.validate(found)
    assert found["error"] == {"code": 3, "message": "run.csv: empty", "hint": "did it crash early?"}


CONTRACT = {
    "": "schema_version tool run verdict headline outcome findings problems causes chain checks not_ruled_out coverage",
    "outcome": "what metric key start best end best_step since_step at records target reached evaluation",
    "findings.0": "id says severity exact link problem since_step at cost",
    "problems.0": "id finding findings severity link state since_step proven title verdict causes openers follows",
    "run": "sources framework algorithm samples steps updates_per_batch config notes",
    "run.updates_per_batch": "configured observed effective from",
    "causes.0": "id rank role problem title severity benign confidence probability level_with onset_step "
    "for against unexplained apart_from_next_by do check not",
    "causes.0.for.0": "check answer says",
    "causes.0.do.0": "say key from to",
    "chain.0": "link state steps witness",
    "checks.1": "name code answer role severity onset_step evidence reason",
    "checks.1.evidence.0": "metric raw statistic observed op bound unit steps source",
    "coverage": "movement signal numerics yes no unknown errored missing_metrics",
}


@pytest.mark.parametrize("path", CONTRACT)
def test_the_contract_names_its_fields_in_this_order(path: str) -> None:
    found = report("unhealthy")
    for part in path.split(".") if path else ():
        found = found[int(part)] if part.isdigit() else found[part]
    wanted = CONTRACT[path].split()
    assert [key for key in found if key in wanted] == wanted


def test_what_to_do_names_the_run_s_own_value() -> None:
    found = report("unhealthy")["causes"][0]
    assert {"key": "num_generations", "from": 8, "to": 16}.items() <= found["do"][0].items()
    assert found["check"].startswith("log the rewards of one group")


def test_a_finding_has_the_line_of_an_observed_script() -> None:
    finding = next(each for each in report("observed")["findings"] if each["id"] == ZERO.rule)
    assert finding["at"] == "train.py:205"
    line = {"file": "train.py", "line": 205, "function": "update", "text": CODE.text, "role": ""}
    assert finding["place"] == {**line, "also": []}
    others = [each for name in ("observed", "unhealthy") for each in report(name)["findings"]]
    assert ["place" in each for each in others].count(True) == 1


def test_a_finding_has_the_further_lines_of_an_observed_script_with_their_roles() -> None:
    document = strict(render(observed(TOGETHER), None, OPTIONS, "json"))
    VALIDATOR.validate(document)
    place = next(each["place"] for each in document["findings"] if each["id"] == ZERO.rule)
    assert (place["role"], [each["role"] for each in place["also"]]) == ("used", ["set", "called", "changed"])
    assert place["also"][0] == {"file": "conf.py", "line": 26, "function": "", "text": "EPS = 2e-6", "role": "set"}


def test_the_schema_knows_every_role() -> None:
    assert SCHEMA["$defs"]["role"]["enum"] == [*ROLES]


def test_numbers_are_finite_or_null() -> None:
    evidence = replace(ZERO.evidence[0], observed=math.nan, bound=math.inf)
    found = strict(render(diagnosis((replace(ZERO, evidence=(evidence,)),)), None, OPTIONS, "json"))
    VALIDATOR.validate(found)
    assert found["checks"][0]["evidence"][0]["observed"] is None
    assert found["checks"][0]["evidence"][0]["bound"] is None


def test_k_is_whole_where_it_can_be() -> None:
    assert '"effective": 4,' in render(unhealthy(), None, OPTIONS, "json")


def test_an_integer_beyond_64_bits_survives() -> None:
    assert report("hostile")["run"]["config"]["huge"] == 10**40


def test_nothing_reaches_the_terminal_but_everything_is_there() -> None:
    text = render(hostile(), None, OPTIONS, "json")
    assert all(c == "\n" or c.isprintable() for c in text)
    assert json.loads(text)["checks"][0]["title"].startswith("title \x1b[31mred\x1b]8;;http://e.vil\x07 \x9b2J")


def test_without_orjson_it_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = {name: report(name) for name in CASES}
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert {name: report(name) for name in CASES} == fast


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "sick"),
        (("surprise",), 1),
        (("causes", 0, "confidence"), "certain"),
        (("causes", 0, "role"), "mood"),
        (("causes", 0, "score_db"), 1.5),
        (("checks", 1, "evidence"), []),
        (("checks", 6, "reason"), None),
        (("chain", 0, "link"), "heart"),
        (("verdict",), "healthy"),
        (("schema_version",), "1"),
    ],
)
def test_the_schema_refuses(path: tuple[str | int, ...], value: Any) -> None:
    found = report("unhealthy")
    inner = found
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    assert not VALIDATOR.is_valid(found)


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(DoctorError) as error:
        render(unhealthy(), None, OPTIONS, "yaml")
    assert "json" in error.value.hint
