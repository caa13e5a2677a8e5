"""The assignment of columns to metrics, and what a log of PPO has."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from ppo_doctor.trainers.guessing.matching import _matched, looks_like_ppo


@pytest.mark.parametrize("named", [{"policy_loss", "value_loss"}, {"learning_rate", "loss"}, set(), {"approx_kl"}])
def test_what_does_not_look_like_ppo(named):
    assert not looks_like_ppo(named)


def test_the_matching_is_the_cheapest():
    draw = np.random.default_rng(0)
    for rows, more in ((1, 0), (2, 2), (3, 1), (4, 3)):
        costs = draw.normal(size=(rows, rows + more)).tolist()
        places = _matched(costs)
        every = (sum(costs[i][p] for i, p in enumerate(each)) for each in permutations(range(rows + more), rows))
        assert len(set(places)) == rows
        assert sum(costs[i][p] for i, p in enumerate(places)) == pytest.approx(min(every))
