"""The sums of each minibatch: KL grows with steps, and a mismatch between passes is there from the start."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps.batches import Cells, pooled, sums_by_cell, through_epochs
from ppo_doctor.runs.dumps.recompute import group_bound, odd_group


def update(size_at, epochs=4, minibatches=3, rows=60):
    """Return tensors and cells of an update whose log-ratios have a size that depends on the steps before."""
    chance = np.random.default_rng(1)
    epoch, minibatch = np.repeat(np.arange(epochs), rows), np.tile(np.arange(rows) % minibatches, epochs)
    size = np.array([size_at(e * minibatches + m) for e, m in zip(epoch, minibatch, strict=True)])
    old = -chance.exponential(size=(len(epoch), 7))
    new = old + size[:, None] * chance.normal(size=old.shape)
    return Tensor.of("new", new), Tensor.of("old", old), Cells(epochs=epoch, minibatches=minibatch)


@pytest.mark.parametrize(
    ("size_at", "shape", "correlation", "share"),
    [
        (lambda step: 0.01 * step, {}, (0.99, 1.0), (0.0, 0.05)),
        (lambda step: 0.01 * math.sqrt(step), {"epochs": 2, "minibatches": 8}, (0.9, 1.0), (0.27, 0.34)),
        (lambda _: 0.1, {}, (-0.7, 0.7), (0.8, 1.2)),
    ],
    ids=["steps in one direction", "a random walk", "a mismatch from the start"],
)
def test_kl_through_the_minibatches_of_an_update(size_at, shape, correlation, share):
    found = through_epochs([sums_by_cell(*update(size_at, **shape), None)])
    assert correlation[0] < found["kl_step_corr"] <= correlation[1]
    assert share[0] < found["kl_first_epoch_share"] < share[1]


def test_a_policy_that_does_not_move_has_no_growth_of_kl():
    found = through_epochs([sums_by_cell(*update(lambda _: 0.0), None)])
    assert not {"kl_step_corr", "kl_first_epoch_share"} & found.keys()
    assert through_epochs([]) == {}


def test_what_is_masked_or_broken_is_left_out():
    new, old, cells = update(lambda step: 0.01 * step)
    plain = sums_by_cell(new, old, cells, None)
    values = new.array().copy()
    values[:, 2], values[:, 3] = math.nan, -math.inf
    mask = np.ones(values.shape, bool)
    mask[:, 3] = False
    found = sums_by_cell(Tensor.of("new", values), old, cells, Tensor.of("mask", mask))
    assert set(found) == set(plain)
    assert all(found[cell].samples * 7 == plain[cell].samples * 5 for cell in plain)
    assert all(found[cell].old_count * 7 == plain[cell].old_count * 6 for cell in plain)
    assert all(math.isfinite(part.k3) for part in found.values())


def test_sums_of_parts_make_those_of_the_whole():
    new, old, cells = update(lambda step: 0.01 * step)
    parts = sums_by_cell(new, old, cells, None)
    whole = pooled(parts.values())
    d, o = new.array() - old.array(), old.array()
    assert (whole.samples, whole.old_count, whole.low, whole.high) == (d.size, o.size, d.min(), d.max())
    assert (whole.old_mean, whole.old_std) == pytest.approx((o.mean(), o.std()), rel=1e-12)
    assert whole.kl == pytest.approx(np.mean(np.exp(d) - 1 - d), rel=1e-9)
    assert through_epochs([{cell: part} for cell, part in parts.items()]) == through_epochs([parts])


@pytest.mark.parametrize("freedom", [0, 1])
def test_one_success_of_a_group_reaches_the_bound_and_none_goes_beyond(freedom):
    rewards = np.zeros((5, 8))
    rewards[:, 0] = 1
    rewards[3:] = np.random.default_rng(0).normal(size=(2, 8))
    used = (rewards - rewards.mean(axis=1, keepdims=True)) / rewards.std(axis=1, ddof=freedom, keepdims=True)
    place = np.repeat(np.arange(5), 8)
    assert group_bound(used.ravel(), place, 8) == pytest.approx(1)
    merged = used.copy()
    merged[4, 0] = 4.0
    assert group_bound(merged.ravel(), place, 8) > 1.4
    by_others = rewards[3:].repeat(3, axis=0)  # leave-one-out: heavy tails, and no mean of 0
    rest = np.stack([np.delete(by_others, at, axis=1) for at in range(8)], axis=2)
    alone = (by_others - rest.mean(axis=1)) / rest.std(axis=1, ddof=1)
    assert math.isnan(group_bound(alone.ravel(), np.repeat(np.arange(6), 8), 8))
    assert math.isnan(odd_group(alone.ravel(), np.repeat(np.arange(6), 8), 8))
    assert math.isnan(group_bound(3 * used.ravel(), place, 8)), "not scaled to 1"
    assert math.isnan(group_bound(0 * used.ravel(), place, 8)), "nothing varies"
