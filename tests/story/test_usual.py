"""Where a metric usually lies, and on which side of it a run ends."""

from __future__ import annotations

import pytest

from ppo_doctor.story.usual import USUAL, USUAL_ONCE, usual
from tests.story.test_story import a_run, series


@pytest.mark.parametrize(
    ("metric", "values", "remark"),
    [
        ("approx_kl", [0.01, 0.5], "ends above"),
        ("approx_kl", [0.5, 0.01], ""),
        ("approx_kl", [0.01, 0.0], "ends below"),
        ("approx_kl", [0.5, None], "above"),
        ("approx_kl", [1e-8, 1e-9], "below"),
        ("clip_fraction", [0.0, 0.303], ""),
        ("explained_variance", [0.0, -0.4], "ends below"),
        ("ratio_mean", [1.0, 1.0001], ""),
        ("ratio_mean", [1.0, 1.4], "ends above"),
        ("approx_kl", [None, None], ""),
    ],
)
def test_a_remark_says_on_which_side_the_last_number_is(metric: str, values: list[float | None], remark: str) -> None:
    assert USUAL[metric].remark(values) == remark


def test_one_update_per_batch_has_no_divergence() -> None:
    run = a_run(series("approx_kl", [0.0, 0.0]))
    found = usual(run, "approx_kl", updates=1)
    assert found is USUAL_ONCE["approx_kl"]
    assert found.remark([0.0, 1e-9]) == ""
    assert usual(run, "approx_kl", updates=4) is USUAL["approx_kl"]


def test_a_setting_in_force_has_the_framework_s_default() -> None:
    assert str(usual(a_run(), "learning_rate", updates=None)) == "default 1e-6"
    assert usual(a_run(), "entropy", updates=None) is None


def test_advantages_are_held_to_unit_scale_only_where_they_are_normalised() -> None:
    assert usual(a_run(), "advantages_std", updates=None) is None


def test_every_range_says_where_it_comes_from() -> None:
    assert all(found.source for found in (*USUAL.values(), *USUAL_ONCE.values()))
