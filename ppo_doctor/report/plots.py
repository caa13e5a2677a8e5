"""Line plots of metrics as inline SVG with a few hundred points at most; spikes, gaps and infinities stay visible.

Only the line itself stretches with the page. Labels, windows, bounds and the onset are placed by percentages of the
width, so that text keeps its size.
"""

from __future__ import annotations

import math
from itertools import pairwise
from sys import float_info
from typing import TYPE_CHECKING

from ppo_doctor.model.evidence import drawn, number
from ppo_doctor.model.frozen import frozen
from ppo_doctor.report.html_markup import Markup, el, join, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.model.rules import Evidence, Finding
    from ppo_doctor.model.run import BoolArray, FloatArray, IntArray, Run, Series

#: The columns of a plot. Each keeps its least and greatest value, so a line has at most twice as many points.
COLUMNS = 400
#: Sizes in pixels: space above the data for labels, height of the data, space below for steps, width of value labels.
HEAD, HEIGHT, FOOT, GUTTER = 22, 118, 26, 60
#: Positive values get a logarithmic axis if the greatest is more than this many times the least.
LOG_FROM = 1000.0
#: A bound further away than this many times the range of the data is only named at the edge, not drawn to scale.
FAR = 2.0
SIGNS: Mapping[str, str] = {"==": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥"}
_COMPARED = {
    "==": "__eq__",
    "!=": "__ne__",
    "<": "__lt__",
    "<=": "__le__",
    ">": "__gt__",
    ">=": "__ge__",
}
_WIDTH = 1000
_GREATEST = float_info.max


@frozen
class Mark:
    """A bound that a metric was compared with; `op` is a mathematical sign such as "≤"."""

    op: str
    value: float


@frozen
class Marks:
    """The marks of a plot: the onset, the windows of the evidence, and the bounds."""

    onset: int | None = None
    #: the label of the onset
    began: str = "onset"
    windows: tuple[tuple[int, int], ...] = ()
    bounds: tuple[Mark, ...] = ()


@frozen(eq=False)
class Points:
    """The points of a series that are drawn, in the order of steps.

    `steps`, `values` and `breaks` have shape [points]; `breaks` is True where no line leads to a point.
    `odd` has a tuple (first step, last step, sign) for each stretch of records that are not finite.
    """

    steps: IntArray
    values: FloatArray
    breaks: BoolArray
    odd: tuple[tuple[int, int, str], ...] = ()


@frozen
class Scale:
    """The axis of the values, from bottom to top."""

    low: float
    high: float
    log: bool = False

    def y(self, value: float) -> float:
        """Return the height of a value in pixels from the top of the plot."""
        return HEAD + HEIGHT * (1 - _share(*(self._axis(v) for v in (value, self.low, self.high))))

    def holds(self, value: float) -> bool:
        """Return whether a value is within this axis."""
        return self.low <= value <= self.high

    def _axis(self, value: float) -> float:
        return math.log10(value) if self.log else value


def _share(value: float, low: float, high: float) -> float:
    # Divided by 4, because the difference of two numbers near the greatest float overflows.
    return (value / 4 - low / 4) / (high / 4 - low / 4)


def thin(series: Series, span: tuple[int, int], columns: int = COLUMNS) -> Points:
    """Return the points to draw for a series: all finite ones, or the extremes of each column if there are too many.

    `span` is the first and last step of the plot.
    """
    import numpy as np

    steps, values = series.axis.steps, series.values
    finite = np.isfinite(values)
    kept = np.flatnonzero(finite)
    if len(kept) > 2 * columns:
        kept = kept[_extremes(values[kept], _column(steps[kept], span, columns))]
    before = np.cumsum(~finite)[kept]
    breaks = np.ones(len(kept), dtype=np.bool_)
    breaks[1:] = before[1:] != before[:-1]
    return Points(steps=steps[kept], values=values[kept], breaks=breaks, odd=_odd(steps, values, span, columns))


def _column(steps: IntArray, span: tuple[int, int], columns: int) -> IntArray:
    import numpy as np

    width = max(span[1] - span[0], 1)
    place = (steps - span[0]).astype(np.float64) / width * columns
    return np.clip(place.astype(np.int64), 0, columns - 1)


def _extremes(values: FloatArray, column: IntArray) -> IntArray:
    """Return the positions of each column's least and greatest value, in order; the columns are sorted."""
    import numpy as np

    # A loop over a few hundred slices takes a tenth of the time of sorting a million values.
    edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
    stretches = [(start, values[start:stop]) for start, stop in pairwise(edges)]
    return np.unique([start + int(pick(part)) for start, part in stretches for pick in (np.argmin, np.argmax)])


def _odd(steps: IntArray, values: FloatArray, span: tuple[int, int], columns: int) -> tuple[tuple[int, int, str], ...]:
    """Return the stretches of non-finite values as (first step, last step, sign); those that would touch are merged."""
    import numpy as np

    odd: list[tuple[int, int, str]] = []
    signs = (("NaN", np.isnan(values)), ("+∞", np.isposinf(values)), ("−∞", np.isneginf(values)))
    for sign, mask in signs:
        places = np.flatnonzero(mask)
        if not len(places):
            continue
        column = _column(steps[places], span, columns)
        splits = np.flatnonzero((np.diff(places) > 1) & (np.diff(column) > 1)) + 1
        odd += [(int(steps[part[0]]), int(steps[part[-1]]), sign) for part in np.split(places, splits)]
    return tuple(sorted(odd))


def scale(values: FloatArray, bounds: Sequence[Mark] = ()) -> Scale:
    """Return an axis for finite values and the bounds near them; logarithmic if they are positive and far apart."""
    if not len(values):
        return Scale(low=0.0, high=1.0)
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / LOG_FROM > low:
        return _log_scale(low, high, bounds)
    reach = (high / 2 - low / 2) * 2 * FAR if high > low else max(abs(high), 1e-12) * FAR
    near = [b.value for b in bounds if low - reach <= b.value <= high + reach]
    return _padded(min([low, *near]), max([high, *near]))


def _log_scale(low: float, high: float, bounds: Sequence[Mark]) -> Scale:
    near = [b.value for b in bounds if low / LOG_FROM <= b.value <= high * LOG_FROM]
    low, high = min([low, *near]), max([high, *near])
    return Scale(low=low / 1.5, high=min(high * 1.5, _GREATEST), log=True) if low / 1.5 > 0 else _padded(low, high)


def _padded(low: float, high: float) -> Scale:
    margin = (high / 2 - low / 2) * 0.12 or abs(high) * 0.1 or 1.0
    # A margin that is lost in rounding or overflows would leave an axis of no length.
    low, high = max(low - margin, -_GREATEST), min(high + margin, _GREATEST)
    return Scale(low=low, high=high) if high / 4 - low / 4 > 0 else Scale(low=low - 1.0, high=high + 1.0)


def ticks(axis: Scale, most: int = 5) -> list[float]:
    """Return round values for the ticks of an axis, about `most` at most."""
    if axis.log:
        return _decades(axis, most)
    step = _round_step(axis.high / most - axis.low / most)
    first, last = math.ceil(axis.low / step), math.floor(axis.high / step)
    return [i * step for i in range(first, last + 1)] if last - first <= 3 * most else [axis.low, axis.high]


def _decades(axis: Scale, most: int) -> list[float]:
    first, last = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
    every = max(1, math.ceil((last - first + 1) / most))
    return [10.0**exponent for exponent in range(first, last + 1, every)]


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999))


def label(value: float, step: float = 0.0, size: float = 0.0) -> str:
    """Return the label of a tick, with as many digits as neighbouring ticks need to differ.

    `step` is the distance between ticks, or 0 if there is none. `size` is the greatest absolute value of all ticks, so
    that they all get the same format.
    """
    size = max(abs(value), step, size)
    if value == 0:
        return "0"
    if not step:
        return number(value) if 0.001 <= abs(value) < 100_000 else _exponent(f"{value:.3g}")
    if size >= 100_000 or size < 0.001:
        digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(step) + 1e-9)
        return _exponent(f"{value:.{min(max(digits, 0), 4)}e}")
    return f"{value:.{min(max(0, -math.floor(math.log10(step) + 1e-9)), 6)}f}"


def _exponent(written: str) -> str:
    """Return a number without a plus sign and leading zeros in its exponent: "1e-7" for "1e-07"."""
    mantissa, e, exponent = written.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def step_label(step: int) -> str:
    """Return a step with the suffix k, M or G if it then has at most two decimals, else in full."""
    for unit, sign in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(step) >= unit and step % (unit // 100) == 0:
            return f"{step / unit:.12g}{sign}"
    return str(step)


def step_ticks(span: tuple[int, int], most: int = 6) -> list[int]:
    """Return round steps within a span, about `most` at most."""
    if span[0] == span[1]:
        return [span[0]]
    step = max(1, round(_round_step((span[1] - span[0]) / most)))
    return list(range(-(-span[0] // step) * step, span[1] + 1, step))


def plot(
    series: Series,
    span: tuple[int, int],
    marks: Marks,
    title: str,
    columns: int = COLUMNS,
    other: Series | None = None,
) -> Markup:
    """Return the plot of a metric over a span of steps: a picture with the labels of values, and one with the data.

    `other` is the same metric of another run, drawn on the same axes.
    """
    import numpy as np

    points = thin(series, span, columns)
    other_points = [] if other is None else [thin(other, span, columns)]
    axis = scale(np.concatenate([points.values, *(each.values for each in other_points)]), marks.bounds)
    data = el(
        "svg",
        _grid(axis),
        *(_window(window, span) for window in marks.windows),
        *(_odd_band(band, span) for each in (points, *other_points) for band in each.odd),
        _bounds(marks.bounds, axis),
        *(_line(each, axis, span, "line other") for each in other_points),
        _line(points, axis, span),
        _onset(marks, span),
        *_steps(span),
        cls="data",
        role="img",
        aria_label=title,
        width="100%",
        height=str(HEAD + HEIGHT + FOOT),
    )
    # The script of the page reads these attributes to show values under the pointer.
    shown = " ".join(f"{step},{value:.5g}" for step, value in zip(points.steps, points.values, strict=True))
    read_out = f"{span[0]} {span[1]} {axis.low:.6g} {axis.high:.6g} {'log' if axis.log else 'linear'}"
    return el("div", _labels(axis), data, cls="plot", data_axis=read_out, data_points=shown)


def _percent(step: int, span: tuple[int, int]) -> float:
    return 100 * (step - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 50.0


def _labels(axis: Scale) -> Markup:
    values = ticks(axis)
    step = values[1] - values[0] if len(values) > 1 and not axis.log else 0.0
    size = max(map(abs, values), default=0.0)
    words = (
        el("text", text(label(v, step, size)), x=str(GUTTER - 8), y=f"{axis.y(v) + 4:.1f}", text_anchor="end")
        for v in values
    )
    shape = {"width": str(GUTTER), "height": str(HEAD + HEIGHT + FOOT)}
    return el("svg", *words, cls="values", aria_hidden="true", focusable="false", **shape)


def _grid(axis: Scale) -> Markup:
    rows = (f"{axis.y(value):.1f}" for value in ticks(axis))
    return join(el("line", cls="grid", x1="0", x2="100%", y1=y, y2=y) for y in rows)


def _line(points: Points, axis: Scale, span: tuple[int, int], cls: str = "line") -> Markup:
    path = el("path", cls=cls, d=_path(points, axis, span))
    shape = {"viewBox": f"0 0 {_WIDTH} {HEAD + HEIGHT + FOOT}", "preserveAspectRatio": "none"}
    return el("svg", path, cls="stretch", width="100%", height="100%", **shape)


def small(series: Series, span: tuple[int, int], title: str, columns: int = 60, *, onset: int | None = None) -> Markup:
    """Return the plot of a metric as a small line for use within text, without axes; a bar marks the onset."""
    points = thin(series, span, columns)
    path = el("path", cls="line", d=_path(points, scale(points.values), span))
    if onset is not None:
        at = f"{_percent(onset, span) * _WIDTH / 100:.4g}"
        path = join((el("line", cls="onset", x1=at, x2=at, y1=str(HEAD), y2=str(HEAD + HEIGHT)), path))
    shape = {"viewBox": f"0 {HEAD} {_WIDTH} {HEIGHT}", "preserveAspectRatio": "none"}
    return el("svg", path, cls="small", role="img", aria_label=title, **shape)


def _path(points: Points, axis: Scale, span: tuple[int, int]) -> str:
    """Return the path of a line; an isolated point becomes a line of no length, which round ends make a dot."""
    pieces = []
    last = len(points.steps) - 1
    rows = zip(points.steps.tolist(), points.values.tolist(), points.breaks.tolist(), strict=True)
    for i, (step, value, starts) in enumerate(rows):
        place = f"{_percent(step, span) * _WIDTH / 100:.4g} {axis.y(value):.1f}"
        alone = starts and (i == last or points.breaks[i + 1])
        pieces.append(f"{'M' if starts else 'L'}{place}{'h0' if alone else ''}")
    return "".join(pieces)


def _window(window: tuple[int, int], span: tuple[int, int]) -> Markup:
    left, right = (_percent(min(max(step, span[0]), span[1]), span) for step in window)
    place = {"x": f"{left:.2f}%", "width": f"{max(right - left, 0.4):.2f}%"}
    shade = el("rect", cls="window", y=str(HEAD), height=str(HEIGHT), **place)
    return join((shade, el("rect", cls="window-edge", y=str(HEAD + HEIGHT), height="4", **place)))


def _odd_band(band: tuple[int, int, str], span: tuple[int, int]) -> Markup:
    left, right = _percent(band[0], span), _percent(band[1], span)
    place = {"x": f"{left:.2f}%", "width": f"{max(right - left, 0.5):.2f}%"}
    anchor, x = _side((left + right) / 2)
    row = HEAD + 13 if band[2] == "+∞" else HEAD + HEIGHT - 8
    name = el("text", text(band[2]), cls="odd-label", x=f"{x:.2f}%", y=str(row), text_anchor=anchor)
    # The hatch distinguishes the band from a window in grey print, too.
    hatched = el("rect", cls="odd", y=str(HEAD), height=str(HEIGHT), fill="url(#hatch)", **place)
    return join((hatched, name if right - left > 6 or band[2] != "NaN" else Markup("")))


def _side(percent: float) -> tuple[str, float]:
    """Return the text anchor that keeps a label at this percentage inside the picture, and the percentage."""
    if percent < 12:
        return "start", percent
    return ("end", percent) if percent > 88 else ("middle", percent)


def _bounds(marks: Sequence[Mark], axis: Scale) -> Markup:
    """Return a line for every bound within the axis, one label for bounds that are close, and notes on the rest."""
    groups: list[list[Mark]] = []
    for mark in sorted((m for m in marks if axis.holds(m.value)), key=lambda m: m.value):
        if groups and axis.y(groups[-1][0].value) - axis.y(mark.value) < 15:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    far = (_far_bound(mark, axis) for mark in marks if not axis.holds(mark.value))
    return join((*(_bound(group, axis) for group in groups), *far))


def _bound(group: Sequence[Mark], axis: Scale) -> Markup:
    heights = [axis.y(mark.value) for mark in group]
    lines = (el("line", cls="bound", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}") for y in heights)
    words = f"bound{'s' * (len(group) > 1)}: {', '.join(f'{mark.op} {number(mark.value)}' for mark in group)}"
    top = min(heights)
    row = f"{max(heights) + 14 if top < HEAD + 20 else top - 5:.1f}"
    return join((*lines, el("text", text(words), cls="bound-label", x="99.5%", y=row, text_anchor="end")))


def _far_bound(mark: Mark, axis: Scale) -> Markup:
    above = mark.value > axis.high
    note = f"{'↑' if above else '↓'} bound {mark.op} {number(mark.value)} is {'above' if above else 'below'} this axis"
    row = HEAD + 13 if above else HEAD + HEIGHT - 8
    return el("text", text(note), cls="bound-label", x="99.5%", y=str(row), text_anchor="end")


def _onset(marks: Marks, span: tuple[int, int]) -> Markup:
    onset = marks.onset
    if onset is None or not span[0] <= onset <= span[1]:
        return Markup("")
    at = _percent(onset, span)
    x = f"{at:.2f}%"
    line = el("line", cls="onset", x1=x, x2=x, y1=str(HEAD - 4), y2=str(HEAD + HEIGHT))
    anchor, _ = _side(at)
    return join(
        (line, el("text", text(f"{marks.began}: step {onset}"), cls="onset-label", x=x, y="12", text_anchor=anchor))
    )


def _steps(span: tuple[int, int]) -> list[Markup]:
    """Return ticks and labels of the step axis; the class of every second label hides it on narrow screens."""
    ticks_ = []
    for i, step in enumerate(step_ticks(span)):
        at = _percent(step, span)
        x = f"{at:.2f}%"
        narrow = "tick minor" if i % 2 else "tick"
        ticks_.append(el("line", cls="grid", x1=x, x2=x, y1=str(HEAD + HEIGHT), y2=str(HEAD + HEIGHT + 5)))
        words = text(step_label(step))
        ticks_.append(el("text", words, cls=narrow, x=x, y=str(HEAD + HEIGHT + 20), text_anchor="middle"))
    return ticks_


def marks(name: str, findings: Sequence[Finding], run: Run) -> Marks:
    """Return the marks of a metric: the onset, windows and bounds of the findings about it, the weightiest first."""
    series = run.series[name]
    evidence = [e for finding in findings for e in finding.evidence if name in drawn(e, run)]
    bounds = [Mark(op=SIGNS[e.op], value=e.bound) for e in evidence if bound_applies(e, series)]
    # The windows of lesser findings would only blur those of the weightiest one.
    windows = next((w for finding in findings if (w := _windows(finding, name, run))), ())
    concerned = (f for f in findings if any(name in drawn(e, run) for e in f.evidence))
    onset = next((f.onset_step for f in concerned if f.onset_step is not None), None)
    return Marks(onset=onset, windows=tuple(_merged(windows)), bounds=tuple(dict.fromkeys(bounds)))


def _windows(finding: Finding, name: str, run: Run) -> tuple[tuple[int, int], ...]:
    """Return the steps of a fired finding's evidence about a metric."""
    if finding.status != "fired":
        return ()
    return tuple(e.steps for e in finding.evidence if e.steps and e.satisfied and name in drawn(e, run))


def _merged(windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return windows with overlapping ones merged, because two shades on each other would look more severe."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(windows):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def bound_applies(evidence: Evidence, series: Series) -> bool:
    """Return whether the bound of some evidence applies to the logged values of a series.

    Evidence about a derived quantity names the metric that it was derived from. Its bound applies only if the logged
    values cross it as often as the evidence counts.
    """
    if evidence.metric == series.name:
        return True
    if evidence.of <= 1 or evidence.steps is None:
        return False
    first, last = evidence.steps
    inside = (series.axis.steps >= first) & (series.axis.steps <= last)
    crossed = getattr(series.values[inside], _COMPARED[evidence.op])(evidence.bound)
    return int(crossed.sum()) == evidence.satisfied > 0
