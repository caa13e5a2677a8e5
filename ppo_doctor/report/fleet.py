"""Several runs in one table, the gravest first: verdict, run, problem and first step, one line each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.model.evidence import became
from ppo_doctor.model.words import SEVERAL_RUNS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.phrases import apart, first_action, title
from ppo_doctor.report.words import VERDICT_STYLE, VERDICTS, capital, count, flowing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.report.summary import Summary

    Judged: TypeAlias = tuple[Diagnosis, Summary]

#: Of more runs than this the healthy ones are counted.
MOST_ROWS = 20
#: From this width on an action stands beside what is wrong, below it under that.
BESIDE_FROM = 90
#: Shares of a line that the name of a run may take, and of what is left the action.
NAME, ACTION = 0.22, 0.47
GAP = "  "


def gravest_first(judged: Sequence[Judged]) -> list[Judged]:
    """Return runs by verdict, then by the severity of the first problem; equals keep their order."""
    return sorted(judged, key=_gravity)


def _gravity(judged: Judged) -> tuple[int, int]:
    diagnosis, summary = judged
    return VERDICTS[diagnosis.verdict], min((problem.severity.rank for problem in summary.problems), default=99)


def fleet(page: Page, judged: Sequence[Judged], *, everything: bool) -> None:
    """Add the table; of many runs the healthy ones are counted, unless everything is to be said."""
    ordered = gravest_first(judged)
    sick = sum(diagnosis.verdict != "healthy" for diagnosis, _ in judged)
    most = None if everything or len(judged) <= MOST_ROWS else max(sick, 1)
    _head(page, [diagnosis for diagnosis, _ in judged])
    _rows(page, ordered[:most], judged)
    for note in dict.fromkeys(note for diagnosis, _ in judged for note in diagnosis.run.notes if SEVERAL_RUNS in note):
        page.add(Span(flowing(note), "dim"), 0, 3)
    if most is not None and most < len(judged):
        page.add(Span(f"and {len(judged) - most} healthy: --all lists them", "dim"), 0, 3)


def gravest(page: Page, judged: Sequence[Judged]) -> None:
    """Add how many runs are how, and the gravest of them: what is last on a screen."""
    _head(page, [diagnosis for diagnosis, _ in judged])
    _rows(page, gravest_first(judged)[:1], judged)


def _head(page: Page, diagnoses: Sequence[Diagnosis]) -> None:
    tally = Counter(diagnosis.verdict for diagnosis in diagnoses)
    parts = ", ".join(f"{tally[verdict]} {verdict}" for verdict in VERDICTS if tally[verdict])
    page.add((Span(count(len(diagnoses), "run"), "bold"), f": {parts}"), 0, 3)


def _rows(page: Page, shown: Sequence[Judged], judged: Sequence[Judged]) -> None:
    """Add a row per run, each named by what tells it apart from all the others."""
    ids = names([diagnosis.run.id for diagnosis, _ in judged])
    room = int(page.width * NAME)
    called = {id(summary): _end(plain(name), room) for (_, summary), name in zip(judged, ids, strict=True)}
    named = max((columns(called[id(summary)]) for _, summary in shown), default=0)
    widest = max((len(diagnosis.verdict) for diagnosis, _ in shown), default=0)
    for diagnosis, summary in shown:
        word = Span(diagnosis.verdict.ljust(widest), VERDICT_STYLE[diagnosis.verdict])
        _row(page, (word, GAP, fitted(called[id(summary)], named)), widest + named + 2 * len(GAP), summary)


def names(ids: Sequence[str]) -> list[str]:
    """Return what tells runs apart: their folders where that is enough, for an event file's own name says little."""
    folders = [name.rpartition("/")[0] for name in ids]
    return apart(folders if len({*folders}) == len(ids) > 1 else ids)


def _row(page: Page, head: tuple[str | Span, ...], used: int, summary: Summary) -> None:
    action, room = cut(first_action(summary), page.width - 7), max(page.width - used, 12)
    if not action or page.width < BESIDE_FROM:
        page.row((*head, GAP, cut(what(summary), room)))
        if action:
            page.row((" " * 3, Span("do", "bold"), GAP, action))
        return
    beside = min(int(room * ACTION), columns(action))
    wrong = room - beside - len(GAP)
    page.row((*head, GAP, fitted(cut(what(summary), wrong), wrong), GAP, cut(action, beside)))


def what(summary: Summary) -> str:
    """Return what is wrong with a run, else why nobody knows, else what became of it."""
    if summary.problems:
        first = summary.problems[0]
        more = f" (+{len(summary.problems) - 1} more)" if len(summary.problems) > 1 else ""
        return title(first) + more
    if summary.open and summary.verdict == "inconclusive":
        return f"open: {', '.join(question.question for question in summary.open)}"
    course = flowing(became(summary.outcome)) if summary.outcome.what != "not_logged" else ""
    return capital(flowing(summary.because)) or course or f"{count(summary.checks.clear, 'check')} clear"


def cut(text: str, room: int) -> str:
    """Return text that fits, with an ellipsis after its last whole word where it does not."""
    text = text.replace(BOUND, " ")
    if columns(text) <= room:
        return text
    end = next((i for i in range(len(text)) if columns(text[: i + 2]) > room), room)
    kept = text[:end].rpartition(" ")[0] if not text[end : end + 1].isspace() else text[:end]
    return (kept.rstrip(" ,;:.") or text[:end]) + "…"


def _end(name: str, room: int) -> str:
    return name if columns(name) <= room else "…" + name[-(room - 1) :]


def fitted(text: str, width: int) -> str:
    """Return text filled up with blanks to a width."""
    return text + " " * (width - columns(text))
