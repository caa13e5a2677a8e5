"""Which runs of two faults show both? Told by forests that know nothing of our rules.

For each dialect and each fault a random forest learns to tell logs with that fault from logs without it, by the
features of `features.py`: statistics that anybody would take of a table of metrics. It is grown on the runs of single
faults and of other pairs, of seeds of the other fold, and asked for the rest. A pair is
identifiable in a dialect where both of its faults are recognised in `IDENTIFIABLE` of its runs.

A Gaussian policy is known by its logged deviation, and only faults of the deviation have one here: of these the forests
say more than a log shows.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .features import IDENTIFIABLE, features, matrix

TREES = 200
#: Pairs are kept from their forests by so many parts.
PARTS = 4
#: Settings that a fault only makes use of. Sound runs have one number for each, by which its forest must not know it.
CARRIED: dict[str, tuple[str, ...]] = {
    "learning_rate": (
        *("old-policy-aliased", "old-logp-resynced-per-minibatch", "old-logp-resynced-per-epoch", "idle-clip"),
        *("advantage-sign-flipped", "whiten-amplifies-noise", "over-reuse"),
    ),
    "gamma": ("gae-boundary-bug",),
    "gae_lambda": ("critic-cold-start",),
    "max_grad_norm": ("grad-norm-spike", "negative-adv-ratio-explosion"),
    "kl_coef": ("k3-overflow", "ref-model-wrong"),
}
#: (pair, dialect) → the share of its runs in which both faults are recognised
Shares = dict[tuple[str, str], float]
Cells = set[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One log with what was injected into it; `cell` names the pair, "" for a single fault."""

    log: Path
    dialect: str
    seed: int
    faults: frozenset[str]
    cell: str = ""


def recognised_pairs(shown: Sequence[Shown], jobs: int) -> Shares:
    """Return (pair, dialect) → the share of its runs in which forests of other seeds recognise both faults."""
    dialects = sorted({one.dialect for one in shown})
    with ProcessPoolExecutor(jobs) as pool:
        parts = pool.map(_of_dialect, [[one for one in shown if one.dialect == name] for name in dialects])
    return {key: share for part in parts for key, share in part.items()}


def identifiable(shares: Shares) -> Cells:
    """Return the cells of which a log can tell both faults."""
    return {cell for cell, share in shares.items() if share >= IDENTIFIABLE}


def _of_dialect(shown: Sequence[Shown]) -> Shares:
    return shares_in(shown, [features(one.log) for one in shown])


def shares_in(shown: Sequence[Shown], rows: Sequence[Mapping[str, float]]) -> Shares:
    """Return `recognised_pairs` of the logs of one dialect, of which these are the features."""
    folds = folds_of([one.seed for one in shown]), parts_of([one.cell for one in shown])
    names = sorted(set[str]().union(*(one.faults for one in shown if one.cell)))
    told = {
        name: _guesses(matrix(_without(rows, name)), np.array([name in one.faults for one in shown]), folds)
        for name in names
    }
    found: dict[tuple[str, str], list[bool]] = {}
    for index, one in enumerate(shown):
        if one.cell:
            both = all(bool(told[name][index]) for name in one.faults)
            found.setdefault((one.cell, one.dialect), []).append(both)
    return {cell: sum(hits) / len(hits) for cell, hits in found.items()}


def _without(rows: Sequence[Mapping[str, float]], fault: str) -> Sequence[Mapping[str, float]]:
    """Return features without those of settings that a fault only makes use of, as configured and as logged."""
    dropped = {setting for setting, faults in CARRIED.items() if fault in faults}
    if not dropped:
        return rows
    return [
        {k: v for k, v in row.items() if not dropped & {k.removeprefix("config."), k.split(".")[0]}} for row in rows
    ]


def folds_of(seeds: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return a fold per seed: those of one side are neighbours, so that odd and even ones part each pair."""
    return np.array([seed % 2 for seed in seeds])


def parts_of(cells: Iterable[str]) -> npt.NDArray[np.int64]:
    """Return a part per pair, all its runs in one; -1 for a single fault, which is in none."""
    return np.array([zlib.crc32(cell.encode()) % PARTS if cell else -1 for cell in cells])


def _guesses(
    held: npt.NDArray[np.float64],
    truth: npt.NDArray[np.bool_],
    folds: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> npt.NDArray[np.bool_]:
    """Return for each run of a pair whether a forest sees the fault in it that saw neither its pair nor its fold."""
    forests = import_module("sklearn.ensemble")  # untyped, and installed with the dependency group "lab" only
    (seeds, parts), guessed = folds, np.zeros(len(truth), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed, part in product(np.unique(seeds), range(PARTS)):
            left, grown = (seeds == seed) & (parts == part), (seeds != seed) & (parts != part)
            if left.any() and truth[grown].any() and not truth[grown].all():
                forest = forests.RandomForestClassifier(TREES, class_weight="balanced", random_state=0, n_jobs=1)
                guessed[left] = forest.fit(held[grown], truth[grown]).predict(held[left])
    return guessed
