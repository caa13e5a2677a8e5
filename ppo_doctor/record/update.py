"""What a loop tells of one update, and the numbers that it comes to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from ppo_doctor.record import tally
from ppo_doctor.record.array_weights import ArrayWeights
from ppo_doctor.record.kinds import Array, Tensor
from ppo_doctor.record.transfer import Parcel
from ppo_doctor.record.weights import Weights

#: Scalars of a minibatch that are averaged over the update.
SCALARS = ("loss", "policy_loss", "value_loss", "entropy")
GIVEN = "given "


@dataclass(slots=True, eq=False)
class Update:
    """One update from its start to its end; one that is not `recorded` takes nothing."""

    recorded: bool
    parcel: Parcel = field(default_factory=Parcel)
    #: the first minibatches of epochs after the first
    starts: list[int] = field(default_factory=list)
    epoch: int | None = None
    clipped: bool = True
    advantages: bool = True
    #: steps asked for, steps that the loop says were not executed, minibatches whose log-probs are one memory
    attempts: int = 0
    refused: int | None = None
    same: int = 0
    loss_scale: Tensor = None
    begun: float = field(default_factory=time.perf_counter)

    def enter(self, epoch: int | None) -> None:
        """Take the epoch of the coming minibatch."""
        if epoch is not None and epoch != self.epoch and self.epoch is not None:
            self.starts.append(self.parcel.count("minibatch"))
        self.epoch = epoch

    def numbers(self, rows: dict[str, Array], weights: Weights | ArrayWeights | None) -> dict[str, float]:
        """Return canonical metrics of what was told; `rows` is what the parcel held."""
        numbers: dict[str, float] = {}
        if "minibatch" in rows:
            told = {"clipped": self.clipped, "advantages": self.advantages}
            numbers |= tally.of_minibatches(rows["minibatch"], self.starts, **told)
        if "raw" in rows:
            raw = tally.of_minibatches(rows["raw"], (), clipped=False, advantages=True)
            numbers |= {"advantages_raw_std": raw["advantages_std"]} if "advantages_std" in raw else {}
        if "loss_ratio" in rows:
            in_loss = rows["minibatch"][rows["loss_ratio_place"][:, 0].astype(int)]
            numbers = tally.as_in_the_loss(numbers | tally.of_loss_ratio(rows["loss_ratio"]), tally.ratio_std(in_loss))
        if "probe" in rows:
            after = tally.of_minibatches(rows["probe"], (), clipped=False, advantages=False)
            numbers |= {"probe_kl": after["approx_kl"]} if "approx_kl" in after else {}
        if "rollout" in rows:
            before = tally.of_minibatches(rows["rollout"], (), clipped=False, advantages=False)
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


def given(rows: dict[str, Array]) -> dict[str, float]:
    """Return the metrics that the loop told by their names."""
    return {name.removeprefix(GIVEN): float(cells[-1, 0]) for name, cells in rows.items() if name.startswith(GIVEN)}
