"""What to do, in words: a key with the user's own value and the value to set."""

from __future__ import annotations

from typing import Any

import pytest

from ppo_doctor.model.rules import Remedy
from ppo_doctor.report.phrases import remedy_says


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Lower it."),
        ({"key": "lr"}, "Lower it (lr)."),
        ({"key": "lr", "now": "1e-4"}, "Lower it (lr, now 1e-4)."),
        ({"key": "lr", "now": "1e-4", "then": "1e-5"}, "lr: 1e-4 → 1e-5."),
        ({"key": "lr", "then": "1e-5"}, "Set lr to 1e-5."),
        ({"do": "lower it. Warm it up.", "key": "lr", "now": "1e-4", "then": "1e-5"}, "lr: 1e-4 → 1e-5. Warm it up."),
        ({"do": "lower it. Warm it up.", "key": "lr"}, "Lower it. Warm it up (lr)."),
        ({"do": "lower lr or K", "key": "lr"}, "Lower lr or K."),
        ({"do": "lower lr or K", "key": "lr", "now": "1e-4"}, "Lower lr or K (lr is now 1e-4)."),
    ],
)
def test_an_action_names_its_key_and_values_once(given: dict[str, Any], said: str) -> None:
    assert remedy_says(Remedy(**({"do": "lower it"} | given))).replace("\u00a0", " ") == said
