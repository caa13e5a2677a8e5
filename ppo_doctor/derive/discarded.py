"""What a mask on importance ratios of trainer and sampler leaves of the batches that teach anything."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series


def least_ratio_taught(observations: Observations) -> Series | None:
    """Return the smallest importance ratio of trainer over sampler; NaN where all groups are flat."""
    masked = _kept(observations, "least_ratio_taught")
    if masked is not None:
        return dataclasses.replace(masked, values=np.where(masked.values < 1, 0.0, 1.0))
    return _taught(observations, "rollout_ratio_min", "least_ratio_taught")


def mean_ratio_taught(observations: Observations) -> Series | None:
    """Return the part of the samples that a mask leaves, else their mean importance ratio, which a mask lowers as much.

    NaN where all groups are flat.
    """
    return _kept(observations, "mean_ratio_taught") or _taught(observations, "rollout_ratio_mean", "mean_ratio_taught")


def _taught(observations: Observations, metric: str, name: str) -> Series | None:
    """Return a metric of the batches in which groups differ: of a flat batch nothing is learnt, masked or not.

    All of it where nothing tells which groups are flat.
    """
    ratio = observations.run.series.get(metric)
    flat = beside(ratio, observations.run.series.get("frac_reward_zero_std"))
    if ratio is None:
        return None
    if flat is None:
        return dataclasses.replace(ratio, name=name)
    return dataclasses.replace(ratio, name=name, values=np.where(flat.values >= 1, np.nan, ratio.values))


def _kept(observations: Observations, name: str) -> Series | None:
    masked = observations.run.series.get("masked_fraction")
    return None if masked is None else dataclasses.replace(masked, name=name, values=1 - masked.values, how="computed")
