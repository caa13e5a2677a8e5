"""Tests over many subjects: one failure with all offenders, fixtures as usual, and never over nothing."""

from __future__ import annotations

import pytest

from tests.each import for_each


def test_all_offenders_are_listed_and_no_other():
    @for_each([1, 2, 3, 4], lambda number: f"<{number}>")
    def even(number):
        assert number % 2 == 0, "odd"

    with pytest.raises(AssertionError) as failure:
        even()
    assert str(failure.value).splitlines()[0].startswith("2 of 4")
    assert [name for name in ("<1>", "<2>", "<3>", "<4>") if name in str(failure.value)] == ["<1>", "<3>"]


def test_what_breaks_says_on_what():
    @for_each(["a", ""])
    def first(text):
        assert text[0]

    with pytest.raises(IndexError) as failure:
        first()
    assert failure.value.__notes__ == ["on "]


def test_a_test_over_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing"):
        for_each([])(lambda subject: None)  # noqa: ARG005


@for_each(["sick", "healthy"])
def test_fixtures_follow_the_subject(name, samples):
    assert (samples / name).is_dir()
