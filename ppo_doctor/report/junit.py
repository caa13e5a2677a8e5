"""JUnit XML: one test suite per run, one test case per rule, and one for the verdict or each result of a gate.

A rule that fired fails its test case only if it supports a cause that fails the run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from ppo_doctor.diagnosis.gate_result import failing
from ppo_doctor.model.evidence import says
from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.escape import slashes, xml
from ppo_doctor.report.phrases import remedy_says
from ppo_doctor.report.summary import support

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.diagnosis.gate_result import GateItem, GateResult
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.report import RenderOptions

Result = Literal["passed", "failure", "error", "skipped"]


@frozen
class TestCase:
    """One `<testcase>`: what was tested, its result and its message."""

    __test__ = False  # not a test of ours, whatever pytest thinks of its name

    group: str
    name: str
    result: Result = "passed"
    message: str = ""
    lines: tuple[str, ...] = ()


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return the diagnoses of several runs as JUnit XML, one suite per run."""
    suites = [(diagnosis, _cases(diagnosis, options.gate_result(diagnosis))) for diagnosis in diagnoses]
    everything = [case for _, cases in suites for case in cases]
    body = "".join(_suite(diagnosis, cases) for diagnosis, cases in suites)
    return _document(f'<testsuites name="ppo-doctor" {_totals(everything)}>\n{body}</testsuites>\n')


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as a suite whose only test case could not run."""
    case = TestCase(group="run", name="judged", result="error", message=message, lines=(hint, f"exit code {code}"))
    return _alone("ppo-doctor", [case])


def gate(name: str, result: GateResult) -> str:
    """Return the result of the gate of a fleet's table as a suite with a test case for each budget and each run."""
    return _alone(name, [_passed(result, "the runs pass the gate"), *(_item(item) for item in result.items)])


def _alone(name: str, cases: Sequence[TestCase]) -> str:
    body = "".join(map(_case, cases))
    suite = f'  <testsuite name="{xml(name)}" {_counts(cases)}>\n{body}  </testsuite>\n'
    return _document(f'<testsuites name="ppo-doctor" {_totals(cases)}>\n{suite}</testsuites>\n')


def _document(body: str) -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}'


def _cases(diagnosis: Diagnosis, result: GateResult | None) -> list[TestCase]:
    failed = _failing_causes(diagnosis, result)
    rules = [_rule(finding, failed.get(finding.rule, ())) for finding in diagnosis.findings]
    left_out = [
        TestCase(group="rules", name=name, result="skipped", message="left out by select or ignore")
        for name in diagnosis.suppressed
    ]
    gate = [_verdict(diagnosis)] if result is None else [_passed(result), *(_item(item) for item in result.items)]
    return [*gate, *rules, *left_out]


def _failing_causes(diagnosis: Diagnosis, result: GateResult | None) -> dict[str, list[RankedCause]]:
    """Return, for each fired rule that supports a failing cause, those causes."""
    found: dict[str, list[RankedCause]] = {}
    for cause in failing(diagnosis, result):
        for finding in support(cause, diagnosis):
            found.setdefault(finding.rule, []).append(cause)
    return found


def _rule(finding: Finding, causes: Sequence[RankedCause]) -> TestCase:
    result, message, lines = _outcome(finding, causes)
    name = f"{finding.code} {finding.rule}"
    return TestCase(group=f"rules.{finding.link}", name=name, result=result, message=message, lines=lines)


def _outcome(finding: Finding, causes: Sequence[RankedCause]) -> tuple[Result, str, tuple[str, ...]]:
    if finding.status == "errored":
        return "error", finding.reason or "", ()
    if finding.status == "skipped":
        return "skipped", finding.reason or "", ()
    text = f"{finding.title}: {says(finding)}"
    place = finding.place
    code = (f"at {place.says}", *(each.does for each in place.also)) if place is not None else ()
    if finding.status == "fired" and causes:
        return "failure", finding.title, (says(finding), *code, *(_advice(cause) for cause in causes))
    if finding.status == "fired":
        return "passed", "", (f"{text} (fired; speaks for no cause that fails this run)", *code)
    return "passed", "", (text,)


def _advice(cause: RankedCause) -> str:
    first = "".join(f" Try first: {remedy_says(remedy)}" for remedy in cause.remedies[:1])
    return f"{cause.id} ({cause.confidence}, {cause.severity.value}): {cause.title}.{first}"


def _verdict(diagnosis: Diagnosis) -> TestCase:
    """Return the verdict as a test case; a run that could not be judged is skipped, which is not passed."""
    results: Mapping[str, Result] = {"unhealthy": "failure", "inconclusive": "skipped"}
    return TestCase(
        group="verdict",
        name=f"{diagnosis.run.id} is sound",
        result=results.get(diagnosis.verdict, "passed"),
        message=f"{diagnosis.verdict}: {diagnosis.verdict_because}",
    )


def _passed(result: GateResult, name: str = "the run passes the gate") -> TestCase:
    """Return the gate itself: an open question is an error, because the job it belongs to fails too."""
    results: Mapping[str, Result] = {"passed": "passed", "failed": "failure", "inconclusive": "error"}
    reasons = tuple(item.message for item in result.of("failed", "open"))
    message = f"gate {result.word}" + (f": {reasons[0]}" if reasons else "")
    return TestCase(group="gate", name=name, result=results[result.word], message=message)


def _item(item: GateItem) -> TestCase:
    results: Mapping[str, Result] = {"failed": "failure", "open": "error", "passed": "passed"}
    result = results.get(item.outcome, "skipped")
    return TestCase(group=f"gate.{item.kind}", name=item.name, result=result, message=item.message)


def _counts(cases: Sequence[TestCase]) -> str:
    return f'{_totals(cases)} skipped="{sum(case.result == "skipped" for case in cases)}"'


def _totals(cases: Sequence[TestCase]) -> str:
    """Return the counts that the published schema allows over all suites; `skipped` is not among them."""
    tally = Counter(case.result for case in cases)
    return f'tests="{len(cases)}" failures="{tally["failure"]}" errors="{tally["error"]}" time="0"'


def _suite(diagnosis: Diagnosis, cases: Sequence[TestCase]) -> str:
    facts = {"verdict": diagnosis.verdict, "because": diagnosis.verdict_because, "framework": diagnosis.run.framework}
    rows = "".join(f'      <property name="{name}" value="{xml(value)}"/>\n' for name, value in facts.items())
    body = "".join(_case(case) for case in cases)
    # The schema knows no `file` of a test case; its text names file and line.
    files = "".join(f' file="{xml(slashes(source.path))}"' for source in diagnosis.run.sources[:1])
    head = f'  <testsuite name="{xml(diagnosis.run.id)}"{files} {_counts(cases)}>\n'
    return f"{head}    <properties>\n{rows}    </properties>\n{body}  </testsuite>\n"


def _case(case: TestCase) -> str:
    head = f'    <testcase classname="{xml(f"ppo-doctor.{case.group}")}" name="{xml(case.name)}" time="0"'
    body = _result(case)
    return f"{head}>\n{body}    </testcase>\n" if body else f"{head}/>\n"


def _result(case: TestCase) -> str:
    text = "\n".join(xml(line) for line in case.lines if line)
    if case.result == "passed":
        output = text or xml(case.message)
        return f"      <system-out>{output}</system-out>\n" if output else ""
    message = f'message="{xml(case.message)}"'
    if case.result == "skipped":
        return f"      <skipped {message}/>\n"
    return f'      <{case.result} {message} type="{xml(case.group)}">{text or xml(case.message)}</{case.result}>\n'
