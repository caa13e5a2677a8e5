"""Usual ranges of metrics, and the first metrics that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.model.rules import Evidence, Finding
from ppo_doctor.model.run import Run, SourceRef
from ppo_doctor.model.words import Severity
from ppo_doctor.report.key_steps import USUAL, USUAL_ONCE, first_non_finite, usual
from tests.report.test_summary import a_run, series


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


STEADY = np.full(20, 0.5)
ENDS_AT_21 = np.append(STEADY, [np.nan, np.nan])


def shown(*names: str, link: str = "numerics") -> list[Finding]:
    told = [
        Evidence(
            metric=name,
            raw=name,
            statistic="",
            observed=0,
            op="<",
            bound=1,
            source=SourceRef(path="", line=1, key=name),
        )
        for name in names
    ]
    return [
        Finding(rule="r", code="R", title="t", link=link, status="fired", severity=Severity.HIGH, evidence=(one,))
        for one in told
    ]


def test_the_metric_that_was_not_finite_first_is_named() -> None:
    run = a_run(series("loss", ENDS_AT_21), series("grad_norm", np.append(STEADY[1:], [np.inf] * 3), "train/norm"))
    found = first_non_finite(run, shown("loss", "grad_norm"))
    assert found is not None
    assert (found.step, found.keys, found.value) == (20, ("train/norm",), np.inf)


def test_metrics_that_break_together_are_all_named() -> None:
    run = a_run(series("loss", ENDS_AT_21), series("entropy", ENDS_AT_21))
    found = first_non_finite(run, shown("loss", "entropy"))
    assert found is not None
    assert (found.step, found.keys, found.grew) == (21, ("loss", "entropy"), None)


@pytest.mark.parametrize(("last", "grew"), [(4.9, False), (5.1, True)])
def test_what_had_grown_tenfold_before_is_told(last: float, grew: bool) -> None:
    before = np.append(STEADY[1:], last)
    run = a_run(series("loss", ENDS_AT_21), series("value_loss", before, "vf"), series("reward_mean", 100 * before))
    found = first_non_finite(run, shown("loss"))
    assert found is not None
    assert (found.grew is not None) is grew
    if found.grew is not None:
        assert (found.grew.key, found.grew.first, found.grew.last) == ("vf", 0.5, last)


def test_growth_after_the_break_is_not_told() -> None:
    run = a_run(series("loss", ENDS_AT_21), series("value_loss", np.append(STEADY, [50.0, 500.0])))
    found = first_non_finite(run, shown("loss"))
    assert found is not None
    assert found.grew is None


@pytest.mark.parametrize(
    ("run", "findings"),
    [
        (a_run(series("loss", STEADY)), shown("loss")),
        (a_run(series("loss", ENDS_AT_21)), shown("loss", link="policy")),
        (a_run(series("loss", ENDS_AT_21)), []),
    ],
)
def test_nothing_broke_where_no_check_on_finite_numbers_says_so(run: Run, findings: list[Finding]) -> None:
    assert first_non_finite(run, findings) is None
