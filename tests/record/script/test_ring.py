"""Values are traced to the calls that computed them."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.record.script.ring import PROBES, Ring

ROLLOUT, LOOP = (((lambda: 0).__code__, 10),), (((lambda: 1).__code__, 20),)


class Values:
    """As much of a tensor as the ring needs."""

    def __init__(self, values):
        self._values = np.asarray(values, np.float32)

    def __getattr__(self, name):
        return (lambda *_: self._values) if name == "numpy" else (lambda *_: self)


def values(seed, size=32):
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.fixture
def ring():
    return Ring(512)


def test_values_of_several_calls_are_traced_to_their_place(ring):
    for step in range(4):
        ring.add(values(step), ROLLOUT, 0, graded=False)
    ring.add(values(9), LOOP, 3, graded=True)
    mixed = np.concatenate([values(step)[::3] for step in range(4)])
    origin = ring.origin(Values(mixed))
    assert (origin.stack, origin.first, origin.last, origin.graded) == (ROLLOUT, 0, 0, False)


def test_padding_and_order_do_not_matter(ring):
    ring.add(values(0), ROLLOUT, 0, graded=False)
    assert ring.origin(Values(np.concatenate([np.zeros(40, np.float32), values(0)[::-1]]))).stack == ROLLOUT


def test_values_that_no_call_computed_have_no_origin(ring):
    assert ring.origin(Values(values(0))) is None
    ring.add(values(0), ROLLOUT, 0, graded=False)
    assert ring.origin(Values(values(1))) is None
    half = np.concatenate([values(0)[: PROBES // 2], values(1)])
    assert ring.origin(Values(half)) is None
    assert ring.origin(Values(np.zeros(8))) is None


def test_a_place_without_gradient_and_an_earlier_one_come_first(ring):
    ring.add(values(0), LOOP, 1, graded=True)
    ring.add(values(0), ROLLOUT, 2, graded=False)
    ring.add(values(0), ROLLOUT, 5, graded=False)
    origin = ring.origin(Values(values(0)))
    assert (origin.stack, origin.first, origin.last) == (ROLLOUT, 2, 5)


def test_a_full_ring_forgets_the_oldest_values(ring):
    for step in range(40):
        ring.add(values(step), ROLLOUT, step, graded=False)
    assert ring.origin(Values(values(0))) is None
    assert ring.origin(Values(values(39))).first == 39
    ring.add(values(50, 200), LOOP, 50, graded=False)  # more than a quarter of the ring
    assert ring.origin(Values(values(50, 200))) is None
    ring.clear()
    assert ring.origin(Values(values(39))) is None


def test_the_first_call_that_computed_values_is_given_whole(ring):
    ring.add(values(1), ROLLOUT, 0, graded=False)
    ring.add(values(2), LOOP, 0, graded=False)
    numbers, stack = ring.first(Values(values(2)[:9]))
    assert stack == LOOP
    assert np.array_equal(numbers, values(2))
    assert ring.first(Values(values(3))) is None
