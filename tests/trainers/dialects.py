"""Writes canonical series as a framework would log them, and reads them back: what a profile says, both ways round."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ppo_doctor.model.run import Series
from ppo_doctor.readers.table import Table
from ppo_doctor.runs.log import Log
from ppo_doctor.trainers.profiles import MetricProfile, Profile

#: What a pattern is filled with.
WILD = "default_policy"
RECORDS = 24


def native_key(metric: MetricProfile) -> str:
    return metric.keys[0].replace("*", WILD)


def canonical_values(profile: Profile) -> dict[str, np.ndarray]:
    """Return full-precision values for every metric; metrics that share a native key share their values."""
    rng = np.random.default_rng(len(profile.name))
    clocks = {native_key(metric) for metric in profile.metrics.values()} & set(step_keys(profile))
    by_key: dict[str, np.ndarray] = {}
    values = {}
    for name, metric in sorted(profile.metrics.items()):
        key = native_key(metric)
        if key in clocks:
            by_key[key] = np.arange(1.0, RECORDS + 1) * 10
        logged = by_key.setdefault(key, rng.uniform(0.1, 0.5, RECORDS) / metric.scale)
        values[name] = (logged**2 if metric.root else logged) * metric.scale
    return values


def step_keys(profile: Profile) -> tuple[str, ...]:
    return profile.axis["step"][:1]


def written(profile: Profile, values: Mapping[str, np.ndarray]) -> Table:
    """Return the records that the framework writes for these canonical values."""
    held = [(m, values[name] / m.scale) for name, m in profile.metrics.items() if name in values]
    columns = {native_key(m): np.sqrt(logged) if m.root else logged for m, logged in held}
    for key in step_keys(profile):
        columns.setdefault(key, np.arange(1.0, RECORDS + 1) * 10)
    records = np.arange(RECORDS)
    return Table(path="run.jsonl", records=records, lines=records + 1, columns=columns)


def read_back(profile: Profile, table: Table) -> dict[str, Series]:
    log = Log(path=table.path, tables=[table])
    return log.series(profile.resolved(log.keys))
