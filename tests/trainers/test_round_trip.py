"""Each profile both ways: canonical series, written as the framework logs them, come back as they were."""

from __future__ import annotations

import numpy as np
import pytest

from ppo_doctor.trainers import detection as frameworks

from .dialects import WILD, canonical_values, native_key, read_back, written

PPO = sorted(name for name, profile in frameworks.profiles().items() if profile.ppo_family)


@pytest.mark.parametrize("name", PPO)
def test_values_come_back(name: str) -> None:
    profile = frameworks.profile(name)
    values = canonical_values(profile)
    series = read_back(profile, written(profile, values))
    assert set(series) == set(values)
    for metric, expected in values.items():
        np.testing.assert_allclose(series[metric].values, expected, rtol=1e-12, err_msg=metric)
        assert series[metric].name == metric


@pytest.mark.parametrize("name", PPO)
def test_what_kind_of_estimate_comes_back(name: str) -> None:
    profile = frameworks.profile(name)
    table = written(profile, canonical_values(profile))
    for metric, series in read_back(profile, table).items():
        known = profile.resolved(table.columns).metrics[metric]
        assert (series.estimator, series.aggregation, series.reference) == (
            known.estimator,
            known.aggregation,
            known.reference,
        )


@pytest.mark.parametrize("name", PPO)
def test_steps_come_back(name: str) -> None:
    profile = frameworks.profile(name)
    series = read_back(profile, written(profile, canonical_values(profile)))
    for found in series.values():
        assert found.axis.steps.tolist() == [10 * (index + 1) for index in range(len(found))]


def test_signs_are_turned() -> None:
    for name, metric in (("sb3", "entropy"), ("areal", "approx_kl"), ("roll", "approx_kl_k1")):
        profile = frameworks.profile(name)
        values = {metric: np.linspace(0.1, 0.9, 24)}
        table = written(profile, values)
        assert (table.columns[native_key(profile.metrics[metric])] < 0).all()
        assert (read_back(profile, table)[metric].values > 0).all()


def test_a_pattern_is_filled() -> None:
    profile = frameworks.profile("ml-agents")
    key = f"Policy/{WILD} Value Estimate"
    table = written(profile, {"policy_loss": np.ones(24)})
    table.columns[key] = np.full(24, 2.0)  # type: ignore[index]
    assert read_back(profile, table)["values_mean"].raw == key
