"""The bars above and below the views: verdict and run, tabs, what is supposed, and keys; each fits any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain
from ppo_doctor.report.layout import BOUND, Span, columns
from ppo_doctor.report.phrases import facts
from ppo_doctor.report.words import VERDICT_STYLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model import Verdict
    from ppo_doctor.report.layout import Line
    from ppo_doctor.tui.session import Session

VERDICT_SIGNS: Mapping[Verdict, str] = {"healthy": "✓", "warning": "!", "unhealthy": "✗", "inconclusive": "?"}
#: (key, word, action, view that has it or "", needs several runs, needs something supposed), the most wanted first.
KEYS = (
    ("w", "why", "why", "story"),
    ("f", "filter", "filter", "findings"),
    ("Enter", "suppose", "", "settings"),
    ("/", "search", "search", ""),
    ("c", "copy", "copy", ""),
    ("e", "export", "export", ""),
    ("?", "help", "help", ""),
    ("q", "quit", "leave", ""),
)
_MANY = ("[ ]", "run", "runs", "")

#: A part of a bar: its spans and what a click on it does.
Part = tuple["Line", str]


def title(session: Session, width: int) -> list[Part]:
    """Return verdict, run and what was read; what does not fit is left out, a long name from its left."""
    diagnosis = session.told
    supposed = "≈ " if session.overrides else ""
    word = f" {supposed}{VERDICT_SIGNS[diagnosis.verdict]} {diagnosis.verdict.upper()} "
    which = f"{session.index + 1}/{len(session.cases)} " if len(session.cases) > 1 else ""
    read = [fact.replace(BOUND, " ") for fact in facts(diagnosis)]
    room = width - columns(word) - columns(which) - 1
    name = plain(session.diagnosis.run.id)
    if columns(name) > room:
        name = "…" + name[-(max(room, 12) - 1) :]
    left = room - columns(name)
    kept = [" · ".join(read[start:]) for start in range(len(read))]
    about = next((f"  {text} " for text in kept if columns(text) + 3 <= left), "")
    pad = " " * max(left - columns(about), 0)
    parts: list[Part] = [((Span(word, f"{VERDICT_STYLE[diagnosis.verdict]} reverse"),), "view('story')")]
    parts.append(((Span(" ", ""), Span(which, "bold cyan"), Span(name, "bold")), "runs" if which else ""))
    return [*parts, ((Span(pad), Span(about, "dim")), "view('settings')")]


def tabs(names: Sequence[tuple[str, str]], shown: str, width: int) -> list[Part]:
    """Return the tabs; the one that is shown is reversed and stands between brackets of its own."""
    short = sum(len(words) + 5 for _, words in names) > width
    parts: list[Part] = []
    for number, (name, words) in enumerate(names, start=1):
        text = words.partition(" ")[0] if short else words
        style = "bold reverse" if name == shown else "dim"
        label = f"[{number} {text}]" if name == shown else f" {number} {text} "
        parts.append(((Span(label, style), Span(" ")), f"view('{name}')"))
    return parts


def banner(session: Session, width: int) -> list[Part]:
    """Return what is supposed, and how to go back."""
    told = ", ".join(f"{plain(name)} = {plain(str(value))}" for name, value in session.overrides.items())
    words = f" ≈ HYPOTHETICAL: {told}. This was not logged."
    back = "  x: back to what was read"
    if columns(words) + columns(back) > width:
        words = f" ≈ HYPOTHETICAL: {told}"
    return [((Span(words),), ""), ((Span(back),), "reset")]


def keys(view: str, session: Session, width: int) -> list[Part]:
    """Return the keys that matter here, as many as fit; help always does."""
    wanted = [key for key in KEYS if key[3] in ("", view)]
    if len(session.cases) > 1:
        wanted.insert(1, _MANY)
    parts: list[Part] = [((Span(" 1-5 ", "bold cyan"), Span("views ", "dim")), "")]
    used = 11
    for key, word, action, _ in wanted:
        size = columns(key) + columns(word) + 3
        if used + size > width:
            break
        parts.append(((Span(f" {key} ", "bold cyan"), Span(f"{word} ", "dim")), action))
        used += size
    return parts
