"""GitHub's workflow commands: one annotation per leading cause, and the summary page of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ppo_doctor.evidence import sentence
from ppo_doctor.model import ASKED, QUESTIONS, Severity
from ppo_doctor.report import markdown
from ppo_doctor.report.blame import leaders, located, ruling_of, supporters
from ppo_doctor.report.markup import command_data, command_property, slashes
from ppo_doctor.report.words import capital, remedy_says, stopped
from ppo_doctor.ruling import failing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Evidence, Finding, RankedCause, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.ruling import Held

Level = Literal["error", "warning", "notice"]
#: GitHub shows ten annotations of a level per step; the rest would vanish without a word.
MOST = 10


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:  # noqa: ARG001 (the form of a renderer)
    """Return one diagnosis as annotations."""
    return render_many([diagnosis], options)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return the diagnoses of several runs as annotations, errors first."""
    told = [annotation for diagnosis in diagnoses for annotation in _annotations(diagnosis, options)]
    ordered = sorted(dict.fromkeys(told), key=lambda pair: ("error", "warning", "notice").index(pair[0]))
    return "".join(f"{line}\n" for line in _at_most(ordered))


def render_error(message: str, hint: str, code: int) -> str:
    """Return an error as an annotation."""
    return f"::error title=ppo-doctor (exit code {code})::{command_data(f'{message}. {hint}' if hint else message)}\n"


def summary(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return what to append to the file that GITHUB_STEP_SUMMARY names."""
    if len(diagnoses) == 1:
        return markdown.render(diagnoses[0], None, options)
    return markdown.render_many(diagnoses, options)


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


def _annotations(diagnosis: Diagnosis, options: RenderOptions) -> list[tuple[Level, str]]:
    ruling = ruling_of(diagnosis, options)
    failed = {cause.id for cause in failing(diagnosis, ruling)}
    told = [_cause(cause, diagnosis, cause.id in failed) for cause in leaders(diagnosis)]
    if ruling is not None:
        told += [_held(held, diagnosis) for held in ruling.of("failed", "open") if not _told(held, diagnosis)]
    elif diagnosis.verdict == "inconclusive":
        open_questions = [ASKED[q] for q in QUESTIONS if not getattr(diagnosis.coverage, q)]
        open_questions += diagnosis.coverage.failed
        text = f"{stopped(diagnosis.verdict_because)} Open: {', '.join(open_questions) or 'which cause it is'}."
        told.append(("warning", _command("warning", f"inconclusive: {diagnosis.run.id}", text, diagnosis)))
    if not told and diagnosis.verdict == "warning":
        told.append(("warning", _command("warning", "warning", diagnosis.verdict_because, diagnosis)))
    return told + [_errored(finding.rule, finding.reason or "", diagnosis) for finding in _crashed(diagnosis)]


def _crashed(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.status == "errored"]


def _told(held: Held, diagnosis: Diagnosis) -> bool:
    return held.kind == "cause" and held.name in {cause.id for cause in leaders(diagnosis)}


def _level(cause: RankedCause, failed: bool) -> Level:
    if failed:
        return "error" if cause.severity.at_least(Severity.HIGH) else "warning"
    return "warning" if cause.severity.at_least(Severity.MEDIUM) else "notice"


def _cause(cause: RankedCause, diagnosis: Diagnosis, failed: bool) -> tuple[Level, str]:
    evidence = located(supporters(diagnosis, cause))
    parts = [f"{cause.confidence}, {cause.severity.value}. {capital(stopped(cause.says))}"]
    if evidence is not None:
        parts.append(stopped(capital(sentence(evidence))))
    ours = cause.remedies
    if ours:
        parts.append(f"Try first: {remedy_says(ours[0])}")
    level = _level(cause, failed)
    return level, _command(level, f"{cause.id}: {cause.title}", " ".join(parts), diagnosis, evidence)


def _held(held: Held, diagnosis: Diagnosis) -> tuple[Level, str]:
    level: Level = "error" if held.outcome == "failed" else "warning"
    return level, _command(level, f"{held.kind} {held.name}", held.says, diagnosis)


def _errored(rule: str, reason: str, diagnosis: Diagnosis) -> tuple[Level, str]:
    return "warning", _command("warning", f"check {rule} failed to run", reason, diagnosis)


def _command(level: Level, title: str, text: str, diagnosis: Diagnosis, evidence: Evidence | None = None) -> str:
    place = _place(diagnosis, evidence)
    return f"::{level} {place}title={command_property(f'ppo-doctor: {title}')}::{command_data(text)}"


def _place(diagnosis: Diagnosis, evidence: Evidence | None) -> str:
    """Return file and line; without evidence the run's first file, and nothing for standard input."""
    source = evidence.source if evidence else None
    path = source.path if source else next((s.path for s in diagnosis.run.sources), "-")
    if path == "-":
        return ""
    line = f"line={source.line}," if source and source.line else ""
    return f"file={command_property(slashes(path))},{line}"
