"""The evidence behind a finding as text for a terminal and as JSON; text from logs and answers is escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import measured, number, sentence
from ppo_doctor.model.run import CONDITION
from ppo_doctor.report.advice import code_lines
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.json_report import SCHEMA_VERSION, dump, evidence_payload, fields, place_payload
from ppo_doctor.report.layout import BOUND, SPARKLINE_WIDEST, Page, Span, columns, sparkline
from ppo_doctor.report.phrases import SEVERITY_STYLE, bound, count, flowing
from ppo_doctor.report.terminal import page_for, paint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.diagnosis.evidence import Answers, Quote, Records, Rests, Sample, Shown
    from ppo_doctor.model.rules import Evidence
    from ppo_doctor.model.run import SourceRef
    from ppo_doctor.report import RenderOptions
    from ppo_doctor.report.json_report import Json
    from ppo_doctor.report.layout import Line

INDENT = 3
#: The least width at which the highest-rewarded and the longest answers stand side by side.
BESIDE_FROM = 100
#: The most characters of the name of a metric, which keeps its end; lines of a quoted line and of an answer.
LONGEST_KEY, LINES_OF_LOG, LINES_OF_ANSWER = 24, 2, 3
#: The most characters of a line of a log, and of an answer or a prompt, in JSON.
LONGEST_LINE, LONGEST_ANSWER = 1_000, 1_000
#: The most parts of a reward that are named.
MOST_PARTS = 3
#: More characters than an escaped text has: it was cut when it was read.
WHOLE = 1 << 20
GAP = "   "


def render(shown: Shown, options: RenderOptions) -> str:
    """Return the evidence as text."""
    page = page_for(options)
    name = shown.id if shown.kind != "problem" else f"problem {shown.id[1:]}"
    page.add((Span(plain(name), "bold"), f"{BOUND * 2}{flowing(shown.title)}"), 0, INDENT)
    if shown.records is not None:
        page.add("No check shows it by itself, only the course of the reward:", INDENT)
        page.blank()
        _records(page, shown.records)
    told: set[object] = set()
    for rests in shown.rests:
        page.blank()
        _rests(page, rests, told, alone=shown.kind == "finding")
    if shown.further:
        page.blank()
        page.add(Span(f"also: {', '.join(map(plain, shown.further))}", "dim"), 0, INDENT)
    if shown.answers is not None:
        page.blank()
        _answers(page, shown.answers)
    return paint(page, options)


def _rests(page: Page, rests: Rests, told: set[object], *, alone: bool) -> None:
    """Add a finding; `told` are the metrics with a table already and the places that were quoted, which it adds to."""
    finding = rests.finding
    severity = Span(finding.severity.value, SEVERITY_STYLE.get(finding.severity, ""))
    head = () if alone else (Span(plain(finding.rule), "bold"), f"{BOUND * 2}{flowing(finding.title)} – ")
    since = f" · since step {finding.onset_step}" if finding.onset_step is not None else ""
    state = {"fired": "", "clear": " · not so", "skipped": " · not checked", "errored": " · failed"}[finding.status]
    page.add((*head, severity, f" · {plain(finding.code)}{since}{state}"), 0, INDENT)
    if finding.reason:
        page.add(flowing(finding.reason), INDENT)
    for evidence in finding.evidence:
        page.add(flowing(_claim(evidence)), INDENT, 2)
        page.add(Span(_bound(evidence), "dim"), INDENT + 2, 2)
    code_lines(page, finding.place, INDENT)
    if rests.records is not None and (finding.onset_step is not None or rests.records.keys not in told):
        page.blank()
        _records(page, rests.records)
        told.add(rests.records.keys)
    for quote in rests.quotes:
        about = quote.excerpt.because or quote.place
        if about not in told:
            page.blank()
            _quote(page, quote)
        told.add(about)


def _claim(evidence: Evidence) -> str:
    """Return what was seen, without the place, which is printed with the line there."""
    single = evidence.steps is None and " " in evidence.claim
    return evidence.claim if single else sentence(replace(evidence, source=None))


def _bound(evidence: Evidence) -> str:
    """Return the number that was compared, its bound, and where the bound comes from."""
    observed, bound = (measured(value, evidence.unit) for value in (evidence.observed, evidence.bound))
    if evidence.unit == CONDITION:
        return flowing(evidence.bound_source)
    source = f": {flowing(evidence.bound_source)}" if evidence.bound_source else ""
    return f"{plain(evidence.metric)} {observed}, bound {evidence.op} {bound}{source}"


def _records(page: Page, records: Records) -> None:
    """Add a table of records, in several parts where the metrics do not fit beside each other."""
    heads = [_key(key) for key in records.keys]
    marks, steps = [row.mark for row in records.rows], [str(row.step) for row in records.rows]
    lines = ["" if row.source.line is None else str(row.source.line) for row in records.rows]
    cells = [[_value(row.values[i]) for row in records.rows] for i in range(len(heads))]
    fixed = [("", marks), ("step", steps), (records.places, lines)]
    room = page.width - INDENT - sum(max(map(columns, [head, *cell])) + 2 for head, cell in fixed)
    part: list[tuple[str, list[str]]] = []
    for head, cell in [*zip(heads, cells, strict=True), ("", [])]:
        used = sum(max(map(columns, [h, *c])) + 2 for h, c in [*part, (head, cell)])
        if part and (used > room or not cell):
            page.blank()
            _table(page, [*fixed, *part])
            part = []
        part.append((head, cell))
    shown, all_of = len(records.rows), count(records.of, "record")
    page.add(Span(f"{shown} of {all_of}" if shown < records.of else all_of, "dim"), INDENT)
    for key, made in zip(records.keys, records.made, strict=True):
        page.add(Span(f"{plain(key)} is judged {made}", "dim") if made else "", INDENT, 2)
    known = [value for value in records.course if value is not None]
    if len(known) > shown and min(known) < max(known):
        span = f"{GAP}medians from {number(min(known))} to {number(max(known))}"
        page.row(f"{sparkline(records.course, min(page.width - INDENT - len(span), SPARKLINE_WIDEST))}{span}", INDENT)


def _table(page: Page, table: Sequence[tuple[str, list[str]]]) -> None:
    widths = [max(map(columns, [head, *cells])) for head, cells in table]
    page.row(Span(_padded([head for head, _ in table], widths), "dim"), INDENT)
    for number_, row in enumerate(zip(*(cells for _, cells in table), strict=True)):
        page.row(
            Span(_padded(row, widths), "bold" if table[0][1][number_] not in ("", "first", "last") else ""), INDENT
        )


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    name = first[0] + " " * (first[1] - columns(first[0]))
    return name + "".join(f"  {' ' * (width - columns(cell))}{cell}" for cell, width in rest)


def _value(value: float | None) -> str:
    return "–" if value is None else number(value)


def _key(raw: str) -> str:
    key = plain(raw)
    return key if len(key) <= LONGEST_KEY else "…" + key[-LONGEST_KEY + 1 :]


def _quote(page: Page, quote: Quote) -> None:
    held = quote.excerpt
    key = Span(f"{BOUND * 2}{bound(plain(quote.place.key or ''))}", "cyan")
    page.add((Span(plain(str(quote.place)), "bold"), key), INDENT, 2)
    if held.because:
        page.add(Span(flowing(held.because.partition("; what was read")[0]), "dim"), INDENT + 2)
    keys = [key for key in (quote.place.key or "").split(", ") if key]
    width = max(page.width - INDENT - 10, 20)
    for number_, text in held.lines:
        here = number_ == quote.place.line
        lines = _folded(_around(text, keys, held.names, LINES_OF_LOG * width), width, LINES_OF_LOG)
        heads = [f"{'>' if here else ' '}{number_:>7}  ", *[" " * 10] * (len(lines) - 1)]
        for head, line in zip(heads, lines, strict=True):
            page.row(f"{head}{line}", INDENT)


def _around(text: str, keys: Sequence[str], names: Sequence[str], room: int) -> str:
    """Return a line of a log, escaped, in at most `room` characters: the part where its first key or cell stands."""
    line = plain(text.rstrip("\r").replace("\t", " "), WHOLE)
    if len(line) <= room:
        return line
    at = next((found.start() for key in keys if (found := re.search(re.escape(plain(key)), line))), 0)
    if names and not at:
        cell = next((names.index(key) for key in keys if key in names), 0)
        at = len(",".join(re.split(r"[,;]", line)[:cell]))
    start = max(min(at - room // 3, len(line) - room + 2), 0)
    cut = line[start : start + room - 2]
    return f"{'…' if start else ''}{cut}{'…' if start + room - 2 < len(line) else ''}"


def _answers(page: Page, answers: Answers) -> None:
    """Add the answers with the highest rewards and the longest ones, side by side on a wide page."""
    span = f", steps {answers.steps[0]}–{answers.steps[1]}" if answers.steps else ""
    reward = f" · reward: {plain(answers.reward)}" if answers.reward else ""
    page.add((Span("Answers", "bold"), f"{BOUND * 2}{count(answers.rows, 'answer')}{span}{reward}"), 0, INDENT)
    if answers.length_of_all is not None and answers.length_of_highest is not None:
        high, every = number(answers.length_of_highest), number(answers.length_of_all)
        page.add(f"median length in characters: {high} of the highest-rewarded below, {every} of all", INDENT)
    for text in answers.left_out:
        page.add(Span(f"left out: {flowing(text)}", "dim"), INDENT, 2)
    lists = [("Highest rewards", answers.highest), ("Longest", answers.longest)] if answers.rows else []
    for title, samples in lists if page.width < BESIDE_FROM else ():
        page.blank()
        page.lines += _list(title, samples, page)
    if page.width < BESIDE_FROM or not lists:
        return
    width = (page.width - INDENT - len(GAP)) // 2
    left, right = (_list(title, samples, Page(width=width, ascii=page.ascii), indent=0) for title, samples in lists)
    page.blank()
    for one, other in zip_longest(left, right, fillvalue=()):
        used = sum(columns(span.text) for span in one)
        page.lines.append((Span(" " * INDENT), *one, Span(" " * (width - used) + GAP), *other))


def _list(title: str, samples: Sequence[Sample], page: Page, indent: int = INDENT) -> list[Line]:
    """Return answers one below the other: numbers, the end of the prompt, and the text cut to some lines."""
    draft = Page(width=page.width, ascii=page.ascii)
    draft.add(Span(title, "bold"), indent)
    if not samples:
        draft.add(Span("no answer has one", "dim"), indent)
    room = page.width - indent - 2
    for rank, sample in enumerate(samples, start=1):
        draft.add((Span(f"{rank} ", "bold"), Span(" · ".join(_facts(sample)), "dim")), indent, 2)
        if prompt := prose(sample.prompt, WHOLE):
            draft.row(Span(_end(f"? {prompt}", room), "dim"), indent + 2)
        for line in _folded(prose(sample.answer, WHOLE) or "(empty)", room, LINES_OF_ANSWER, words=True):
            draft.row(line, indent + 2)
    return draft.lines


def _facts(sample: Sample) -> list[str]:
    facts = [f"step {sample.step}"] if sample.step is not None else []
    parts = ", ".join(f"{_key(name)} {number(value)}" for name, value in list(sample.parts.items())[:MOST_PARTS])
    more = f" ({parts})" if parts else ""
    facts += [f"reward {number(sample.reward)}{more}"] if sample.reward is not None else []
    facts += [f"advantage {number(sample.advantage)}"] if sample.advantage is not None else []
    return [*facts, f"length {sample.length}"]


def _folded(text: str, width: int, most: int, *, words: bool = False) -> list[str]:
    """Return text as at most `most` lines of `width` columns, broken between `words` or anywhere, and cut off there."""
    lines = [""]
    for character in text:
        if columns(lines[-1]) + columns(character) > width - (len(lines) == most):
            if len(lines) == most:
                lines[-1] += "…"
                break
            kept, space, word = lines[-1].rpartition(" ")
            whole = words and bool(space) and character != " " and len(word) < width // 2
            lines[-1:] = [kept, word] if whole else [lines[-1], ""]
        lines[-1] += "" if words and not lines[-1] and character == " " else character
    return lines


def _end(text: str, width: int) -> str:
    """Return text in one line, without what precedes its end if it does not fit."""
    if columns(text) <= width:
        return text
    kept = next((text[at:] for at in range(len(text)) if columns(text[at:]) <= width - 3), "")
    return f"? …{kept}"


def as_json(shown: Shown) -> str:
    """Return the evidence as a JSON document."""
    return dump({"schema_version": SCHEMA_VERSION, "evidence": payload(shown)})


def payload(shown: Shown) -> dict[str, Json]:
    """Return the evidence as plain dicts and lists."""
    return {
        **fields(shown, "kind id title further"),
        "findings": [_rests_payload(rests) for rests in shown.rests],
        "records": None if shown.records is None else _records_payload(shown.records),
        "answers": None if shown.answers is None else _answers_payload(shown.answers),
    }


def _rests_payload(rests: Rests) -> dict[str, Json]:
    finding, records = rests.finding, rests.records
    return {
        "id": finding.rule,
        **fields(finding, "code title severity status link reason"),
        "since_step": finding.onset_step,
        "numbers": [{**evidence_payload(e), "says": sentence(e)} for e in finding.evidence],
        "place": place_payload(finding),
        "records": None if records is None else _records_payload(records),
        "lines": [_quote_payload(quote) for quote in rests.quotes],
    }


def _records_payload(records: Records) -> dict[str, Json]:
    rows: list[Json] = [fields(row, "mark step source values") for row in records.rows]
    return {**fields(records, "keys metrics made of places course"), "rows": rows}


def _quote_payload(quote: Quote) -> dict[str, Json]:
    place: SourceRef = quote.place
    keys = [key for key in (place.key or "").split(", ") if key]
    lines: list[Json] = [
        {"line": number_, "text": _around(text, keys, quote.excerpt.names, LONGEST_LINE)}
        for number_, text in quote.excerpt.lines
    ]
    return {"path": place.path, "line": place.line, "key": place.key, "text": lines, "because": quote.excerpt.because}


def _answers_payload(answers: Answers) -> dict[str, Json]:
    return {
        **fields(answers, "rows reward steps length_of_highest length_of_all tables left_out"),
        "highest": [_sample_payload(sample) for sample in answers.highest],
        "longest": [_sample_payload(sample) for sample in answers.longest],
    }


def _sample_payload(sample: Sample) -> dict[str, Json]:
    texts: dict[str, Json] = {"prompt": sample.prompt[-LONGEST_ANSWER:], "answer": sample.answer[:LONGEST_ANSWER]}
    return {**fields(sample, "step length reward advantage parts source"), **texts}
