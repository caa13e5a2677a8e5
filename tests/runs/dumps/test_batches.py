"""KL through the minibatches of an update: steps make it grow, a mismatch has it from the start."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor.readers.tensors.tensor import Tensor
from ppo_doctor.runs.dumps.batches import Cells
from ppo_doctor.runs.dumps.recompute import group_bound, odd_group
from ppo_doctor.runs.dumps.statistics import Kl, growth, joined, kl_by_cell


def update(size_at, epochs=4, minibatches=3, rows=60):
    """Return tensors and cells of an update whose log-ratios have a size that depends on the steps before."""
    chance = np.random.default_rng(1)
    epoch, minibatch = np.repeat(np.arange(epochs), rows), np.tile(np.arange(rows) % minibatches, epochs)
    size = np.array([size_at(e * minibatches + m) for e, m in zip(epoch, minibatch, strict=True)])
    old = -chance.exponential(size=(len(epoch), 7))
    new = old + size[:, None] * chance.normal(size=old.shape)
    return Tensor.of("new", new), Tensor.of("old", old), Cells(epochs=epoch, minibatches=minibatch)


def test_steps_make_kl_grow():
    found = growth(kl_by_cell(*update(lambda step: 0.01 * step), None))
    assert found["kl_step_corr"] > 0.99
    assert found["kl_first_epoch_share"] < 0.05


def test_a_random_walk_grows_more_slowly():
    found = growth(kl_by_cell(*update(lambda step: 0.01 * math.sqrt(step), epochs=2, minibatches=8), None))
    assert found["kl_step_corr"] > 0.9
    assert found["kl_first_epoch_share"] == pytest.approx(28 / 92, rel=0.1)


def test_a_mismatch_is_there_from_the_start():
    found = growth(kl_by_cell(*update(lambda _step: 0.1), None))
    assert abs(found["kl_step_corr"]) < 0.7
    assert found["kl_first_epoch_share"] == pytest.approx(1, abs=0.2)


def test_a_policy_that_stands_still_tells_nothing():
    assert growth(kl_by_cell(*update(lambda _step: 0.0), None)) == {}
    assert growth({}) == {}


def test_what_is_masked_or_broken_is_left_out():
    new, old, cells = update(lambda step: 0.01 * step)
    plain = kl_by_cell(new, old, cells, None)
    held = new.array().copy()
    held[:, 2], held[:, 3] = math.nan, -math.inf
    mask = np.ones(held.shape, bool)
    mask[:, 3] = False
    found = kl_by_cell(Tensor.of("new", held), old, cells, Tensor.of("mask", mask))
    assert set(found) == set(plain)
    assert all(found[cell].count * 7 == plain[cell].count * 5 for cell in plain)
    assert all(math.isfinite(kl.total) for kl in found.values())


def test_files_of_one_update_are_joined():
    whole = kl_by_cell(*update(lambda step: 0.01 * step), None)
    apart = [{cell: kl} for cell, kl in whole.items()]
    assert joined(apart) == whole
    assert joined([{(0, 0): Kl(2, 1.0)}, {(0, 0): Kl(3, 0.5)}]) == {(0, 0): Kl(5, 1.5)}


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
