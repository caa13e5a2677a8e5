"""The top of a page: verdict, cause, why and what to do first; the signal chain; the table of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.evidence import number
from ppo_doctor.model import ASKED, CHAIN, QUESTIONS
from ppo_doctor.report.html_markup import NOTHING, Markup, code, el, join, row, table, text
from ppo_doctor.report.plots import small
from ppo_doctor.report.standings import in_favour
from ppo_doctor.report.words import (
    MARK_KEY,
    MARKS,
    entry_says,
    flowing,
    remedy_says,
    run_facts,
    sentence,
    titles,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import ChainLink, Diagnosis, LinkState, RankedCause, Run, Verdict

VERDICT_MARKS: Mapping[Verdict, str] = {"healthy": "✓", "warning": "!", "unhealthy": "✗", "inconclusive": "?"}

#: The signal within one link of the chain, 100 wide and 40 high: a beat, none, or nothing known.
TRACES: Mapping[LinkState, str] = {
    "alive": "M0 20H30L35 16L41 26L48 4L56 36L62 14L67 20H100",
    "weak": "M0 20H42L47 16L52 24L57 20H100",
    "wrong": "M0 20H20L35 36L50 4L65 36L80 4L90 20H100",
    "dead": "M0 20H100",
    "unknown": "M0 20H100",
}
#: What a line of the table of runs draws: the first that a run has.
REWARDS = ("reward_mean", "episode_return")
#: With more runs than this, the table is one of words.
MOST_COURSES = 200
#: A verdict that names several causes is set smaller.
LONG_LEAD = 110


def badge(verdict: Verdict) -> Markup:
    """Return a verdict's word with its sign."""
    mark = el("span", text(VERDICT_MARKS[verdict]), cls="mark", aria_hidden="true")
    return el("span", mark, text(f" {verdict}"), cls=f"badge {verdict}")


def leaders(diagnosis: Diagnosis) -> list[RankedCause]:
    """Return the causes that lead a complaint, faults before harmless explanations."""
    return sorted((c for c in diagnosis.causes if c.leader), key=lambda cause: cause.benign)


def hero(diagnosis: Diagnosis, prefix: str, level: int) -> Markup:
    """Return what the first screen has to answer; `level` is that of its heading."""
    because = sentence(diagnosis.verdict_because)
    lead = el("p", text(because), cls="lead long" if len(because) > LONG_LEAD else "lead")
    title = el(f"h{level}", badge(diagnosis.verdict), id=f"{prefix}verdict")
    name = el("p", text(diagnosis.run.id, 300), cls="run-id", id=f"{prefix}run")
    facts = el("ul", *(el("li", text(fact)) for fact in run_facts(diagnosis.run)), cls="facts", aria_label="The run")
    ahead = leaders(diagnosis)
    said = el("div", name, title, lead, _why(diagnosis, ahead[:1]), facts, cls="said-first")
    return el("div", said, _do_first(diagnosis, ahead[:1], level + 1), cls=f"hero {diagnosis.verdict}")


def _why(diagnosis: Diagnosis, ahead: Sequence[RankedCause]) -> Markup:
    """Return what the leading cause means for the run and the weightiest number that speaks for it."""
    if not ahead:
        return NOTHING
    cause = ahead[0]
    heaviest = next(iter(in_favour(cause)), None)
    pieces = [el("p", text(sentence(cause.says)))] if cause.says else []
    if heaviest is not None:
        evidence = text(sentence(entry_says(heaviest, titles(diagnosis))))
        pieces.append(el("p", el("strong", text("How we know: ")), evidence))
    return el("div", *pieces, cls="why")


def _do_first(diagnosis: Diagnosis, ahead: Sequence[RankedCause], level: int) -> Markup:
    heading, steps = _advice(diagnosis, ahead)
    if not steps:
        return NOTHING
    listed = el("ol", *(el("li", text(step)) for step in steps))
    return el("div", el(f"h{level}", text(heading)), listed, cls="first-aid")


def _advice(diagnosis: Diagnosis, ahead: Sequence[RankedCause]) -> tuple[str, list[str]]:
    """Return a heading and what to do: remedies of the leading cause, or what keeps questions open."""
    if ahead:
        chosen = ahead[0].remedies
        heading = "What to do" if ahead[0].benign else "Do this first"
        return heading, [remedy_says(remedy) for remedy in chosen]
    return ("What keeps it open", _open_questions(diagnosis)) if diagnosis.verdict == "inconclusive" else ("", [])


def _open_questions(diagnosis: Diagnosis) -> list[str]:
    """Return each open question with the reason that a reader can do most about, and the checks that failed to run."""
    asked = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    reasons = {question: diagnosis.coverage.unanswered.get(question, ()) for question in asked}
    failed = (f"{name} failed to run: {why}" for name, why in diagnosis.coverage.failed.items())
    return [*(sentence(f"{ASKED[q]}: {_nearest(reasons[q])}") for q in asked), *map(sentence, failed)]


def _nearest(reasons: Sequence[str]) -> str:
    """Return the reason that is nearest to an answer: too few records, then a metric that is not logged."""
    for wanted in ("are needed", "needs"):
        if found := next((reason for reason in reasons if wanted in reason), None):
            return found
    return next(iter(reasons), "no check applies to this kind of input")


def chain(diagnosis: Diagnosis) -> Markup:
    """Return the signal chain as a picture, the side links beneath, and what shows each state."""
    main = [link for link in diagnosis.chain if link.link in CHAIN]
    beside = [link for link in diagnosis.chain if link.link not in CHAIN and link.state != "unknown"]
    picture = el("ol", *(_node(link) for link in main), cls="chain", aria_label="Signal chain, from reward to ratio")
    side = el("ul", *(_node(link) for link in beside), cls="chain side", aria_label="Beside the chain")
    key = f"{MARK_KEY}, which is not the same as alive"
    pieces = (picture, side if beside else NOTHING, el("p", text(key), cls="quiet"), _shown(diagnosis.chain))
    return join(pieces)


def _node(link: ChainLink) -> Markup:
    mark = el("span", text(MARKS[link.state]), cls="mark", aria_hidden="true")
    name = el("span", text(link.link), cls="name")
    state = el("span", mark, text(f" {_state(link)}"), cls="state")
    return el("li", _trace(link.state), name, state, cls=f"link {link.state}")


def _state(link: ChainLink) -> str:
    return "not logged" if link.state == "unknown" else link.state


def _trace(state: LinkState) -> Markup:
    """Return the link's stretch of one line that runs through the whole chain and shows where the signal dies."""
    shape = {"viewBox": "0 0 100 40", "preserveAspectRatio": "none", "aria_hidden": "true", "focusable": "false"}
    return el("svg", el("path", d=TRACES[state]), cls="trace", **shape)


def _shown(links: Sequence[ChainLink]) -> Markup:
    told = [link for link in links if link.witness]
    if not told:
        return NOTHING
    rows = (row(link.link, _state(link), flowing(link.witness or "")) for link in told)
    title = "What shows the state of each link"
    return el(
        "details", el("summary", text(title)), table(("Link", "State", "What shows it"), rows, title), cls="states"
    )


def summary(diagnoses: Sequence[Diagnosis], runs: Sequence[Run | None], prefixes: Sequence[str | None]) -> Markup:
    """Return one line per run: its name, verdict, leading cause, and the course of its reward."""
    drawn = runs if len(runs) <= MOST_COURSES else [None] * len(runs)
    rows = (_run_row(*row) for row in zip(diagnoses, drawn, prefixes, strict=True))
    heads = ("Run", "Verdict", "Leading cause", "Reward")
    return table(heads, rows, "Every run with its verdict, leading cause and reward", cls="runs")


def _run_row(diagnosis: Diagnosis, run: Run | None, prefix: str | None) -> Markup:
    words = text(diagnosis.run.id, 300)
    name = words if prefix is None else el("a", words, href=f"#{prefix}verdict")
    cells = (badge(diagnosis.verdict), _leading(diagnosis), _course(run))
    return el("tr", el("th", name, scope="row"), *(el("td", cell) for cell in cells), cls="filtered")


def _course(run: Run | None) -> Markup:
    """Return the course of the reward over the run, the one number that every run has in common."""
    name = next((name for name in REWARDS if run and name in run.series and len(run.series[name])), None)
    if run is None or run.steps is None or name is None:
        return el("span", text("not logged" if run else "not drawn"), cls="quiet")
    series = run.series[name]
    first, last = number(series.values[0]), number(series.values[-1])
    picture = small(series, run.steps, f"{series.raw} from {first} to {last}")
    return join((picture, el("span", text(f"{first} → {last}"), cls="quiet")))


def _leading(diagnosis: Diagnosis) -> Markup:
    ahead = leaders(diagnosis)
    if ahead:
        level = f", {ahead[0].confidence}" + (f" (+{len(ahead) - 1} more)" if len(ahead) > 1 else "")
        return join((code(ahead[0].id), text(level)))
    if diagnosis.verdict == "healthy":
        return text("nothing found")
    unasked = [question for question in QUESTIONS if not getattr(diagnosis.coverage, question)]
    unasked += diagnosis.coverage.failed
    return text(f"open: {', '.join(unasked)}" if diagnosis.verdict == "inconclusive" else "no known cause")
