"""Plots of characters: nothing is lost, nothing is wider than asked for, and shapes tell what colours tell."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.cli.interactive.plots import Canvas, plot
from ppo_doctor.report.plots import Mark, Marks
from tests.cli.interactive.stage import series

SPAN = (1, 200)


def text(values, marks=None, size=(60, 12), span=None, *, ascii_only=False):
    held = series("m", "m", values)
    lines = plot(held, span or (1, max(len(values), 1)), marks or Marks(), size, ascii_only=ascii_only)
    return ["".join(part.text for part in line) for line in lines]


def test_a_line_is_drawn_dot_by_dot():
    canvas = Canvas(2, 1)
    canvas.line([(0, 3), (3, 0)])
    assert canvas.rows() == ["⡠⠊"]


def test_dots_outside_are_left_out_and_a_single_point_is_drawn():
    canvas = Canvas(1, 1)
    canvas.line([(-5, 2), (9, 2)])
    assert canvas.rows() == ["⠤"]
    other = Canvas(1, 1)
    other.line([(1, 3)])
    other.line([])
    assert other.rows() == ["⢀"]


@pytest.mark.parametrize("size", [(20, 5), (60, 12), (180, 30)])
@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.0] * 50, list(range(300)), [1e-300, 1e300], [float("nan")] * 9, [1.0, float("inf"), -float("inf")]],
    ids=["none", "one", "flat", "many", "far apart", "nan", "infinite"],
)
def test_any_values_fit_any_size(values, size):
    drawn = text(values, size=size)
    assert len(drawn) == size[1]
    assert max(map(len, drawn)) <= size[0]


def test_a_single_spike_in_a_hundred_thousand_records_is_seen():
    values = np.zeros(100_000)
    flat = text(values)
    values[77_777] = 5.0
    assert text(values) != flat
    spiked = [line for line in text(values)[1:-2] if any("⠀" < sign <= "⣿" for sign in line)]
    assert len(spiked) > 5


def test_bounds_windows_and_onset_have_shapes_of_their_own():
    values = [0.0] * 100 + [1.0] * 100
    marks = Marks(onset=61, windows=((101, 200),), bounds=(Mark(op=">", value=0.5),))
    drawn = text(values, marks)
    assert any(line.lstrip().startswith(">0.5 ┤") and "╌" in line for line in drawn)
    base = drawn[-2]
    above = [line[base.index("▲")] for line in drawn[1:-2]]
    assert above.count("┊") > 2
    assert all(sign == "┊" or "⠀" < sign <= "⣿" for sign in above)
    assert base.count("━") > 15
    assert base.index("▲") < base.index("━")
    assert "onset 61" in drawn[-1]


def test_a_bound_far_off_is_named_at_the_edge():
    drawn = text([1.0, 2.0, 3.0] * 10, Marks(bounds=(Mark(op=">", value=1000.0),)))
    assert "↑>1000" in drawn[1]


def test_what_is_not_finite_is_crossed_out_where_it_is():
    drawn = text([1.0] * 50 + [float("nan")] * 50)
    crossed = drawn[-3]
    assert crossed.rstrip().endswith("×")
    assert crossed.count("×") in range(20, 32)
    assert "50 of 100 not finite" in drawn[0]
    assert "last NaN" in drawn[0]


def test_ascii_has_a_picture_too():
    drawn = text(list(np.sin(np.arange(200) / 9)), ascii_only=True)
    assert sum(sign in '|"-_.' for line in drawn[1:-2] for sign in line) > 50
    assert not any("⠀" < sign <= "⣿" for line in drawn for sign in line)
