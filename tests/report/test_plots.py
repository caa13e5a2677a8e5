"""Plots: thinning keeps every extreme, gaps and infinities show, axes are readable at every size of number."""

from __future__ import annotations

import math
import re
import time
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ppo_doctor.model.run import Axis, Series
from ppo_doctor.report.plots import HEAD, HEIGHT, Mark, Marks, label, plot, scale, step_label, step_ticks, thin, ticks

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

FLOATS = st.floats(allow_nan=True, allow_infinity=True, width=64)
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


def series(values: object, steps: object = None, name: str = "loss") -> Series:
    held = np.asarray(values, dtype=np.float64)
    at = np.arange(len(held)) if steps is None else np.asarray(steps, dtype=np.int64)
    return Series(name=name, raw=name, axis=Axis(path="run.jsonl", steps=at, lines=at + 1), values=held)


def span(held: Series) -> tuple[int, int]:
    return int(held.axis.steps[0]), int(held.axis.steps[-1])


def drawn(held: Series, marks: Marks | None = None) -> str:
    return plot(held, span(held), marks or Marks(), "a plot")


@given(hnp.arrays(np.float64, st.integers(1, 400), elements=FLOATS), st.integers(1, 20))
def test_thinning_keeps_the_extremes_and_the_order(values: FloatArray, columns: int) -> None:
    held = series(values)
    points = thin(held, span(held), columns)
    assert len(points.steps) <= max(2 * columns, 2)
    assert (np.diff(points.steps) > 0).all()
    assert np.array_equal(points.values, values[points.steps])
    finite = values[np.isfinite(values)]
    if len(finite):
        assert points.values.min() == finite.min()
        assert points.values.max() == finite.max()


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=FLOATS), st.integers(1, 20))
def test_a_line_never_crosses_a_record_that_is_not_finite(values: FloatArray, columns: int) -> None:
    held = series(values)
    points = thin(held, span(held), columns)
    assert len(points.breaks) == 0 or points.breaks[0]
    for i in range(1, len(points.steps)):
        between = values[points.steps[i - 1] : points.steps[i]]
        assert points.breaks[i] == (not np.isfinite(between).all())


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=FLOATS), st.integers(1, 20))
def test_every_record_that_is_not_finite_is_marked_with_its_sign(values: FloatArray, columns: int) -> None:
    odd = thin(held := series(values), span(held), columns).odd
    for step, value in enumerate(values):
        if not math.isfinite(value):
            sign = "NaN" if math.isnan(value) else "+∞" if value > 0 else "−∞"
            assert any(first <= step <= last and name == sign for first, last, name in odd)


@given(hnp.arrays(np.float64, st.integers(0, 30), elements=FINITE), st.lists(FINITE, max_size=3))
def test_every_value_lies_on_the_axis_and_every_tick_too(values: FloatArray, bounds: list[float]) -> None:
    axis = scale(values, [Mark(op="<", value=bound) for bound in bounds])
    for value in values.tolist():
        assert HEAD - 1e-6 <= axis.y(value) <= HEAD + HEIGHT + 1e-6
    marks = ticks(axis)
    assert len(marks) <= 16
    assert all(HEAD - 1 <= axis.y(mark) <= HEAD + HEIGHT + 1 for mark in marks)


def test_repeated_steps_are_one_column() -> None:
    held = series([1.0, 9.0, -9.0] * 2000, np.repeat([5, 6], 3000))
    points = thin(held, span(held))
    assert sorted(points.values.tolist()) == [-9.0, -9.0, 9.0, 9.0]


def test_a_million_records_draw_in_few_points_and_keep_a_spike() -> None:
    values = np.zeros(1_000_000)
    values[123_456] = 7.0
    held = series(values)
    start = time.perf_counter()
    picture = drawn(held)
    assert time.perf_counter() - start < 5
    assert len(picture) < 40_000
    assert "123456,7" in picture
    assert len(thin(held, span(held)).steps) <= 800


@pytest.mark.parametrize(
    ("values", "log"),
    [([1e-6, 1.0], True), ([1.0, 999.0], False), ([0.0, 1e6], False), ([-1.0, 1e6], False), ([2.0], False)],
)
def test_the_axis_is_logarithmic_for_positive_values_far_apart(values: list[float], log: bool) -> None:
    assert scale(np.array(values)).log is log


def test_a_far_bound_is_named_and_does_not_flatten_the_line() -> None:
    held = series(np.linspace(0.0, 1.0, 50))
    picture = drawn(held, Marks(bounds=(Mark(op=">", value=1000.0),)))
    assert "↑ bound &gt; 1000 is above this axis" in picture
    assert scale(held.values, [Mark(op=">", value=1000.0)]).high < 2


def test_bounds_that_nearly_coincide_share_a_label() -> None:
    picture = drawn(series(np.zeros(9)), Marks(bounds=(Mark(op="=", value=0.0), Mark(op="<", value=1e-6))))
    assert "bounds: = 0, &lt; 1e-06" in picture
    assert picture.count('class="bound"') == 2


def test_windows_onset_and_gaps_are_drawn() -> None:
    values = np.ones(100)
    values[50:] = np.nan
    picture = drawn(series(values), Marks(onset=50, windows=((50, 99),)))
    assert "onset: step 50" in picture
    assert 'class="window"' in picture
    assert 'fill="url(#hatch)"' in picture
    assert ">NaN<" in picture


def test_an_onset_outside_the_run_is_left_out() -> None:
    assert "onset:" not in drawn(series([1.0, 2.0]), Marks(onset=77))


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf], [0.0], [5e-324, 0.0], [1.7e308, -1.7e308]])
def test_odd_series_give_well_formed_pictures_without_nan_coordinates(values: list[float]) -> None:
    held = series(values)
    picture = plot(held, (0, max(len(values) - 1, 0)), Marks(bounds=(Mark(op="<", value=1.0),)), "t")
    ET.fromstring(picture)  # noqa: S314 (our own picture)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', picture)


def test_a_lone_point_between_gaps_is_a_dot() -> None:
    assert "h0" in drawn(series([math.nan, 1.0, math.nan, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("value", "step", "size", "written"),
    [
        (0.0, 0.1, 1.0, "0"),
        (0.25, 0.05, 0.5, "0.25"),
        (20.0, 10.0, 40.0, "20"),
        (2.3025, 0.0005, 2.304, "2.3025"),
        (1e-6, 5e-7, 2e-6, "1.0e-6"),
        (9.5e-4, 5e-5, 1.1e-3, "0.00095"),
        (2e6, 1e6, 3e6, "2e6"),
        (1e-7, 0.0, 0.0, "1e-7"),
        (100.0, 0.0, 0.0, "100"),
    ],
)
def test_labels_of_values(value: float, step: float, size: float, written: str) -> None:
    assert label(value, step, size) == written


@pytest.mark.parametrize(
    ("step", "written"),
    [(0, "0"), (999, "999"), (1000, "1k"), (1250, "1.25k"), (1234, "1234"), (2_500_000, "2.5M"), (10**9, "1G")],
)
def test_labels_of_steps(step: int, written: str) -> None:
    assert step_label(step) == written


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**12))
def test_ticks_of_steps_are_few_and_inside(first: int, length: int) -> None:
    found = step_ticks((first, first + length))
    assert len(found) <= 13
    assert all(first <= step <= first + length for step in found)
