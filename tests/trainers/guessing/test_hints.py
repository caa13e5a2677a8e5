"""Words of people's own: each hints at some metrics, in any of its forms, and at nothing where nobody knows it."""

from __future__ import annotations

import pytest

from ppo_doctor.model.metrics import METRICS
from ppo_doctor.trainers.guessing.hints import (
    CLIPPED,
    OF_NO_METRIC,
    OF_THE_TASK,
    apart,
    by_word,
    hinted,
    hints_of,
    marked,
)


def test_hints_are_at_metrics():
    assert frozenset().union(*by_word().values()) <= METRICS.keys() | {*OF_NO_METRIC, OF_THE_TASK}
    assert METRICS.keys().isdisjoint(OF_NO_METRIC)
    assert all(by_word().values())


@pytest.mark.parametrize(
    ("word", "metric"),
    [("oracle", "value_loss"), ("chaos", "entropy"), ("snip", "clip_fraction"), ("drifts", "approx_kl")],
)
def test_a_word_and_its_forms(word, metric):
    assert metric in hinted(word)


def test_a_word_that_nobody_knows():
    assert hinted("zqxv") == frozenset()
    assert hinted("zq") == frozenset()


def test_two_words_tell_what_is_left_of_a_norm():
    assert CLIPPED in marked(["slope", "used"])
    assert not marked(["slope"])


@pytest.mark.parametrize(
    ("word", "metric"),
    [
        ("avkastning", "episode_return"),
        ("perdita", "value_loss"),
        ("celue", "policy_loss"),
        ("gakushuu", "learning_rate"),
    ],
)
def test_words_of_other_languages(word, metric):
    assert metric in hinted(word)


def test_words_written_as_one_are_taken_apart():
    assert [("value_loss" in hint, "policy_loss" in hint) for hint in hints_of("vardeforlust")] == [
        (True, False),
        (True, True),
    ]
    assert all("policy_loss" in hint for hint in hints_of("polhav"))


def test_a_word_without_its_vowels():
    assert hinted("ntrpy") == hinted("entropy")


def test_a_loss_is_that_of_all_only_where_a_word_says_so_or_none_says_more():
    assert "loss" in marked(["whole", "woe"])
    assert "loss" in marked(["woe"])
    assert "loss" not in marked(["keeper", "woe"])


def test_a_letter_for_a_ratio_before_a_bound_is_the_ratio_and_its_bound():
    assert apart("rtop") == ("ratio", "top")
    assert apart("top") == ("top",)
    assert apart("ztop") == ("ztop",)
