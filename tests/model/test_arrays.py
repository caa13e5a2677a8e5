"""Medians of many spans at once are those that one span at a time has; metrics of the same records."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.model.arrays import (
    beside,
    by_value,
    median,
    quantile,
    ranks,
    running_medians,
    running_quantiles,
    span_medians,
)
from tests.synthetic import a_series

values = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60).map(np.array)


@given(values, st.data())
def test_medians_of_spans(held, data):
    cuts = data.draw(st.sets(st.integers(1, max(1, len(held) - 1)), max_size=8))
    bounds = np.array(sorted({0, len(held), *(cut for cut in cuts if cut < len(held))}))
    plain = [median(held[a:b]) for a, b in itertools.pairwise(bounds)]
    assert span_medians(held, bounds).tolist() == pytest.approx(plain, rel=1e-15)


@given(values, st.data())
def test_running_medians(held, data):
    width = data.draw(st.integers(1, len(held)))
    plain = [median(held[i : i + width]) for i in range(len(held) - width + 1)]
    assert running_medians(held, width).tolist() == pytest.approx(plain, rel=1e-15)


@pytest.mark.parametrize("records", [513, 600, 2_000])
@pytest.mark.parametrize("width", [25, 64, 65, 512])
@pytest.mark.parametrize("spread", [0.0, 1.0, 1e300])
def test_stretches_that_are_not_sorted_side_by_side(records, width, spread):
    """Ties, signs and infinity, against a sort of each stretch."""
    held = np.round(np.random.default_rng(records).normal(size=records), 1) * spread
    held[::97] = np.inf
    rows = np.sort(np.lib.stride_tricks.sliding_window_view(held, width), axis=1)
    low, high = rows[:, (width - 1) // 2], rows[:, width // 2]
    plain = np.where(low == high, low, low / 2 + high / 2)
    assert np.array_equal(running_medians(held, width), plain)
    for share in (0.0, 0.05, 0.9):
        found = [quantile(held[i : i + width], share) for i in range(0, records - width, 53)]
        assert np.array_equal(running_quantiles(held, width, share)[: records - width : 53], found)


def test_the_largest_numbers_do_not_overflow():
    huge = np.array([1.7e308, 1.7e308])
    assert span_medians(huge, np.array([0, 2])).tolist() == [1.7e308]
    assert running_medians(huge, 2).tolist() == [1.7e308]


def test_one_long_span_among_short_ones_takes_no_more_memory_than_even_ones():
    held = np.random.default_rng(0).random(100_000)
    peaks = []
    for bounds in (np.arange(0, 100_001, 500), np.append(np.arange(200), 100_000)):
        tracemalloc.start()
        span_medians(held, bounds)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 8 * held.nbytes


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


@given(values, st.randoms())
def test_ranks_do_not_depend_on_the_order_of_records(held, random):
    order = random.sample(range(len(held)), len(held))
    assert ranks(held[order]).tolist() == ranks(held)[order].tolist()


@given(st.lists(st.integers(-3, 3)))
def test_places_by_value(held):
    groups = {int(value): places.tolist() for value, places in by_value(np.array(held, dtype=np.int64))}
    assert groups == {value: [i for i, other in enumerate(held) if other == value] for value in sorted(set(held))}


def logged(name, records):
    """Return a metric whose values are the records that hold it, of which each has a step of its own."""
    series = a_series(name, [float(at) for at in records], steps=[10 * at for at in records])
    return replace(series, axis=replace(series.axis, records=np.array(records)))


def test_metrics_of_the_same_records_stand_beside_each_other_as_they_are():
    series = logged("approx_kl", range(5))
    other = replace(series, name="entropy")
    assert beside(series, other) is other


@pytest.mark.parametrize(("ours", "theirs"), [(range(20), [*range(7), *range(8, 20)]), ([0, 1, 2], [0, 2])])
def test_a_lost_cell_is_nan_at_its_record(ours, theirs):
    series, other = logged("approx_kl", ours), logged("entropy", theirs)
    found = beside(series, other)
    assert found.axis is series.axis
    expected = [float(at) if at in theirs else math.nan for at in ours]
    assert np.array_equal(found.values, expected, equal_nan=True)
    whole = beside(other, series)
    assert whole.axis is other.axis
    assert whole.values.tolist() == [float(at) for at in theirs]


def test_records_that_stand_in_another_order_in_the_log_are_found():
    series, other = logged("approx_kl", [3, 1, 2, 0]), logged("entropy", [0, 2, 3, 1])
    assert beside(series, other).values.tolist() == [3.0, 1.0, 2.0, 0.0]


def test_what_is_logged_at_other_times_or_in_another_file_is_not_beside():
    series = logged("approx_kl", range(20))
    assert beside(series, logged("entropy", range(0, 20, 2))) is None
    assert beside(series, logged("entropy", range(20, 40))) is None
    assert beside(series, logged("entropy", [])) is None
    other = logged("entropy", range(19))
    assert beside(series, replace(other, axis=replace(other.axis, path="other.jsonl"))) is None
    assert beside(series, None) is beside(None, series) is None
