"""Logs as rows of plain numbers, and an independent classifier of them: which causes can a log tell apart at all?

The features are statistics that anybody would take of a table of metrics, and know nothing of our rules. A cause is
identifiable in a dialect when a random forest tells it from every other by logs of the training side alone.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ppo_doctor.pipeline import Request, read_run

from .verdicts import digest_of, reading_sources

if TYPE_CHECKING:
    from ppo_doctor.model import Run

    from .corpus import Case

F64 = npt.NDArray[np.float64]
#: (cause, dialect) → the share of its logs that is recognised
Shares = dict[tuple[str, str], float]
#: A cause is identifiable when this share of its training logs is recognised by a forest that saw other seeds only.
IDENTIFIABLE = 0.9
_ABSENT = -9.0


def features(log: Path) -> dict[str, float]:
    """Return the statistics of each metric of a log, and its configured numbers."""
    run = read_run(str(log), Request())
    found = {key: value for name, series in run.series.items() for key, value in _of(name, series.values).items()}
    return found | _configured(run)


def _configured(run: Run) -> dict[str, float]:
    numbers = {
        name: float(setting.value)
        for name, setting in run.config.items()
        if isinstance(setting.value, int | float) and not isinstance(setting.value, bool)
    }
    updates = run.facts.get("updates_configured")
    told = {"fact.updates_configured": float(str(updates.value))} if updates and updates.value is not None else {}
    return {f"config.{name}": value for name, value in numbers.items()} | told


def _of(name: str, values: F64) -> dict[str, float]:
    finite = values[np.isfinite(values)]
    shares = {f"{name}.finite": len(finite) / max(len(values), 1)}
    if not len(finite):
        return shares
    fifth = max(1, len(finite) // 5)
    return shares | {
        f"{name}.first": float(finite[:fifth].mean()),
        f"{name}.middle": float(np.median(finite)),
        f"{name}.last": float(finite[-fifth:].mean()),
        f"{name}.least": float(finite.min()),
        f"{name}.most": float(finite.max()),
        f"{name}.spread": float(finite.std()),
        f"{name}.zeros": float((finite == 0).mean()),
        f"{name}.late zeros": float((finite[-2 * fifth :] == 0).mean()),
        f"{name}.repeats": float((np.diff(finite) == 0).mean()) if len(finite) > 1 else 0.0,
        f"{name}.roughness": float(np.abs(np.diff(finite)).mean()) if len(finite) > 1 else 0.0,
    }


def matrix(rows: Sequence[Mapping[str, float]]) -> F64:
    """Return features as an array of shape [logs, names]; sizes are squeezed, a missing one has a value of its own."""
    names = sorted({name for row in rows for name in row})
    held = np.array([[row.get(name, np.nan) for name in names] for row in rows])
    with np.errstate(all="ignore"):
        squeezed = np.sign(held) * np.log1p(np.abs(held) * 1e6)
    return np.where(np.isfinite(squeezed), squeezed, _ABSENT)


def recognised(cases: Sequence[Case], root: Path, jobs: int) -> Shares:
    """Return `recognised_in` of these logs, kept beside the corpus while they and what reads them stay the same."""
    sources = [Path(__file__), *reading_sources(), *(case.log for case in cases)]
    store = root / f".recognised-{digest_of(sources, ' '.join(str(case.log) for case in cases))[:16]}.json"
    if not store.is_file():
        dialects = sorted({case.dialect for case in cases})
        with ProcessPoolExecutor(jobs) as pool:
            parts = pool.map(_of_dialect, [[case for case in cases if case.dialect == name] for name in dialects])
        store.write_text(json.dumps([[*key, value] for part in parts for key, value in part.items()]), encoding="utf-8")
    told = json.loads(store.read_text(encoding="utf-8"))
    return {(cause, dialect): value for cause, dialect, value in told}


def _of_dialect(cases: Sequence[Case]) -> Shares:
    return recognised_in(cases, [features(case.log) for case in cases])


def recognised_in(cases: Sequence[Case], rows: Sequence[Mapping[str, float]]) -> Shares:
    """Return (cause, dialect) → the share of its logs that a forest recognises which saw other seeds only."""
    shares: Shares = {}
    for dialect in sorted({case.dialect for case in cases}):
        ours = [index for index, case in enumerate(cases) if case.dialect == dialect]
        held = matrix([rows[index] for index in ours])
        truth = np.array([cases[index].cause for index in ours])
        guessed = _guesses(held, truth, np.array([cases[index].seed for index in ours]))
        shares |= {(str(c), dialect): float((guessed[truth == c] == c).mean()) for c in np.unique(truth)}
    return shares


def _guesses(held: F64, truth: npt.NDArray[np.str_], seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    """Return for each log the cause that a forest names which was grown without the logs of its fold of seeds."""
    # Untyped, and installed with the dependency group "lab" only.
    forests, folds = import_module("sklearn.ensemble"), import_module("sklearn.model_selection")
    guessed = np.empty_like(truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fitted, left in folds.GroupKFold(3).split(held, truth, seeds):
            forest = forests.RandomForestClassifier(300, class_weight="balanced", random_state=0, n_jobs=1)
            guessed[left] = forest.fit(held[fitted], truth[fitted]).predict(held[left])
    return guessed
