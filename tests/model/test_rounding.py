"""What is 0 or 1 up to the resolution of the quantity is 0 or 1, and no verdict hangs on the last bit."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from ppo_doctor.checks.run_view import RunView
from ppo_doctor.model import arrays as rounding
from ppo_doctor.model.arrays import same
from ppo_doctor.testing import case_run
from tests.perturbation import another_processor, verdicts

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
    assert rounding.of_kl("k2", rounding.LOG_RATIO) < 1e-12 < rounding.of_kl("k3", rounding.LOG_RATIO)
    assert not series("approx_kl", 1e-10, 0.0, framework="trl-ppo").at(0)[0]


def test_the_log_probs_of_a_whole_answer_are_held_more_coarsely():
    nothing = np.zeros(0)
    assert rounding.of("ref_kl", "k1", "sum over tokens", nothing) > rounding.of("ref_kl", "k1", None, nothing)


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


@pytest.mark.parametrize("seed", range(1))
def test_no_verdict_of_a_sample_log_hangs_on_the_last_bit(seed, usual):
    with another_processor(seed):
        assert {path: verdicts([path]) for path in JUDGED} == usual


def rewritten(text: str, rng: np.random.Generator) -> str:
    """Change each number that is written with eight or more digits by 1 ± 2⁻²³, and write as many digits of it."""

    def one(match: re.Match[str]) -> str:
        digits = len(re.sub(r"[eE].*|\D", "", match[0]).lstrip("0"))
        return f"{float(match[0]) * (1 + rng.choice([-1, 1]) * 2.0**-23):.{digits}g}" if digits >= 8 else match[0]

    return re.sub(r"-?\d+\.\d+(?:[eE][-+]?\d+)?", one, text)


def test_no_verdict_hangs_on_the_last_digit_written(tmp_path, usual):
    rng = np.random.default_rng(0)
    for path in (path for path in JUDGED if path.suffix in (".jsonl", ".csv")):
        folder = tmp_path / path.parent.name
        folder.mkdir()
        for beside in path.parent.iterdir():
            text = beside.read_text(encoding="utf-8")
            (folder / beside.name).write_text(rewritten(text, rng) if beside == path else text, encoding="utf-8")
        assert list(verdicts([folder / path.name]).values()) == list(usual[path].values()), path


def test_digits_are_rewritten():
    written = rewritten(json.dumps({"loss": 0.12345678901234567, "kl": 0.001, "step": 12}), np.random.default_rng(0))
    now = json.loads(written)
    assert now["loss"] != 0.12345678901234567
    assert abs(now["loss"] / 0.12345678901234567 - 1) < 2e-7
    assert (now["kl"], now["step"]) == (0.001, 12)
