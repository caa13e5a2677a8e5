"""`compare` on a small share of the lab's pairs; the whole is `python -m tests.lab.pairs`."""

from __future__ import annotations

import pytest

from ppo_doctor.compare import compare
from ppo_doctor.rulepack import load_pack
from tests.lab.pairs import VARIATIONS, Told, made

PACK = load_pack(installed=False)
CONTROL = {variation.setting: variation for variation in VARIATIONS["control"]}
UPDATES = 40


@pytest.fixture(scope="module")
def seeds():
    return [made("sb3", seed, UPDATES, PACK) for seed in range(4)]


def test_seeds_of_one_setting_do_not_differ(seeds):
    pairs = [compare(seeds[a], seeds[b]) for a, b in ((0, 1), (2, 3))]
    assert [[d.metric for d in pair.divergences] for pair in pairs] == [[], []]
    assert [pair.differences for pair in pairs] == [(), ()]


@pytest.mark.parametrize("setting", ["clip_range", "ppo_epochs"])
def test_the_setting_that_differs_is_named_with_its_step(seeds, setting):
    variation = CONTROL[setting]
    other = made("sb3", 1001, UPDATES, PACK, **variation.overrides)
    told = Told(variation=variation, comparison=compare(seeds[0], other))
    assert (told.named, told.explained) == (True, True)
    first = int(seeds[0].runs[0].series["clip_fraction"].axis.steps[0])
    assert told.step <= 2 * first


def test_a_fault_that_begins_late_parts_where_it_begins():
    """At severity 2 the learning rate becomes 0 after three tenths of the run."""
    sound = made("canonical", 0, UPDATES, PACK)
    dead = made("canonical", 1, UPDATES, PACK, fault="lr-zero", severity=2)
    steps = {d.metric: d.step for d in compare(sound, dead).divergences}
    assert abs(steps["learning_rate"] - 0.3 * UPDATES) <= 1
