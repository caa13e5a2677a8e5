"""The recorder, which writes one canonical record per update from the calls of a training loop."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ppo_doctor.record import measures, update, values
from ppo_doctor.record.guard import Turn, guarded, place_of, tell_fault
from ppo_doctor.record.measures import Foreign, Tensor
from ppo_doctor.record.outlets import Outlets, judge_of
from ppo_doctor.record.update import Update
from ppo_doctor.record.values import Parcel
from ppo_doctor.record.weights import ArrayWeights, Weights, same_memory, shared_share

#: A function that returns new and old log-probs of the same samples, and optionally a mask.
Probe = Callable[[], tuple[Any, ...]]


def rank() -> int:
    """Return the rank of this process: that of torch.distributed if it is initialized, else the launcher's."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    variable = os.environ.get("RANK", "0")
    return int(variable) if variable.isdigit() else 0


def probed(probe: Probe, weights: Foreign) -> Tensor:
    """Return the statistics of a probe, and restore the modes of modules and the random states."""
    torch = sys.modules.get("torch")
    if torch is None:
        return measures.row(*_three(probe()))
    watched = weights is not None and hasattr(weights.model, "modules")
    modules = list(weights.model.modules()) if watched else []
    modes = [module.training for module in modules]
    devices = sorted({p.device.index for p in weights.parameters if p.device.type == "cuda"}) if watched else []
    try:
        for module in modules:
            module.training = False
        with torch.random.fork_rng(devices), torch.no_grad():
            return measures.row(*_three(probe()))
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _three(probe: tuple[Any, ...]) -> tuple[Any, Any, None, Any]:
    return probe[0], probe[1], None, probe[2] if len(probe) > 2 else None


ClipRange = measures.ClipRange


class Recorder:
    """Records metrics that reveal silent failures: call `start_update`, `minibatch`, `optimizer_step`, `end_update`.

    Args:
        target: a path for canonical JSONL, a logger (TensorBoard writer, W&B run, anything with `log(dict)`, a
            function), or a list of these.
        every: record one of this many updates; the others cost nothing.
        config: settings of the run (n_epochs, num_minibatches, clip_coef …), written once.
        clip_range: the clip range of the ratio, or (below, above).
        model, optimizer: those of torch; for NumPy and JAX, functions that return the policy's arrays and the arrays
            that the optimizer steps. Both may be given to `watch` instead.
        old_policy, reference: further models of the algorithm, if any, in the same form.
        sequence_ratio: there is one ratio per sequence (GSPO), so that its spread inside a sequence is not measured.
        dump_when: "unhealthy" saves the last minibatch as `.safetensors` in the folder of the log (or in `dump_folder`)
            when a harmful cause is confirmed, once per set of causes.
        stop_on: "critical", "high", "medium" or "low": `should_stop` becomes true once a cause at least as severe is
            confirmed, and `stop_reason` names it. Both options judge the records on the host as `ppo-doctor watch`
            does, for at most about 1 % of the time.

    Only rank 0 records, and only its own data. No method raises: a call that fails loses only its own data. The first
    fault of each kind is reported on stderr, and the record of the update counts failed calls as `calls_lost`. Threads
    may share a recorder: each has its own update from `start_update` to `end_update`; a thread that has started none
    adds to the one that was started last.

    Raises:
        ValueError: `stop_on`, `dump_when` or `dump_folder` is invalid.
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
        self.quiet, self.pid, self.turn = False, os.getpid(), Turn()
        self.every, self.clip_range, self.sequence_ratio = values.count(every), clip_range, sequence_ratio
        self.update = 0
        self._config: dict[str, Any] = {}
        self._others = {"old_policy_shared": old_policy, "reference_shared": reference}
        self._outlets = Outlets(target, judge_of(target, dump_when, dump_folder, stop_on))
        self._opened = False
        self._weights: Weights | ArrayWeights | None = None
        self._updates: dict[int, Update] = {}
        self._latest: Update | None = None
        self._told: set[object] = set()
        self._calls_lost = 0
        if config is not None:
            self.configure(config)
        if model is not None:
            self.watch(model, optimizer)

    @property
    def should_stop(self) -> bool:
        """Return whether a cause at least as severe as `stop_on` has been confirmed."""
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> str | None:
        """Return severity and cause that should end training, None while it may go on."""
        online = self._outlets.online
        return online.reason if online is not None else None

    @guarded
    def watch(self, model: Foreign, optimizer: Foreign = None) -> None:
        """Watch a torch model and its optimizer through hooks that change nothing, or arrays of other libraries."""
        if self._weights is not None or rank() != 0:
            return
        if hasattr(model, "parameters"):
            self._weights = Weights(model, optimizer)
        elif callable(model):
            self._weights = ArrayWeights(model, optimizer)
        else:
            raise TypeError(f"a {type(model).__name__} has no parameters, and is no function that returns arrays")

    @guarded
    def configure(self, config: Mapping[str, Any]) -> None:
        """Add settings of the run; call it before the first update."""
        self._config.update(values.settings(config))

    @guarded
    def start_update(self, *, advantages: Tensor = None) -> None:
        """Begin an update before its first minibatch; `advantages` are those of the whole batch before whitening."""
        self._open()
        if self.quiet:
            return
        started = Update(recorded=self.update % self.every == 0)
        self._updates[threading.get_ident()] = self._latest = started
        if not started.recorded:
            return
        self._start_weights()
        if advantages is not None:
            raw = measures.plain(advantages)
            started.parcel.add("raw", measures.row(raw * 0, raw * 0, raw))

    @guarded
    def _start_weights(self) -> None:
        if self._weights is not None:
            self._weights.start()

    def _current(self) -> Update | None:
        """Return the update of this thread, None if it is not recorded."""
        current = self._updates.get(threading.get_ident(), self._latest)
        return current if current is not None and current.recorded else None

    @guarded
    def rollout(self, *, sampler_log_prob: Tensor, old_log_prob: Tensor, mask: Tensor = None) -> None:
        """Add log-probs of sampler and trainer for the same tokens and weights; call it after `start_update`."""
        current = self._current()
        if current is not None:
            current.parcel.add("rollout", measures.row(old_log_prob, sampler_log_prob, None, mask))

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
        """Add one minibatch; call it after its forward pass and before `backward()`.

        Log-probs have shape [B] or [B, T], advantages (as used in the loss) the same or [B]; the mask is 1 where a
        token is in the loss. `epoch` counts passes over the batch from 0. `log_prob_gradient` is the loss's gradient
        by `new_log_prob`, which only other libraries than torch need. Scalars may be `loss`, `policy_loss`,
        `value_loss`, `entropy`.
        """
        current = self._current()
        if current is None or not math.prod(new_log_prob.shape):
            return
        bounds = self._bounds(clip_range if clip_range is not None else self.clip_range)
        row = measures.row(new_log_prob, old_log_prob, advantages, mask, bounds)
        same = same_memory(new_log_prob, old_log_prob)
        current.enter(epoch)
        current.parcel.add("minibatch", row)
        current.same += same
        current.clipped, current.advantages = current.clipped and bounds is not None, advantages is not None
        for name, value in scalars.items():
            self._add_scalar(current.parcel, name, value)
        if measures.is_torch(new_log_prob):
            self._follow(current.parcel, new_log_prob, advantages, mask)
        elif log_prob_gradient is not None and advantages is not None and not self.sequence_ratio:
            place = current.parcel.count("minibatch") - 1
            self.note_gradient(current.parcel, place, log_prob_gradient, advantages, mask)
        if self._outlets.online is not None:
            self._outlets.online.keep(new_log_prob, old_log_prob, advantages, mask)

    @guarded
    def _bounds(self, clip_range: ClipRange) -> tuple[float, float] | None:
        return measures.log_bounds(clip_range)

    @guarded
    def _add_scalar(self, parcel: Parcel, name: str, value: Tensor) -> None:
        if name not in update.SCALARS:
            raise TypeError(f"a minibatch has no {name}, but {', '.join(update.SCALARS)}")
        self._add(parcel, name, value)

    @guarded
    def _add(self, parcel: Parcel, topic: str, value: Tensor) -> None:
        if value is not None and not values.is_empty(value):
            parcel.add(topic, values.average(value))

    @guarded
    def _follow(self, parcel: Parcel, new: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Determine the policy's weights from the graph, and record the gradient that the loss sends back."""
        if self._weights is not None:
            self._weights.own(new)
        if new.requires_grad and advantages is not None and not self.sequence_ratio:
            adv, place = measures.plain(advantages), parcel.count("minibatch") - 1
            new.register_hook(functools.partial(_note_gradient, self, parcel, place, adv, mask))

    @guarded
    def note_gradient(self, parcel: Parcel, place: int, gradient: Tensor, advantages: Tensor, mask: Tensor) -> None:
        """Add the gradient of the loss by the log-probs of the minibatch number `place` of the update."""
        parcel.add("loss_ratio", measures.loss_ratio_row(gradient, advantages, mask))
        parcel.add("loss_ratio_place", place)

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
        """Count a requested step; call it after `optimizer.step()` or `scaler.step(optimizer)`.

        Executed steps are counted by a hook of torch's optimizers, or given by `executed`; the other requested steps
        are skipped ones.
        """
        if model is not None:
            self.watch(model, optimizer)
        current = self._current()
        if current is None:
            return
        current.attempts += 1
        current.loss_scale = loss_scale if loss_scale is not None else current.loss_scale
        if executed is not None:
            current.refused = (current.refused or 0) + (not executed)
        self._add(current.parcel, "grad_norm_told", grad_norm)
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
        """Write the record of the update and return it, None if this update is not recorded.

        `probe` is called without gradients, in evaluation mode and with a separate random state. `metrics` are further
        numbers by canonical names (reward_mean, episode_return …).
        """
        self.update += 1
        ended = self._updates.pop(threading.get_ident(), self._latest)
        self._updates = {thread: each for thread, each in self._updates.items() if each is not ended}
        self._latest = self._latest if self._latest is not ended else None
        if ended is None or not ended.recorded:
            return None
        self._finish_weights(ended)
        for name, value in metrics.items():
            self._add(ended.parcel, f"{update.GIVEN}{name}", value)
        elapsed = time.perf_counter() - ended.begun
        self._probe(ended.parcel, probe)
        minibatches = ended.parcel.count("minibatch")
        rows = ended.parcel.fetch()
        computed = ended.numbers(rows, self._weights)
        numbers = {**computed, **(self._ownership(minibatches, ended.same) or {}), **update.given_metrics(rows)}
        at = self._step(step)
        at = self.update if at is None else at
        marks = {"update": self.update, **({"calls_lost": self._calls_lost} if self._calls_lost else {})}
        self._calls_lost = 0
        self._outlets.take(at, {**numbers, "time_update": elapsed}, marks)
        return {"step": at, **numbers}

    @guarded
    def _finish_weights(self, ended: Update) -> None:
        """Add the learning rate and the changes of the watched weights."""
        if self._weights is None:
            return
        self._add(ended.parcel, f"{update.GIVEN}learning_rate", self._weights.learning_rate())
        self._weights.finish(ended.parcel, ended.loss_scale)

    @guarded
    def _probe(self, parcel: Parcel, probe: Probe | None) -> None:
        if probe is not None:
            parcel.add("probe", probed(probe, self._weights))

    @guarded
    def _step(self, step: object) -> float | None:
        return None if step is None else values.number(step)

    @guarded
    def _ownership(self, minibatches: int, same: int) -> dict[str, float]:
        """Return shares of shared memory: of models after the update, and of log-probs over its minibatches."""
        if self._weights is None:
            return {}
        policy = self._weights.model
        shares = {name: shared_share(policy, other) for name, other in self._others.items() if other is not None}
        shares["optimizer_params_matched"] = self._weights.matched()
        if minibatches:
            shares["old_policy_shared"] = max(same / minibatches, shares.get("old_policy_shared") or 0.0)
        return {name: value for name, value in shares.items() if value is not None}

    def _open(self) -> None:
        """Open the targets at the first update, when the rank is known."""
        if self._opened:
            return
        self._opened = True
        if rank() != 0 or not self._outlets.open(self._config):
            self.close()

    def fail(self, fault: Exception) -> None:
        """Count a lost call, and report each kind of fault once."""
        self._calls_lost += 1
        kind = (type(fault), place_of(fault))
        if kind not in self._told:
            self._told.add(kind)
            tell_fault("what one call told is lost, training and recording go on", fault)

    def stop(self, fault: Exception) -> None:
        """Report a fault that the caller cannot recover from, and stop recording."""
        tell_fault("the recorder stops, training goes on", fault)
        self.close()

    @guarded
    def close(self) -> None:
        """Remove the hooks, close the targets, and record nothing from now on."""
        self.quiet = True
        weights, self._weights = self._weights, None
        self._outlets.close()
        if weights is not None:
            weights.close()


def _note_gradient(
    recorder: Recorder, parcel: Parcel, place: int, advantages: Tensor, mask: Tensor, gradient: Tensor
) -> None:
    recorder.note_gradient(parcel, place, gradient, advantages, mask)
