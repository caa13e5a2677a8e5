"""What a gate ruled, as the `gate` object of the JSON report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.errors import ExitCode

if TYPE_CHECKING:
    from ppo_doctor.report.json_text import Json
    from ppo_doctor.ruling import Against, Allowance, Held, Ruling


def gate(ruling: Ruling) -> dict[str, Json]:
    """Return a ruling as plain dicts and lists."""
    return {
        "passed": ruling.code == ExitCode.OK,
        "result": ruling.word,
        "code": int(ruling.code),
        "policy": ruling.policy,
        "fail_on": ruling.fail_on,
        "require": None if ruling.require is None else list(ruling.require),
        "runs": list(ruling.runs),
        "reasons": [held.says for held in ruling.reasons],
        "held": [_held(held) for held in ruling.held],
        "allowances": [_allowance(allowance) for allowance in ruling.allowances],
        "budgets": [_budget(held) for held in ruling.held if held.spent],
        "baseline": _baseline(ruling),
        "suppressed": list(ruling.suppressed),
        "notes": list(ruling.notes),
    }


def _held(held: Held) -> dict[str, Json]:
    return {"kind": held.kind, "name": held.name, "outcome": held.outcome, "says": held.says}


def _allowance(allowance: Allowance) -> dict[str, Json]:
    return {
        "cause": allowance.cause,
        "reason": allowance.reason,
        "expires": allowance.expires,
        "expired": allowance.expired,
        "used": allowance.used,
    }


def _budget(held: Held) -> dict[str, Json]:
    spent = held.spent
    if spent is None:
        return {}
    return {
        "budget": held.name,
        "metric": spent.metric,
        "statistic": spent.statistic,
        "op": spent.op,
        "bound": spent.bound,
        "value": spent.value,
        "runs": spent.runs,
        "outcome": held.outcome,
    }


def _baseline(ruling: Ruling) -> dict[str, Json] | None:
    if ruling.baseline is None:
        return None
    return {
        "path": ruling.baseline,
        "holds_run": ruling.in_baseline,
        "new": [held.name for held in _standing(ruling, "new")],
        "worse": [{"cause": held.name, "says": held.says} for held in _standing(ruling, "worse")],
        "known": [held.name for held in _standing(ruling, "known")],
        "fixed": list(ruling.fixed),
    }


def _standing(ruling: Ruling, against: Against) -> list[Held]:
    return [held for held in ruling.held if held.against == against]
