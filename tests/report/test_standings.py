"""What is said of a cause beside its name: how far it is behind, and what its numbers are."""

from __future__ import annotations

from dataclasses import replace

from ppo_doctor.report.standings import behind, unit
from tests.report.cases import FLAT_GROUPS


def test_a_companion_is_behind_nobody_and_its_numbers_are_odds():
    rival = replace(FLAT_GROUPS, leader=False)
    companion = replace(rival, companion=True)
    assert unit(companion) != unit(rival) == unit(FLAT_GROUPS)
    assert "besides" in behind(None, companion)
