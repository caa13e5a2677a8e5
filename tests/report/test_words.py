"""What to do, in words: a key with the user's own value and the value to set."""

from __future__ import annotations

import pytest

from ppo_doctor.report.words import action_says
from ppo_doctor.story.model import Action


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Lower it."),
        ({"key": "lr"}, "Lower it (lr)."),
        ({"key": "lr", "now": "1e-4"}, "Lower it (lr, now 1e-4)."),
        ({"key": "lr", "now": "1e-4", "to": "1e-5"}, "lr: 1e-4 → 1e-5."),
        ({"key": "lr", "to": "1e-5"}, "Set lr to 1e-5."),
        ({"say": "lower it. Warm it up.", "key": "lr", "now": "1e-4", "to": "1e-5"}, "lr: 1e-4 → 1e-5. Warm it up."),
        ({"say": "lower it. Warm it up.", "key": "lr"}, "Lower it. Warm it up (lr)."),
        ({"say": "lower lr or K", "key": "lr"}, "Lower lr or K."),
        ({"say": "lower lr or K", "key": "lr", "now": "1e-4"}, "Lower lr or K (lr is now 1e-4)."),
    ],
)
def test_an_action_names_its_key_and_values_once(given: dict[str, str], said: str) -> None:
    assert action_says(Action(**({"say": "lower it"} | given))).replace("\u00a0", " ") == said
