"""The ratio: how exactly 1 is known, and the ratio by its place in an update."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.diagnosis.analyze import load_run
from tests.synthetic import a_series, observe


def departure(entropy, absolute):
    kl = a_series("approx_kl", [0.0] * 60, absolute=absolute)
    return observe(kl, a_series("entropy", entropy)).series("ratio_departure")


@pytest.mark.parametrize(("absolute", "exact"), [(5e-8, True), (5e-4, False)])
def test_zeros_are_exact_where_no_print_could_hide_what_the_policy_moved(absolute, exact):
    assert departure(np.linspace(2.0, 0.2, 60), absolute).resolution.exact is exact


def test_zeros_of_a_policy_that_may_stand_are_as_coarse_as_they_are_printed():
    assert not departure([2.0] * 60, 5e-8).resolution.exact


def log(tmp_path: Path, first: float, later: float, within: float, **more: float) -> RunView:
    """Return observations of six updates of two epochs with two minibatches, whose ratio is as far from 1 as told."""
    rows = [
        {"update": update, "epoch": epoch, "minibatch": minibatch, "policy_loss": 0.01 * minibatch, **more}
        | {"ratio_max": 1 + off, "ratio_min": 1 - off / 2, "ratio_std": off / 3}
        for update in range(1, 7)
        for epoch in (0, 1)
        for minibatch in (0, 1)
        for off in [within if minibatch else later if epoch else first]
    ]
    path = tmp_path / "minibatches.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return RunView(load_run(str(path)))


def test_each_place_of_an_update_has_its_records(tmp_path: Path) -> None:
    found = log(tmp_path, first=0.0, later=0.25, within=0.5)
    for name, value, count in (("batch_start", 0.0, 6), ("epoch_start", 0.25, 6), ("within_epoch", 0.5, 12)):
        series = found.series(f"{name}_ratio_dev")
        assert series is not None
        assert series.values.tolist() == [pytest.approx(value)] * count, name


def test_the_spread_before_any_step_is_that_of_the_ratio(tmp_path: Path) -> None:
    series = log(tmp_path, first=0.3, later=0.3, within=0.3).series("passes_logratio_std")
    assert series is not None
    assert series.values.tolist() == [pytest.approx(0.1)] * 6


def test_a_log_of_updates_has_no_places(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    rows = [{"step": n, "ratio_max": 1.2, "ratio_min": 0.9, "approx_kl": 0.01, "policy_loss": 0.1} for n in range(9)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = RunView(load_run(str(path)))
    names = ("batch_start_ratio_dev", "epoch_start_ratio_dev", "within_epoch_ratio_dev", "passes_logratio_std")
    assert [found.series(name) for name in names] == [None] * len(names)


@pytest.mark.parametrize(
    ("first", "later", "within", "cause"),
    [(0.0, 0.0, 0.4, "old-logp-resynced-per-epoch"), (0.5, 0.6, 0.7, None), (0.0, 0.2, 0.3, None)],
)
def test_what_is_at_one_at_every_epoch_is_resynced(tmp_path: Path, first, later, within, cause) -> None:
    from ppo_doctor import analyze

    log(tmp_path, first, later, within, approx_kl=within**2 / 18, entropy=1.0)
    told = [found.id for found in analyze(str(tmp_path / "minibatches.jsonl")).causes]
    assert told[:1] == ([cause] if cause else told[:1])
    assert (cause is not None) == ("old-logp-resynced-per-epoch" in told)
