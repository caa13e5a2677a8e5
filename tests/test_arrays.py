"""Medians of many spans at once are those that one span at a time has."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.arrays import by_value, median, quantile, ranks, running_medians, running_quantiles, span_medians

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
