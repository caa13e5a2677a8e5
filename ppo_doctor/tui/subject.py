"""What a view is about: rows to choose from, and pages about the chosen one. Views draw subjects and know no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ppo_doctor.report.layout import Page, Span, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.report.layout import Line
    from ppo_doctor.tui.session import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One entry of a list: its name within the list, and its lines."""

    key: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Something worth copying from a page: what it is, and the text itself."""

    what: str
    text: str


class Subject(Protocol):
    """One of the five views of a report."""

    #: the word on its tab
    title: str
    #: True where a page is read from a file, and so made in the background
    slow: bool

    def rows(self, query: str, width: int) -> list[Row]:
        """Return the entries that fit a query, the best first."""

    def page(self, key: str, frame: Frame) -> list[Line]:
        """Return the page about an entry; an empty key means that there is none."""

    def plots(self, key: str, frame: Frame) -> list[Line]:
        """Return the pictures that belong to an entry, for a pane of their own."""

    def copies(self, key: str) -> Sequence[Copy]:
        """Return what can be copied from the page about an entry."""


#: Prose is not set wider than this: longer lines are hard to come back from.
WIDEST = 110


def page_of(frame: Frame) -> Page:
    """Return an empty page as wide as a frame, or as prose should be."""
    return Page(width=min(frame.width, WIDEST), ascii=frame.ascii)


def folded(lines: Sequence[Line], width: int) -> list[Line]:
    """Return lines no wider than this; a word that is, such as a path, goes on in the next line."""
    return [piece for line in lines for piece in _folded(line, width)]


def _folded(line: Line, width: int) -> list[Line]:
    if sum(columns(span.text) for span in line) <= width:
        return [line]
    pieces: list[list[Span]] = [[]]
    room = width
    for span in line:
        text = ""
        for character in span.text:
            size = columns(character)
            if size > room:
                pieces[-1].append(Span(text, span.style))
                pieces.append([])
                text, room = "", width
            text, room = text + character, room - size
        pieces[-1].append(Span(text, span.style))
    return [tuple(piece) for piece in pieces]


def cut(text: str, width: int) -> str:
    """Return one line of a table cell, with an ellipsis where it does not fit."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def heading(page: Page, text: str, note: str = "") -> None:
    """Begin a part of a page."""
    page.blank()
    page.add((Span(text, "bold underline"), Span(f"  {note}" if note else "", "dim")))


def nothing(frame: Frame, text: str) -> list[Line]:
    """Return a page that says why it is empty."""
    page = page_of(frame)
    page.add(Span(text, "dim"))
    return page.lines
