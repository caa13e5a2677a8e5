"""One metric over the steps of a run, drawn with characters: the line, bounds, windows that offend, and the onset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.evidence import number
from ppo_doctor.report.layout import Span, columns
from ppo_doctor.report.layout import ascii_only as in_ascii
from ppo_doctor.report.plots import label, scale, step_label, step_ticks, thin, ticks
from ppo_doctor.report.screen import key_of
from ppo_doctor.tui.canvas import ACROSS, DOWN, Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model import Series
    from ppo_doctor.report.layout import Line
    from ppo_doctor.report.plots import Marks, Points, Scale

#: Rows around the data: the title above; the axis and its labels below.
AROUND = 3
#: Styles; each mark has a shape of its own, too, for terminals without colour.
DATA, OFFENDS, BOUND, ONSET, AXIS, ODD = "cyan", "bold red", "yellow", "bold magenta", "dim", "bold red"
_NARROWEST = 12
#: Columns for the labels of values, so that plots below one another share their axis of steps.
LEAST_GUTTER = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Where data goes: characters across and down, the steps across, and the axis of values."""

    width: int
    height: int
    span: tuple[int, int]
    axis: Scale

    def across(self, step: int) -> int:
        """Return the column of a step."""
        return self.dot_across(step) // ACROSS

    def down(self, value: float) -> int:
        """Return the row of a value, from the top."""
        return self.dot_down(value) // DOWN

    def dot_across(self, step: int) -> int:
        """Return the column of dots of a step; a run of one step stands in the middle."""
        first, last = self.span
        share = (step - first) / (last - first) if first < last else 0.5
        return _within(share, self.width * ACROSS)

    def dot_down(self, value: float) -> int:
        """Return the row of dots of a value, from the top."""
        low, high, at = (math.log10(v) if self.axis.log else v for v in (self.axis.low, self.axis.high, value))
        # Quarters: the span of two numbers near the greatest float is not a float.
        return _within(1 - (at / 4 - low / 4) / (high / 4 - low / 4), self.height * DOWN)


def _within(share: float, dots: int) -> int:
    return min(max(round(share * (dots - 1)), 0), dots - 1)


#: A cell of the picture: its sign and style.
Cells = list[list[Span]]


def plot(series: Series, span: tuple[int, int], marks: Marks, size: tuple[int, int], *, ascii_only: bool) -> list[Line]:
    """Return a picture of `size`, (columns, rows), its title and its axes included; nothing is wider than that."""
    width, height = max(size[0], _NARROWEST + 8), max(size[1] - AROUND, 2)
    points = thin(series, span, columns=width * ACROSS)
    axis = scale(points.values, marks.bounds)
    names = _value_labels(axis, marks, height)
    if ascii_only:  # before anything is measured: a stand-in may be wider than its sign
        names = {row: (in_ascii(name), style) for row, (name, style) in names.items()}
    gutter = max([LEAST_GUTTER, *(columns(name) for name, _ in names.values())]) + 1
    area = Area(width=width - gutter - 1, height=height, span=span, axis=axis)
    cells = _cells(points, marks, area, ascii_only=ascii_only)
    rows = [_row(names.get(i, ("", "")), gutter, line) for i, line in enumerate(cells)]
    return [_title(series, width), *rows, _base(marks, area, gutter), _step_labels(marks, area, gutter)]


def _title(series: Series, width: int) -> Line:
    name = key_of(series.name, series.raw)
    odd = int((~np.isfinite(series.values)).sum())
    facts = [series.unit, f"last {number(float(series.values[-1]))}" if len(series) else "no record"]
    facts += [f"{odd} of {len(series)} not finite"] if odd else []
    about = "  " + " · ".join(fact for fact in facts if fact)
    room = width - columns(name)
    return (Span(name, "bold"), Span(about if columns(about) <= room else "", "dim"))


def _value_labels(axis: Scale, marks: Marks, height: int) -> dict[int, tuple[str, str]]:
    """Return row → (label, style): round values, and over them the bounds with their signs."""
    area = Area(width=1, height=height, span=(0, 1), axis=axis)
    values = ticks(axis, most=max(2, min(5, height // 2)))
    step = values[1] - values[0] if len(values) > 1 and not axis.log else 0.0
    size = max(map(abs, values), default=0.0)
    names = {area.down(value): (label(value, step, size), AXIS) for value in values}
    for mark in marks.bounds:
        if axis.holds(mark.value):
            names[area.down(mark.value)] = f"{mark.op}{number(mark.value)}", BOUND
        else:
            above = mark.value > axis.high
            names[0 if above else height - 1] = f"{'↑' if above else '↓'}{mark.op}{number(mark.value)}", BOUND
    return names


def _cells(points: Points, marks: Marks, area: Area, *, ascii_only: bool) -> Cells:
    """Return the picture: the line over the onset over the bounds, then columns without a finite value."""
    cells = [[Span(" ")] * area.width for _ in range(area.height)]
    for mark in marks.bounds:
        if area.axis.holds(mark.value):
            cells[area.down(mark.value)] = [Span("╌", BOUND)] * area.width
    if _shown(marks.onset, area.span):
        at = area.across(marks.onset or 0)
        for line in cells:
            line[at] = Span("┊", ONSET)
    offends = _offending(marks, area)
    for line, drawn in zip(cells, _drawn(points, area).rows(ascii_only=ascii_only), strict=True):
        for at, sign in enumerate(drawn):
            if sign != " ":
                line[at] = Span(sign, OFFENDS if at in offends else DATA)
    for first, last, _ in points.odd:
        for at in range(area.across(first), area.across(last) + 1):
            cells[-1][at] = Span("×", ODD)
    return cells


def _drawn(points: Points, area: Area) -> Canvas:
    canvas = Canvas(area.width, area.height)
    across = [area.dot_across(step) for step in points.steps.tolist()]
    down = [area.dot_down(value) for value in points.values.tolist()]
    dots = list(zip(across, down, strict=True))
    starts = [*np.flatnonzero(points.breaks).tolist(), len(dots)]
    for first, last in pairwise(starts):
        canvas.line(dots[first:last])
    return canvas


def _offending(marks: Marks, area: Area) -> set[int]:
    return {at for first, last in marks.windows for at in range(area.across(first), area.across(last) + 1)}


def _shown(step: int | None, span: tuple[int, int]) -> bool:
    return step is not None and span[0] <= step <= span[1]


def _row(name: tuple[str, str], gutter: int, cells: Sequence[Span]) -> Line:
    words, style = name
    edge = "┤" if words else "│"
    return (Span(" " * (gutter - columns(words) - 1) + words + " ", style), Span(edge, AXIS), *_merged(cells))


def _merged(cells: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for cell in cells:
        if merged and merged[-1].style == cell.style:
            merged[-1] = Span(merged[-1].text + cell.text, cell.style)
        else:
            merged.append(cell)
    return merged


def _base(marks: Marks, area: Area, gutter: int) -> Line:
    """Return the axis of the steps, thick under windows that offend."""
    offends = _offending(marks, area)
    cells = [Span("━", OFFENDS) if at in offends else Span("─", AXIS) for at in range(area.width)]
    for step in step_ticks(area.span, most=_most(area)):
        at = area.across(step)
        if at not in offends:
            cells[at] = Span("┴", AXIS)
    if _shown(marks.onset, area.span):
        cells[area.across(marks.onset or 0)] = Span("▲", ONSET)
    return (Span(" " * gutter + "└", AXIS), *_merged(cells))


def _most(area: Area) -> int:
    return max(2, min(6, area.width // 12))


def _step_labels(marks: Marks, area: Area, gutter: int) -> Line:
    """Return the labels of steps, the onset's first; a label that would touch another is left out."""
    wanted = [(step, step_label(step), AXIS) for step in step_ticks(area.span, most=_most(area))]
    if marks.onset is not None and _shown(marks.onset, area.span):
        wanted.insert(0, (marks.onset, f"onset {step_label(marks.onset)}", ONSET))
    placed: list[tuple[int, str, str]] = []
    for step, words, style in wanted:
        at = min(max(area.across(step) - len(words) // 2, 0), area.width - len(words))
        if at >= 0 and all(at + len(words) < start or at > start + len(other) for start, other, _ in placed):
            placed.append((at, words, style))
    line, used = [Span(" " * (gutter + 1))], 0
    for at, words, style in sorted(placed):
        line += [Span(" " * (at - used)), Span(words, style)]
        used = at + len(words)
    return tuple(line)
