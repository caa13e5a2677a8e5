"""Rows of fleets that nobody trained."""

from __future__ import annotations

from random import Random
from typing import Any

from ppo_doctor.fleets.row import CauseOf, FindingOf, Row

DAY = 86_400.0
#: 2026-11-01, 12:00 UTC
NOON = 1_793_534_400.0
SICK = {
    "verdict": "unhealthy",
    "headline": "The reward is 0 in all 60 records.",
    "outcome": "never_earned",
    "findings": (
        FindingOf("reward-always-zero", "critical", None, "The reward is always 0"),
        FindingOf("groups-mostly-flat", "medium", 7, "Most groups have equal rewards"),
    ),
    "causes": (CauseOf("reward-too-sparse", "established", "critical", False),),
    "cause": "reward-too-sparse",
    "onset_step": 7,
    "wasted": 1.0,
}
WELL = {
    "verdict": "healthy",
    "headline": "The reward rose.",
    "outcome": "learned",
    "outcome_start": 0.5,
    "outcome_end": 1.5,
    "causes": (CauseOf("benign-converged", "likely", "info", True),),
    "cause": "benign-converged",
}


def a_row(name: str = "runs/1/log.jsonl", **values: Any) -> Row:
    """Return the row of a judged run."""
    given = {"trainer": "sb3", "metrics_start": {"entropy": 1.23456}, "metrics_end": {"entropy": -0.5}, **values}
    return Row(**{**_common(name), "status": "judged", **given})  # type: ignore[arg-type]


def a_failure(name: str, reason: str = "the file is empty") -> Row:
    """Return the row of a run that could not be judged."""
    return Row(**_common(name), status="failed", error=f"{name}: {reason}")  # type: ignore[arg-type]


def _common(name: str) -> dict[str, Any]:
    return {"key": name, "run": name, "source": name, "fingerprint": name, "modified": NOON, "size": 1}


def a_fleet(size: int, *, planted: bool = False, seed: int = 0) -> list[Row]:
    """Return rows of which a third is sick, with settings; a planted one has its own value in nearly all sick runs."""
    random = Random(seed)
    rows = []
    for at in range(size):
        sick = random.random() < 0.33
        image = "old" if random.random() < (0.5 if not planted else 0.95 if sick else 0.1) else "new"
        settings = {"image": image, "gamma": random.choice(["0.99", "0.95"]), "seed": str(random.getrandbits(40))}
        when = NOON - random.randrange(20) * DAY
        of = {"modified": when, "model": random.choice(["", "small", "large"]), "settings": settings}
        rows.append(a_row(f"runs/{at}/log.jsonl", **{**(SICK if sick else WELL), **of}))
    return rows


def plain(rows: list[Row]) -> list[dict[str, Any]]:
    """Return rows as a table gives them: settings and metrics as pairs, structures as dictionaries."""
    found = []
    for row in rows:
        values = row.as_dict()
        values |= {name: list(values[name].items()) for name in ("settings", "metrics_start", "metrics_end")}
        found.append(values)
    return found
