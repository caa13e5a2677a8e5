"""The recorder: what a training loop tells it, it turns into one canonical record per update."""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.record import measures, tally
from ppo_doctor.record.guard import guarded, tell, tell_fault
from ppo_doctor.record.kinds import Array, Foreign, Tensor
from ppo_doctor.record.sinks import LineFile, Sink, forward
from ppo_doctor.record.transfer import Parcel
from ppo_doctor.record.weights import Weights, same_memory, shared_share

#: Returns new and old log-probs of the same samples, and optionally a mask.
Probe = Callable[[], tuple[Any, ...]]
ClipRange = float | tuple[float, float] | None
#: Scalars of a minibatch that are averaged over the update.
_SCALARS = {"loss": "loss", "policy_loss": "policy_loss", "value_loss": "value_loss", "entropy": "entropy"}


class Recorder:
    """Writes what tells silent failures apart: call `start_update`, `minibatch`, `optimizer_step`, `end_update`.

    Args:
        target: a path for canonical JSONL, a logger (TensorBoard writer, W&B run, anything with `log(dict)`, a
            function), or a list of these.
        every: record one update in so many; the others cost nothing.
        config: settings of the run (n_epochs, num_minibatches, clip_coef …), written once.
        clip_range: the clip range of the ratio, or (below, above).
        model, optimizer: torch only; both may be given to `watch` instead.
        old_policy, reference: models that are kept beside the policy, if any.
        sequence_ratio: the ratio is one per sequence (GSPO), so that its spread inside a sequence says nothing.

    Only rank 0 records, what it sees itself. No method raises: a fault inside is told once on stderr, and from then on
    every call does nothing.
    """

    def __init__(  # noqa: PLR0913 - all but the first are optional
        self,
        target: Foreign,
        *,
        every: int = 1,
        config: Mapping[str, Any] | None = None,
        clip_range: ClipRange = None,
        model: Foreign = None,
        optimizer: Foreign = None,
        old_policy: Foreign = None,
        reference: Foreign = None,
        sequence_ratio: bool = False,
    ) -> None:
        self.quiet = False
        self.every, self.clip_range, self.sequence_ratio = max(int(every), 1), clip_range, sequence_ratio
        self.update = 0
        self._config = dict(config or {})
        self._others = {"old_policy_shared": old_policy, "reference_shared": reference}
        self._target = target
        self._file: LineFile | None = None
        self._sinks: list[Sink] = []
        self._weights: Weights | None = None
        self._opened = self._on = self._told_full = False
        self._facts: dict[str, float] = {}
        self._reset()
        if model is not None:
            self.watch(model, optimizer)

    def _reset(self) -> None:
        self._parcel = Parcel()
        self._starts: list[int] = []
        self._epoch: int | None = None
        self._clipped = self._advantages = True
        self._attempts = self._same = 0
        self._loss_scale: Any = None
        self._begun = time.perf_counter()

    @guarded
    def watch(self, model: Foreign, optimizer: Foreign) -> None:
        """Watch a torch model and its optimizer through hooks that change nothing."""
        if self._weights is None and _rank() == 0 and hasattr(model, "parameters"):
            self._weights = Weights(model, optimizer)

    @guarded
    def start_update(self, *, advantages: Tensor = None) -> None:
        """Begin an update, before its first minibatch; `advantages` are those of the batch before whitening."""
        self._open()
        if self.quiet:
            return
        self._on = self.update % self.every == 0
        self._reset()
        if not self._on:
            return
        if self._weights is not None:
            self._weights.start()
        if advantages is not None:
            raw = measures.plain(advantages)
            self._parcel.add("raw", measures.row(raw * 0, raw * 0, raw))

    @guarded
    def minibatch(
        self,
        *,
        new_log_prob: Tensor,
        old_log_prob: Tensor,
        advantages: Tensor = None,
        mask: Tensor = None,
        epoch: int | None = None,
        clip_range: ClipRange = None,
        **scalars: Tensor,
    ) -> None:
        """Take one minibatch, after its forward pass and before `backward()`.

        Log-probs have shape [B] or [B, T], advantages (as used in the loss) the same or [B]; the mask is 1 where a
        token is in the loss. `epoch` counts passes over the batch from 0. Scalars may be `loss`, `policy_loss`,
        `value_loss` and `entropy`.
        """
        if not self._on or not math.prod(new_log_prob.shape):
            return
        if epoch is not None and epoch != self._epoch and self._epoch is not None:
            self._starts.append(self._parcel.count("minibatch"))
        self._epoch = epoch
        bounds = _bounds(clip_range if clip_range is not None else self.clip_range)
        self._clipped, self._advantages = self._clipped and bounds is not None, advantages is not None
        self._parcel.add("minibatch", measures.row(new_log_prob, old_log_prob, advantages, mask, bounds))
        for name, value in scalars.items():
            if value is not None:
                self._parcel.add(_SCALARS[name], measures.plain(value) if hasattr(value, "shape") else value)
        if measures.is_torch(new_log_prob):
            self._follow(new_log_prob, old_log_prob, advantages, mask)

    def _follow(self, new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Look at the graph: whose memory, which weights, and the gradient that the loss sends back."""
        self._same += same_memory(new, old)
        if self._weights is not None:
            self._weights.own(new)
        if new.requires_grad and advantages is not None and not self.sequence_ratio:
            adv = measures.plain(advantages)
            new.register_hook(functools.partial(_note_gradient, self, self._parcel, adv, mask))

    @guarded
    def note_gradient(self, parcel: Parcel, gradient: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Take the gradient by a minibatch's log-probs."""
        parcel.add("loss_ratio", measures.loss_ratio_row(gradient, advantages, mask))

    @guarded
    def optimizer_step(
        self,
        model: Foreign = None,
        optimizer: Foreign = None,
        *,
        grad_norm: Tensor = None,
        loss_scale: Tensor = None,
    ) -> None:
        """Count a step that the loop has just asked for, after `optimizer.step()` or `scaler.step(optimizer)`.

        Steps that were executed are counted by a hook; those asked for and not executed are the skipped ones.
        """
        if model is not None:
            self.watch(model, optimizer)
        if not self._on:
            return
        self._attempts += 1
        self._loss_scale = loss_scale if loss_scale is not None else self._loss_scale
        if grad_norm is not None:
            self._parcel.add("grad_norm_told", grad_norm)
        if self._weights is not None:
            self._weights.discard_step()

    @guarded
    def end_update(
        self,
        *,
        step: float | None = None,
        probe: Probe | None = None,
        **metrics: Tensor,
    ) -> dict[str, float] | None:
        """End the update and write its record; returns the record, None where this update is not recorded.

        `probe` is called without gradients, in evaluation mode and with a random state of its own. `metrics` are more
        numbers by canonical names (reward_mean, episode_return …).
        """
        self.update += 1
        if not self._on:
            return None
        self._on = False
        if self._weights is not None:
            self._weights.finish(self._parcel, self._loss_scale)
            rate = self._weights.learning_rate()
            metrics = {"learning_rate": rate, **metrics} if rate is not None else metrics
        for name, value in metrics.items():
            if value is not None:
                self._parcel.add(f"given {name}", value)
        elapsed = time.perf_counter() - self._begun
        if probe is not None:
            self._parcel.add("probe", _probed(probe, self._weights))
        minibatches = self._parcel.count("minibatch")
        with np.errstate(all="ignore"):  # NaN in a record is a finding, not an error
            numbers = self._numbers(self._parcel.fetch(), minibatches)
        at = self.update if step is None else step
        self._write(at, {**numbers, "time_update": elapsed})
        return {"step": at, **numbers}

    def _numbers(self, rows: dict[str, Array], minibatches: int) -> dict[str, float]:
        clipped, held = self._clipped, self._advantages
        numbers: dict[str, float] = {}
        if "minibatch" in rows:
            numbers |= tally.of_minibatches(rows["minibatch"], self._starts, clipped=clipped, advantages=held)
        if "raw" in rows:
            raw = tally.of_minibatches(rows["raw"], (), clipped=False, advantages=True)
            numbers["advantages_raw_std"] = raw["advantages_std"]
        if "loss_ratio" in rows:
            numbers = tally.as_in_the_loss(numbers | tally.of_loss_ratio(rows["loss_ratio"]))
        if "probe" in rows:
            probed = tally.of_minibatches(rows["probe"], (), clipped=False, advantages=False)
            numbers |= {"probe_kl": probed["approx_kl"]} if "approx_kl" in probed else {}
        numbers |= {name: float(np.mean(rows[name])) for name in _SCALARS.values() if name in rows}
        numbers |= self._steps(rows) | self._ownership(minibatches)
        given = {name[6:]: float(values[0, 0]) for name, values in rows.items() if name.startswith("given ")}
        return numbers | given

    def _steps(self, rows: dict[str, Array]) -> dict[str, float]:
        norms = rows.get("grad_norm_told", rows.get("grad_norm"))
        numbers = {"grad_norm": float(np.mean(norms))} if norms is not None else {}
        watched = self._weights if self._weights is not None and self._weights.optimizer is not None else None
        executed = watched.executed if watched else self._attempts
        if watched and self._attempts:
            numbers["skipped_steps"] = max(self._attempts - executed, 0)
        if watched or self._attempts:
            numbers["optimizer_steps"] = executed
        if self._weights is not None and "moved" in rows:
            numbers |= self._weights.movement(rows["moved"])
        return numbers

    def _ownership(self, minibatches: int) -> dict[str, float]:
        """Return whose memory is whose: models are compared once, log-probs in every minibatch."""
        if not self._facts and self._weights is not None:
            policy = self._weights.model
            found = {name: shared_share(policy, other) for name, other in self._others.items() if other is not None}
            found["optimizer_params_matched"] = self._weights.matched()
            self._facts = {name: value for name, value in found.items() if value is not None}
        if not minibatches or self._weights is None:
            return dict(self._facts)
        shared = max(self._same / minibatches, self._facts.get("old_policy_shared", 0.0))
        return {**self._facts, "old_policy_shared": shared}

    def _open(self) -> None:
        """Open the target at the first update: by then it is known which rank this is."""
        if self._opened:
            return
        self._opened = True
        if _rank() != 0:
            self.close()
            return
        for target in self._target if isinstance(self._target, list | tuple) else [self._target]:
            if isinstance(target, str | os.PathLike):
                self._file = LineFile(Path(target))
            else:
                self._sinks.append(forward(target))
        if self._file is not None:
            kept = {name: value for name, value in self._config.items() if _plain(value)}
            self._to_file({"ppo_doctor": 1, "config": kept})

    def _write(self, step: float, numbers: Mapping[str, float]) -> None:
        if self._file is not None:
            # The mark stands in every line, so that no other trainer's names are seen in a part of the file.
            self._to_file({"ppo_doctor": 1, "step": step, "update": self.update, **numbers})
        for sink in self._sinks:
            sink(step, numbers)

    def _to_file(self, record: Mapping[str, Any]) -> None:
        """Write a line; a disk that is full now may have room later, so it is told once and tried again."""
        if self._file is None:
            return
        try:
            self._file.write(record)
        except OSError as fault:
            if not self._told_full:
                self._told_full = True
                tell(f"a record could not be written, training goes on: {fault.strerror or fault}")

    def fail(self, fault: Exception) -> None:
        """Tell a fault and fall quiet."""
        tell_fault("the recorder stops, training goes on", fault)
        self.close()

    def close(self) -> None:
        """Take the hooks away, close the file, and do nothing from now on."""
        self.quiet, self._on = True, False
        weights, self._weights = self._weights, None
        file, self._file = self._file, None
        if weights is not None:
            weights.close()
        if file is not None:
            file.close()


def _note_gradient(recorder: Recorder, parcel: Parcel, advantages: Tensor, mask: Tensor, gradient: Tensor) -> None:
    recorder.note_gradient(parcel, gradient, advantages, mask)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _bounds(clip_range: ClipRange) -> tuple[float, float] | None:
    """Return the log-ratios at which clipping begins."""
    if clip_range is None:
        return None
    below, above = clip_range if isinstance(clip_range, tuple) else (clip_range, clip_range)
    return (math.log1p(-below) if below < 1 else -math.inf), math.log1p(above)


def _rank() -> int:
    """Return this process's rank: of torch.distributed where it runs, else of the launcher."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    told = os.environ.get("RANK", "0")
    return int(told) if told.isdigit() else 0


def _probed(probe: Probe, weights: Weights | None) -> Tensor:
    """Return the statistics of a probe; modes of modules and random states are as before."""
    torch = sys.modules.get("torch")
    if torch is None:
        return measures.row(*_three(probe()))
    modules = list(weights.model.modules()) if weights is not None else []
    modes = [module.training for module in modules]
    devices = sorted({p.device.index for p in weights.parameters if p.device.type == "cuda"}) if weights else []
    try:
        for module in modules:
            module.training = False
        with torch.random.fork_rng(devices), torch.no_grad():
            return measures.row(*_three(probe()))
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _three(found: tuple[Any, ...]) -> tuple[Any, Any, None, Any]:
    return found[0], found[1], None, found[2] if len(found) > 2 else None
