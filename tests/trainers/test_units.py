"""Numbers in percent, in bits, and what a ratio lacks to 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ppo_doctor.trainers.units import in_own_units
from tests.synthetic import a_series as series


def read(one):
    kept, says = in_own_units({one.name: one}, {one.name})
    return next(iter(kept.values())), says


def share(values, raw="cf"):
    from dataclasses import replace

    return replace(series("clip_fraction", values), raw=raw, unit="fraction")


def test_a_share_beyond_one_is_percent():
    found, says = read(share([12.0, 8.0, 0.5, 23.0]))
    assert found.values.tolist() == pytest.approx([0.12, 0.08, 0.005, 0.23])
    assert len(says) == 1


def test_a_sign_of_percent_is_believed_below_one():
    assert read(share([0.5, 0.2, 0.1], raw="cf%"))[0].values.tolist() == pytest.approx([0.005, 0.002, 0.001])


@pytest.mark.parametrize("values", [[0.1, 0.3, 0.2], [0.0, 0.0, 0.0], [-0.1, 5.0, 3.0], [120.0, 200.0, 5.0]])
def test_what_is_no_percentage_stays(values):
    assert read(share(values))[0].values.tolist() == values


def test_a_share_that_never_changes_is_the_clip_range():
    assert read(share([0.2] * 10))[0].name == "clip_range"
    assert read(share([0.2] * 3))[0].name == "clip_fraction"


def test_a_ratio_around_zero_lacks_its_one():
    assert read(series("ratio_mean", [0.01, -0.02, 0.0]))[0].values.tolist() == pytest.approx([1.01, 0.98, 1.0])
    assert read(series("ratio_mean", [0.01, 0.02, 0.0]))[0].name == "ratio_abs_dev"
    assert read(series("ratio_mean", [0.99, 1.01, 1.0]))[0].values.tolist() == [0.99, 1.01, 1.0]


@pytest.mark.parametrize("actions", [2, 3, 4, 5])
def test_an_entropy_that_starts_at_that_of_n_actions_in_bits_is_in_bits(actions):
    values = math.log2(actions) * np.array([0.999, 0.998, 0.9, 0.5])
    assert read(series("entropy", values))[0].values.tolist() == pytest.approx((values * math.log(2)).tolist())


@pytest.mark.parametrize("start", [math.log(2), math.log(3), math.log(5), 2.84, 1.42, 0.0, -3.0])
def test_other_entropies_are_in_nats(start):
    values = [start, start - 0.001, start - 0.1, start - 0.5]
    assert read(series("entropy", values))[0].values.tolist() == values


def test_what_nobody_guessed_is_not_asked():
    one = series("ratio_mean", [0.01, -0.02, 0.0])
    assert in_own_units({"ratio_mean": one}, set()) == ({"ratio_mean": one}, [])


@pytest.mark.parametrize(
    ("kl", "clipped", "size"),
    [(4.0, 0.02, 0.004), (4.0, 0.6, 4.0), (0.1, 0.02, 0.1), (4.0, 0.0, 4.0)],
    ids=["few are clipped", "most are clipped", "a usual KL", "none is clipped, as of a ratio with itself"],
)
def test_a_kl_that_few_clipped_samples_do_not_allow_is_in_thousandths(kl, clipped, size):
    both = {"approx_kl": series("approx_kl", [kl] * 12), "clip_fraction": share([clipped] * 11 + [clipped / 2])}
    assert in_own_units(both, set(both))[0]["approx_kl"].values[0] == pytest.approx(size)


def test_a_kl_beyond_what_the_largest_ratio_allows_is_in_thousandths():
    kl, largest = series("approx_kl", [0.008, 0.005] * 10), series("ratio_max", [1.013] * 20)
    kept, says = in_own_units({"approx_kl": kl, "ratio_max": largest}, {"approx_kl"})
    assert kept["approx_kl"].values[0] == pytest.approx(8e-6)
    assert len(says) == 1
    wide = series("ratio_max", [1.3] * 20)
    assert in_own_units({"approx_kl": kl, "ratio_max": wide}, {"approx_kl"})[1] == []


FACTORS = {"kl100": 1e-2, "klA4": 1e-4, "kl2": 1.0, "klx1000": 1.0, "kl_e5": 1.0}


@pytest.mark.parametrize(("raw", "factor"), FACTORS.items())
def test_a_power_of_ten_in_a_name_is_believed(raw, factor):
    from dataclasses import replace

    found, _ = read(replace(series("approx_kl", [0.001, 0.002, 0.004]), raw=raw))
    assert found.values.tolist() == pytest.approx([0.001 * factor, 0.002 * factor, 0.004 * factor])
