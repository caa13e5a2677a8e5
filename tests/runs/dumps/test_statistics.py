"""The streaming pass over log-probs agrees with plain float64 expressions, whatever the input."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppo_doctor.runs.dumps import statistics
from ppo_doctor.runs.dumps.checkpoints import TensorChange, compare
from ppo_doctor.runs.dumps.passes import Passes, compare_passes
from ppo_doctor.runs.dumps.recompute import Recomputed
from ppo_doctor.runs.dumps.statistics import QUANTILES, RatioStatistics, Summary, describe, ratio_statistics
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


def check(new, old, advantages, mask=None):
    """Hold the statistics of what is finite and inside the mask against the plain references."""
    keep = np.ones(len(new), bool) if mask is None else np.asarray(mask, bool)
    told = {"advantages": tensor(advantages), "mask": None if mask is None else tensor(mask, np.bool_)}
    with np.errstate(all="ignore"):
        got = ratio_statistics(tensor(new), tensor(old), **told, clip=CLIP, dual_clip=DUAL)
        finite = np.isfinite(np.asarray(new) - np.asarray(old)) & np.isfinite(advantages)
        assert got.nonfinite == int((keep & ~finite).sum())
        keep &= finite
        assert got.samples == int(keep.sum())
        if got.samples:
            check_ratio(*(np.asarray(x, np.float64)[keep] for x in (new, old, advantages)), replace(got, nonfinite=0))
    return got


_values = st.floats(-1e4, 0) | st.sampled_from([0.0, -1.0, -1e4, -math.inf, math.nan, math.inf])


@given(st.lists(st.tuples(_values, _values, st.floats(-50, 50) | st.just(0.0), st.booleans()), max_size=40))
@example([(-362.0, 0.0, 0.0, True), (-364.0, 0.0, 0.0, True)])
@example([(0.0, 0.0, 0.0, True), (0.0, -1.0, 2.2250738585e-313, True)])
@example([(0.0, 0.0, 0.0, True), (0.0, 0.0, 0.75, True), (0.0, -1.0, 2.2250738585e-313, True)])
def test_agrees_on_extreme_inputs(rows):
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.empty(0)] * 4
    check(*columns[:3], mask=columns[3])


def test_nothing_at_all_is_unknown_not_zero():
    got = ratio_statistics(tensor([]), tensor([]))
    assert got.samples == got.nonfinite == 0
    assert all(math.isnan(x) for x in (got.ratio.mean, got.k3, got.ess, got.one_share, got.deviations))


def test_padding_of_minus_infinity_is_not_counted():
    new = [-1.0, -2.0, -math.inf, math.nan]
    old = [-1.5, -2.0, -math.inf, -1.0]
    got = ratio_statistics(tensor(new), tensor(old), mask=tensor([1, 1, 0, 0]))
    assert (got.samples, got.nonfinite, got.one_share) == (2, 0, 0.5)
    bare = ratio_statistics(tensor(new), tensor(old))
    assert (bare.samples, bare.nonfinite) == (2, 2)


def test_identical_log_probs_give_exact_numbers():
    same = tensor(-np.random.default_rng(0).exponential(size=200_000), np.float32)
    got = ratio_statistics(same, same, clip=(0.2, 0.2))
    assert (got.one_share, got.ratio.mean, got.ratio.std, got.k1, got.k2, got.k3) == (1, 1, 0, 0, 0, 0)
    assert (got.ess, got.deviations, got.distinct, got.clipped_low, got.clipped_high) == (1, 0, 1, 0, 0)


def test_a_ratio_that_overflows_is_infinite_and_not_an_error():
    got = ratio_statistics(tensor([0.0, 1e4]), tensor([0.0, 0.0]))
    assert got.ratio.high == got.ratio.mean == got.ratio.std == got.k3 == math.inf
    assert math.isnan(got.ess)
    assert got.k1 == -5000


def test_what_is_not_known_is_not_given():
    got = ratio_statistics(tensor([0.1, 0.2]), tensor([0.0, 0.0]))
    assert all(math.isnan(x) for x in (got.clipped_low, got.effective_high, got.dual, got.gain, got.advantage_corr))


def test_large_dumps_are_sampled_for_quantiles_within_the_stated_error(monkeypatch):
    monkeypatch.setattr(statistics, "SAMPLE", 1 << 14)
    chance = np.random.default_rng(3)
    d = chance.normal(scale=0.1, size=400_000)
    got = ratio_statistics(tensor(d), tensor(np.zeros_like(d)))
    room = 4 * 0.5 / math.sqrt(1 << 14)
    for q, value in got.quantiles.items():
        assert abs(float((np.exp(d) <= value).mean()) - q) <= room, q


def test_describe_leaves_out_what_is_not_finite():
    got = describe(tensor([0.0, 1.0, 2.0, math.nan, -math.inf, 9.0]), tensor([1, 1, 1, 1, 1, 0]))
    assert (got.count, got.low, got.high) == (3, 0.0, 2.0)
    assert got.mean == 1.0
    assert got.std == pytest.approx(math.sqrt(2 / 3))


def test_a_spread_far_below_the_mean_keeps_its_digits():
    values = 1e6 + np.random.default_rng(1).normal(scale=1e-3, size=300_000)
    assert describe(tensor(values)).std == pytest.approx(float(np.std(values)), rel=1e-9)


def test_sizes_that_differ_are_refused():
    with pytest.raises(ValueError, match="sizes"):
        ratio_statistics(tensor([0.0]), tensor([0.0, 1.0]))


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
    before = statistics.kept_pieces.__defaults__
    check(*columns)
    statistics.kept_pieces.__defaults__ = (7,)
    try:
        check(*columns)
    finally:
        statistics.kept_pieces.__defaults__ = before


@pytest.mark.parametrize("low", [-2.0, -1e4])
def test_ratio_statistics_agree(low):
    def once(n, o, a):
        with np.errstate(all="ignore"):
            got = ratio_statistics(tensor(n), tensor(o), advantages=tensor(a), clip=CLIP, dual_clip=DUAL)
            check_ratio(n, o, a, got)

    @given(rows(low))
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
    def run(held):
        shortened(once, *(np.array(column) for column in zip(*held, strict=True)))

    run()


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, math.nan, math.inf, -math.inf]), max_size=30))
def test_summaries_agree(values):
    shortened(lambda v: check_summary(describe(tensor(v)), v), np.array(values, np.float64))


# Weights


_weight = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e-30, 3e38])


@given(st.lists(st.tuples(_weight, _weight), min_size=1, max_size=30))
def test_changes_of_weights_agree(pairs):
    before, after = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        (change,) = compare({"w": tensor(before, np.float32)}, {"w": tensor(after, np.float32)}, one_file=False).changes
        for name, reference in CHANGE.items():
            assert agree(float(getattr(change, name)), float(reference(before, after))), name
