"""Judge a run below TensorBoard's log directories."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from ppo_doctor.checks.rulepack import Pack, load_pack
from ppo_doctor.diagnosis.attempt import Attempt, attempt
from ppo_doctor.model.request import Request
from ppo_doctor.report import RenderOptions, render, render_many
from ppo_doctor.report.escape import prose
from ppo_doctor.report.phrases import by_gravity
from ppo_doctor.runs.reading import read_file

if TYPE_CHECKING:
    from ppo_doctor.fleets.unit import Found


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is shown of a run; `page` is its report if one was asked for, `seconds` what it took.

    `reason` is why it failed. Files that turned out to hold no run are `empty`.
    """

    state: Literal["judged", "failed", "empty"]
    verdict: str = ""
    headline: str = ""
    reason: str = ""
    step: int | None = None
    page: str | None = None
    seconds: float = 0.0


def judge(found: Found, *, growing: bool, page: bool) -> Judgement:
    """Judge the run, or the runs, of some files; of a file that is `growing` a last line without an end is left out."""
    begun = time.perf_counter()
    if found.unit.source is None:
        raise ValueError(f"{found.name} lies behind a URL")
    result = attempt(found.unit.source, Request(), _pack(), read=partial(read_file, growing=growing))
    if not result.judged:
        reason = "; ".join(error.message for error in result.errors)
        return Judgement("failed" if reason else "empty", reason=prose(reason, 600))
    worst = by_gravity([diagnosis for _, diagnosis in result.judged], ())[0][0]
    more = f"{len(result.judged)} runs, the worst: " if len(result.judged) > 1 else ""
    return Judgement(
        "judged",
        verdict=str(worst.verdict),
        headline=prose(more + worst.headline, 600),
        step=max((d.run.steps[1] for _, d in result.judged if d.run.steps), default=None),
        page=_page(result) if page else None,
        seconds=time.perf_counter() - begun,
    )


def _page(result: Attempt) -> str:
    if len(result.judged) == 1:
        run, diagnosis = result.judged[0]
        return render(diagnosis, run, RenderOptions(), "html")
    diagnoses, runs = [diagnosis for _, diagnosis in result.judged], [run for run, _ in result.judged]
    return render_many(diagnoses, RenderOptions(), "html", runs)


@cache
def _pack() -> Pack:
    return load_pack()
