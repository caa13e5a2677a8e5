"""Windows over the minibatches of an update; frameworks differ in which one they log."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..records import MinibatchRecord, UpdateRecord


def values(minibatches: Iterable[MinibatchRecord], name: str) -> list[float]:
    return [getattr(minibatch, name) for minibatch in minibatches]


def mean_all(update: UpdateRecord, name: str) -> float:
    return float(np.mean(values(update.minibatches, name)))


def mean_stepped(update: UpdateRecord, name: str) -> float:
    """Over executed steps: a minibatch that target_kl rejected has no gradient norm."""
    stepped = [minibatch for minibatch in update.minibatches if minibatch.stepped]
    return float(np.mean(values(stepped, name))) if stepped else float("nan")


def last_epoch(update: UpdateRecord) -> list[MinibatchRecord]:
    """The last epoch entered, with the minibatch that tripped target_kl."""
    final = update.minibatches[-1].epoch
    return [minibatch for minibatch in update.minibatches if minibatch.epoch == final]


def effective_clip(minibatch: MinibatchRecord) -> float:
    return minibatch.clip_fraction_low + minibatch.clip_fraction_high


def mean_effective_clip(update: UpdateRecord) -> float:
    return float(np.mean([effective_clip(minibatch) for minibatch in update.minibatches]))
