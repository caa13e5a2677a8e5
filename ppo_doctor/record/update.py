"""Collect the calls of a loop during one update, and compute canonical metrics from them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ppo_doctor.record.measures import COLUMNS, Array, Tensor
from ppo_doctor.record.values import Parcel
from ppo_doctor.record.weights import ArrayWeights, Weights

_MEANS = {"approx_kl": "k3", "approx_kl_k1": "k1", "approx_kl_k2": "k2"}
_CLIPPED = {
    "clip_fraction_low": "low",
    "clip_fraction_high": "high",
    "clip_fraction_positive": "positive",
    "clip_fraction_negative": "negative",
}

#: Relative spread below which a ratio is constant, rounding error of float32, and factor beyond it that is no rounding.
CONSTANT, ROUNDING, FAR = 1e-5, 1e-7, 100


def of_minibatches(rows: Array, later_starts: Sequence[int], *, clipped: bool, advantages: bool) -> dict[str, float]:
    """Return ratio, KL, clip and advantage statistics of one update.

    `rows` has shape [minibatches, columns]; `later_starts` are the first minibatches of epochs after the first. Moments
    are merged as in Chan, Golub and LeVeque 1983.
    """
    column = {name: rows[:, place] for place, name in enumerate(COLUMNS)}
    counts = column["n"]
    alive = counts > 0
    result = {"tokens_in_loss": float(np.sum(counts))}
    if not alive.any():
        return result
    rows_alive = {name: values[alive] for name, values in column.items()}
    result |= _ratio(rows_alive) | _starts(column, [place for place in later_starts if alive[place]])
    result |= {"batch_start_ratio_dev": _departure(column, [0])} if alive[0] else {}
    result |= _clips(rows_alive) if clipped else {}
    return result | (_signal(rows_alive) if advantages else {})


def _mean(columns: Mapping[str, Array], name: str) -> float:
    """Return the mean of a column, weighted by the number of samples."""
    return float(np.sum(columns["n"] * columns[name]) / np.sum(columns["n"]))


def _spread(columns: Mapping[str, Array], name: str) -> float:
    """Return the pooled sum of squared deviations of a quantity with the columns `name_mean` and `name_m2`."""
    centre = _mean(columns, f"{name}_mean")
    return float(np.sum(columns[f"{name}_m2"] + columns["n"] * (columns[f"{name}_mean"] - centre) ** 2))


def _ratio(columns: Mapping[str, Array]) -> dict[str, float]:
    ratio = {
        "ratio_mean": 1 + _mean(columns, "dev_mean"),
        "ratio_std": math.sqrt(_spread(columns, "dev") / float(np.sum(columns["n"]))),
        "ratio_min": 1 + float(np.min(columns["dev_min"])),
        "ratio_max": 1 + float(np.max(columns["dev_max"])),
    }
    return ratio | {name: _mean(columns, source) for name, source in _MEANS.items()}


def _starts(column: Mapping[str, Array], places: Sequence[int]) -> dict[str, float]:
    if not places:
        return {}
    return {"epoch_start_ratio_dev": _departure(column, list(places))}


def _departure(column: Mapping[str, Array], places: list[int]) -> float:
    """Return the largest |ratio - 1| in the given minibatches."""
    return float(np.max(np.maximum(np.abs(column["dev_max"][places]), np.abs(column["dev_min"][places]))))


def _clips(columns: Mapping[str, Array]) -> dict[str, float]:
    sides = {name: _mean(columns, source) for name, source in _CLIPPED.items()}
    return {"clip_fraction": sides["clip_fraction_low"] + sides["clip_fraction_high"]} | sides


def _signal(columns: Mapping[str, Array]) -> dict[str, float]:
    adv = _spread(columns, "adv")
    most, least = float(np.max(columns["adv_max"])), float(np.min(columns["adv_min"]))
    result = {
        "advantages_mean": _mean(columns, "adv_mean"),
        "advantages_std": math.sqrt(adv / float(np.sum(columns["n"]))),
        "advantages_min": least,
        "advantages_max": most,
        "advantages_abs_max": max(abs(most), abs(least)),
    }
    log = _spread(columns, "log")
    if adv > 0 and log > 0:
        between = (columns["log_mean"] - _mean(columns, "log_mean")) * (
            columns["adv_mean"] - _mean(columns, "adv_mean")
        )
        shared = float(np.sum(columns["log_adv"] + columns["n"] * between))
        result["logratio_advantage_corr"] = shared / math.sqrt(adv * log)
    return result


def of_loss_ratio(rows: Array) -> dict[str, float]:
    """Return the spread of the ratio that the loss used, from rows of [samples, mean squared spread]."""
    usable = rows[(rows[:, 0] > 0) & np.isfinite(rows).all(axis=1)]
    if not len(usable):
        return {}
    return {"loss_ratio_std": math.sqrt(float(np.sum(usable[:, 0] * usable[:, 1]) / np.sum(usable[:, 0])))}


def ratio_std(rows: Array) -> float | None:
    """Return the spread of the ratio over minibatches, None if they have no samples."""
    return of_minibatches(rows, (), clipped=False, advantages=False).get("ratio_std")


def as_in_the_loss(numbers: Mapping[str, float], stored: float | None) -> dict[str, float]:
    """Return the metrics of the ratio that the loss used.

    If its gradient proves that the loss used a constant ratio although the ratio to the stored log-probs varies, all
    metrics of the ratio are set to those of a ratio of 1. `stored` is the spread of the ratio to the stored log-probs
    over the minibatches with a gradient, and becomes `stored_ratio_std`. A minibatch that an early stop rejects has a
    ratio, but is no part of the loss.
    """
    used = numbers.get("loss_ratio_std")
    if stored is None or used is None:
        return dict(numbers)
    result = {**numbers, "stored_ratio_std": stored}
    if not (used < CONSTANT and stored > FAR * max(used, ROUNDING)):
        return result
    result.pop("logratio_advantage_corr", None)
    zero = (*_MEANS, *_CLIPPED, "clip_fraction", "epoch_start_ratio_dev", "batch_start_ratio_dev", "ratio_std")
    ones = ("ratio_mean", "ratio_min", "ratio_max")
    return result | {n: 0.0 for n in zero if n in result} | {n: 1.0 for n in ones if n in result}


#: Scalars of a minibatch that are averaged over the update.
SCALARS = ("loss", "policy_loss", "value_loss", "entropy")
GIVEN = "given "


@dataclass(slots=True, eq=False)
class Update:
    """The calls of one update from its start to its end; only a `recorded` one collects anything."""

    recorded: bool
    parcel: Parcel = field(default_factory=Parcel)
    #: the first minibatches of epochs after the first
    starts: list[int] = field(default_factory=list)
    epoch: int | None = None
    clipped: bool = True
    advantages: bool = True
    #: requested steps, steps that the loop reports as not executed, minibatches whose log-probs share memory
    attempts: int = 0
    refused: int | None = None
    same: int = 0
    loss_scale: Tensor = None
    begun: float = field(default_factory=time.perf_counter)

    def enter(self, epoch: int | None) -> None:
        """Set the epoch of the next minibatch."""
        if epoch is not None and epoch != self.epoch and self.epoch is not None:
            self.starts.append(self.parcel.count("minibatch"))
        self.epoch = epoch

    def numbers(self, rows: dict[str, Array], weights: Weights | ArrayWeights | None) -> dict[str, float]:
        """Return the canonical metrics of the update; `rows` are those fetched from its parcel."""
        numbers: dict[str, float] = {}
        if "minibatch" in rows:
            numbers |= of_minibatches(rows["minibatch"], self.starts, clipped=self.clipped, advantages=self.advantages)
        if "raw" in rows:
            raw = of_minibatches(rows["raw"], (), clipped=False, advantages=True)
            numbers |= {"advantages_raw_std": raw["advantages_std"]} if "advantages_std" in raw else {}
        if "loss_ratio" in rows:
            in_loss = rows["minibatch"][rows["loss_ratio_place"][:, 0].astype(int)]
            numbers = as_in_the_loss(numbers | of_loss_ratio(rows["loss_ratio"]), ratio_std(in_loss))
        if "probe" in rows:
            after = of_minibatches(rows["probe"], (), clipped=False, advantages=False)
            numbers |= {"probe_kl": after["approx_kl"]} if "approx_kl" in after else {}
        if "rollout" in rows:
            before = of_minibatches(rows["rollout"], (), clipped=False, advantages=False)
            numbers |= {"rollout_kl": before["approx_kl_k1"]} if "approx_kl_k1" in before else {}
        numbers |= {name: float(np.mean(rows[name])) for name in SCALARS if name in rows}
        return numbers | self._steps(rows, weights)

    def _steps(self, rows: dict[str, Array], weights: Weights | ArrayWeights | None) -> dict[str, float]:
        norms = rows.get("grad_norm_told", rows.get("grad_norm"))
        numbers = {"grad_norm": float(np.mean(norms))} if norms is not None else {}
        watched = weights if weights is not None and weights.optimizer is not None else None
        executed = watched.executed if watched else self.attempts - (self.refused or 0)
        if (watched and self.attempts) or self.refused is not None:
            numbers["skipped_steps"] = max(self.attempts - executed, 0)
        if watched or self.attempts:
            numbers["optimizer_steps"] = executed
        if weights is not None and "moved" in rows:
            numbers |= weights.movement(rows["moved"])
        return numbers


def given_metrics(rows: dict[str, Array]) -> dict[str, float]:
    """Return the metrics that the loop gave by name."""
    return {name.removeprefix(GIVEN): float(cells[-1, 0]) for name, cells in rows.items() if name.startswith(GIVEN)}
