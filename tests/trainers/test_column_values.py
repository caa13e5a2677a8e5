"""What numbers of a column decide: digits, the first minibatch, meaning of a name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.diagnosis.analyze import load_run, read_runs
from ppo_doctor.model.request import Request
from ppo_doctor.model.run import Axis, Resolution, Series
from ppo_doctor.trainers.column_values import (
    generations,
    inferred_decimals,
    is_named_so,
    settled,
    with_common_resolution,
    with_signed_zeros,
)
from tests.synthetic import a_series, an_axis


def rounded(decimals, size=60, scale=1.0):
    return np.round(np.random.default_rng(decimals).normal(size=size) * scale, decimals)


@pytest.mark.parametrize("decimals", [1, 2, 3, 4, 5])
def test_rounding_shows_in_many_values(decimals):
    assert inferred_decimals(rounded(decimals, scale=10)) == decimals


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=60),
        np.arange(60.0),
        rounded(2, size=15),
        np.zeros(60),
        np.full(60, np.nan),
        [],
    ],
    ids=["full precision", "counter", "few values", "zeros", "nan", "empty"],
)
def test_what_does_not_tell_its_rounding_is_exact(values):
    assert inferred_decimals(np.array(values, dtype=np.float64)) is None


@pytest.mark.parametrize(("spelling", "exact"), [("%.4g", True), ("%.4f", False)])
def test_a_zero_of_a_short_log_is_exact_where_it_prints_digits_and_not_decimals(spelling, exact):
    rng = np.random.default_rng(3)
    drawn = {"time_step": rng.uniform(0.1, 1, 24), "response_length": rng.uniform(10, 20, 12), "loss": np.zeros(24)}
    columns = {}
    for name, values in drawn.items():
        printed = [float(spelling % value) for value in values]
        places = inferred_decimals(np.array(printed))
        resolution = Resolution(absolute=0.0 if places is None else 0.5 * 10.0**-places)
        columns[name] = replace(a_series(name, printed, axis=an_axis(range(len(printed)))), resolution=resolution)
    assert with_common_resolution(columns)["loss"].resolution.exact is exact


def printed_loss(signs, *, absolute=5e-6, gradient=None):
    zeros = np.copysign(np.zeros(len(signs)), signs)
    columns = {"policy_loss": a_series("policy_loss", zeros, absolute=absolute)}
    if gradient is not None:
        columns["grad_norm"] = a_series("grad_norm", [gradient] * len(signs))
    return with_signed_zeros(columns)["policy_loss"]


MIXED = [1.0, -1.0] * 8


@pytest.mark.parametrize(
    ("loss", "exact"),
    [
        (printed_loss([1.0] * 16), True),
        (printed_loss(MIXED), False),
        (printed_loss([-1.0] * 16), False),
        (printed_loss([-1.0] * 16, gradient=0.2), False),
        (printed_loss([-1.0] * 16, gradient=0.0), True),
        (printed_loss(MIXED, gradient=0.0), False),
        (printed_loss([1.0] * 16, absolute=5e-3), False),
        (printed_loss([1.0] * 11), False),
    ],
    ids=["+0", "either sign", "-0", "-0 beside a gradient", "-0 without", "either, without", "two decimals", "few"],
)
def test_a_printed_zero_is_exact_where_no_rounding_has_its_sign(loss, exact):
    assert loss.resolution.exact is exact


@pytest.mark.parametrize(
    "key", ["w_err0", "w0_dev", "rho_start", "ratio_first_dev", "first_ratio_err", "q0_prom", "lp_gap0", "rho0-1"]
)
def test_names_of_the_first_minibatch(key):
    assert is_named_so(key)


@pytest.mark.parametrize("key", ["ratio", "w_dev", "rho-1", "r0", "first", "reward0", "kl0", "lp_gap", "odd_start_up"])
def test_names_of_something_else(key):
    assert not is_named_so(key)


def metrics_of(tmp_path, ratios, clipped):
    path = tmp_path / "log.jsonl"
    records = [
        {"update": i, "episode_return": i, "ratio_abs_dev": r, "clip_fraction": c, "approx_kl": 0.01}
        for i, (r, c) in enumerate(zip(ratios, clipped, strict=True))
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_runs(str(path), Request())[0].series


def test_a_ratio_of_one_beside_clipped_samples_is_of_the_first_minibatch(tmp_path):
    series = metrics_of(tmp_path, [0.0] * 12, [0.1, 0.2] * 6)
    assert "ratio_abs_dev" not in series
    assert not series["first_ratio_dev"].values.any()


def test_so_is_one_that_is_one_only_at_times(tmp_path):
    series = metrics_of(tmp_path, [0.0, 0.05, 0.06, 0.07] * 3, [0.1] * 12)
    assert series["first_ratio_dev"].values.max() == pytest.approx(0.07)


@pytest.mark.parametrize("clipped", [[0.0] * 12, [0.0] * 10 + [0.1] * 2])
def test_where_nothing_is_clipped_a_ratio_of_one_is_the_updates_own(tmp_path, clipped):
    assert "ratio_abs_dev" in metrics_of(tmp_path, [0.0] * 12, clipped)


def test_a_ratio_that_moves_beside_clipped_samples_stays(tmp_path):
    assert "ratio_abs_dev" in metrics_of(tmp_path, [0.05, 0.06, 0.07] * 4, [0.1] * 12)


def series(name: str, values: list[float]) -> Series:
    steps = np.arange(1, len(values) + 1)
    return Series(
        name=name, raw=f"raw_{name}", axis=Axis(path="log", steps=steps, lines=steps), values=np.array(values)
    )


def read(*held: Series, guessed: bool = True) -> dict[str, Series]:
    named = {one.name: one for one in held}
    return settled(named, named if guessed else (), "log")[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_an_entropy_loss_as_large_as_a_fresh_policys_entropy_is_it(sign: int) -> None:
    found = read(series("entropy_loss", [sign * 1.38, sign * 1.37, sign * 1.2, sign * 0.9]))
    assert found["entropy"].values.tolist() == [1.38, 1.37, 1.2, 0.9]
    assert "entropy_loss" not in found


def test_one_record_tells_an_entropy_as_well() -> None:
    assert read(series("entropy_loss", [38.0])).keys() == {"entropy"}
    assert read(series("entropy_loss", [np.nan])).keys() == {"entropy_loss"}


def test_an_entropy_loss_with_a_coefficient_stays_one() -> None:
    small = series("entropy_loss", [-0.0138, -0.0137, -0.012])
    assert read(small).keys() == {"entropy_loss"}
    assert read(series("entropy_loss", [-1.38, -1.37, -1.2]), guessed=False).keys() == {"entropy_loss"}


def test_a_counter_that_never_falls_counts_the_run() -> None:
    assert read(series("optimizer_steps", [16, 32, 48])).keys() == {"optimizer_steps_total"}
    assert read(series("optimizer_steps", [16, 12, 16])).keys() == {"optimizer_steps"}


def test_a_deviation_that_is_never_a_number_is_a_column_nobody_filled() -> None:
    entropy = series("entropy", [0.69, 0.68, 0.67])
    assert read(entropy, series("action_std", [np.nan] * 3)).keys() == {"entropy"}
    assert "action_std" in read(entropy, series("action_std", [1.0, 0.9, np.nan]))


def test_a_reward_beside_some_losses_marks_the_batches_of_completions() -> None:
    loss, length = series("loss", [0.0] * 12), series("response_length", [20.0] * 12)
    some, every = series("reward_mean", [1.0] * 3), series("reward_mean", [1.0] * 12)
    for reward, marks in ((some, 1), (every, 0)):
        held = {one.name: one for one in (loss, length, reward)}
        assert len(generations(held, held, "log")) == marks


@pytest.mark.parametrize(
    ("trained", "sampling", "lag"),
    [([0, 1, 2, 3], [0, 0, 2, 2], [0, 1, 0, 1]), ([4, 8, 12], [0, 4, 8], None), ([0, 1], [0, 2], None), ([], [], None)],
)
def test_how_far_the_sampler_is_behind(trained: list[float], sampling: list[float], lag: list[float] | None) -> None:
    found = read(series("policy_version", trained), series("rollout_version", sampling)).get("policy_lag")
    assert (found.values.tolist() if found is not None else None) == lag


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([1e-5] * 9, False),
        ([0.5] * 9, False),
        ([0.0] * 9, True),
        ([1e-5] * 7, True),
        ([1e-5] * 8 + [2e-5], True),
    ],
)
def test_a_divergence_of_one_number_is_a_bound(values: list[float], kept: bool) -> None:
    assert bool(read(series("approx_kl", values), guessed=False)) is kept


def test_a_divergence_that_is_printed_coarsely_is_none() -> None:
    coarse = replace(series("approx_kl", [0.01] * 9), resolution=Resolution(absolute=0.005))
    assert read(coarse).keys() == {"approx_kl"}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([0.0, 0.01, 0.02, 0.03, *[0.2] * 8], "ref_kl"),
        ([0.0, 0.02, 0.01, 0.02, *[0.01] * 8], "approx_kl"),
        ([0.01, 0.02, 0.03, 0.05, *[0.3] * 8], "approx_kl"),
        ([0.0] * 12, "approx_kl"),
    ],
)
def test_a_kl_that_starts_at_0_and_grows_is_that_to_the_start(values: list[float], name: str) -> None:
    assert list(read(series("approx_kl", [*values[:-1], values[-1] * 1.01]))) == [name]


def test_a_key_is_told_once_as_what_it_is_read_as(tmp_path: Path) -> None:
    rows = [{"step": n, "kl": 0.01 * n, "returns": 1.0 + n, "grad_norm": 0.5} for n in range(24)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    told = [str(note) for note in load_run(path).notes if "'kl'" in str(note)]
    assert len(told) == 1
    assert "ref_kl" in told[0]


def test_a_kl_that_stays_at_0_for_a_batch_and_then_grows_is_one_to_the_start() -> None:
    grows = [0.0] * 3 + [0.01 * n for n in range(1, 30)]
    assert read(series("approx_kl", grows)).keys() == {"ref_kl"}
    for other in ([0.0] * 20 + grows, [0.01, *grows], [0.0, 0.01, 0.0, *grows], [0.0, *([0.01] * 30)]):
        assert read(series("approx_kl", other)).keys() == {"approx_kl"}


def test_an_approx_kl_of_a_log_that_no_profile_is_for_may_be_one_to_the_start(tmp_path: Path) -> None:
    rows = [{"step": n, "approx_kl": 0.01 * n, "reward": 0.1 * (n % 3), "actor_loss": -0.1} for n in range(30)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert {"ref_kl"} == {"ref_kl", "approx_kl"} & load_run(str(path)).series.keys()


def in_unit(raw: str, unit: str, values: list[float], *, guessed: bool = True) -> list[float]:
    name = "entropy" if unit == "nats" else "clip_fraction"
    return read(replace(series(name, values), raw=raw, unit=unit), guessed=guessed)[name].values.tolist()


def test_bits_are_read_in_nats() -> None:
    assert in_unit("entropy_bits", "nats", [2.0, 1.0]) == pytest.approx([2 * np.log(2), np.log(2)])
    assert in_unit("entropy", "nats", [2.0, 1.0]) == [2, 1]
    assert in_unit("orbit/entropy", "nats", [2.0, 1.0]) == [2, 1]


@pytest.mark.parametrize("raw", ["percent_clipped", "clip %", "clip_pct"])
def test_a_percentage_is_read_as_a_fraction(raw: str) -> None:
    assert in_unit(raw, "fraction", [14.0, 8.0, 0.5], guessed=False) == pytest.approx([0.14, 0.08, 0.005])
    # a sign is believed below 1 too (tests/trainers/test_units.py), a word is not
    if "%" not in raw:
        assert in_unit(raw, "fraction", [0.14, 0.08], guessed=False) == [0.14, 0.08]


def test_a_share_that_is_mostly_above_1_is_a_percentage_where_only_its_name_was_read() -> None:
    assert in_unit("clipfrac", "fraction", [14.0, 8.0, 12.0]) == pytest.approx([0.14, 0.08, 0.12])
    assert in_unit("clipfrac", "fraction", [14.0, 8.0, 12.0], guessed=False) == [14, 8, 12]
    assert in_unit("clipfrac", "fraction", [*[0.1, 0.2] * 15, 3.0]) == [*[0.1, 0.2] * 15, 3]
    assert in_unit("clipfrac", "fraction", [140.0, 80.0, 12.0]) == [140, 80, 12]


def test_a_success_rate_is_the_reward_where_no_other_is_logged() -> None:
    share = series("success_rate", [0.2, 0.3, 0.5])
    assert read(share, series("entropy", [1.0, 0.9, 0.8]))["reward_mean"].values.tolist() == [0.2, 0.3, 0.5]
    assert "success_rate" in read(share, series("episode_return", [1.0, 2.0, 3.0]))


def progress(tmp_path, kls):
    rows = ["time/total_timesteps,train/approx_kl,train/clip_fraction,train/entropy_loss,train/policy_gradient_loss"]
    rows += [f"{2048 * n},{kl!r},0.1,{-1 + 0.01 * n!r},-0.01" for n, kl in enumerate(kls, start=1)]
    path = tmp_path / "progress.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("low", "estimator"), [(-0.004, "k1"), (-1e-8, "k3"), (0.001, "k3")])
def test_old_stable_baselines3_logs_a_signed_estimate(tmp_path, low, estimator):
    path = progress(tmp_path, [low if n % 4 == 0 else 0.01 + 0.001 * math.sin(n) for n in range(40)])
    (run,) = read_runs(str(path), Request())
    assert run.series["approx_kl"].estimator == estimator
    assert any("k1" in str(note) for note in run.notes) is (estimator == "k1")


def test_a_signed_estimate_is_no_logging_bug(tmp_path, cli):
    path = progress(tmp_path, [-0.004 if n % 4 == 0 else 0.01 for n in range(40)])
    report = cli("analyze", path, "--format", "json").json
    assert "metric-logging-bug" not in {cause["id"] for cause in report["causes"]}
