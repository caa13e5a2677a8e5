"""Literals in text that nobody vouches for: read, or refused with a ValueError and nothing else."""

from __future__ import annotations

import pytest

from ppo_doctor.model.literals import python_literal


def test_a_literal_is_read():
    assert python_literal("{'a': [1, 2.5, None], 'b': (True,)}") == {"a": [1, 2.5, None], "b": (True,)}


@pytest.mark.parametrize(
    "text", ["{{1}}", "{[]: 1}", "f()", "1 +", "[" * 5_000 + "]" * 5_000, "-" * 50_000 + "1", "\x00", "1" * 5_000]
)
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        python_literal(text)
