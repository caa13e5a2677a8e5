"""Identities hold over one set of samples: they are judged where both windows are declared to be the same."""

from __future__ import annotations

import dataclasses

import pytest

from tests.synthetic import a_series, an_axis, observe

WINDOWS = ("all minibatches", "last minibatch", "last epoch", None)
OFF = {"ratio_mean": 1.05, "approx_kl": 0.01, "approx_kl_k1": 0.008, "clip_fraction": 0.9}
ESTIMATORS = {"approx_kl": "k3", "approx_kl_k1": "k1", "clip_fraction": "both sides"}


def contradicting(**windows):
    """Return the observations on metrics that contradict each other over one window, each with its own."""
    axis = an_axis(range(20))
    series = [a_series(name, [value] * 20, axis=axis, estimator=ESTIMATORS.get(name)) for name, value in OFF.items()]
    declared = [dataclasses.replace(one, aggregation=windows.get(one.name, windows.get("all"))) for one in series]
    return observe(*declared, config={"clip_range": 0.2, "ppo_epochs": 4, "num_minibatches": 4})


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_not_declared_is_not_judged(window):
    found = contradicting(all=window).series("clip_over_spread")
    assert (found is not None) == (window is not None)
    assert found is None or (found.values > 0).all()


@pytest.mark.parametrize("kl", WINDOWS[1:])
def test_a_clip_fraction_is_not_held_against_the_kl_of_other_minibatches(kl):
    seen = contradicting(all="all minibatches", approx_kl=kl)
    assert seen.series("clip_over_spread") is None
