"""An expression that is compiled at its first use finds what a compiled one finds."""

from __future__ import annotations

import re

import pytest

from ppo_doctor.model.patterns import lazy_pattern


def test_it_has_the_methods_of_a_compiled_expression():
    word = lazy_pattern(r"(?P<first>[a-z])\w*", re.IGNORECASE)
    assert word.pattern == r"(?P<first>[a-z])\w*"
    assert word.findall("Kl 3 loss") == ["K", "l"]
    assert word.sub("-", "Kl 3 loss") == "- 3 -"
    assert (match := word.fullmatch("Kl")) is not None
    assert match["first"] == "K"
    assert word.groups == 1


def test_bytes_are_searched_by_bytes():
    assert lazy_pattern(rb"\0{2,}").search(b"a\0\0b") is not None


def test_an_invalid_expression_fails_when_it_is_used():
    broken = lazy_pattern("(")
    with pytest.raises(re.error):
        broken.search("x")
