"""Turn a diagnosis into a short answer.

Text of files stands in fields of its own: names, values and places as they are, sentences and lines only in `quoted`,
`records` and `text`, which `DATA` describes. Sentences of ours refer to a quotation by its number: [q1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from ppo_doctor.cli.agents.schema import (
    Account,
    DiagnosisAnswer,
    Explains,
    Found,
    GoBack,
    OutcomeAnswer,
    Quotation,
    Step,
    Value,
    Weighed,
)
from ppo_doctor.model.evidence import became, brief
from ppo_doctor.report.escape import plain, prose
from ppo_doctor.report.json_report import ANSWERS, shown
from ppo_doctor.report.phrases import entry_says, flowing, stopped, to_do, weighed
from ppo_doctor.report.summary import folder, relative, remedies, summarize

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, LedgerEntry, RankedCause
    from ppo_doctor.model.rules import Finding, Remedy
    from ppo_doctor.model.run import Run, SourceRef
    from ppo_doctor.model.words import ConfigValue

#: Most quotations of an answer, and lines of the account of a cause.
MOST_QUOTED, MOST_ENTRIES = 4, 6
#: Longest sentence, quotation, and name or value of a file that may stand in a sentence.
SENTENCE, QUOTATION, NAME = 200, 200, 60


@dataclass(frozen=True, slots=True)
class Most:
    """The most findings, causes, other runs and open questions of a diagnosis."""

    findings: int
    causes: int
    others: int
    open: int


#: From the fullest answer to the shortest; the first that is short enough is given.
MOST = (Most(3, 3, 5, 3), Most(3, 2, 2, 2), Most(2, 2, 1, 1), Most(1, 1, 0, 0))


class Quotes:
    """Takes text of files out of sentences, and keeps it under a number."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({text for text in texts if _is_speech(text)}, key=len, reverse=True)
        self._numbers: dict[str, str] = {}

    def sentence(self, text: str, limit: int = SENTENCE) -> str:
        """Return a sentence on one line, escaped, with a reference in the place of each text of a file."""
        for each in self._texts:
            if each in text:
                text = text.replace(each, self._reference(each))
        return prose(text, limit)

    def whole(self, text: str) -> str:
        """Return a reference to a text that is a file's from its first to its last word."""
        return self._reference(text)

    def _reference(self, text: str) -> str:
        return f"[{self._numbers.setdefault(text, f'q{len(self._numbers) + 1}')}]"

    def listed(self) -> list[Quotation]:
        """Return the texts that were taken out."""
        pairs = list(self._numbers.items())[:MOST_QUOTED]
        return [Quotation(id=number, text=prose(text, QUOTATION)) for text, number in pairs]


def _is_speech(text: str) -> bool:
    """Return whether a text could be read as a sentence: it is long, or of several words."""
    return len(text) > NAME or len(text.split()) > 1


def quotes_of(run: Run, diagnosis: Diagnosis) -> Quotes:
    """Return what takes the text of a run's files out of sentences: names, values, and what the console said."""
    died = [message for pair in diagnosis.run.died for message in pair]
    return Quotes([*died, *texts_of(run)])


def texts_of(run: Run) -> Iterator[str]:
    """Yield the texts that a run has from its files, and the names of these."""
    for source in run.sources:
        yield from PurePath(source.path).parts
    yield from (*run.keys, *run.not_understood, *(series.raw for series in run.series.values()))
    for note in run.notes:
        yield note.text if note.kind == "said" else note.message
    for key, value in run.config_raw.items():
        yield from (key, str(value))
    for setting in (*run.config.values(), *run.misspelt.values()):
        yield from (setting.key, str(setting.value))
    for place in run.places.values():
        yield from (line.text for line in (place, *place.also))


def short(name: str, run: Run, diagnosis: Diagnosis, most: Most) -> DiagnosisAnswer:
    """Return the diagnosis of a run in a few hundred words of JSON."""
    whole, diagnosis = diagnosis, relative(diagnosis)
    quotes = quotes_of(run, whole)
    summary = summarize(diagnosis, run)
    listed = shown(diagnosis)
    leaders = [cause for cause in diagnosis.causes if cause.leader]
    because = diagnosis.verdict_because or diagnosis.headline
    answer = DiagnosisAnswer(
        run=name,
        framework=plain(diagnosis.run.framework),
        algorithm=plain(diagnosis.run.algorithm),
        records=diagnosis.run.records,
        verdict=str(diagnosis.verdict),
        because=quotes.sentence(because),
        outcome=OutcomeAnswer(what=str(diagnosis.outcome.what), says=quotes.sentence(became(diagnosis.outcome))),
        findings=[found(finding, quotes) for finding in listed[: most.findings]],
        causes=[explains(cause, quotes) for cause in leaders[: most.causes]],
    )
    if shared := folder(whole):
        answer["folder"] = plain(shared)
    if diagnosis.run.steps:
        answer["steps"] = list(diagnosis.run.steps)
    if summary.died:
        answer["because"] = f"{stopped(answer['because'])} The run died: {quotes.whole(summary.died)}"
    if diagnosis.first_step:
        answer["first_step"] = quotes.sentence(diagnosis.first_step)
    if (held := diagnosis.checkpoint) is not None:
        answer["go_back_to"] = GoBack(path=plain(held.path), step=held.step)
        if held.reward is not None:
            answer["go_back_to"]["reward"] = held.reward
    if summary.open:
        answer["open"] = [_question(each.question, each.metrics) for each in summary.open[: most.open]]
    counts = {"findings": len(listed) - most.findings, "causes": len(leaders) - most.causes}
    if left := {name: number for name, number in counts.items() if number > 0}:
        answer["left_out"] = left
    if quoted := quotes.listed():
        answer["quoted"] = quoted
    return answer


def _question(question: str, metrics: Sequence[str]) -> str:
    return f"{question} (log {' or '.join(metrics[:3])})" if metrics else question


def found(finding: Finding, quotes: Quotes) -> Found:
    """Return a finding with its place."""
    says = quotes.sentence(flowing(f"{finding.title}: {brief(finding)}"))
    answer = Found(id=finding.rule, says=says, severity=str(finding.severity.value))
    if finding.onset_step is not None:
        answer["since_step"] = finding.onset_step
    if (place := place_of(finding)) is not None:
        answer["at"] = plain(str(place))
    if finding.place is not None:
        answer["code"] = plain(str(finding.place))
    return answer


def place_of(finding: Finding) -> SourceRef | None:
    """Return the first place of a finding's numbers."""
    return next((each.source for each in finding.evidence if each.source is not None), None)


def explains(cause: RankedCause, quotes: Quotes) -> Explains:
    """Return a cause with what to do about it, if it is more than suspected, and what would settle it."""
    answer = Explains(
        id=cause.id,
        title=quotes.sentence(cause.title),
        confidence=str(cause.confidence),
        severity=str(cause.severity.value),
    )
    if cause.benign:
        answer["benign"] = True
    if cause.onset_step is not None:
        answer["since_step"] = cause.onset_step
    if cause.level_with:
        answer["level_with"] = list(cause.level_with[:5])
    if steps := steps_of(cause, quotes):
        answer["do"] = steps
    elif settle := settles(cause):
        answer["settle_by"] = settle
    return answer


def steps_of(cause: RankedCause, quotes: Quotes) -> list[Step]:
    """Return what to do about a cause; nothing about a suspicion or what is harmless."""
    if cause.confidence == "suspected" or cause.benign:
        return []
    return [step_of(remedy, quotes) for remedy in remedies(cause.remedies)]


def step_of(remedy: Remedy, quotes: Quotes) -> Step:
    """Return a remedy; a change of a setting has its key and values."""
    step = Step(say=quotes.sentence(remedy.do))
    if remedy.key:
        step["key"] = plain(remedy.key)
        if remedy.now is not None:
            step["now"] = value_of(remedy.now)
        if remedy.then is not None:
            step["to"] = value_of(remedy.then)
    return step


def settles(cause: RankedCause) -> str:
    """Return the measurement that would tell a cause from the next one, "" where there is none."""
    measure = next(iter(cause.would_change_my_mind), None)
    return "" if measure is None else prose(f"{to_do(measure)} {measure.log}: {measure.because}", SENTENCE)


def value_of(value: ConfigValue) -> Value:
    """Return a value of a file for JSON: text escaped and bounded, no NaN, no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return plain(str(value), 80)


def account(name: str, cause: RankedCause, run: Run, diagnosis: Diagnosis) -> Account:
    """Return what speaks for and against a cause, the weightiest first."""
    quotes = quotes_of(run, diagnosis)
    diagnosis = relative(diagnosis)
    cause = next(each for each in diagnosis.causes if each.id == cause.id)
    places = {finding.rule: place_of(finding) for finding in diagnosis.findings}
    lines = [_weighed(entry, places.get(entry.finding), quotes) for entry in weighed(cause)]
    answer = Account(
        run=name,
        cause=cause.id,
        title=quotes.sentence(cause.title),
        means=quotes.sentence(cause.says, 600),
        confidence=str(cause.confidence),
        severity=str(cause.severity.value),
        rank=cause.rank,
        role=str(cause.role),
        weighs_for=[line for line in lines if line["db"] > 0][:MOST_ENTRIES],
        weighs_against=[line for line in lines if line["db"] < 0][:MOST_ENTRIES],
        do=steps_of(cause, quotes),
    )
    if cause.probability is not None:
        answer["probability"] = round(cause.probability, 3)
    if cause.onset_step is not None:
        answer["since_step"] = cause.onset_step
    if cause.level_with:
        answer["level_with"] = list(cause.level_with)
    if settle := settles(cause):
        answer["settle_by"] = settle
    if cause.avoid:
        answer["avoid"] = cause.avoid
    if quoted := quotes.listed():
        answer["quoted"] = quoted
    return answer


def _weighed(entry: LedgerEntry, place: SourceRef | None, quotes: Quotes) -> Weighed:
    says = quotes.sentence(entry_says(entry))
    line = Weighed(check=entry.finding, answer=ANSWERS[entry.status], db=entry.db, says=says)
    if place is not None and entry.status == "fired":
        line["at"] = plain(str(place))
    return line
