"""GitHub's workflow commands: one annotation per leading cause, and the summary page of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ppo_doctor.diagnose.gate_result import failing
from ppo_doctor.model import Severity
from ppo_doctor.report import markdown, phrases
from ppo_doctor.report.blame import gate_result_of, leaders, suspects
from ppo_doctor.report.markup import command_data, command_property, slashes
from ppo_doctor.report.phrases import outcome
from ppo_doctor.report.words import capital, stopped
from ppo_doctor.story import story

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ppo_doctor.diagnose.gate_result import GateItem
    from ppo_doctor.model import Diagnosis, Finding, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.story.model import Place, Told

Level = Literal["error", "warning", "notice"]
#: GitHub shows ten annotations of a level per step; the rest would vanish without a word.
MOST = 10


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as annotations."""
    return render_many([diagnosis], options, [run])


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return the diagnoses of several runs as annotations, errors first."""
    drawn = [*runs, *[None] * (len(diagnoses) - len(runs))]
    rows = zip(diagnoses, drawn, strict=True)
    told = [annotation for diagnosis, run in rows for annotation in _annotations(diagnosis, run, options)]
    ordered = sorted(dict.fromkeys(told), key=lambda pair: ("error", "warning", "notice").index(pair[0]))
    return "".join(f"{line}\n" for line in _at_most(ordered))


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as an annotation."""
    return f"::error title=ppo-doctor (exit code {code})::{command_data(f'{message}. {hint}' if hint else message)}\n"


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


def _at_most(told: Sequence[tuple[Level, str]]) -> list[str]:
    lines: list[str] = []
    for level in ("error", "warning", "notice"):
        ours = [line for kind, line in told if kind == level]
        lines += ours[:MOST]
        if len(ours) > MOST:
            lines.append(f"{len(ours) - MOST} more of level {level} are in the report")
    return lines


def _annotations(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> list[tuple[Level, str]]:
    ours = story(diagnosis, run)
    result = gate_result_of(diagnosis, options)
    failed = {cause.id for cause in failing(diagnosis, result)}
    told = [_problem(problem, diagnosis, failed) for problem in ours.problems]
    if result is not None:
        told += [_item(item, diagnosis) for item in result.of("failed", "open") if not _told(item, diagnosis)]
    elif not told and diagnosis.verdict in ("warning", "inconclusive"):
        rest = phrases.rest(ours, diagnosis)
        left = [f"{capital(label)}: {words}" for label, words in rest if label in ("do", "open")]
        title = f"{diagnosis.verdict}: {diagnosis.run.id}"
        told.append(("warning", _command("warning", title, " ".join([outcome(ours), *left]), diagnosis)))
    return told + [_errored(finding.rule, finding.reason or "", diagnosis) for finding in _crashed(diagnosis)]


def _crashed(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.status == "errored"]


def _told(item: GateItem, diagnosis: Diagnosis) -> bool:
    return item.kind == "cause" and item.name in {cause.id for cause in leaders(diagnosis)}


def _level(problem: Told, failed: bool) -> Level:
    if failed:
        return "error" if problem.severity.at_least(Severity.HIGH) else "warning"
    return "warning" if problem.severity.at_least(Severity.MEDIUM) else "notice"


def _problem(problem: Told, diagnosis: Diagnosis, failed: Collection[str]) -> tuple[Level, str]:
    level = _level(problem, any(cause.id in failed for cause in suspects(diagnosis, problem)))
    standing = capital(", ".join(phrases.standing(problem, diagnosis)))
    advice = (stopped(f"{capital(label)}: {words}") for label, words in phrases.advice(problem))
    text = " ".join((f"{standing}.", *advice))
    return level, _command(
        level, ": ".join(filter(None, (problem.cause, phrases.title(problem)))), text, diagnosis, problem.place
    )


def _item(item: GateItem, diagnosis: Diagnosis) -> tuple[Level, str]:
    level: Level = "error" if item.outcome == "failed" else "warning"
    return level, _command(level, f"{item.kind} {item.name}", item.message, diagnosis)


def _errored(rule: str, reason: str, diagnosis: Diagnosis) -> tuple[Level, str]:
    return "warning", _command("warning", f"check {rule} failed to run", reason, diagnosis)


def _command(level: Level, title: str, text: str, diagnosis: Diagnosis, place: Place | None = None) -> str:
    where = _where(diagnosis, place)
    return f"::{level} {where}title={command_property(f'ppo-doctor: {title}')}::{command_data(text)}"


def _where(diagnosis: Diagnosis, place: Place | None) -> str:
    """Return file and line; without a place the run's first file, and nothing for standard input."""
    path = place.path if place else next((s.path for s in diagnosis.run.sources), "-")
    line = f"line={place.line}," if place and place.line is not None else ""
    return "" if path == "-" else f"file={command_property(slashes(path))},{line}"
