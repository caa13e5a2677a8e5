"""The result of a gate: the last lines of a text report, and the `gate` object of the JSON report."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import ExitCode
from ppo_doctor.report.escape import plain, prose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.diagnosis.gate_result import BaselineState, GateResult, Outcome
    from ppo_doctor.report.json_report import Json

#: Outcomes in the order in which they are printed; what passed is not printed.
PRINTED: tuple[Outcome, ...] = ("failed", "open", "allowed", "known", "seldom")


def lines(result: GateResult) -> list[tuple[str, str]]:
    """Return (word, sentence) for everything that the gate checked and did not pass, the worst first."""
    found = [(f"{outcome}:", item.message) for outcome in PRINTED for item in result.of(outcome)]
    found += [("fixed:", f"{name}, which led in the baseline, does not lead here") for name in result.fixed]
    if result.suppressed:
        found.append(("left out:", f"{len(result.suppressed)} by select or ignore: {', '.join(result.suppressed)}"))
    return found + [("note:", note) for note in result.notes]


def text(results: Mapping[str, GateResult]) -> str:
    """Return the gate's part of a report for a terminal."""
    return "".join(_block(name, result, many=len(results) > 1) for name, result in results.items())


def _block(name: str, result: GateResult, *, many: bool) -> str:
    head = f"Gate {result.word}" + (f"  {plain(name)}" if many else "")
    return "\n".join([head, *(f"   {word:<9} {prose(message)}" for word, message in lines(result)), ""])


def as_json(result: GateResult) -> dict[str, Json]:
    """Return the result of a gate as plain dicts and lists."""
    return {
        "passed": result.code == ExitCode.OK,
        "result": result.word,
        "code": int(result.code),
        "policy": result.policy,
        "fail_on": result.fail_on,
        "require": None if result.require is None else list(result.require),
        "runs": list(result.runs),
        "reasons": [item.message for item in result.reasons],
        "held": [{"kind": i.kind, "name": i.name, "outcome": i.outcome, "says": i.message} for i in result.items],
        "allowances": [asdict(allowance) for allowance in result.allowances],
        "budgets": [{"budget": i.name, **asdict(i.budget), "outcome": i.outcome} for i in result.items if i.budget],
        "baseline": _baseline(result),
        "suppressed": list(result.suppressed),
        "notes": list(result.notes),
    }


def _baseline(result: GateResult) -> dict[str, Json] | None:
    if result.baseline is None:
        return None
    return {
        "path": result.baseline,
        "holds_run": result.in_baseline,
        "new": _compared(result, "new"),
        "worse": [{"cause": i.name, "says": i.message} for i in result.items if i.baseline_state == "worse"],
        "known": _compared(result, "known"),
        "fixed": list(result.fixed),
    }


def _compared(result: GateResult, state: BaselineState) -> list[Json]:
    return [item.name for item in result.items if item.baseline_state == state]
