"""Every statistic of dumps and checkpoints agrees with a plain reference of extended precision, to 1e-9 relative.

References are whole-array expressions in `longdouble`, after the differences and exponentials of float64. Where a
statistic is a sum that cancels, 1e-13 of what was summed is allowed beside it: no order of float64 sums does better.
A field or a metric without a reference fails the tests of this file.
"""

# ruff: noqa: ARG005 - references of one table take the same columns, whether they need them or not

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppo_doctor.metrics import METRICS
from ppo_doctor.tensors import Archive, Tensor, checkpoint_run, dump_run, moments, statistics
from ppo_doctor.tensors.checkpoints import TensorChange, compare
from ppo_doctor.tensors.moments import Summary, describe
from ppo_doctor.tensors.passes import MOVED, Passes, compare_passes
from ppo_doctor.tensors.recompute import Recomputed
from ppo_doctor.tensors.statistics import QUANTILES, RatioStatistics, ratio_statistics

LONG = np.longdouble
CLIP, DUAL = (0.2, 0.28), 3.0
#: Beyond this, and below its inverse, squares leave float64, and what rests on them may be infinite or untold.
ROOT = 1e150


def tensor(values, dtype=np.float64, name="t"):
    return Tensor.of(name, np.asarray(values, dtype=dtype))


def agree(ours, plain, scale=0.0):
    """Agree to 1e-9 relative, and 1e-13 of the `scale` of what cancels."""
    plain = float(plain)
    if math.isnan(plain):
        return math.isnan(ours)
    if 0 < abs(plain) < 1 / ROOT:
        return abs(ours) < 1 / ROOT
    if abs(plain) > ROOT or scale > ROOT:
        return not math.isfinite(ours) or abs(ours - plain) <= 1e-9 * abs(plain) or scale > ROOT
    return abs(ours - plain) <= 1e-9 * abs(plain) + 1e-13 * float(scale)


def mean(values):
    return LONG(values).sum() / LONG(len(values)) if len(values) else LONG(math.nan)


def std(values):
    values = LONG(values)
    return np.sqrt(mean((values - mean(values)) ** 2)) if len(values) else LONG(math.nan)


def covariance(one, other):
    return mean((LONG(one) - mean(one)) * (LONG(other) - mean(other)))


def correlation(one, other):
    size = std(one) * std(other)
    return covariance(one, other) / size if size > 0 else LONG(math.nan)


def quantile(values, q):
    ranked = np.sort(values)
    at = q * (len(ranked) - 1)
    low = int(at)
    return ranked[low] + (ranked[min(low + 1, len(ranked) - 1)] - ranked[low]) * (at - low)


# Summaries of one column

SUMMARY = {
    "count": lambda v: (np.isfinite(v).sum(), 0),
    "mean": lambda v: (mean(kept(v)), mean(abs(kept(v)))),
    "std": lambda v: (std(kept(v)), 0),
    "low": lambda v: (kept(v).min() if len(kept(v)) else math.nan, 0),
    "high": lambda v: (kept(v).max() if len(kept(v)) else math.nan, 0),
    "zeros": lambda v: ((v == 0).sum(), 0),
    "nonfinite": lambda v: ((~np.isfinite(v)).sum(), 0),
}


def kept(values):
    return values[np.isfinite(values)]


def check_summary(ours, values, skip=()):
    for name, reference in SUMMARY.items():
        if name not in skip:
            plain, scale = reference(values)
            assert agree(getattr(ours, name), plain, scale), (name, getattr(ours, name), plain)


# The ratio: of new and old log-probs and advantages, all finite


def k3(d):
    d = LONG(d)
    return np.where(abs(d) < 1e-4, d**2 / 2 + d**3 / 6 + d**4 / 24 + d**5 / 120, np.expm1(d) - d)


def share(found):
    return LONG(found.sum()) / len(found)


def ess(r):
    scale = LONG(r).max()
    return (LONG(r) / scale).sum() ** 2 / ((LONG(r) / scale) ** 2).sum() / len(r)


def deviations(r):
    off, error = abs(mean(r) - 1), std(r) / np.sqrt(LONG(len(r)))
    return off / error if error > 0 else (0.0 if off == 0 else math.inf)


RATIO = {
    "samples": lambda n, o, a: (len(n), 0),
    "nonfinite": lambda n, o, a: (0, 0),
    "one_share": lambda n, o, a: (share(n - o == 0), 0),
    "distinct": lambda n, o, a: (len(set((n - o).tolist())), 0),
    "k1": lambda n, o, a: (-mean(n - o), mean(abs(n - o))),
    "k2": lambda n, o, a: (mean(LONG(n - o) ** 2) / 2, 0),
    "k3": lambda n, o, a: (mean(k3(n - o)), 0),
    "ess": lambda n, o, a: (ess(np.exp(n - o)), 0),
    "clipped_low": lambda n, o, a: (share(np.exp(n - o) < 1 - CLIP[0]), 0),
    "clipped_high": lambda n, o, a: (share(np.exp(n - o) > 1 + CLIP[1]), 0),
    "effective_low": lambda n, o, a: (share((np.exp(n - o) < 1 - CLIP[0]) & (a < 0)), 0),
    "effective_high": lambda n, o, a: (share((np.exp(n - o) > 1 + CLIP[1]) & (a > 0)), 0),
    "dual": lambda n, o, a: (share((np.exp(n - o) > DUAL) & (a < 0)), 0),
    "slope": lambda n, o, a: (
        covariance(n - o, o) / std(o) ** 2 if np.ptp(o) > 0 else math.nan,
        std(n - o) / std(o) if np.ptp(o) > 0 else 0,
    ),
    "log_prob_corr": lambda n, o, a: (
        correlation(n, o) if min(np.ptp(n), np.ptp(o)) > 0 else math.nan,
        1,
    ),
    "gain": lambda n, o, a: (
        mean((LONG(np.exp(n - o)) - 1) * LONG(a)),
        (mean(abs(LONG(np.exp(n - o)))) + 1) * mean(abs(LONG(a))) + std(np.exp(n - o)) * std(a),
    ),
    "advantage_corr": lambda n, o, a: (correlation(n - o, a) if min(np.ptp(n - o), np.ptp(a)) > 0 else math.nan, 1),
}
#: Fields that are no numbers: two are Summaries, and quantiles are checked one by one.
NESTED = {"log_ratio", "ratio", "advantages", "quantiles", "deviations"}


def check_ratio(n, o, a, got):
    d = n - o
    r = np.exp(d)
    moderate = std(r) < ROOT
    known = {"ess": statistics.SMALLEST_SQUARED < mean(r) < ROOT and moderate, "gain": moderate}
    for name, reference in RATIO.items():
        if known.get(name, True):
            plain, scale = reference(n, o, a)
            assert agree(getattr(got, name), plain, scale), (name, getattr(got, name), plain)
    check_summary(got.log_ratio, d)
    check_summary(got.advantages, a)
    if not np.isfinite(r).all():
        assert got.ratio.high == got.ratio.mean == got.ratio.std == math.inf
        return
    check_summary(got.ratio, r, skip=("zeros", *(() if moderate else ("std",))))
    if moderate:
        off = mean(r) - 1
        assert agree(got.deviations, deviations(r), abs((off + 1e-3) / (std(r) or 1)) * math.sqrt(len(r)) * 1e3)
    for q in QUANTILES:
        assert agree(got.quantiles[q], np.exp(quantile(d, q)), math.exp(min(700, quantile(d, q))) * abs(d).max())


# Two passes at the same weights: x, y, padding, place


def slope(one, other):
    return (covariance(one, other) / std(other) ** 2, std(one) / std(other)) if np.ptp(other) > 0 else (math.nan, 0)


def least_padded(x, y, p):
    """Return the mean |d| without padding over that of all; with none of it, that of a line, and its standard error."""
    size = abs(x - y)
    if not np.ptp(p) > 0 or not mean(size) > 0:
        return math.nan, 0
    if (p == 0).any():
        return mean(size[p == 0]) / mean(size), 0
    levels = np.unique(p)
    if len(levels) < 4 or levels[0] > levels[-1] / 2:
        return math.nan, 0
    means = np.array([mean(size[p == level]) for level in levels], LONG)
    weights = np.array([share(p == level) for level in levels], LONG)
    design = np.stack([np.ones(len(levels)), levels], axis=1).astype(LONG)
    scatter = design.T @ (weights[:, None] * design)
    inverse = np.array([[scatter[1, 1], -scatter[0, 1]], [-scatter[0, 1], scatter[0, 0]]]) / (
        scatter[0, 0] * scatter[1, 1] - scatter[0, 1] ** 2
    )
    height, slope = inverse @ design.T @ (weights * means)
    rest = (weights * (means - height - slope * levels) ** 2).sum() / (len(levels) - 2)
    return (height + np.sqrt(rest * inverse[0, 0])) / mean(size), 1e3


PASSES = {
    "samples": lambda x, y, p: (len(x), 0),
    "std": lambda x, y, p: (std(x - y), 0),
    "mean": lambda x, y, p: (mean(x - y), mean(abs(x - y))),
    "correlation": lambda x, y, p: (correlation(x, y) if min(np.ptp(x), np.ptp(y)) > 0 else math.nan, 1),
    "slope": lambda x, y, p: slope(x, y),
    "slope_back": lambda x, y, p: slope(y, x),
    "above": lambda x, y, p: (share(x - y > MOVED), 0),
    "below": lambda x, y, p: (share(x - y < -MOVED), 0),
    "rising": lambda x, y, p: ((x > y).sum() / LONG((x != y).sum()) if (x != y).any() else math.nan, 0),
    "rounding": lambda x, y, p: (np.sqrt((mean(LONG(x) ** 2) + mean(LONG(y) ** 2)) * LONG(2.0**-50) / 3), 0),
    "padding": lambda x, y, p: (
        correlation(abs(x - y), p) if min(np.ptp(abs(x - y)), np.ptp(p)) > 0 else math.nan,
        1,
    ),
    "position": lambda x, y, p: (
        correlation(abs(x - y), np.arange(len(x))) if len(x) > 1 and np.ptp(abs(x - y)) > 0 else math.nan,
        1,
    ),
    "least_padded": least_padded,
}


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
    @settings(max_examples=60, deadline=None)
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
    sampled = {"distinct", "slope", "log_prob_corr"}
    for name in RATIO.keys() - sampled:
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
    @settings(max_examples=60, deadline=None)
    def run(held):
        shortened(once, *(np.array(column) for column in zip(*held, strict=True)))

    run()


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.0, math.nan, math.inf, -math.inf]), max_size=30))
@settings(max_examples=80, deadline=None)
def test_summaries_agree(values):
    shortened(lambda v: check_summary(describe(tensor(v)), v), np.array(values, np.float64))


# Weights


def finite_square(values):
    return np.sqrt((LONG(values[np.isfinite(values)]) ** 2).sum())


CHANGE = {
    "changed": lambda b, a: (b.view(np.uint32) != a.view(np.uint32)).sum(),
    "delta": lambda b, a: finite_square(a.astype(np.float64) - b),
    "norm": lambda b, a: finite_square(b.astype(np.float64)),
    "finite": lambda b, a: np.isfinite(b).all() and np.isfinite(a).all(),
}
_weight = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e-30, 3e38])


@given(st.lists(st.tuples(_weight, _weight), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_changes_of_weights_agree(pairs):
    before, after = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        (change,) = compare({"w": tensor(before, np.float32)}, {"w": tensor(after, np.float32)}, one_file=False).changes
        for name, reference in CHANGE.items():
            assert agree(float(getattr(change, name)), float(reference(before, after))), name


# Whole dumps: each metric that is made of tensors alone

TIME, GROUPS, SIZE, EPOCHS = 5, 8, 6, 3
SAMPLES = GROUPS * SIZE


def dump(seed, scale, extreme):
    """Return arrays of one update: every sample once in each epoch, in three minibatches, groups of six rows."""
    chance = np.random.default_rng(seed)
    sampled = -chance.exponential(size=(SAMPLES, TIME)) * (1e3 if extreme else 1)
    old = sampled + scale * chance.normal(size=sampled.shape)
    rewards = chance.normal(size=SAMPLES).astype(np.float32).astype(np.float64)
    group = np.arange(SAMPLES) // SIZE
    centred = rewards - rewards.reshape(GROUPS, SIZE).mean(axis=1)[group]
    scaled = centred / rewards.reshape(GROUPS, SIZE).std(axis=1, ddof=1)[group]
    mask = chance.random((SAMPLES, TIME)) < 0.9
    mask[:, 0] = True
    step = chance.normal(size=sampled.shape) * 0.01
    order = np.concatenate([chance.permutation(SAMPLES) for _ in range(EPOCHS)])
    epoch, minibatch = np.repeat(np.arange(EPOCHS), SAMPLES), np.tile(np.arange(SAMPLES) // (SAMPLES // 3), EPOCHS)
    done = epoch * 3 + minibatch
    new = old[order] + (step[order] + 0.003 * chance.normal(size=(len(order), TIME))) * done[:, None]
    new[done == 0] += scale * 0.1 * chance.normal(size=new[done == 0].shape)
    return {
        "log_probs": new,
        "old_log_probs": old[order] + 1e-3 * epoch[:, None],
        "rollout_log_probs": sampled[order],
        "advantages": scaled[order] + 1e-3 * seed,
        "rewards": rewards[order],
        "group_ids": group[order],
        "response_mask": mask[order],
        "responses": chance.integers(0, 2, (SAMPLES, TIME))[order],
        "kept_mass": 1 - chance.random((len(order), TIME)) * 0.3,
        "policy_version": np.full(len(order), 3),
        "current_version": np.full(len(order), 5),
        "epoch": epoch,
        "minibatch": minibatch,
    }


def inside(h, rows=slice(None)):
    """Return new and old log-probs of the tokens in the loss."""
    keep = h["response_mask"][rows]
    return h["log_probs"][rows][keep], h["old_log_probs"][rows][keep]


def first_pass(h):
    """Return log-probs before any step, padding, places and tokens of the pair that differs more."""
    start = (h["epoch"] == 0) & (h["minibatch"] == 0)
    pairs = [
        (h["log_probs"], h["old_log_probs"], start),
        (h["old_log_probs"], h["rollout_log_probs"], h["epoch"] == 0),
    ]

    def of(one, other, at):
        keep = h["response_mask"] & at[:, None]
        padding = (TIME - h["response_mask"].sum(axis=1))[:, None] + np.zeros((1, TIME))
        place = np.arange(TIME) + np.zeros((len(keep), 1))
        return one[keep], other[keep], padding[keep], place[keep], std(one[keep] - other[keep]), (one, other, at)

    return of(*pairs[0]), of(*pairs[1])


def worse(h):
    return max(first_pass(h), key=lambda found: found[4])


def of_passes(name):
    def reference(h):
        x, y, padding, _, _, _ = worse(h)
        return PASSES[name](x, y, padding)

    return reference


def one_sided(h):
    x, y = worse(h)[:2]
    above, below = share(x - y > MOVED), share(x - y < -MOVED)
    return (abs(above - below) / (above + below) if above + below > 0 else math.nan), 0


def over_rounding(h):
    x, y, padding = worse(h)[:3]
    return std(x - y) / PASSES["rounding"](x, y, padding)[0], 0


def excess(h):
    x, y = worse(h)[:2]
    (one, scale), (other, back) = slope(x, y), slope(y, x)
    return max(one, other) - 1, max(scale, back) + 1


def repeat_share(h):
    """Return the variance within equal prefixes by a dict of prefixes."""
    one, other, at = worse(h)[5]
    held = {}
    for row in range(len(one)):
        for place in range(TIME):
            if h["response_mask"][row, place] and at[row]:
                prefix = (h["group_ids"][row], *h["responses"][row, : place + 1])
                held.setdefault(prefix, []).append(one[row, place] - other[row, place])
    repeated = [values for values in held.values() if len(values) > 1]
    count = sum(map(len, repeated))
    if count < 16:
        return None, 0
    whole = std(np.concatenate(repeated)) ** 2
    if whole == 0:
        return None, 0
    inner = sum(((LONG(values) - mean(values)) ** 2).sum() for values in repeated)
    return inner / (count - len(repeated)) / whole, 0


def departure(rows):
    def reference(h):
        new, old = inside(h, rows(h))
        r = np.exp(new - old)
        return max(r.max() - 1, 1 - r.min()), 1e-2 * (1 + r.max())

    return reference


def drift(h):
    means = [(mean(old), std(old)) for old in (inside(h, h["epoch"] == e)[1] for e in range(EPOCHS))]
    return max(abs(m - means[0][0]) for m, _ in means[1:]) / means[0][1], abs(means[0][0] / means[0][1]) * 10


def change_corr(h):
    """Return the correlation of successive changes, sample by sample through the epochs."""
    new, keep = h["log_probs"], h["response_mask"]
    place = [{h["sample"][row]: row for row in np.flatnonzero(h["epoch"] == e)} for e in range(EPOCHS)]
    pairs = [
        (new[place[1][s]][keep[row]] - new[row][keep[row]], new[place[2][s]][keep[row]] - new[place[1][s]][keep[row]])
        for s, row in place[0].items()
    ]
    one, other = (LONG(np.concatenate(part)) for part in zip(*pairs, strict=True))
    if len(one) < 200:
        return None, 0
    return (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()), 1


def shift_gain(h):
    new, old, keep = (h[name].reshape(-1) for name in ("log_probs", "old_log_probs", "response_mask"))

    def at(k):
        size = len(new) - abs(k)
        a, b = max(0, -k), max(0, k)
        both = keep[a : a + size] & keep[b : b + size]
        return correlation(new[a : a + size][both], old[b : b + size][both]) if both.sum() >= 200 else None

    others = [found for size in (1, 2, 3, 4) for k in (size, -size) if (found := at(k)) is not None]
    here = at(0)
    return (None, 0) if here is None or not others else (max(others) - here, 1)


def cell_kl(h):
    return [
        mean(k3(np.subtract(*inside(h, (h["epoch"] == e) & (h["minibatch"] == m)))))
        for e in range(EPOCHS)
        for m in range(3)
    ]


def kl_share(h):
    first, last = (mean(k3(np.subtract(*inside(h, h["epoch"] == e)))) for e in (0, EPOCHS - 1))
    return first / last, 0


def kl_corr(h):
    return correlation(np.sqrt(np.array(cell_kl(h))), np.arange(EPOCHS * 3)), 1


def whole_groups(h):
    """Return advantages, rewards, groups of the first epoch."""
    rows = h["epoch"] == 0
    return h["advantages"][rows], h["rewards"][rows], h["group_ids"][rows]


def by_group(values, group):
    return [LONG(values[group == g]) for g in range(GROUPS)]


def recomputed(rewards, group, scaled):
    found = np.zeros(len(rewards), LONG)
    for g in np.unique(group):
        own = LONG(rewards[group == g]) - mean(rewards[group == g])
        spread = np.sqrt((own**2).sum() / (len(own) - 1)) + LONG(1e-4) if scaled else LONG(1)
        found[group == g] = own / spread
    return found


def variants(rewards, group):
    return [recomputed(rewards, group, False), recomputed(rewards, group, True), LONG(rewards)]


def recomputed_corr(h):
    a, r, g = whole_groups(h)
    return max((correlation(a, v) for v in variants(r, g)), key=abs), 1


def reordered(h):
    a, r, g = whole_groups(h)
    gaps = []
    for v in variants(r, g):
        ranked = [np.sort((LONG(x) - mean(x)) / std(x)) for x in (a, v)]
        gaps.append(abs(ranked[0] - ranked[1]).max())
    return min(gaps), 10


def other_groups(h):
    a, r, g = whole_groups(h)
    rows = np.arange(len(a))
    others = [other for other in (rows // SIZE, rows % GROUPS) if len({*zip(other, g, strict=True)}) > GROUPS]
    found = [max((correlation(a, v) for v in variants(r, other)), key=abs) for other in others]
    return (max(found) if found else None), 1


def group_mean(h):
    a, _, g = whole_groups(h)
    return max(abs(mean(own) - mean(a)) for own in by_group(a, g)) / std(a), 10


def group_bound(h):
    a, _, g = whole_groups(h)
    spreads = [np.sqrt(((own - mean(own)) ** 2).sum() / (SIZE - 1)) for own in by_group(a, g)]
    return abs(a).max() / (np.median(np.array(spreads, LONG)) * (SIZE - 1) / np.sqrt(LONG(SIZE))), 0


def odd_group(h):
    a, _, g = whole_groups(h)
    off = np.array([abs(mean(own)) / std(a) for own in by_group(a, g)])
    return (off.max() if np.quantile(off, 0.6) < 5e-3 else None), 10


def of_ratio(name):
    def reference(h):
        new, old = inside(h)
        advantages = (h["advantages"][:, None] + np.zeros((1, TIME)))[h["response_mask"]]
        return RATIO[name](new, old, advantages)

    return reference


def follow(h):
    corr, _ = of_ratio("advantage_corr")(h)
    return corr * np.sqrt(LONG(h["response_mask"].sum())), 100


def of_quantile(q):
    return lambda h: (np.exp(quantile(np.subtract(*inside(h)), q)), 1e3)


def errors(h):
    r = np.exp(np.subtract(*inside(h)))
    return deviations(r), 1e3 * math.sqrt(r.size) / std(r)


OF_DUMPS = {
    "ratio_one_share": of_ratio("one_share"),
    "ratio_mean_errors": errors,
    "ratio_distinct": of_ratio("distinct"),
    "ratio_p01": of_quantile(0.01),
    "ratio_median": of_quantile(0.5),
    "ratio_p99": of_quantile(0.99),
    "log_probs_nonfinite": lambda h: (0, 0),
    "log_prob_shift_gain": shift_gain,
    "start_logratio_std": lambda h: (first_pass(h)[0][4], 0),
    "sampler_logratio_std": lambda h: (first_pass(h)[1][4], 0),
    "passes_logratio_std": lambda h: (worse(h)[4], 0),
    "passes_over_rounding": over_rounding,
    "passes_correlation": of_passes("correlation"),
    "passes_slope_excess": excess,
    "passes_moved_share": lambda h: (share(abs(np.subtract(*worse(h)[:2])) > MOVED), 0),
    "passes_one_sided": one_sided,
    "passes_asymmetry": lambda h: (abs(2 * of_passes("rising")(h)[0] - 1), 0),
    "passes_padding_corr": of_passes("padding"),
    "passes_least_padded": of_passes("least_padded"),
    "passes_position_corr": lambda h: (correlation(abs(np.subtract(*worse(h)[:2])), worse(h)[3]), 1),
    "passes_repeat_share": repeat_share,
    "kept_mass_mean": lambda h: (mean(h["kept_mass"][h["response_mask"]]), 0),
    "old_log_prob_drift": drift,
    "kl_first_epoch_share": kl_share,
    "kl_step_corr": kl_corr,
    "epoch_change_corr": change_corr,
    "within_epoch_ratio_dev": departure(lambda h: h["minibatch"] > 0),
    "surrogate_gain": of_ratio("gain"),
    "advantage_follow": follow,
}
OF_FIELD = {
    "correlation": ("advantages_recomputed_corr", recomputed_corr),
    "reordered": ("advantages_reordered_gap", reordered),
    "std": ("advantages_recomputed_std", lambda h: (std(recomputed(*whole_groups(h)[1:], False)), 0)),
    "other_groups": ("advantages_other_groups_corr", other_groups),
    "group_mean": ("advantages_group_mean", group_mean),
    "group_bound": ("advantages_group_bound", group_bound),
    "odd_group": ("advantages_odd_group", odd_group),
}
OF_DUMPS |= dict(OF_FIELD.values())
#: Logged metrics that dumps hold as well.
LOGGED = {
    "approx_kl": of_ratio("k3"),
    "approx_kl_k1": of_ratio("k1"),
    "approx_kl_k2": of_ratio("k2"),
    "effective_sample_size": of_ratio("ess"),
    "clip_fraction_low": of_ratio("clipped_low"),
    "clip_fraction_high": of_ratio("clipped_high"),
    "clip_fraction_negative": of_ratio("effective_low"),
    "clip_fraction_positive": of_ratio("effective_high"),
    "clip_fraction_dual": of_ratio("dual"),
    "logratio_advantage_corr": of_ratio("advantage_corr"),
    "epoch_start_ratio_dev": departure(lambda h: (h["minibatch"] == 0) & (h["epoch"] > 0)),
    "policy_lag": lambda h: (2, 0),
    "tokens_in_loss": lambda h: (h["response_mask"].sum(), 0),
}
#: Of checkpoints: whole shares of the tensors below, told in `test_metrics_of_checkpoints_agree`.
OF_CHECKPOINTS = {
    "old_policy_changed": 3 / 8,
    "reference_changed": 1.0,
    "snapshot_changed": 0.5,
    "weights_nonfinite": 2.0,
    "adapters_zero": 0.5,
    "optimizer_state_share": 0.5,
    "optimizer_moving": 0.5,
    "optimizer_state_fitting": 0.5,
    "swallowed_fraction": 0.75,
}
#: Held against a log, by `test_tensor_runs`, and against an earlier dump, by `test_sampler`.
OF_LOGS = {"log_dump_gap", "sampler_moved"}


def test_every_metric_of_tensors_has_a_reference():
    of_tensors = {name for name, metric in METRICS.items() if not metric.logged}
    assert of_tensors == set(OF_DUMPS) | set(OF_CHECKPOINTS) | OF_LOGS


def archive(named, scalars=None, path="update_1.npz", container="npz"):
    held = {name: Tensor.of(name, np.asarray(values)) for name, values in named.items()}
    return Archive(path=path, container=container, tensors=held, scalars=scalars or {})


@pytest.mark.parametrize(("scale", "extreme"), [(0.0, False), (1e-4, False), (0.3, False), (0.5, True)])
def test_metrics_of_dumps_agree(scale, extreme):
    references = {name: one for name, one in (OF_DUMPS | LOGGED).items() if name != "epoch_change_corr"}
    missing = set(references)
    for seed in range(4):
        held = dump(seed, scale, extreme)
        known = dump_run.Known(clip=CLIP, dual_clip=DUAL)
        (record,) = dump_run.with_epochs([dump_run.measure(archive(held), known=known)])
        for name, reference in references.items():
            plain, cancels = reference(held)
            if plain is None or math.isnan(plain):
                assert name not in record.values, name
                continue
            assert agree(record.values[name], plain, cancels), (name, record.values[name], float(plain))
            missing.discard(name)
    if scale:  # passes that are the same bits have no pattern
        assert missing <= ({"passes_one_sided"} if scale < MOVED else set()), missing


def test_changes_through_epochs_agree():
    held = dump(0, 0.0, False)
    held["old_log_probs"] = held["rollout_log_probs"]
    bits = [row.tobytes() for row in held["rollout_log_probs"]]
    held["sample"] = np.array([bits.index(row) for row in bits])
    sample = held.pop("sample")
    found = dump_run.measure(archive(held)).values["epoch_change_corr"]
    assert agree(found, *change_corr(held | {"sample": sample}))


def bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_metrics_of_checkpoints_agree():
    w = np.arange(1.0, 9.0, dtype=np.float32)
    old, later, reference = w.copy(), w.copy(), w + 1
    old[:3] += 1
    later[::2] *= 2

    def named(prefix, values):
        return {f"{prefix}.layer.weight": values}

    def measured(*archives, rate=None):
        found = {}
        for record in checkpoint_run.measure(list(archives), rate):
            found |= record.values
        return found

    safe = {"container": "safetensors"}
    found = measured(archive(named("policy", w) | named("old_policy", old) | named("ref", reference), **safe))
    found |= {
        "snapshot_changed": measured(
            archive({"w.weight": w}, path="step_1.safetensors", **safe),
            archive({"w.weight": later}, path="step_2.safetensors", **safe),
        )["snapshot_changed"]
    }
    broken = np.array([1, math.nan, math.inf, 2], np.float32)
    found["weights_nonfinite"] = measured(archive({"w.weight": broken}, **safe))["weights_nonfinite"]
    lora = {"q.lora_B.weight": np.zeros((2, 2)), "v.lora_B.weight": np.eye(2), "q.lora_A.weight": np.eye(2)}
    found["adapters_zero"] = measured(archive(lora, **safe))["adapters_zero"]
    state = {
        "policy.w": np.ones((2, 2), np.float32),
        "optimizer.state.0.exp_avg": np.ones((2, 2), np.float32),
        "optimizer.state.1.exp_avg": np.zeros((3, 3), np.float32),
        "optimizer.param_groups.0.params": np.arange(4),
    }
    of_state = measured(archive(state, container="pt", path="policy.pt"))
    found |= {name: value for name, value in of_state.items() if name.startswith("optimizer")}
    half = Tensor.of("w", bfloat16([1.0, 1.0, 1.0, 1e-6]), dtype="bfloat16")
    moment = Tensor.of("m", bfloat16([0.5] * 4), dtype="bfloat16")
    swallowed = Archive(
        path="policy.pt",
        container="pt",
        tensors={"policy.w": half, "optimizer.state.0.exp_avg": moment},
        scalars={"optimizer.param_groups.0.lr": 1e-5, "optimizer.param_groups.0.params.0": 0},
    )
    found["swallowed_fraction"] = measured(swallowed)["swallowed_fraction"]
    for name, plain in OF_CHECKPOINTS.items():
        assert agree(found[name], plain), (name, json.dumps(found))


@pytest.mark.parametrize("values", [[], [math.nan], [-1.0], [-math.inf, math.nan]])
def test_empty_and_broken_dumps_tell_no_numbers_that_are_not_there(values):
    values = np.array(values)
    found = dump_run.measure(archive({"log_probs": values, "old_log_probs": values, "advantages": values})).values
    alone = {"log_probs_nonfinite", "tokens_in_loss", "policy_loss"}
    if np.isfinite(values).any():
        assert (found["ratio_one_share"], found["approx_kl"], found["effective_sample_size"]) == (1, 0, 1)
    else:
        assert set(found) <= alone
        assert found["tokens_in_loss"] == len(values)
