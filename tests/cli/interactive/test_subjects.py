"""Fuzzy search over names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.cli.interactive.subjects import ranked, score

NAMES = [
    "approx_kl",
    "approx_kl_max",
    "clip_fraction",
    "clip_fraction_low",
    "frac_reward_zero_std",
    "explained_variance",
]


def test_an_empty_query_keeps_everything_in_its_order():
    assert ranked("  ", NAMES, str) == NAMES


def test_the_exact_name_is_best_then_what_begins_so():
    assert ranked("approx_kl", NAMES, str)[:2] == ["approx_kl", "approx_kl_max"]
    assert ranked("CLIP", NAMES, str) == ["clip_fraction", "clip_fraction_low"]


def test_initials_find_a_name():
    assert ranked("frzs", NAMES, str)[0] == "frac_reward_zero_std"
    assert ranked("ev", NAMES, str)[0] == "explained_variance"


def test_letters_have_to_be_in_order():
    assert score("lk", "approx_kl") is None
    assert score("zz", "approx_kl") is None


@given(st.text(min_size=1, max_size=30))
def test_every_text_finds_itself(text):
    assert score(text, text) is not None


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=8))
def test_what_is_found_holds_the_letters_of_the_query(query, items):
    for item in ranked(query, items, str):
        rest = iter(item.lower())
        assert all(letter in rest for letter in "".join(query.lower().split()))
