"""Statistics of short arrays, and equality up to the resolution of float32."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppo_doctor.checks.cases import case_run
from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model import arrays
from ppo_doctor.model.arrays import (
    beside,
    by_value,
    median,
    quantile,
    ranks,
    running_medians,
    running_quantiles,
    same,
    span_medians,
)
from tests.perturbation import another_processor, verdicts
from tests.synthetic import a_series

values = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60).map(np.array)


@given(values, st.data())
def test_medians_of_spans(held, data):
    cuts = data.draw(st.sets(st.integers(1, max(1, len(held) - 1)), max_size=8))
    bounds = np.array(sorted({0, len(held), *(cut for cut in cuts if cut < len(held))}))
    plain = [median(held[a:b]) for a, b in itertools.pairwise(bounds)]
    assert span_medians(held, bounds).tolist() == pytest.approx(plain, rel=1e-15)


@given(values, st.data())
def test_running_medians(held, data):
    width = data.draw(st.integers(1, len(held)))
    plain = [median(held[i : i + width]) for i in range(len(held) - width + 1)]
    assert running_medians(held, width).tolist() == pytest.approx(plain, rel=1e-15)


@pytest.mark.parametrize("records", [513, 600, 2_000])
@pytest.mark.parametrize("width", [25, 64, 65, 512])
@pytest.mark.parametrize("spread", [0.0, 1.0, 1e300])
def test_stretches_that_are_not_sorted_side_by_side(records, width, spread):
    """Ties, signs and infinity, against a sort of each stretch."""
    held = np.round(np.random.default_rng(records).normal(size=records), 1) * spread
    held[::97] = np.inf
    rows = np.sort(np.lib.stride_tricks.sliding_window_view(held, width), axis=1)
    low, high = rows[:, (width - 1) // 2], rows[:, width // 2]
    plain = np.where(low == high, low, low / 2 + high / 2)
    assert np.array_equal(running_medians(held, width), plain)
    for share in (0.0, 0.05, 0.9):
        found = [quantile(held[i : i + width], share) for i in range(0, records - width, 53)]
        assert np.array_equal(running_quantiles(held, width, share)[: records - width : 53], found)


def test_the_largest_numbers_do_not_overflow():
    huge = np.array([1.7e308, 1.7e308])
    assert span_medians(huge, np.array([0, 2])).tolist() == [1.7e308]
    assert running_medians(huge, 2).tolist() == [1.7e308]


def test_one_long_span_among_short_ones_takes_no_more_memory_than_even_ones():
    held = np.random.default_rng(0).random(100_000)
    peaks = []
    for bounds in (np.arange(0, 100_001, 500), np.append(np.arange(200), 100_000)):
        tracemalloc.start()
        span_medians(held, bounds)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 8 * held.nbytes


def test_equal_values_share_the_mean_of_their_ranks():
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


@given(values, st.randoms())
def test_ranks_do_not_depend_on_the_order_of_records(held, random):
    order = random.sample(range(len(held)), len(held))
    assert ranks(held[order]).tolist() == ranks(held)[order].tolist()


@given(st.lists(st.integers(-3, 3)))
def test_places_by_value(held):
    groups = {int(value): places.tolist() for value, places in by_value(np.array(held, dtype=np.int64))}
    assert groups == {value: [i for i, other in enumerate(held) if other == value] for value in sorted(set(held))}


def logged(name, records):
    """Return a metric whose values are the records that hold it, of which each has a step of its own."""
    series = a_series(name, [float(at) for at in records], steps=[10 * at for at in records])
    return replace(series, axis=replace(series.axis, records=np.array(records)))


def test_metrics_of_the_same_records_stand_beside_each_other_as_they_are():
    series = logged("approx_kl", range(5))
    other = replace(series, name="entropy")
    assert beside(series, other) is other


@pytest.mark.parametrize(("ours", "theirs"), [(range(20), [*range(7), *range(8, 20)]), ([0, 1, 2], [0, 2])])
def test_a_lost_cell_is_nan_at_its_record(ours, theirs):
    series, other = logged("approx_kl", ours), logged("entropy", theirs)
    found = beside(series, other)
    assert found.axis is series.axis
    expected = [float(at) if at in theirs else math.nan for at in ours]
    assert np.array_equal(found.values, expected, equal_nan=True)
    whole = beside(other, series)
    assert whole.axis is other.axis
    assert whole.values.tolist() == [float(at) for at in theirs]


def test_records_that_stand_in_another_order_in_the_log_are_found():
    series, other = logged("approx_kl", [3, 1, 2, 0]), logged("entropy", [0, 2, 3, 1])
    assert beside(series, other).values.tolist() == [3.0, 1.0, 2.0, 0.0]


def test_what_is_logged_at_other_times_or_in_another_file_is_not_beside():
    series = logged("approx_kl", range(20))
    assert beside(series, logged("entropy", range(0, 20, 2))) is None
    assert beside(series, logged("entropy", range(20, 40))) is None
    assert beside(series, logged("entropy", [])) is None
    other = logged("entropy", range(19))
    assert beside(series, replace(other, axis=replace(other.axis, path="other.jsonl"))) is None
    assert beside(series, None) is beside(None, series) is None


SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_logs"


LOGS = tomllib.loads((SAMPLES / "index.toml").read_text(encoding="utf-8"))["log"]


JUDGED = [SAMPLES / log["path"] for log in LOGS if log["verdict"] != "error"]


HALF = 2.0**-24


def series(name, *values, **case):
    points = " ".join(f"{value:.17g}" for value in values)
    return case_run({"series": {name: points}, **case}).series[name]


# Numbers


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        *(("approx_kl", 0.0), ("approx_kl_k1", 0.0), ("epoch_start_ratio_dev", 0.0), ("batch_start_ratio_dev", 0.0)),
        *(("ratio_std", 0.0), ("ratio_mean", 1.0), ("ratio_max", 1.0), ("ratio_min", 1.0), ("clip_fraction", 0.0)),
    ],
)
def test_half_a_bit_off_identity_is_identity(name, identity):
    noise = [HALF, 0.0, HALF, 0.0, 0.0]
    held = series(name, *(identity + off for off in noise), identity + 0.01)
    assert held.at(identity).tolist() == [True] * 5 + [False]


@pytest.mark.parametrize("name", ["policy_loss", "grad_norm", "learning_rate", "update_norm", "value_loss"])
def test_quantities_of_any_scale_are_zero_only_at_zero(name):
    assert series(name, 1e-12, 0.0).at(0).tolist() == [False, True]


def test_a_kl_that_is_never_negative_moves_however_small():
    small = [1e-9 * (1 + step % 3) for step in range(20)]
    assert not series("approx_kl", *small).at(0).any()


def test_a_kl_of_both_signs_is_rounding():
    assert series("approx_kl", *(1e-9 * (-1) ** step for step in range(20))).at(0).all()


def test_one_rounding_among_zeros_is_a_zero():
    assert series("approx_kl", *[0.0] * 13, -1.7e-10, 0.0).at(0).all()


def test_half_a_square_of_rounding_is_far_smaller_than_rounding():
    assert arrays.rounding_of_kl("k2", arrays.LOG_RATIO) < 1e-12 < arrays.rounding_of_kl("k3", arrays.LOG_RATIO)
    assert not series("approx_kl", 1e-10, 0.0, framework="trl-ppo").at(0)[0]


def test_the_log_probs_of_a_whole_answer_are_held_more_coarsely():
    nothing = np.zeros(0)
    assert arrays.rounding_of("ref_kl", "k1", "sum over tokens", nothing) > arrays.rounding_of(
        "ref_kl", "k1", None, nothing
    )


def test_numbers_a_float32_bit_apart_are_the_same():
    values = np.array([1.0, -3e-7, 5e9, 0.0])
    assert same(values, values * (1 + 2.0**-23)).all()
    assert not same(values[:3], values[:3] * (1 + 1e-6)).any()
    assert not same(np.array([0.0, np.nan, np.inf]), np.array([1e-30, np.nan, 1.0])).any()
    assert same(np.array([np.inf]), np.array([np.inf])).all()


def test_a_ratio_that_only_rounding_takes_off_1_departs_nowhere():
    off = [1 + HALF * (-1) ** step for step in range(20)]
    run = case_run({"series": {"ratio_std": "0x19", "ratio_mean": " ".join(map(repr, off))}})
    assert not RunView(run).series("ratio_departure").values.any()


# Verdicts


@pytest.fixture(scope="module")
def usual():
    return {path: verdicts([path]) for path in JUDGED}


def test_no_verdict_of_a_sample_log_hangs_on_the_last_bit(usual):
    with another_processor(seed=0):
        assert {path: verdicts([path]) for path in JUDGED} == usual


def rewritten(text: str, rng: np.random.Generator) -> str:
    """Change each number that is written with eight or more digits by 1 ± 2⁻²³, and write as many digits of it."""

    def one(match: re.Match[str]) -> str:
        digits = len(re.sub(r"[eE].*|\D", "", match[0]).lstrip("0"))
        return f"{float(match[0]) * (1 + rng.choice([-1, 1]) * 2.0**-23):.{digits}g}" if digits >= 8 else match[0]

    return re.sub(r"-?\d+\.\d+(?:[eE][-+]?\d+)?", one, text)


def test_no_verdict_hangs_on_the_last_digit_written(tmp_path, usual):
    rng = np.random.default_rng(0)
    for path in [path for path in JUDGED if path.suffix in (".jsonl", ".csv")][::2]:
        folder = tmp_path / path.parent.name
        folder.mkdir()
        for file in path.parent.iterdir():
            text = file.read_text(encoding="utf-8")
            (folder / file.name).write_text(rewritten(text, rng) if file == path else text, encoding="utf-8")
        assert list(verdicts([folder / path.name]).values()) == list(usual[path].values()), path


def test_digits_are_rewritten():
    written = rewritten(json.dumps({"loss": 0.12345678901234567, "kl": 0.001, "step": 12}), np.random.default_rng(0))
    now = json.loads(written)
    assert now["loss"] != 0.12345678901234567
    assert abs(now["loss"] / 0.12345678901234567 - 1) < 2e-7
    assert (now["kl"], now["step"]) == (0.001, 12)
