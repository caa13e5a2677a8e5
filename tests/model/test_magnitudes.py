"""Numbers of any size that float64 holds, in a log or a configuration: every quantity and every check survives them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.runs.reading import Request
from tests.every_metric import ESTIMATORS, FACTS, SETTINGS, axis_of, derive_all, observe_all

SIZES = (0.0, 5e-324, 1e-300, 1e-160, 1e-8, 1e-3, 1.0, 1e3, 2.0**53, 1e19, 1e155, 1e300, 1.7e308)
SHAPES = ("constant", "noise", "one-sided noise", "ramp", "level", "mixed", "broken", "ordinary")
LENGTHS = (1, 6, 20, 60, 120, 450)
SWITCHED = (0, 1, -1, 1e300, -1e300, 5e-324, float("inf"), float("nan"), "none", None)


def numbers(chance, size):
    """Return values of one shape, with at most one that is out of place."""
    shape, level = chance.choice(SHAPES), float(chance.choice(SIZES)) * chance.choice([1, 1, -1])
    unit = chance.random(size)
    values = {
        "constant": lambda: np.full(size, level),
        "noise": lambda: level * (unit - 0.5),
        "one-sided noise": lambda: level * unit,
        "ramp": lambda: level * np.linspace(0, 1, size),
        "level": lambda: np.where(np.arange(size) < size * unit[0], level, chance.choice(SIZES)),
        "mixed": lambda: chance.choice(SIZES, size) * chance.choice([1, -1], size),
        "broken": lambda: chance.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, level], size),
        "ordinary": lambda: unit,
    }[shape]()
    if chance.random() < 0.2:
        values[chance.integers(size)] = chance.choice([np.nan, np.inf, -np.inf, 1e308])
    return values


def settings_of(chance):
    """Return the settings of a run, some of them left out and some with a value that makes no sense."""
    kept = [name for name in SETTINGS if chance.random() < 0.8]
    return {n: SETTINGS[n] if chance.random() < 0.8 else SWITCHED[chance.integers(len(SWITCHED))] for n in kept}


def observed(seed):
    chance = np.random.default_rng(seed)
    size = int(chance.choice(LENGTHS))
    alike = numbers(chance, size)
    same = chance.random() < 0.3
    return observe_all(
        axis_of(size, int(chance.choice([1, 2048, 10**15]))),
        lambda _: alike if same and chance.random() < 0.7 else numbers(chance, size),
        config=settings_of(chance),
        facts={name: value for name, value in FACTS.items() if chance.random() < 0.6},
        estimator=ESTIMATORS[seed % len(ESTIMATORS)],
        algorithm=str(chance.choice(["ppo", "grpo"])),
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_quantity_fails_on_any_size_of_number():
    failed = {seed: told for seed in range(80) if (told := derive_all(observed(seed)))}
    assert failed == {}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_check_fails_on_any_size_of_number():
    pack, failed = load_pack(), {}
    for seed in range(24):
        told = diagnose(observed(seed).run, pack, Request())
        failed |= {f.rule: (seed, f.reason) for f in told.findings if f.status == "errored"}
    assert failed == {}


def rows_of(scale):
    chance = np.random.default_rng(7)
    for step in range(40):
        draw = chance.random(5).tolist()
        yield {"step": step, "reward_mean": draw[0] * scale, "entropy": draw[1] * scale, "ratio_std": draw[2] * 0.1}


@pytest.mark.parametrize("scale", [1.0, 1e155, 1e300])
def test_a_log_of_huge_numbers_is_judged_without_a_check_that_fails(cli, tmp_path, scale):
    log = tmp_path / "run.jsonl"
    log.write_text("\n".join(map(json.dumps, rows_of(scale))))
    outcome = cli("analyze", str(log), "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["coverage"]["errored"] == 0


@pytest.mark.parametrize("key", ["ppo_epochs", "num_minibatches", "learning_rate", "max_response_length"])
def test_a_setting_that_no_float_holds_is_infinite(cli, root, key):
    log = root / "sample_logs/healthy/healthy.canonical/run.jsonl"
    outcome = cli("analyze", str(log), "--set", f"{key}=1{'0' * 400}", "--format", "json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["coverage"]["errored"] == 0
