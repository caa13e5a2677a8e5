"""GitHub's workflow commands (one annotation per leading cause), and the summary page of a job."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from ppo_doctor.diagnosis.gate_result import PRINTED, failing
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import Severity
from ppo_doctor.report import markdown, phrases
from ppo_doctor.report.advice import advice
from ppo_doctor.report.escape import command_data, command_property, slashes
from ppo_doctor.report.phrases import capital, stopped
from ppo_doctor.report.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.run import Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import ProblemSummary

Level = Literal["error", "warning", "notice"]
#: GitHub shows ten annotations of a level per step; the rest would vanish without a word.
MOST = 10


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return the diagnoses of several runs as annotations, errors first."""
    rows = zip_longest(diagnoses, runs)
    found = [annotation for diagnosis, run in rows for annotation in _annotations(diagnosis, run, options)]
    ordered = sorted(dict.fromkeys(found), key=lambda pair: ("error", "warning", "notice").index(pair[0]))
    return "".join(f"{line}\n" for line in _at_most(ordered))


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as an annotation."""
    return f"::error title=ppo-doctor (exit code {code})::{command_data(f'{message}. {hint}' if hint else message)}\n"


def gate(result: GateResult) -> str:
    """Return the result of the gate of a fleet's table as annotations, budgets first."""
    levels: dict[str, Level] = {"failed": "error", "open": "warning"}
    items = sorted(result.of(*PRINTED[:2]), key=lambda item: item.kind != "budget")
    found = [(levels[i.outcome], _command(levels[i.outcome], "", f"{i.kind} {i.name}", i.message)) for i in items]
    return "".join(f"{line}\n" for line in _at_most(found))


def summary(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return what to append to the file that GITHUB_STEP_SUMMARY names."""
    if len(diagnoses) == 1:
        return markdown.render(diagnoses[0], next(iter(runs), None), options)
    return markdown.render_many(diagnoses, options, runs)


def guarded(text: str, token: str) -> str:
    """Return text for a job's log in which no line, whatever a training log made it say, acts as a command.

    GitHub reads `::error::` at the start of any line, leading spaces or not. The token has to be unpredictable.
    """
    return f"::stop-commands::{token}\n{text}::{token}::\n"


def _at_most(annotations: Sequence[tuple[Level, str]]) -> list[str]:
    lines: list[str] = []
    for level in ("error", "warning", "notice"):
        ours = [line for kind, line in annotations if kind == level]
        lines += ours[:MOST]
        if len(ours) > MOST:
            lines.append(f"{len(ours) - MOST} more of level {level} are in the report")
    return lines


def _annotations(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> list[tuple[Level, str]]:
    summary = summarize(diagnosis, run)
    result = options.gate_result(diagnosis)
    failed = {cause.id for cause in failing(diagnosis, result)}
    found = [_problem(problem, diagnosis, failed) for problem in summary.problems]
    if result is not None:
        leaders = {cause.id for cause in diagnosis.causes if cause.leader and not cause.benign}
        others = [h for h in result.of("failed", "open") if h.kind != "cause" or h.name not in leaders]
        levels: dict[str, Level] = {"failed": "error", "open": "warning"}
        found += [_annotation(levels[i.outcome], f"{i.kind} {i.name}", i.message, diagnosis) for i in others]
    elif not found and diagnosis.verdict in ("warning", "inconclusive"):
        rest = phrases.rest(summary, diagnosis)
        left = [f"{capital(label)}: {words}" for label, words in rest if label in ("do", "open")]
        title = f"{diagnosis.verdict}: {diagnosis.run.id}"
        found.append(_annotation("warning", title, " ".join([phrases.outcome(summary), *left]), diagnosis))
    crashed = [finding for finding in diagnosis.findings if finding.status == "errored"]
    titles = {finding.rule: f"check {finding.rule} failed to run" for finding in crashed}
    return found + [_annotation("warning", titles[f.rule], f.reason or "", diagnosis) for f in crashed]


def _level(problem: ProblemSummary, failed: bool) -> Level:
    if failed:
        return "error" if problem.severity.at_least(Severity.HIGH) else "warning"
    return "warning" if problem.severity.at_least(Severity.MEDIUM) else "notice"


def _problem(problem: ProblemSummary, diagnosis: Diagnosis, failed: Collection[str]) -> tuple[Level, str]:
    level = _level(problem, any(cause.id in failed for cause in phrases.causes_of(diagnosis, problem)))
    standing = capital(", ".join(phrases.standing(problem, diagnosis)))
    lines = (stopped(f"{capital(label)}: {words}" if label else capital(words)) for label, words in advice(problem))
    text = " ".join((f"{standing}.", *lines))
    title = ": ".join(filter(None, (problem.cause, phrases.title(problem))))
    place = problem.place
    if problem.code is not None:
        place = SourceRef(path=problem.code.file, line=problem.code.line)
    return _annotation(level, title, text, diagnosis, place)


def _annotation(
    level: Level, title: str, text: str, diagnosis: Diagnosis, place: SourceRef | None = None
) -> tuple[Level, str]:
    return level, _command(level, _where(diagnosis, place), title, text)


def _command(level: Level, where: str, title: str, text: str) -> str:
    return f"::{level} {where}title={command_property(f'ppo-doctor: {title}')}::{command_data(text)}"


def _where(diagnosis: Diagnosis, place: SourceRef | None) -> str:
    """Return file and line; without a place the run's first file, and nothing for standard input."""
    path = place.path if place else next((s.path for s in diagnosis.run.sources), "-")
    line = f"line={place.line}," if place and place.line is not None else ""
    return "" if path == "-" else f"file={command_property(slashes(path))},{line}"
