"""What to do about a cause, with the user's own values."""

from __future__ import annotations

from ppo_doctor.model import Remedy
from ppo_doctor.story.actions import MOST_ACTIONS, actions
from ppo_doctor.story.model import Action

SET = Remedy(do="set the default", key="lr", now=1e-10, then=3e-4)
RAISE = Remedy(do="multiply it by 10", key="lr", now=1e-10, then=1e-9)
OTHER = Remedy(do="add epochs", key="epochs", now=1, then=2)


def test_a_setting_that_has_its_value_is_not_told_about_again() -> None:
    first, resort = actions([SET, RAISE, OTHER])
    assert first == Action(say="set the default", key="lr", now="1e-10", to="0.0003")
    assert resort.key == "epochs"


def test_each_of_several_settings_has_its_value() -> None:
    assert [(told.key, told.to) for told in actions([SET, OTHER])] == [("lr", "0.0003"), ("epochs", "2")]


def test_a_setting_without_a_value_to_set_leaves_that_to_the_next() -> None:
    words = Remedy(do="check the schedule", key="lr", now=1e-10)
    assert [told.to for told in actions([words, RAISE])] == ["", "1e-9"]


def test_only_the_first_are_told() -> None:
    assert len(actions([SET, OTHER, RAISE])) == MOST_ACTIONS
