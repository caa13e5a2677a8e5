"""Which runs of two faults show both: forests see what stands in the numbers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.double_forest import Shown, identifiable, shares_in

pytest.importorskip("sklearn")

SEEDS = (10, 11, 12, 13, 14, 15)


def one(faults: set[str], seed: int) -> Shown:
    cell = " + ".join(sorted(faults)) if len(faults) > 1 else ""
    return Shown(log=Path(f"{cell}{seed}"), dialect="sb3", seed=seed, faults=frozenset(faults), cell=cell)


def row(faults: set[str], seed: int) -> dict[str, float]:
    """Return features in which "high" and "low" move a number each, and "hides", where it is there, only its own."""
    seen = faults if "hides" not in faults else {"hides"}
    return {name: float(name in seen) + 0.01 * (seed % 5) for name in ("high", "low", "hides")}


def test_both_are_recognised_where_each_leaves_its_mark_and_not_where_one_hides_the_other():
    sets = [{"high"}, {"low"}, {"hides"}, {"other"}, {"high", "low"}, {"hides", "high"}]
    pairs = [(faults, seed) for faults in sets for seed in SEEDS]
    shares = shares_in([one(*pair) for pair in pairs], [row(*pair) for pair in pairs])
    assert shares["high + low", "sb3"] == 1
    assert shares["hides + high", "sb3"] < 0.9
    assert identifiable(shares) == {("high + low", "sb3")}
