"""How many names of people's own scripts are read right, wrong or not at all, with the company of their columns.

`python -m lab.names NAMES.csv` takes a table with the columns script_id, name, canonical and unit_or_sign: what public
scripts print or log. The names of each script are made into a log, with numbers of the committed sample logs' metrics
poured into its columns, in the script's unit and sign; a column of something else gets a clock's, or another column's.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from ppo_doctor.diagnosis.analyze import read_runs
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.request import Request
from ppo_doctor.readers.table import Table
from ppo_doctor.runs.columns import profile_of
from ppo_doctor.runs.log import Log
from ppo_doctor.trainers import detection
from ppo_doctor.trainers.names import clocks, of_language
from ppo_doctor.trainers.profiles import Profile

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

SAMPLES = Path(__file__).parent.parent / "sample_logs"
#: What a table of names calls otherwise than we do.
OURS = {"clip_frac": "clip_fraction"}
#: Unit or sign of a script's numbers → the factor from ours to its.
FACTORS = {"percent": 100.0, "gain": -1.0, "sign_turned": -1.0, "bits": 1.0 / math.log(2.0)}
RECORDS = 60
#: metric → what our vocabulary tells apart where a table of names does not, and what says less and nothing wrong.
FINER: Mapping[str, Set[str]] = {
    "approx_kl": {"approx_kl_k1", "approx_kl_k2", "approx_kl_max", "probe_kl"},
    "grad_norm": {"actor_grad_norm", "critic_grad_norm"},
    "learning_rate": {"critic_learning_rate"},
    "reward_mean": {"reward_total"},
    "reward_std": {"reward_group_std"},
    "entropy": {"objective_entropy"},
    "entropy_loss": {"entropy"},
}
VAGUER: Mapping[str, Set[str]] = {
    "policy_loss": {"loss"},
    "entropy": {"entropy_loss"},
    "episode_return": {"reward_mean"},
    "reward_total": {"reward_mean"},
}


@dataclass(frozen=True, slots=True)
class Name:
    """A name of a script, what it means ("" for none of our metrics), what it was read as by its name, and in all."""

    script: str
    key: str
    means: str
    by_name: str | None
    found: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    means: str
    factor: float


def names_in(path: Path) -> Iterator[Name]:
    """Yield the names of a table of scripts, each as it is read in a log of its script."""
    scripts: dict[str, list[_Row]] = {}
    for row in _rows(path):
        means = OURS.get(row["canonical"], row["canonical"])
        kept = means if means in METRICS else ""
        held = scripts.setdefault(row["script_id"], [])
        if row["name"] not in {each.key for each in held}:
            held.append(_Row(row["name"], kept, FACTORS.get(row["unit_or_sign"], 1.0)))
    for script, rows in scripts.items():
        yield from _read(script, rows)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def answers(names: Sequence[Name]) -> list[tuple[str, str]]:
    """Return how each name was read, by its name and in all: right, vaguer, again, missed or wrong; "" for no metric.

    "again" is a name that was left because another one of its script is read as the same metric.
    """
    named = {(name.script, name.by_name) for name in names}
    found = {(name.script, name.found) for name in names}
    return [(_answer(name, name.by_name, named), _answer(name, name.found, found)) for name in names]


def _answer(name: Name, read: str | None, held: Set[tuple[str, str | None]]) -> str:
    if not name.means:
        return "" if read is None else "other"
    if read is None:
        return "again" if (name.script, name.means) in held else "missed"
    if read == name.means or read in FINER.get(name.means, ()):
        return "right"
    return "vaguer" if read in VAGUER.get(name.means, ()) else "wrong"


def table(path: Path) -> Iterator[str]:
    """Yield the lines that tell how the names of a table are read: by their names, in all, and which are wrong."""
    names = list(names_in(path))
    told = answers(names)
    yield f"{path.name}: {len({name.script for name in names})} scripts, {len(names)} names"
    for at, basis in enumerate(("by name", "with company")):
        counts = Counter(answer[at] for answer in told)
        asked = sum(counts[kind] for kind in ("right", "vaguer", "missed", "wrong"))
        numbers = ", ".join(f"{kind} {counts[kind]}" for kind in ("right", "vaguer", "again", "missed", "wrong"))
        recall, wrong = (counts["right"] + counts["vaguer"]) / max(asked, 1), counts["wrong"] / max(asked, 1)
        shares = f"recall {recall:.3f}, wrong {wrong:.3f}"
        yield f"  {basis}: {numbers}; {shares}; of no metric of ours, read {counts['other']}"
    for name, (_, answer) in zip(names, told, strict=True):
        if answer == "wrong":
            yield f"  {name.script}: {name.key} is {name.means}, read as {name.found}"


def is_table(path: Path) -> bool:
    """Tell whether a file is a table of scripts' names."""
    with path.open(encoding="utf-8", newline="") as file:
        return "script_id" in next(csv.reader(file), [])


def _read(script: str, rows: Sequence[_Row]) -> Iterator[Name]:
    keys = [row.key for row in rows]
    alone = detection.detect(keys)
    language = of_language(keys)
    columns = {row.key: _numbers(script, row, language=language) for row in rows}
    numbers = np.arange(RECORDS)
    table = Table(path=script, records=numbers, lines=numbers + 1, columns=columns)
    try:
        together = profile_of(Log(path=script, tables=[table]))
    except DoctorError:
        together = None
    by_name, found = _metrics(alone), _metrics(together)
    for row in rows:
        yield Name(script, row.key, row.means, by_name.get(row.key), found.get(row.key))


def _metrics(profile: Profile | None) -> Mapping[str, str]:
    if profile is None:
        return {}
    return {key: metric.name for metric in profile.metrics.values() for key in metric.keys}


def _numbers(script: str, row: _Row, *, language: bool) -> FloatArray:
    """Return the numbers of a column: those of a sample log's metric, or of a clock or another metric for no metric."""
    seed = crc32(f"{script}/{row.key}".encode())
    if not row.means and clocks([row.key]):
        return np.arange(1.0, RECORDS + 1) * (1 + seed % 7)
    pool = _pool(language=language) if row.means in _pool(language=language) else _pool(language=not language)
    held = pool.get(row.means) if row.means else list(pool.values())[seed % len(pool)]
    if not held:
        return np.full(RECORDS, np.nan)
    return np.interp(np.linspace(0, 1, RECORDS), *_unit(held[crc32(script.encode()) % len(held)])) * row.factor


def _unit(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.linspace(0, 1, len(values)), values


@cache
def _pool(*, language: bool) -> Mapping[str, Sequence[FloatArray]]:
    """Return metric → columns of the sample logs of agents, or of language models."""
    pool: dict[str, list[FloatArray]] = {}
    for path in sorted(
        each for each in SAMPLES.rglob("*") if each.suffix in (".csv", ".jsonl") or each.name == "trainer_state.json"
    ):
        try:
            runs = read_runs(str(path), Request())
        except DoctorError:
            continue
        for run in runs:
            if of_language(run.keys) == language:
                for name, series in run.series.items():
                    known = series.values[np.isfinite(series.values)]
                    if len(known) >= RECORDS // 4:
                        pool.setdefault(name, []).append(known)
    return pool
