"""The report as Markdown: for a comment on a pull request, and for the summary of a CI job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.model import ASKED, CHAIN, QUESTIONS
from ppo_doctor.report.blame import leaders, ruling_of
from ppo_doctor.report.gate_lines import lines as gate_lines
from ppo_doctor.report.markup import md, md_code, md_html, md_line
from ppo_doctor.report.nearby import relative
from ppo_doctor.report.standings import UNIT, against, in_favour, weighed
from ppo_doctor.report.words import (
    MARK_KEY,
    MARKS,
    capital,
    count,
    decibels,
    finding_says,
    remedy_says,
    run_facts,
    stopped,
    titles,
    to_do,
    to_settle,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ppo_doctor.model import Diagnosis, Finding, LedgerEntry, Measurement, RankedCause, Run
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.ruling import Ruling

#: Lets a bot find its own comment and write over it.
MARKER = "<!-- ppo-doctor -->"
#: GitHub refuses a comment of more than 65,536 characters.
LONGEST = 60_000
#: Pieces of evidence printed for and against a cause, and rows of a list.
MOST_EVIDENCE, MOST_ROWS = 4, 20


def render(diagnosis: Diagnosis, run: Run | None, options: RenderOptions) -> str:  # noqa: ARG001 (the form of a renderer)
    """Return one diagnosis as Markdown."""
    blocks = [MARKER, *_head(diagnosis, options), *_body(relative(diagnosis), options)]
    return _fitted(blocks)


def render_many(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    """Return several diagnoses as Markdown: a table with one row per run, then each run under a fold."""
    blocks = [MARKER, f"### ppo-doctor: {len(diagnoses)} runs", _table(diagnoses, options)]
    if not options.quiet:
        blocks += [_folded_run(diagnosis, options) for diagnosis in diagnoses]
    return _fitted(blocks)


def _fitted(blocks: Sequence[str]) -> str:
    """Join blocks, leaving out whole ones at the end that would make a comment too long, and saying so."""
    kept: list[str] = []
    size = 0
    for index, block in enumerate(blocks):
        size += len(block) + 2
        if size > LONGEST and index:
            kept.append(f"*{len(blocks) - index} more parts are left out; `--format text` shows all.*")
            break
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def _head(diagnosis: Diagnosis, options: RenderOptions) -> list[str]:
    ruling = ruling_of(diagnosis, options)
    gate = f", gate {ruling.word}" if ruling else ""
    facts = " · ".join(md(fact) for fact in run_facts(diagnosis.run))
    return [
        f"### ppo-doctor: {diagnosis.verdict}{gate} — {md_code(diagnosis.run.id)}",
        facts,
        f"**{stopped(md_line(capital(diagnosis.verdict_because)))}**",
    ]


def _body(diagnosis: Diagnosis, options: RenderOptions) -> list[str]:
    if options.quiet:
        return [_bullets(_titled(cause) for cause in diagnosis.causes)] if diagnosis.causes else []
    shown = diagnosis.causes if options.all else leaders(diagnosis, benign=True)
    asked: set[Measurement] = set()
    settles = {cause.id: to_settle(cause, asked, everything=options.all) for cause in shown}
    parts = [
        _gate(ruling_of(diagnosis, options)),
        *(_cause(cause, diagnosis, options, settles[cause.id]) for cause in shown),
        _rivals([cause for cause in diagnosis.causes if cause not in shown]),
        _unexplained(diagnosis),
        _unanswered(diagnosis),
        _chain(diagnosis),
        _checks(diagnosis, options),
        _not_ruled_out(diagnosis),
        _notes(diagnosis, options),
        f"<sub>ppo-doctor {md(diagnosis.tool_version)}</sub>",
    ]
    return [part for part in parts if part]


def _bullets(rows: Iterable[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _fold(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _gate(ruling: Ruling | None) -> str:
    return _bullets(f"**{word}** {md(says)}" for word, says in gate_lines(ruling)) if ruling else ""


def _titled(cause: RankedCause) -> str:
    return f"**{md_line(cause.title)}** ({_standing(cause)})"


def _standing(cause: RankedCause) -> str:
    severity = "" if cause.benign else f" · {cause.severity.value}"
    since = f" · since step {cause.onset_step}" if cause.onset_step is not None else ""
    return f"{cause.confidence}{severity} · {md_code(cause.id)}{since}"


def _cause(cause: RankedCause, diagnosis: Diagnosis, options: RenderOptions, settling: Sequence[Measurement]) -> str:
    head = [f"#### {cause.rank}. {md(cause.title)}", _standing(cause)]
    if cause.level_with:
        head.append(f"Cannot be told apart from {', '.join(md_code(name) for name in cause.level_with)} by this log.")
    if cause.says:
        head.append(stopped(md_line(capital(cause.says))))
    rows = [*_evidence(cause, diagnosis), *_advice(cause), *_to_settle(settling)]
    account = _account(cause, diagnosis) if options.why else ""
    return "\n\n".join(part for part in [*head, _bullets(rows), account] if part)


def _evidence(cause: RankedCause, diagnosis: Diagnosis) -> list[str]:
    told = (("Evidence", in_favour(cause)), ("Against", against(cause)))
    rows = [(label, entry) for label, entries in told for entry in entries[:MOST_EVIDENCE]]
    return [f"{label}: {stopped(_entry(entry, diagnosis))}" for label, entry in rows]


def _entry(entry: LedgerEntry, diagnosis: Diagnosis) -> str:
    title = entry.title or titles(diagnosis).get(entry.finding, entry.finding)
    return md(f"{title}: {entry.says}" if entry.says else title)


def _advice(cause: RankedCause) -> list[str]:
    ours = cause.remedies
    first = "What to do" if cause.benign else "Try first"
    return [f"**{'Then' if i else first}:** {md(remedy_says(r))}" for i, r in enumerate(ours)]


def _to_settle(settling: Sequence[Measurement]) -> list[str]:
    return [f"Would settle it: {to_do(m)} {md(m.log)} — {stopped(md(m.because))}" for m in settling]


def _account(cause: RankedCause, diagnosis: Diagnosis) -> str:
    rows = ["| dB | finding |", "|---:|---|", f"| {decibels(cause.prior_db)} | prior: how common this cause is |"]
    for entry in weighed(cause):
        words = f"{md_code(entry.finding)} {entry.status}: {_entry(entry, diagnosis)}"
        rows.append(f"| {decibels(entry.db)} | {words} |")
    rows.append(f"| {decibels(cause.score_db)} | **sum** |")
    return _fold(f"Account, in {UNIT}", "\n".join(rows))


def _rivals(causes: Sequence[RankedCause]) -> str:
    return _fold(f"Also considered: {len(causes)}", _bullets(_titled(cause) for cause in causes[:MOST_ROWS]))


def _unexplained(diagnosis: Diagnosis) -> str:
    told = {entry.finding for cause in diagnosis.causes for entry in cause.ledger if entry.db > 0}
    left = [f for f in diagnosis.findings if f.status == "fired" and f.rule not in told]
    ordered = sorted(left, key=lambda finding: finding.severity.rank)
    rows = [f"{finding.severity.value}: {stopped(md(finding_says(finding)))}" for finding in ordered]
    return f"**Also seen**\n\n{_bullets(rows)}" if rows else ""


def _unanswered(diagnosis: Diagnosis) -> str:
    coverage = diagnosis.coverage
    rows = []
    for question in (q for q in QUESTIONS if not getattr(coverage, q)):
        reasons = dict.fromkeys(coverage.unanswered.get(question, ())[:MOST_EVIDENCE])
        because = f": {'; '.join(md(reason) for reason in reasons)}" if reasons else ""
        rows.append(f"{ASKED[question]}{because}")
    return f"**Not answered**\n\n{_bullets(rows)}" if rows else ""


def _not_ruled_out(diagnosis: Diagnosis) -> str:
    rows = [f"{md_code(cause.id)}: {stopped(md(cause.because))}" for cause in diagnosis.not_ruled_out]
    return _fold(f"Not ruled out: {count(len(rows), 'cause')}", _bullets(rows)) if rows else ""


def _chain(diagnosis: Diagnosis) -> str:
    """Return the chain on one line; what shows that a link is dead stands with the causes."""
    links = [link for link in diagnosis.chain if link.link in CHAIN or link.state != "unknown"]
    drawn = " ".join(f"{MARKS[link.state]} {md(link.link)}" for link in links)
    return f"Signal chain: {drawn} ({MARK_KEY})"


def _outcome(finding: Finding) -> str:
    """Return what a check said; one that did not run goes without its title, which would read like a claim."""
    return (finding.reason or "") if finding.status in ("skipped", "errored") else finding_says(finding)


def _checks(diagnosis: Diagnosis, options: RenderOptions) -> str:
    c = diagnosis.coverage
    counts = f"Checks: {c.clear} clear · {c.fired} fired · {c.skipped} skipped · {c.errored} errored"
    if diagnosis.suppressed:
        counts += f" · {len(diagnosis.suppressed)} left out on request"
    rows = [
        f"{finding.status} {md_code(finding.rule)}: {md(_outcome(finding))}"
        for finding in diagnosis.findings
        if options.all or finding.status in ("errored", "skipped")
    ]
    rows += [f"left out on request: {md_code(name)}" for name in diagnosis.suppressed]
    most = len(rows) if options.all else MOST_ROWS
    if len(rows) > most:
        rows[most:] = [f"… and {len(rows) - most} more"]
    return _fold(counts, _bullets(rows)) or counts


def _notes(diagnosis: Diagnosis, options: RenderOptions) -> str:
    ours = diagnosis.run.notes
    shown = ours if options.all else ours[:MOST_ROWS]
    more = [f"… and {len(ours) - len(shown)} more"] if len(shown) < len(ours) else []
    return _fold(f"Notes on reading: {len(ours)}", _bullets([*(md_line(note) for note in shown), *more]))


def _table(diagnoses: Sequence[Diagnosis], options: RenderOptions) -> str:
    gated = bool(options.rulings)
    rows = ["| verdict | leading cause | run |" + (" gate |" if gated else ""), "|---|---|---|" + "---|" * gated]
    for diagnosis in diagnoses:
        ours = leaders(diagnosis, benign=True)
        more = f" (+{len(ours) - 1} more)" if len(ours) > 1 else ""
        first = f"{md_code(ours[0].id)}, {ours[0].confidence}{more}" if ours else "none"
        ruling = ruling_of(diagnosis, options)
        gate = f" {ruling.word if ruling else ''} |" if gated else ""
        rows.append(f"| {diagnosis.verdict} | {first} | {md_code(diagnosis.run.id)} |{gate}")
    return "\n".join(rows)


def _folded_run(diagnosis: Diagnosis, options: RenderOptions) -> str:
    body = "\n\n".join([*_head(diagnosis, options)[1:], *_body(relative(diagnosis), options)])
    return _fold(f"{diagnosis.verdict}: {md_html(diagnosis.run.id)}", body)
