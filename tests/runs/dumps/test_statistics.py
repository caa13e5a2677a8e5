"""The streaming pass over log-probs agrees with plain float64 expressions, whatever the input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps import moments, statistics
from ppo_doctor.runs.dumps.moments import describe
from ppo_doctor.runs.dumps.statistics import ratio_statistics


def tensor(values, dtype=np.float64):
    return Tensor.of("t", np.asarray(values, dtype=dtype))


def near(ours, plain, scale=0.0):
    """Agree to 1e-9 relative; `scale` is the size of what cancels in a signed mean."""
    if math.isnan(plain) or math.isinf(plain):
        return ours == plain or (math.isnan(ours) and math.isnan(plain))
    return abs(ours - plain) <= 1e-9 * max(abs(plain), scale * 1e-3) + 1e-15 * max(scale, 1.0)


def exact(values):
    """Return an exactly rounded sum; infinite where it overflows."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.inf


def plain_reference(new, old, advantages, low=0.2, high=0.28):
    """Return the same numbers from whole arrays, exactly summed."""
    d = new - old
    r = np.exp(d)
    n = len(d)
    mean = exact(r) / n
    scale = r.max() or math.nan
    k3 = exact(np.where(np.abs(d) < 1e-5, d * d / 2 + d**3 / 6, np.expm1(d) - d)) / n
    centred_d, centred_a = d - exact(d) / n, advantages - exact(advantages) / n
    size = math.sqrt(exact(centred_d**2) * exact(centred_a**2))
    return {
        "k1": -exact(d) / n,
        "k2": exact(d * d) / n / 2,
        "k3": k3,
        "mean": mean,
        "std": math.sqrt(exact((r - mean) ** 2) / n),
        "ess": (exact(r) / scale) ** 2 / exact((r / scale) ** 2) / n,
        "one": float((d == 0).mean()),
        "low": float((r < 1 - low).mean()),
        "high": float((r > 1 + high).mean()),
        "effective_low": float(((r < 1 - low) & (advantages < 0)).mean()),
        "effective_high": float(((r > 1 + high) & (advantages > 0)).mean()),
        "dual": float(((r > 3) & (advantages < 0)).mean()),
        "gain": exact((r - 1) * advantages) / n,
        "corr": exact(centred_d * centred_a) / size if size else math.nan,
    }


def check(new, old, advantages, mask=None):
    got = ratio_statistics(
        tensor(new),
        tensor(old),
        advantages=tensor(advantages),
        mask=None if mask is None else tensor(mask, np.bool_),
        clip=(0.2, 0.28),
        dual_clip=3.0,
    )
    keep = np.ones(len(new), bool) if mask is None else np.asarray(mask, bool)
    with np.errstate(all="ignore"):
        finite = np.isfinite(np.asarray(new) - np.asarray(old)) & np.isfinite(advantages)
    assert got.nonfinite == int((keep & ~finite).sum())
    keep &= finite
    assert got.samples == int(keep.sum())
    if not got.samples:
        return got
    with np.errstate(all="ignore"):
        want = plain_reference(*(np.asarray(x, np.float64)[keep] for x in (new, old, advantages)))
        d = np.asarray(new, np.float64)[keep] - np.asarray(old, np.float64)[keep]
        a = np.asarray(advantages, np.float64)[keep]
    spread = float(np.exp(np.minimum(np.abs(d).max(), 700.0)))
    ours = {
        "k1": (got.k1, np.abs(d).max()),
        "k2": (got.k2, 0),
        "k3": (got.k3, 0),
        "mean": (got.ratio.mean, 0),
        "std": (got.ratio.std, got.ratio.mean),
        "ess": (got.ess, 0),
        "one": (got.one_share, 0),
        "low": (got.clipped_low, 0),
        "high": (got.clipped_high, 0),
        "effective_low": (got.effective_low, 0),
        "effective_high": (got.effective_high, 0),
        "dual": (got.dual, 0),
        "gain": (got.gain, spread * np.abs(a).max()),
    }
    if not math.isfinite(want["std"]):  # squares overflow; what does not need them is finite still
        assert not math.isfinite(got.ratio.std)
        del ours["std"], ours["ess"]
    if want["mean"] < statistics.SMALLEST_SQUARED:  # squares underflow, and what rests on them is not told
        assert math.isnan(got.ess)
        del ours["ess"]
    if not math.isfinite(want["gain"]):
        del ours["gain"]
    for name, (value, scale) in ours.items():
        assert near(value, want[name], scale), (name, value, want[name])
    return got


@pytest.mark.parametrize("spread", [1e-7, 1e-4, 0.02, 0.3, 3.0])
@pytest.mark.parametrize("size", [1, 2, 1000, 100_000])
def test_agrees_with_plain_expressions(spread, size):
    chance = np.random.default_rng(size)
    old = -chance.exponential(size=size)
    new = old + chance.normal(scale=spread, size=size)
    got = check(new, old, chance.normal(size=size), chance.random(size) < 0.8 if size > 2 else None)
    assert got.ratio.count == got.samples


_values = st.floats(-1e4, 0) | st.sampled_from([0.0, -1.0, -1e4, -math.inf, math.nan, math.inf])


@given(st.lists(st.tuples(_values, _values, st.floats(-50, 50) | st.just(0.0), st.booleans()), max_size=40))
@settings(max_examples=40)
@example([(-362.0, 0.0, 0.0, True), (-364.0, 0.0, 0.0, True)])
def test_agrees_on_extreme_inputs(rows):
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.empty(0)] * 4
    check(*columns[:3], mask=columns[3])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=60), st.integers(0, 9))
@settings(max_examples=40)
def test_pieces_add_up(deltas, seed):
    before = moments.kept_pieces.__defaults__
    moments.kept_pieces.__defaults__ = (7,)
    try:
        chance = np.random.default_rng(seed)
        old = -chance.exponential(size=len(deltas))
        check(old + np.array(deltas), old, chance.normal(size=len(deltas)))
    finally:
        moments.kept_pieces.__defaults__ = before


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
