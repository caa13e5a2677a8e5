"""Are the numbers numbers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import distinct
from ppo_doctor.model import Axis, Series

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Metrics that a sound run never logs as NaN or infinite. Left out: explained variance (NaN at constant returns),
#: variances over one value, episode means before the first episode ends, means over an empty set of completions.
VITAL = (
    "policy_loss",
    "loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "approx_kl_k1",
    "ref_kl",
    "kl_coef",
    "ratio_mean",
    "ratio_max",
    "grad_norm",
    "update_norm",
    "learning_rate",
    "returns_mean",
    "values_mean",
    "advantages_mean",
    "reward_mean",
)


def nonfinite_metrics(observations: Observations) -> Series | None:
    """Return how many vital metrics are NaN or infinite, per record that holds any of them."""
    vital = [series for name in VITAL if (series := observations.run.series.get(name)) and len(series)]
    if not vital:
        return None
    lines = distinct(np.concatenate([series.axis.lines for series in vital]))
    counts, steps = np.zeros(len(lines)), np.zeros(len(lines), dtype=np.int64)
    for series in vital:
        at = np.searchsorted(lines, series.axis.lines)
        steps[at] = series.axis.steps
        np.add.at(counts, at, ~np.isfinite(series.values))
    order = np.argsort(steps, kind="stable")
    broken = [series.raw for series in vital if not np.isfinite(series.values).all()]
    return Series(
        name="nonfinite_metrics",
        raw=", ".join(broken) or vital[0].raw,
        axis=Axis(path=vital[0].axis.path, steps=steps[order], lines=lines[order]),
        values=counts[order],
        unit="metrics",
        how="computed",
    )
