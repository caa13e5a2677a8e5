"""Lay out styled text in lines, wrapped by terminal columns with hanging indents, and draw sparklines.

Text must be escaped already, and is never cut. A no-break space keeps words on one line and prints as a space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from unicodedata import category, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The no-break space, which keeps a number and its unit on one line.
BOUND = "\u00a0"
#: Prose is not set wider than this, because the eye loses its place in longer lines.
WIDEST = 120
NARROWEST = 40
#: Below this width labels are part of the paragraph instead of a column of their own.
LABEL_COLUMN_FROM = 72
LABEL_COLUMN = 11

_ASCII = str.maketrans(
    {"✓": "+", "✗": "!", "→": "->", "–": "-", "—": "-", "−": "-", "·": "|", "…": "...", "×": "x", "─": "-", "≤": "<="}
    | {"“": '"', "”": '"', "’": "'", "≥": ">=", "≠": "!=", "≡": "==", "±": "+/-"}
    | {block: str(level) for level, block in enumerate("▁▂▃▄▅▆▇█", start=1)}
)


@dataclass(frozen=True, slots=True)
class Span:
    """Text in one style; styles are those of rich ("bold red", "dim")."""

    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]
Text: TypeAlias = str | Span | tuple[str | Span, ...]


def spans(text: Text) -> Line:
    """Return text in any of its forms as spans."""
    parts = text if isinstance(text, tuple) else (text,)
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def columns(text: str) -> int:
    """Return the width of text in terminal columns: two for a wide East Asian character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


@lru_cache(maxsize=1024)
def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def ascii_only(text: str) -> str:
    """Return text in ASCII: known signs are replaced by similar ones, all other characters by escapes."""
    if text.isascii():
        return text
    parts = (part.translate(_ASCII).encode("ascii", "backslashreplace").decode() for part in text.split(BOUND))
    return BOUND.join(parts)


def wrap(text: Line, width: int, first: str = "", rest: str = "") -> list[Line]:
    """Return text as lines of at most `width` columns; the first begins with `first`, the others with `rest`.

    A word that is wider gets a line of its own.
    """
    lines: list[list[Span]] = [[Span(first)]]
    used, empty = columns(first), True
    for word in _words(text):
        size = sum(columns(span.text) for span in word)
        if not empty and used + 1 + size > width:
            lines.append([Span(rest)])
            used, empty = columns(rest), True
        if not empty:
            # A space is styled only between words of the same style, so that no underline extends beyond its words.
            last = lines[-1][-1].style
            lines[-1].append(Span(" ", last if last == word[0].style else ""))
            used += 1
        lines[-1].extend(word)
        used, empty = used + size, False
    return [_joined(line) for line in lines]


def _words(text: Line) -> list[list[Span]]:
    """Return the words of a line; a word has several spans if its style changes within it."""
    words: list[list[Span]] = []
    glued = False
    for span in text:
        for index, piece in enumerate(span.text.split(" ")):
            if index:
                glued = False
            if not piece:
                continue
            if glued:
                words[-1].append(Span(piece, span.style))
            else:
                words.append([Span(piece, span.style)])
            glued = True
    return words


def _joined(line: list[Span]) -> Line:
    """Return a line with neighbouring spans of the same style merged and no-break spaces replaced by spaces."""
    merged: list[Span] = []
    for span in line:
        text = span.text.replace(BOUND, " ")
        if merged and merged[-1].style == span.style:
            merged[-1] = Span(merged[-1].text + text, span.style)
        elif text:
            merged.append(Span(text, span.style))
    return tuple(merged)


@dataclass(slots=True)
class Page:
    """Lines of text under construction, `width` columns wide and on request in ASCII."""

    width: int
    ascii: bool = False
    lines: list[Line] = field(default_factory=list)

    def add(self, text: Text, indent: int = 0, hang: int = 0) -> None:
        """Add a paragraph indented by `indent` columns, its further lines by `hang` more; empty text adds nothing."""
        if not any(span.text for span in spans(text)):
            return
        self._wrap(text, " " * indent, " " * (indent + hang))

    def labelled(self, label: Text, text: Text, indent: int = 0, column: int = LABEL_COLUMN) -> None:
        """Add a paragraph with a label to its left; an empty label continues the paragraph above."""
        head = spans(label)
        size = sum(columns(span.text) for span in head)
        if self.width >= LABEL_COLUMN_FROM:
            gap = BOUND * max(column - size, 1)
            self._wrap((*head, gap, *spans(text)), " " * indent, " " * (indent + column + 2))
        else:
            gap = " " if size else BOUND * 2
            self._wrap((*head, gap, *spans(text)), " " * indent, " " * (indent + 4))

    def row(self, text: Text, indent: int = 0) -> None:
        """Add a line of a table, which never wraps."""
        unbroken = tuple(Span(span.text.replace(" ", BOUND), span.style) for span in spans(text))
        self._wrap(unbroken, " " * indent, "")

    def blank(self) -> None:
        """Add an empty line, unless the page is empty or ends with one."""
        if self.lines and self.lines[-1]:
            self.lines.append(())

    def _wrap(self, text: Text, first: str, rest: str) -> None:
        parts = spans(text)
        if self.ascii:
            parts = tuple(Span(ascii_only(span.text), span.style) for span in parts)
        self.lines.extend(wrap(parts, self.width, first, rest))

    def text(self) -> str:
        """Return the lines as text without styles."""
        return "".join("".join(span.text for span in line).rstrip() + "\n" for line in self.lines)


BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDEST = 40
#: The signs for a missing value, NaN and the two infinities.
GAP, NOT_A_NUMBER, UP, DOWN = "·", "×", "↑", "↓"


def sparkline(points: Sequence[float | None], width: int = SPARKLINE_WIDEST) -> str:
    """Return a line plot of at most `width` characters, scaled from the least to the greatest finite value.

    Each character shows the value of its stretch of records that is furthest from the median of all, so that a single
    spike stays visible; None is a missing value.
    """
    finite = sorted(p for p in points if p is not None and math.isfinite(p))
    low, high = (finite[0], finite[-1]) if finite else (0.0, 0.0)
    middle = finite[len(finite) // 2] if finite else 0.0
    size = max(1, math.ceil(len(points) / width))
    stretches = (points[start : start + size] for start in range(0, len(points), size))
    return "".join(_sign(_most_extreme(stretch, middle), low, high) for stretch in stretches)


def _most_extreme(stretch: Sequence[float | None], middle: float) -> float | None:
    """Return the first non-finite value of a stretch, or else the one furthest from `middle`, or else None."""
    values = [point for point in stretch if point is not None]
    odd = [value for value in values if not math.isfinite(value)]
    return odd[0] if odd else max(values, key=lambda value: abs(value - middle), default=None)


def _sign(point: float | None, low: float, high: float) -> str:
    if point is None:
        return GAP
    if math.isnan(point):
        return NOT_A_NUMBER
    if math.isinf(point):
        return UP if point > 0 else DOWN
    if high == low:
        return BLOCKS[0] if point == 0 else BLOCKS[3]
    return BLOCKS[min(int((point - low) / (high - low) * len(BLOCKS)), len(BLOCKS) - 1)]
