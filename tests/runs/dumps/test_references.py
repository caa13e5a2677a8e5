"""Every statistic of dumps and checkpoints agrees with a plain reference of extended precision, to 1e-9 relative.

References are whole-array expressions in `longdouble`, after the differences and exponentials of float64. Where a
statistic is a sum that cancels, 1e-13 of what was summed is allowed beside it: no order of float64 sums does better.
A field or a metric without a reference fails the tests of this file.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo_doctor.runs.dumps import moments
from ppo_doctor.runs.dumps.checkpoints import TensorChange, compare
from ppo_doctor.runs.dumps.moments import Summary, describe
from ppo_doctor.runs.dumps.passes import Passes, compare_passes
from ppo_doctor.runs.dumps.recompute import Recomputed
from ppo_doctor.runs.dumps.statistics import QUANTILES, RatioStatistics, ratio_statistics
from tests.runs.dumps.dump_references import OF_FIELD
from tests.runs.dumps.references import (
    CHANGE,
    CLIP,
    DUAL,
    NESTED,
    PASSES,
    RATIO,
    SUMMARY,
    agree,
    check_ratio,
    check_summary,
    tensor,
)


def test_every_field_has_a_reference():
    def fields(kind):
        return {field.name for field in dataclasses.fields(kind)}

    assert fields(Summary) == set(SUMMARY)
    assert fields(RatioStatistics) == set(RATIO) | NESTED
    assert fields(Passes) == set(PASSES)
    assert fields(TensorChange) == {"name", "size", "shared"} | set(CHANGE)
    assert fields(Recomputed) == set(OF_FIELD)


def logs(low):
    """Return log-probs on a grid (as float32 rounds them), among them extremes."""
    return st.floats(low, 0, width=32) | st.sampled_from([0.0, -0.5, -1.0, low])


def rows(low):
    return st.lists(st.tuples(logs(low), logs(low), st.floats(-50, 50, width=32) | st.just(0.0)), max_size=40)


def shortened(check, *columns):
    """Check with pieces of all the data, and of seven elements."""
    before = moments.kept_pieces.__defaults__
    check(*columns)
    moments.kept_pieces.__defaults__ = (7,)
    try:
        check(*columns)
    finally:
        moments.kept_pieces.__defaults__ = before


@pytest.mark.parametrize("low", [-2.0, -1e4])
def test_ratio_statistics_agree(low):
    def once(n, o, a):
        with np.errstate(all="ignore"):
            got = ratio_statistics(tensor(n), tensor(o), advantages=tensor(a), clip=CLIP, dual_clip=DUAL)
            check_ratio(n, o, a, got)

    @given(rows(low))
    @settings(max_examples=60)
    def run(held):
        if held:
            shortened(once, *(np.array(column) for column in zip(*held, strict=True)))

    run()


@pytest.mark.parametrize("spread", [1e-6, 0.03, 2.0])
def test_ratio_statistics_agree_on_random_data(spread):
    chance = np.random.default_rng(int(1 / spread))
    size = 150_000  # more than one piece, and more than the sample
    o, a = -chance.exponential(size=size), chance.normal(size=size)
    n = o + chance.normal(scale=spread, size=size)
    got = ratio_statistics(tensor(n), tensor(o), advantages=tensor(a), clip=CLIP, dual_clip=DUAL)
    for name in RATIO.keys() - {"distinct"}:
        plain, scale = RATIO[name](n, o, a)
        assert agree(getattr(got, name), plain, scale), name
    for q in QUANTILES:  # of a random sample: their rank is off by a little
        low, high = (np.exp(np.quantile(n - o, min(1, max(0, q + off)))) for off in (-0.005, 0.005))
        assert low <= got.quantiles[q] <= high


@pytest.mark.parametrize("low", [-2.0, -1e4])
def test_passes_agree(low):
    def once(x, y, p):
        with np.errstate(all="ignore"):
            got = compare_passes(tensor(x), tensor(y), padding=tensor(p), position=tensor(np.arange(len(x))))
            for name, reference in PASSES.items():
                plain, scale = reference(x, y, p)
                assert agree(getattr(got, name), plain, scale), (name, getattr(got, name), plain)

    @given(st.lists(st.tuples(logs(low), logs(low), st.integers(0, 7).map(float)), min_size=1, max_size=40))
    @settings(max_examples=60)
    def run(held):
        shortened(once, *(np.array(column) for column in zip(*held, strict=True)))

    run()


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, math.nan, math.inf, -math.inf]), max_size=30))
@settings(max_examples=40)
def test_summaries_agree(values):
    shortened(lambda v: check_summary(describe(tensor(v)), v), np.array(values, np.float64))


# Weights


_weight = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e-30, 3e38])


@given(st.lists(st.tuples(_weight, _weight), min_size=1, max_size=30))
@settings(max_examples=40)
def test_changes_of_weights_agree(pairs):
    before, after = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        (change,) = compare({"w": tensor(before, np.float32)}, {"w": tensor(after, np.float32)}, one_file=False).changes
        for name, reference in CHANGE.items():
            assert agree(float(getattr(change, name)), float(reference(before, after))), name
