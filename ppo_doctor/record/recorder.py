"""The recorder: what a training loop tells it, it turns into one canonical record per update."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.record import measures, tally, values
from ppo_doctor.record.array_weights import ArrayWeights
from ppo_doctor.record.guard import guarded, tell, tell_fault
from ppo_doctor.record.kinds import Array, Foreign, Tensor
from ppo_doctor.record.memory import same_memory, shared_share
from ppo_doctor.record.online import Online
from ppo_doctor.record.sinks import LineFile, Sink, forward
from ppo_doctor.record.surroundings import Probe, probed, rank
from ppo_doctor.record.transfer import Parcel
from ppo_doctor.record.weights import Weights

ClipRange = measures.ClipRange
_PATH = (str, os.PathLike)
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
        model, optimizer: of torch; of NumPy and JAX, functions that return the policy's arrays and those that the
            optimizer steps. Both may be given to `watch` instead.
        old_policy, reference: models that are kept beside the policy, if any, in the same form.
        sequence_ratio: the ratio is one per sequence (GSPO), so that its spread inside a sequence says nothing.
        dump_when: "unhealthy" saves the last minibatch as `.safetensors` beside the log (or in `dump_folder`) when a
            harmful cause is confirmed, once per set of causes.
        stop_on: "critical", "high", "medium" or "low": `should_stop` turns true once a cause at least as severe is
            confirmed, and `stop_reason` says which. Both judge the records on the host as `ppo-doctor watch` does,
            for at most about a hundredth of the time.

    Only rank 0 records, what it sees itself. No method raises: a fault inside is told once on stderr, and from then on
    every call does nothing.

    Raises:
        ValueError: `stop_on` or `dump_when` is none of these.
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
        dump_when: str | None = None,
        dump_folder: str | os.PathLike[str] | None = None,
        stop_on: str | None = None,
    ) -> None:
        self.quiet, self.pid = False, os.getpid()
        self.every, self.clip_range, self.sequence_ratio = values.count(every), clip_range, sequence_ratio
        self.update = 0
        self._config = values.settings(config)
        self._others = {"old_policy_shared": old_policy, "reference_shared": reference}
        self._target = target
        self._file: LineFile | None = None
        self._sinks: list[Sink] = []
        self._weights: Weights | ArrayWeights | None = None
        self._online = _online(target, dump_when, dump_folder, stop_on)
        self._opened, self._on, self._told_full, self._lost = False, False, False, 0
        self._reset()
        if model is not None:
            self.watch(model, optimizer)

    def _reset(self) -> None:
        self._parcel = Parcel()
        self._starts: list[int] = []
        self._epoch: int | None = None
        self._clipped = self._advantages = True
        self._attempts = self._same = 0
        self._refused: int | None = None
        self._loss_scale: Any = None
        self._begun = time.perf_counter()

    @property
    def should_stop(self) -> bool:
        """Whether a cause as severe as `stop_on` has been confirmed."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> str | None:
        """Severity and cause that should end training; None as long as it may go on."""
        return self._online.reason if self._online is not None else None

    @guarded
    def watch(self, model: Foreign, optimizer: Foreign = None) -> None:
        """Watch a torch model and its optimizer through hooks that change nothing, or arrays before and after."""
        if self._weights is not None or rank() != 0:
            return
        if hasattr(model, "parameters"):
            self._weights = Weights(model, optimizer)
        elif callable(model):
            self._weights = ArrayWeights(model, optimizer)

    @guarded
    def configure(self, config: Mapping[str, Any]) -> None:
        """Add settings of the run, before its first update."""
        self._config.update(values.settings(config))

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
    def rollout(self, *, sampler_log_prob: Tensor, old_log_prob: Tensor, mask: Tensor = None) -> None:
        """Take, after `start_update`, what the sampler and the trainer make of the same tokens at the same weights."""
        if self._on:
            self._parcel.add("rollout", measures.row(old_log_prob, sampler_log_prob, None, mask))

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
        log_prob_gradient: Tensor = None,
        **scalars: Tensor,
    ) -> None:
        """Take one minibatch, after its forward pass and before `backward()`.

        Log-probs have shape [B] or [B, T], advantages (as used in the loss) the same or [B]; the mask is 1 where a
        token is in the loss. `epoch` counts passes over the batch from 0. `log_prob_gradient` is the loss's gradient
        by `new_log_prob`, which torch tells by itself. Scalars may be `loss`, `policy_loss`, `value_loss`, `entropy`.
        """
        if not self._on or not math.prod(new_log_prob.shape):
            return
        if epoch is not None and epoch != self._epoch and self._epoch is not None:
            self._starts.append(self._parcel.count("minibatch"))
        self._epoch = epoch
        bounds = measures.log_bounds(clip_range if clip_range is not None else self.clip_range)
        self._clipped, self._advantages = self._clipped and bounds is not None, advantages is not None
        self._parcel.add("minibatch", measures.row(new_log_prob, old_log_prob, advantages, mask, bounds))
        for name, value in scalars.items():
            if value is not None:
                self._parcel.add(_SCALARS[name], measures.plain(value) if hasattr(value, "shape") else value)
        self._same += same_memory(new_log_prob, old_log_prob)
        if measures.is_torch(new_log_prob):
            self._follow(new_log_prob, advantages, mask)
        elif log_prob_gradient is not None and advantages is not None and not self.sequence_ratio:
            self.note_gradient(self._parcel, self._parcel.count("minibatch") - 1, log_prob_gradient, advantages, mask)
        if self._online is not None:
            self._online.keep(new_log_prob, old_log_prob, advantages, mask)

    def _follow(self, new: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Look at the graph: which weights, and the gradient that the loss sends back."""
        if self._weights is not None:
            self._weights.own(new)
        if new.requires_grad and advantages is not None and not self.sequence_ratio:
            adv, place = measures.plain(advantages), self._parcel.count("minibatch") - 1
            new.register_hook(functools.partial(_note_gradient, self, self._parcel, place, adv, mask))

    @guarded
    def note_gradient(self, parcel: Parcel, place: int, gradient: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Take the gradient by the log-probs of the minibatch at a place of the update."""
        parcel.add("loss_ratio_place", place)
        parcel.add("loss_ratio", measures.loss_ratio_row(gradient, advantages, mask))

    @guarded
    def optimizer_step(
        self,
        model: Foreign = None,
        optimizer: Foreign = None,
        *,
        grad_norm: Tensor = None,
        loss_scale: Tensor = None,
        executed: bool | None = None,
    ) -> None:
        """Count a step that the loop has just asked for, after `optimizer.step()` or `scaler.step(optimizer)`.

        Steps that were executed are counted by a hook of torch's optimizers, told by `executed` elsewhere; those asked
        for and not executed are the skipped ones.
        """
        if model is not None:
            self.watch(model, optimizer)
        if not self._on:
            return
        self._attempts += 1
        self._loss_scale = loss_scale if loss_scale is not None else self._loss_scale
        if executed is not None:
            self._refused = (self._refused or 0) + (not executed)
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
            if value is not None and not values.is_empty(value):
                self._parcel.add(f"given {name}", value)
        elapsed = time.perf_counter() - self._begun
        if probe is not None:
            self._parcel.add("probe", probed(probe, self._weights))
        minibatches = self._parcel.count("minibatch")
        with np.errstate(all="ignore"):  # NaN in a record is a finding, not an error
            numbers = self._numbers(self._parcel.fetch(), minibatches)
        at = self.update if step is None else values.number(step)
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
            in_loss = rows["minibatch"][rows["loss_ratio_place"][:, 0].astype(int)]
            numbers = tally.as_in_the_loss(numbers | tally.of_loss_ratio(rows["loss_ratio"]), tally.ratio_std(in_loss))
        if "probe" in rows:
            after = tally.of_minibatches(rows["probe"], (), clipped=False, advantages=False)
            numbers |= {"probe_kl": after["approx_kl"]} if "approx_kl" in after else {}
        if "rollout" in rows:
            before = tally.of_minibatches(rows["rollout"], (), clipped=False, advantages=False)
            numbers |= {"rollout_kl": before["approx_kl_k1"]} if "approx_kl_k1" in before else {}
        numbers |= {name: float(np.mean(rows[name])) for name in _SCALARS.values() if name in rows}
        numbers |= self._steps(rows) | self._ownership(minibatches)
        given = {name[6:]: float(cells[0, 0]) for name, cells in rows.items() if name.startswith("given ")}
        return numbers | given

    def _steps(self, rows: dict[str, Array]) -> dict[str, float]:
        norms = rows.get("grad_norm_told", rows.get("grad_norm"))
        numbers = {"grad_norm": float(np.mean(norms))} if norms is not None else {}
        watched = self._weights if self._weights is not None and self._weights.optimizer is not None else None
        executed = watched.executed if watched else self._attempts - (self._refused or 0)
        if (watched and self._attempts) or self._refused is not None:
            numbers["skipped_steps"] = max(self._attempts - executed, 0)
        if watched or self._attempts:
            numbers["optimizer_steps"] = executed
        if self._weights is not None and "moved" in rows:
            numbers |= self._weights.movement(rows["moved"])
        return numbers

    def _ownership(self, minibatches: int) -> dict[str, float]:
        """Return whose memory is whose: of models after the update, of log-probs over its minibatches."""
        if self._weights is None:
            return {}
        policy = self._weights.model
        found = {name: shared_share(policy, other) for name, other in self._others.items() if other is not None}
        found["optimizer_params_matched"] = self._weights.matched()
        if minibatches:
            found["old_policy_shared"] = max(self._same / minibatches, found.get("old_policy_shared") or 0.0)
        return {name: value for name, value in found.items() if value is not None}

    def _open(self) -> None:
        """Open the target at the first update: by then it is known which rank this is."""
        if self._opened:
            return
        self._opened = True
        if rank() != 0:
            self.close()
            return
        for target in self._target if isinstance(self._target, list | tuple) else [self._target]:
            if isinstance(target, _PATH):
                self._file = LineFile(Path(target))
            else:
                self._sinks.append(forward(target))
        for take in (self._to_file, self._judge):
            take({"ppo_doctor": 1, "config": self._config})

    def _write(self, step: float, numbers: Mapping[str, float]) -> None:
        # The mark stands in every line, so that no other trainer's names are seen in a part of the file.
        record = {"ppo_doctor": 1, "step": step, "update": self.update, **numbers}
        self._to_file(record)
        for sink in tuple(self._sinks):
            try:
                sink(step, numbers)
            except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on, and so does the file
                tell_fault("a logger gets no more records, training goes on", fault)
                self._sinks.remove(sink)
        self._judge(record)

    def _judge(self, record: Mapping[str, Any]) -> None:
        """Let the record be judged; what goes wrong there ends the judging, not the recording."""
        if self._online is None:
            return
        try:
            causes = self._online.take(record)
            saved = self._online.dump(causes, _told(record)) if causes else None
            if saved is not None:
                tell(f"{', '.join(cause.id for cause in causes)}: the last minibatch is in {saved}")
        except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on, and so do the records
            tell_fault("records are no longer judged, training goes on", fault)
            self._stop_judging()

    def _stop_judging(self) -> None:
        online, self._online = self._online, None
        if online is not None:
            online.close()

    def _to_file(self, record: Mapping[str, Any]) -> None:
        """Write a line; a disk that is full now may have room later, so it is told once and tried again."""
        if self._file is None:
            return
        try:
            self._file.write({**record, "records_lost": self._lost} if self._lost else record)
            self._lost = 0
        except OSError as fault:
            self._lost += 1
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
        if self._online is not None:
            self._online.close()


def _note_gradient(
    recorder: Recorder, parcel: Parcel, place: int, advantages: Tensor, mask: Tensor, gradient: Tensor
) -> None:
    recorder.note_gradient(parcel, place, gradient, advantages, mask)


def _told(record: Mapping[str, Any]) -> dict[str, object]:
    """Return what a dump says of itself beside its tensors."""
    return {name: record[name] for name in ("step", "update", "clip_range") if name in record}


def _online(target: Foreign, dump_when: str | None, folder: Foreign, stop_on: str | None) -> Online | None:
    """Return what judges the records, where that is asked for."""
    if dump_when is None and stop_on is None:
        return None
    named = [each for each in (target if isinstance(target, list | tuple) else [target]) if isinstance(each, _PATH)]
    log = Path(named[0]) if named else Path("run.jsonl")
    return Online(dump_when, stop_on, Path(folder) if folder is not None else log.parent, log.stem)
