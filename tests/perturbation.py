"""The same run on another processor: every measured number another by its last float32 bit, and judged again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ppo_doctor.checks.rulepack import load_pack
from ppo_doctor.diagnosis.analyze import diagnose
from ppo_doctor.model import arrays
from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.request import Request
from ppo_doctor.runs.discover import gather
from ppo_doctor.runs.log import Log
from ppo_doctor.runs.merging import read_source

#: One unit in the last place of a float32 number, and half of one next to 1.
BIT, HALF = 2.0**-23, 2.0**-24
#: Quantities that rounding leaves at 0 or above, and those that are 1 where nothing moved.
POSITIVE = re.compile(r"std|abs|dev|fraction|frac_|diff|k2")
OF_ONE = re.compile(r"ratio_(mean|min|max)$")


def scaled(values, rng):
    """Multiply every number that is not whole by 1 ± 2⁻²³."""
    fractional = np.isfinite(values) & (values != np.round(values))
    return np.where(fractional, values * (1 + BIT * rng.choice([-1.0, 1.0], len(values))), values)


def nudged(series, rng):
    """Take what is exactly at identity, of a quantity that is computed in float32, off it by as much as that may."""
    resolution = arrays.rounding_of(series.name, series.estimator, series.aggregation, np.zeros(0))
    signs = rng.choice([-1.0, 1.0], len(series.values))
    if POSITIVE.search(f"{series.name} {series.estimator}"):
        signs = np.abs(signs)
    at = series.values == (1.0 if OF_ONE.search(series.name) else 0.0)
    return np.where(at, series.values + signs * min(HALF, resolution), series.values)


def perturbed(series, rng):
    """Return a series as another processor might have computed it, printed as finely as it was."""
    values = scaled(series.values, rng)
    if series.resolution.exact:
        values = nudged(replace(series, values=values), rng)
    least = arrays.rounding_of(series.name, series.estimator, series.aggregation, values)
    return replace(series, values=values, resolution=replace(series.resolution, rounding=least))


@contextmanager
def another_processor(seed: int) -> Iterator[None]:
    """Perturb every series that is read, before anything is made of it."""
    read = Log.series

    def series(self, profile):
        rng = np.random.default_rng(seed)
        return {name: perturbed(one, rng) for name, one in read(self, profile).items()}

    Log.series = series
    try:
        yield
    finally:
        Log.series = read


def verdicts(paths) -> dict[str, str]:
    """Return of each run that the paths hold the verdict and its leaders with their confidence, in order."""
    sources, _ = gather([str(path) for path in paths])
    found = {}
    for source in sources:
        try:
            runs = read_source(source, Request(debug=True)).runs
        except DoctorError as error:
            found[str(source)] = f"exit {int(error.code)}"
            continue
        for run in runs:
            diagnosis = diagnose(run, load_pack(), Request(debug=True))
            leaders = [f"{cause.id} ({cause.confidence})" for cause in diagnosis.causes if cause.leader]
            found[run.id] = " ".join([diagnosis.verdict, *leaders])
    return found
