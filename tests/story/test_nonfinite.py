"""What broke first in a run whose numbers stop being finite."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.model import Evidence, Finding, Run, Severity, SourceRef
from ppo_doctor.story.nonfinite import broken
from tests.story.test_story import a_run, series

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
    found = broken(run, shown("loss", "grad_norm"))
    assert found is not None
    assert (found.step, found.keys, found.value) == (20, ("train/norm",), np.inf)


def test_metrics_that_break_together_are_all_named() -> None:
    run = a_run(series("loss", ENDS_AT_21), series("entropy", ENDS_AT_21))
    found = broken(run, shown("loss", "entropy"))
    assert found is not None
    assert (found.step, found.keys, found.grew) == (21, ("loss", "entropy"), None)


@pytest.mark.parametrize(("last", "grew"), [(4.9, False), (5.1, True)])
def test_what_had_grown_tenfold_before_is_told(last: float, grew: bool) -> None:
    before = np.append(STEADY[1:], last)
    run = a_run(series("loss", ENDS_AT_21), series("value_loss", before, "vf"), series("reward_mean", 100 * before))
    found = broken(run, shown("loss"))
    assert found is not None
    assert (found.grew is not None) is grew
    if found.grew is not None:
        assert (found.grew.key, found.grew.first, found.grew.last) == ("vf", 0.5, last)


def test_growth_after_the_break_is_not_told() -> None:
    run = a_run(series("loss", ENDS_AT_21), series("value_loss", np.append(STEADY, [50.0, 500.0])))
    found = broken(run, shown("loss"))
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
    assert broken(run, findings) is None
