"""What a cause looks like: a sample log diagnosed and drawn, and the cases of its findings, run while the page is made.

Nothing here is written down beforehand: a page that shows another drawing or another verdict than yesterday's means
that a rule, a reader or a log has changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.compiled import parse_toml
from ppo_doctor.evidence import number, says
from ppo_doctor.report.sparkline import sparkline
from ppo_doctor.rulepack import Pack, builtin_rules, prose

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Diagnosis, Finding, RankedCause, Run, Series

#: Metrics drawn of a sample log, findings whose cases are drawn, and characters of a drawing.
MOST_METRICS, MOST_FINDINGS, WIDE = 4, 3, 40
#: Kinds of cases that are drawn: one that fires, and one that just does not.
DRAWN = ("positive", "near-miss")
HEAD = ("finding", "on", "drawn or set", "the rule says")


def example(cause: Cause, pack: Pack) -> str:
    """Return a section in Markdown that shows a cause: in a run of the lab where there is one, and in its findings."""
    blocks = [*_in_a_run(cause, pack), *_in_cases(cause, pack)]
    return "\n\n".join(["## What it looks like", *blocks]) if blocks else ""


def _in_a_run(cause: Cause, pack: Pack) -> Iterator[str]:
    log = _sample(cause.id)
    if log is None:
        return
    run, diagnosis = _diagnosed(log, pack)
    ranked = next((entry for entry in diagnosis.causes if entry.id == cause.id), None)
    if ranked is None:
        return
    place = log.relative_to(_samples().parent).as_posix()
    yield f"`ppo-doctor analyze {place}`, a run of this project's lab with this fault injected:"
    rows = [_drawn(series) for series in _witnesses(run, diagnosis, ranked)]
    if rows:
        yield table(("metric", "drawn", "from, to", "steps"), rows)
    onset = f", since step {ranked.onset_step}" if ranked.onset_step is not None else ""
    level = f" Level with it: {', '.join(f'`{name}`' for name in ranked.level_with)}." if ranked.level_with else ""
    said = f"`{ranked.id}` is {ranked.confidence} at {ranked.score_db} dB{onset}"
    yield f"It says: **{diagnosis.verdict}**, {said}.{level}"


def _samples() -> Path:
    return builtin_rules().parent / "sample_logs"


@cache
def _index() -> Mapping[str, Path]:
    """Return the first sample log of each cause; none where this is no checkout."""
    index = _samples() / "index.toml"
    entries = parse_toml(index)["log"] if index.is_file() else []
    return {entry["cause"]: _samples() / entry["path"] for entry in reversed(entries)}


def _sample(cause: str) -> Path | None:
    return _index().get(cause)


def _diagnosed(log: Path, pack: Pack) -> tuple[Run, Diagnosis]:
    from ppo_doctor.pipeline import Request, diagnose, read_run

    run = read_run(str(log), Request())
    return run, diagnose(run, pack)


def _witnesses(run: Run, diagnosis: Diagnosis, ranked: RankedCause) -> list[Series]:
    """Return what was logged of the metrics behind a cause's counted findings, then what every reader looks at."""
    findings = {finding.rule: finding for finding in diagnosis.findings}
    counted = [findings[entry.finding] for entry in ranked.ledger if entry.db > 0]
    named = [evidence.raw for finding in counted for evidence in finding.evidence]
    by_raw = {series.raw: series for series in run.series.values()}
    usual = ("approx_kl", "ratio_std", "clip_fraction", "entropy", "episode_return", "reward_mean")
    found = [by_raw[raw] for raw in named if raw in by_raw] + [run.series[n] for n in usual if n in run.series]
    return list({series.name: series for series in found}.values())[:MOST_METRICS]


def _drawn(series: Series) -> tuple[str, ...]:
    values = [float(value) for value in series.values]
    steps = f"{int(series.axis.steps[0])} to {int(series.axis.steps[-1])}"
    return f"`{series.raw}`", sparkline(values, WIDE), _range(values), steps


def _range(points: Iterable[float | None]) -> str:
    finite = [point for point in points if point is not None and math.isfinite(point)]
    ends = dict.fromkeys(number(end) for end in (min(finite), max(finite))) if finite else {"no number": None}
    return ", ".join(ends)


def _in_cases(cause: Cause, pack: Pack) -> Iterator[str]:
    """Yield a table of what speaks for a cause most, each on a case that fires and on one that nearly does."""
    speaking = sorted((w for w in cause.weights if w.fired > 0), key=lambda weight: -weight.fired)[:MOST_FINDINGS]
    rows = [row for weight in speaking for row in _case_rows(weight.finding, pack)]
    if rows:
        yield "The findings that speak for it most, each run on cases of its own:"
        yield table(HEAD, rows)


def _case_rows(name: str, pack: Pack) -> Iterator[tuple[str, ...]]:
    from ppo_doctor.testing import run_case

    rule = pack.rule(name)
    if rule is None:
        return
    cases = prose(rule.path)["case"]
    chosen = [next(case for case in cases if case["kind"] == kind) for kind in DRAWN]
    for case in chosen:
        finding = run_case(rule, case).finding
        yield f"`{name}`", str(case["name"]), _input(case), _outcome(finding)


def _outcome(finding: Finding) -> str:
    """Return what a rule says of a case; a case stands in no file."""
    placeless = tuple(replace(evidence, source=None) for evidence in finding.evidence)
    return f"{finding.status}: {says(replace(finding, evidence=placeless))}"


def _input(case: Mapping[str, Any]) -> str:
    from ppo_doctor.testing import parse_series

    series = [
        f"`{name}` {sparkline(points, WIDE // 2)} {_range(points)}"
        for name, text in case.get("series", {}).items()
        for points in [parse_series(text)]
    ]
    settings = [f"`{key.rpartition('.')[2]}` = {value}" for key, value in case.get("config", {}).items()]
    return "; ".join(series + settings)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; a bar or a tag inside a cell is escaped."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    written = ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]
    return "\n".join([written[0], "|" + " --- |" * len(lines[0]), *written[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
