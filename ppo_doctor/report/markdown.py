"""Reports as Markdown, for comments on pull requests and summaries of CI jobs."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from ppo_doctor.model.words import CHAIN
from ppo_doctor.report import phrases
from ppo_doctor.report.advice import advice
from ppo_doctor.report.escape import md, md_code, md_html, md_line
from ppo_doctor.report.phrases import (
    MARK_KEY,
    MARKS,
    UNIT,
    apart,
    by_gravity,
    causes_of,
    decibels,
    entry_says,
    finding_says,
    first_action,
    sentence,
    weighed,
)
from ppo_doctor.report.summary import relative, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.diagnosis.gate_result import GateResult
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.summary import ProblemSummary, Summary, Table

#: A bot finds its own comment by this marker and replaces it.
MARKER = "<!-- ppo-doctor -->"
#: The longest report in characters; GitHub refuses comments longer than 65,536.
LONGEST = 60_000
#: The most problems that are printed in full, and the most causes in a list.
MOST_PROBLEMS, MOST_ROWS = 3, 20


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:
    """Return one diagnosis as Markdown."""
    result = options.gate_result(diagnosis)
    gate = f", gate {result.word}" if result else ""
    head = f"### ppo-doctor: {diagnosis.verdict}{gate} — {md_code(diagnosis.run.id)}"
    version = f"<sub>ppo-doctor {md(diagnosis.tool_version)}</sub>"
    return _fitted([MARKER, head, *_report(diagnosis, run, options), *([] if options.quiet else [version])])


def gate(name: str, result: GateResult) -> str:
    """Return the result of the gate of a fleet's table as Markdown."""
    lines = [f"- **{word}** {md(message)}" for word, message in result.lines()]
    return _fitted([MARKER, f"### ppo-doctor: gate {result.word} — {md_code(name)}", "\n".join(lines)])


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions, runs: Sequence[Run | None] = ()) -> str:
    """Return several diagnoses as Markdown: a table with the most severe run first, then each run under a fold."""
    rows = by_gravity(diagnoses, runs)
    blocks = [MARKER, f"### ppo-doctor: {len(diagnoses)} runs", _table_of_runs(rows, options)]
    if not options.quiet:
        blocks += [_fold(f"{d.verdict}: {md_html(d.run.id)}", "\n\n".join(_report(d, run, options))) for d, run in rows]
    return _fitted(blocks)


def _fitted(blocks: Sequence[str]) -> str:
    """Return blocks joined; if the text is too long, a note replaces the blocks at the end."""
    fitting: list[str] = []
    size = 0
    for index, block in enumerate(blocks):
        size += len(block) + 2
        if size > LONGEST and index:
            fitting.append(f"*{len(blocks) - index} more parts are left out; `--format text` shows all.*")
            break
        fitting.append(block)
    return "\n\n".join(fitting) + "\n"


def _report(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> list[str]:
    """Return the parts of the report of a run below its heading."""
    summary = summarize(diagnosis, run)
    if options.quiet:
        action = first_action(summary)
        return [_bullets([f"**{md(phrases.wrong(summary))}**", *([f"**do** {md(action)}"] if action else [])])]
    outcome = phrases.outcome(summary)
    shown, result = relative(diagnosis), options.gate_result(diagnosis)
    parts = [
        f"**{md_line(outcome)}**" if outcome else "",
        " · ".join(md(fact) for fact in phrases.facts(diagnosis)),
        _table(summary.table) if summary.table is not None else "",
        _bullets(f"**{word}** {md(message)}" for word, message in result.lines()) if result else "",
        *(_problem(problem, shown, options) for problem in summary.problems[:MOST_PROBLEMS]),
        _bullets(
            f"**{p.rank}. {md(phrases.title(p))}** ({_standing(p, shown)})" for p in summary.problems[MOST_PROBLEMS:]
        ),
        _bullets(
            f"**{label}** {md(words)}"
            for label, words in phrases.rest(summary, diagnosis)
            if label in ("note", "do", "open", "failed")
        ),
        _fold(f"Checks: {md_html(phrases.counts(summary.checks))}", _details(summary, shown, options)),
    ]
    return [part for part in parts if part]


def _bullets(rows: Iterable[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _table(table: Table) -> str:
    """Return the table of metrics at the key steps."""
    extra = phrases.extra_columns(table)
    heads = ["metric", *(f"{step.name} ({step.step})" for step in table.key_steps), *extra]
    lines = [heads, ["---", *["---:"] * len(table.key_steps), *["---"] * len(extra)]]
    for row in table.rows:
        name = md_code(phrases.row_name(row))
        lines.append([name, *phrases.cells(row), *(md(getattr(row, column)) for column in extra)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _standing(problem: ProblemSummary, diagnosis: Diagnosis) -> str:
    return " · ".join(
        [*map(md, phrases.standing(problem, diagnosis)), *([md_code(problem.cause)] if problem.cause else [])]
    )


def _problem(problem: ProblemSummary, diagnosis: Diagnosis, options: RenderOptions) -> str:
    rows = "\n".join(starmap(_row, advice(problem)))
    accounts = [_account(cause) for cause in causes_of(diagnosis, problem)] if options.why else []
    head = f"#### {problem.rank}. {md(phrases.title(problem))}\n\n{_standing(problem, diagnosis)}"
    return "\n\n".join(part for part in [head, rows, *accounts] if part)


def _row(label: str, words: str) -> str:
    """Return a line of a problem as an item of a list; one without a label is an item below the one before."""
    return f"- **{label}** {(md_code if label == 'at' else md)(words)}" if label else f"  - {md_code(words)}"


def _details(summary: Summary, diagnosis: Diagnosis, options: RenderOptions) -> str:
    """Return the details: chain, other causes, notes on reading, and with `--all` every check."""
    leading = [cause for problem in summary.problems for cause in causes_of(diagnosis, problem)]
    others = [cause for cause in diagnosis.causes if cause not in leading]
    rows = [f"signal chain: {_chain(diagnosis)} ({MARK_KEY})"]
    rows += [f"also considered: {', '.join(_considered(cause) for cause in others[:MOST_ROWS])}"] if others else []
    if not options.all:
        rest = phrases.rest(summary, diagnosis)
        return _bullets([*rows, *(f"reading: {md(words)}" for label, words in rest if label == "reading")])
    rows += [f"reading: {md(note)}" for note in diagnosis.run.notes]
    rows += [f"{f.status} {md_code(f.rule)}: {md(_outcome(f))}{_at(f)}" for f in diagnosis.findings]
    rows += [f"left out on request: {md_code(name)}" for name in diagnosis.suppressed]
    rows += [f"not ruled out: {md_code(cause.id)}: {md(sentence(cause.because))}" for cause in diagnosis.not_ruled_out]
    accounts = [_account(cause) for cause in others] if options.why else []
    return "\n\n".join([_bullets(rows), *accounts])


def _considered(cause: RankedCause) -> str:
    return f"{md_code(cause.id)} ({cause.confidence}{'' if cause.benign else f', {cause.severity.value}'})"


def _chain(diagnosis: Diagnosis) -> str:
    links = [link for link in diagnosis.chain if link.link in CHAIN or link.state != "unknown"]
    return " ".join(f"{MARKS[link.state]} {md(link.link)}" for link in links)


def _outcome(finding: Finding) -> str:
    """Return a finding as a sentence, or the reason if it did not run, because its title would read like a claim."""
    return (finding.reason or "") if finding.status in ("skipped", "errored") else finding_says(finding)


def _at(finding: Finding) -> str:
    """Return the lines of the script that a finding is about, or "" if it has none."""
    place = finding.place
    return " " + ", ".join(map(md_code, (place.says, *(each.does for each in place.also)))) if place is not None else ""


def _account(cause: RankedCause) -> str:
    rows = ["| dB | check |", "|---:|---|", f"| {decibels(cause.prior_db)} | prior: how common this cause is |"]
    rows += [
        f"| {decibels(entry.db)} | {md_code(entry.finding)} {entry.status}: {md(entry_says(entry))} |"
        for entry in weighed(cause)
    ]
    rows.append(f"| {decibels(cause.score_db)} | **sum** |")
    return _fold(f"Account of {md_html(cause.id)}, in {UNIT}", "\n".join(rows))


def _table_of_runs(rows: Sequence[tuple[Diagnosis, Run | None]], options: RenderOptions) -> str:
    """Return a table with the verdict, the first problem and the first action of each run."""
    gated = bool(options.gate_results)
    lines = ["| verdict | run | what is wrong | do first |" + " gate |" * gated, "|---|---|---|---|" + "---|" * gated]
    names = apart([diagnosis.run.id for diagnosis, _ in rows])
    for (diagnosis, run), name in zip(rows, names, strict=True):
        summary = summarize(diagnosis, run)
        result = options.gate_result(diagnosis)
        gate = f" {result.word if result else ''} |" if gated else ""
        wrong, action = md(phrases.wrong(summary)), md(first_action(summary))
        lines.append(f"| {diagnosis.verdict} | {md_code(name)} | {wrong} | {action} |{gate}")
    return "\n".join(lines)
