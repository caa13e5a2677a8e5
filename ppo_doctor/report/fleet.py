"""Several runs in one table, the gravest first: verdict, run, what is wrong and what to do first, a line for each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from ppo_doctor.evidence import became
from ppo_doctor.model import SEVERAL_RUNS
from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Page, Span, columns
from ppo_doctor.report.nearby import apart
from ppo_doctor.report.phrases import first_action, title
from ppo_doctor.report.words import VERDICT_STYLE, capital, count, flowing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Diagnosis, Verdict
    from ppo_doctor.story import Story

    Told: TypeAlias = tuple[Diagnosis, Story]

#: The gravest first.
ORDER: tuple[Verdict, ...] = ("unhealthy", "warning", "inconclusive", "healthy")
#: Of more runs than this the healthy ones are counted.
MOST_ROWS = 20
#: From this width on an action stands beside what is wrong, below it under that.
BESIDE_FROM = 90
#: Shares of a line that the name of a run may take, and of what is left the action.
NAME, ACTION = 0.22, 0.47
GAP = "  "


def gravest_first(told: Sequence[Told]) -> list[Told]:
    """Return runs by verdict, then by the severity of the first problem; equals keep their order."""
    return sorted(told, key=_gravity)


def _gravity(told: Told) -> tuple[int, int]:
    diagnosis, story = told
    return ORDER.index(diagnosis.verdict), min((problem.severity.rank for problem in story.problems), default=99)


def fleet(page: Page, told: Sequence[Told], *, everything: bool) -> None:
    """Add the table; of many runs the healthy ones are counted, unless everything is to be said."""
    ordered = gravest_first(told)
    sick = sum(diagnosis.verdict != "healthy" for diagnosis, _ in told)
    most = None if everything or len(told) <= MOST_ROWS else max(sick, 1)
    _head(page, [diagnosis for diagnosis, _ in told])
    _rows(page, ordered[:most], told)
    for note in dict.fromkeys(note for diagnosis, _ in told for note in diagnosis.run.notes if SEVERAL_RUNS in note):
        page.add(Span(flowing(note), "dim"), 0, 3)
    if most is not None and most < len(told):
        page.add(Span(f"and {len(told) - most} healthy: --all lists them", "dim"), 0, 3)


def gravest(page: Page, told: Sequence[Told]) -> None:
    """Add how many runs are how, and the gravest of them: what is last on a screen."""
    _head(page, [diagnosis for diagnosis, _ in told])
    _rows(page, gravest_first(told)[:1], told)


def _head(page: Page, diagnoses: Sequence[Diagnosis]) -> None:
    tally = Counter(diagnosis.verdict for diagnosis in diagnoses)
    parts = ", ".join(f"{tally[verdict]} {verdict}" for verdict in ORDER if tally[verdict])
    page.add((Span(count(len(diagnoses), "run"), "bold"), f": {parts}"), 0, 3)


def _rows(page: Page, shown: Sequence[Told], told: Sequence[Told]) -> None:
    """Add a row per run, each named by what tells it apart from all the others."""
    ids = names([diagnosis.run.id for diagnosis, _ in told])
    room = int(page.width * NAME)
    called = {id(story): _end(plain(name), room) for (_, story), name in zip(told, ids, strict=True)}
    named = max((columns(called[id(story)]) for _, story in shown), default=0)
    widest = max((len(diagnosis.verdict) for diagnosis, _ in shown), default=0)
    for diagnosis, story in shown:
        word = Span(diagnosis.verdict.ljust(widest), VERDICT_STYLE[diagnosis.verdict])
        _row(page, (word, GAP, fitted(called[id(story)], named)), widest + named + 2 * len(GAP), story)


def names(ids: Sequence[str]) -> list[str]:
    """Return what tells runs apart: their folders where that is enough, for an event file's own name says little."""
    folders = [name.rpartition("/")[0] for name in ids]
    return apart(folders if len({*folders}) == len(ids) > 1 else ids)


def _row(page: Page, head: tuple[str | Span, ...], used: int, story: Story) -> None:
    action, room = cut(first_action(story), page.width - 7), max(page.width - used, 12)
    if not action or page.width < BESIDE_FROM:
        page.row((*head, GAP, cut(what(story), room)))
        if action:
            page.row((" " * 3, Span("do", "bold"), GAP, action))
        return
    beside = min(int(room * ACTION), columns(action))
    wrong = room - beside - len(GAP)
    page.row((*head, GAP, fitted(cut(what(story), wrong), wrong), GAP, cut(action, beside)))


def what(story: Story) -> str:
    """Return what is wrong with a run, else why nobody knows, else what became of it."""
    if story.problems:
        first = story.problems[0]
        more = f" (+{len(story.problems) - 1} more)" if len(story.problems) > 1 else ""
        return title(first) + more
    if story.open and story.verdict == "inconclusive":
        return f"open: {', '.join(question.question for question in story.open)}"
    course = flowing(became(story.outcome)) if story.outcome.what != "not_logged" else ""
    return capital(flowing(story.because)) or course or f"{count(story.checks.clear, 'check')} clear"


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
