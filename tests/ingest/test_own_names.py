"""What names of a script's own say: units, signs, and what their words hint at."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.ingest.own_names import by_words, is_outside, means, plain, told_by


def told(key, *others):
    return told_by(key, {key, *others}, language=False)


def test_a_percent_sign_leaves_shares_and_divides():
    name = told("fence %")
    assert name.percent
    assert "entropy" not in name.allowed
    assert plain(np.array([50.0]), name) == pytest.approx(0.5)


def test_a_logarithm_is_undone():
    assert plain(np.array([-2.0]), told("lg")) == pytest.approx(0.01)


def test_words_weigh_for_what_they_hint_at_and_against_the_rest():
    name = told("oracle_err")
    assert by_words("value_loss", name, None) > 0 > by_words("entropy", name, None)
    assert means(name, "value_loss")
    assert not means(told("oracle_zqxv"), "value_loss")


def test_a_word_that_nobody_knows_weighs_nothing():
    assert by_words("entropy", told("zqxv"), None) == 0


@pytest.mark.parametrize("key", ["wall seconds", "fps", "turns planned"])
def test_clocks_and_plans_are_outside(key):
    assert is_outside(key)
