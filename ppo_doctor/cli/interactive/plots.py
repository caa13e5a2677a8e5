"""Draw plots from braille dots, eight to a character, or from ASCII."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.evidence import drawn, number
from ppo_doctor.report.layout import Span, columns
from ppo_doctor.report.layout import ascii_only as in_ascii
from ppo_doctor.report.plots import label, marks, scale, step_label, step_ticks, thin, ticks
from ppo_doctor.report.screen import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.model.diagnosis import Diagnosis
    from ppo_doctor.model.rules import Finding
    from ppo_doctor.model.run import IntArray, Run, Series
    from ppo_doctor.report.layout import Line
    from ppo_doctor.report.plots import Marks, Points, Scale

#: Dots of one character, across and down.
ACROSS, DOWN = 2, 4
_BRAILLE = 0x2800
#: The bit of each dot of a braille character: rows from the top, columns from the left.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])


class Canvas:
    """A grid of `width` × `height` characters; dots are numbered from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = np.zeros((height * DOWN, width * ACROSS), dtype=np.bool_)

    def line(self, points: Sequence[tuple[int, int]]) -> None:
        """Draw straight lines from dot to dot, (across, down); dots outside the grid are left out."""
        if not len(points):
            return
        ends = np.asarray(points, dtype=np.int64)
        starts = ends[:-1] if len(ends) > 1 else ends
        reach = ends[1:] - starts if len(ends) > 1 else np.zeros_like(ends)
        # Every line takes as many dots as it is long in its longer direction; all lines are laid out in one go.
        dots = np.maximum(np.abs(reach).max(axis=1), 1) + 1
        line = np.repeat(np.arange(len(dots)), dots)
        along = np.arange(len(line)) - np.repeat(np.cumsum(dots) - dots, dots)
        share = along / (dots[line] - 1)
        placed = np.rint(starts[line] + share[:, None] * reach[line]).astype(np.int64)
        self._fill(placed[:, 0], placed[:, 1])

    def rows(self, *, ascii_only: bool = False) -> list[str]:
        """Return the rows of characters; a character without a dot is a blank."""
        cells = self._dots.reshape(self.height, DOWN, self.width, ACROSS)
        if ascii_only:
            levels: list[list[list[bool]]] = np.moveaxis(np.any(cells, axis=3), 1, 2).tolist()
            return ["".join(map(_sign, row)) for row in levels]
        codes = (cells * _BITS[None, :, None, :]).sum(axis=(1, 3))
        return ["".join(chr(_BRAILLE + code) if code else " " for code in row) for row in codes.tolist()]

    def _fill(self, across: IntArray, down: IntArray) -> None:
        inside = (across >= 0) & (across < self._dots.shape[1]) & (down >= 0) & (down < self._dots.shape[0])
        self._dots[down[inside], across[inside]] = True


def _sign(levels: list[bool]) -> str:
    """Return an ASCII character whose height is that of the dots of a character."""
    if not any(levels):
        return " "
    if sum(levels) > 2:
        return "|"
    return ('"' if levels[0] else "-") if levels[0] or levels[1] else ("_" if levels[3] else ".")


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
        """Return the column of dots of a step; a run of one step is in the middle."""
        first, last = self.span
        share = (step - first) / (last - first) if first < last else 0.5
        return _within(share, self.width * ACROSS)

    def dot_down(self, value: float) -> int:
        """Return the row of dots of a value, from the top."""
        low, high, at = (math.log10(v) if self.axis.log else v for v in (self.axis.low, self.axis.high, value))
        # Divided by 4, because the difference of two numbers near the greatest float overflows.
        return _within(1 - (at / 4 - low / 4) / (high / 4 - low / 4), self.height * DOWN)


def _within(share: float, dots: int) -> int:
    return min(max(round(share * (dots - 1)), 0), dots - 1)


#: A cell of the picture: its sign and style.
Cells = list[list[Span]]


def plot(series: Series, span: tuple[int, int], marks: Marks, size: tuple[int, int], *, ascii_only: bool) -> list[Line]:
    """Return a plot of `size`, (columns, rows), including title and axes; no line is wider."""
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
    for line, dots in zip(cells, _drawn(points, area).rows(ascii_only=ascii_only), strict=True):
        for at, sign in enumerate(dots):
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
    """Return the axis of the steps, thick under the windows of findings."""
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
    """Return the labels of steps; a label that would touch the onset's or another is left out."""
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


def for_findings(findings: Sequence[Finding], run: Run) -> list[tuple[str, Marks]]:
    """Return the metrics in the evidence of findings with their marks, in the order of the findings."""
    names = dict.fromkeys(n for finding in findings for e in finding.evidence for n in drawn(e, run))
    return [(name, marks(name, findings, run)) for name in names]


def for_metric(diagnosis: Diagnosis, name: str, run: Run) -> Marks:
    """Return the marks of fired findings in one metric."""
    return marks(name, [finding for finding in diagnosis.findings if finding.status == "fired"], run)
