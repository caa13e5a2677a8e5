"""A callback that records TRL's GRPOTrainer, and the base class of callbacks for TRL's trainers.

A `TrainerCallback` gets no log-probs or advantages, so three methods of the trainer are wrapped while it trains:
`_generate_and_score_completions` (a new batch), `_compute_loss` (its inputs) and `_get_per_token_logps_and_entropies`
(new log-probs), of trl/trainer/grpo_trainer.py, 1.9 to 1.16. How the loss uses them is computed from the gradient.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Self

from transformers import TrainerCallback

from ppo_doctor.record.guard import guarded, tell, tell_fault
from ppo_doctor.record.measures import Foreign, Tensor
from ppo_doctor.record.recorder import Recorder

__all__ = ["GrpoRecorder"]


class TrainerRecorder(TrainerCallback):  # type: ignore[misc]
    """A callback that records one trainer; subclasses define what is wrapped and when a record ends."""

    #: TRL's names in its log → canonical metrics.
    LOGGED: ClassVar[Mapping[str, str]] = {}
    turn = nullcontext()

    def __init__(self, trainer: Foreign, recorder: Recorder) -> None:
        self.quiet, self.pid = False, os.getpid()
        self.recorder = recorder
        self._trainer = trainer
        self._logged: dict[str, list[float]] = defaultdict(list)

    @classmethod
    def attach(cls, trainer: Foreign, target: Any, **options: Any) -> Self | None:  # noqa: ANN401
        """Return a recorder that the trainer calls from now on; None with a line on stderr if that fails."""
        try:
            made = cls(trainer, target, **options)
            trainer.add_callback(made)
        except Exception as fault:  # noqa: BLE001 - training goes on after any fault
            tell_fault("the recorder cannot look into this trainer, training goes on", fault)
            return None
        return made

    def fail(self, fault: Exception) -> None:
        """Report a fault, restore the trainer, and stop recording."""
        self.quiet = True
        self._release()
        self.recorder.stop(fault)

    @guarded
    def on_log(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Collect what TRL logs of rewards, completions and losses."""
        for name, value in (given.get("logs") or {}).items():
            if name in self.LOGGED and isinstance(value, int | float):
                self._logged[self.LOGGED[name]].append(float(value))

    def _release(self) -> None:
        """Restore the trainer."""
        raise NotImplementedError

    def _means(self) -> dict[str, Any]:
        """Return the means of values logged since the last record; only losses may be non-finite."""
        means = {name: statistics.fmean(values) for name, values in self._logged.items()}
        self._logged.clear()
        return {name: mean for name, mean in means.items() if math.isfinite(mean) or name.endswith("loss")}


def settings_of(args: Foreign, names: Mapping[str, str], **more: object) -> dict[str, object]:
    """Return the trainer's settings that are set by canonical names; `names` maps TRL's names to these."""
    values = {name: getattr(args, key, None) for key, name in names.items()} | more
    return {name: value for name, value in values.items() if value is not None}


#: TRL's names in its log → canonical metrics.
_LOGGED = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "frac_reward_zero_std",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated_fraction",
    "entropy": "entropy",
    "kl": "ref_kl",
    "loss": "loss",
}
_SETTINGS = {
    "learning_rate": "learning_rate",
    "num_generations": "num_generations",
    "temperature": "temperature",
    "loss_type": "loss_type",
    "importance_sampling_level": "importance_sampling_level",
    "max_grad_norm": "max_grad_norm",
    "beta": "kl_coef",
}


class GrpoRecorder(TrainerRecorder):
    """Writes a canonical record per generation batch: `GrpoRecorder.attach(trainer, "run.jsonl")` before `train()`.

    Args:
        trainer: the GRPOTrainer to record.
        target: path, logger or list of these, as for `Recorder`.
        every: record one of this many generation batches.
        stop_on: end training, with a line on stderr, once a cause at least as severe is confirmed.
        dump_when, dump_folder: as for `Recorder`.
    """

    LOGGED = _LOGGED

    def __init__(
        self,
        trainer: Foreign,
        target: Any,  # noqa: ANN401 - path or logger
        *,
        every: int = 1,
        stop_on: str | None = None,
        dump_when: str | None = None,
        dump_folder: str | None = None,
    ) -> None:
        recorder = Recorder(
            target,
            every=every,
            config=settings(trainer),
            clip_range=(trainer.epsilon_low, trainer.epsilon_high),
            reference=getattr(trainer, "ref_model", None),
            sequence_ratio=trainer.importance_sampling_level != "token",
            stop_on=stop_on,
            dump_when=dump_when,
            dump_folder=dump_folder,
        )
        super().__init__(trainer, recorder)
        self._taken: list[str] = []
        self._inputs: Mapping[str, Any] | None = None
        self._micro_steps = 0
        self._running = self._told_stop = False

    @guarded
    def on_train_begin(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Wrap the trainer's methods and watch model and optimizer, which exist by now."""
        model = self._trainer.accelerator.unwrap_model(given["model"])
        self.recorder.watch(model, given["optimizer"])
        self._wrap("_generate_and_score_completions", self._generated)
        self._wrap("_compute_loss", self._losing)
        self._wrap("_get_per_token_logps_and_entropies", self._evaluated)

    @guarded
    def on_step_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Stop training if `stop_on` requires it; not with several processes, because the others would wait."""
        if not self.recorder.should_stop or self._told_stop:
            return
        self._told_stop = True
        alone = args.world_size == 1
        control.should_training_stop = control.should_training_stop or alone
        text = "training is stopped" if alone else "one process of several does not stop training"
        tell(f"{text}: {self.recorder.stop_reason}")

    @guarded
    def on_train_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Write the last record and restore the trainer."""
        self._finish()
        self._release()

    def _wrap(self, name: str, around: Callable[..., Any]) -> None:
        inner = getattr(self._trainer, name)
        setattr(self._trainer, name, lambda *args, **kwargs: around(inner, *args, **kwargs))
        self._taken.append(name)

    def _release(self) -> None:
        for name in self._taken:
            self._trainer.__dict__.pop(name, None)
        self._taken.clear()

    def _generated(self, inner: Callable[..., Any], *args: object, **kwargs: object) -> object:
        training = self._trainer.model.training
        if training:
            self._next()
        batch = inner(*args, **kwargs)
        if training:
            self._sampled(batch)
        return batch

    @guarded
    def _sampled(self, batch: Mapping[str, Any]) -> None:
        """Compare log-probs of sampler and trainer if the trainer computes both (vLLM)."""
        sampler, stored = batch.get("sampling_per_token_logps"), batch.get("old_per_token_logps")
        if sampler is not None and stored is not None:
            self.recorder.rollout(sampler_log_prob=sampler, old_log_prob=stored, mask=_mask(batch))

    @guarded
    def _next(self) -> None:
        self._finish()
        self.recorder.start_update()
        self._micro_steps, self._running = 0, True

    def _losing(self, inner: Callable[..., Any], model: Foreign, inputs: Mapping[str, Any]) -> object:
        self._inputs = inputs if self._trainer.model.training else None
        return inner(model, inputs)

    def _evaluated(self, inner: Callable[..., Any], *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        result = inner(*args, **kwargs)
        self._note(result[0])
        return result

    @guarded
    def _note(self, log_prob: Tensor) -> None:
        inputs, self._inputs = self._inputs, None  # only the first evaluation belongs to the loss
        if inputs is None or not self._running:
            return
        stored = inputs.get("old_per_token_logps")
        self.recorder.minibatch(
            new_log_prob=log_prob,
            old_log_prob=log_prob.detach() if stored is None else stored,
            advantages=inputs["advantages"],
            mask=_mask(inputs),
            epoch=self._micro_steps // max(self._trainer.args.steps_per_generation, 1),
        )
        self._micro_steps += 1

    def _finish(self) -> None:
        if not self._running:
            return
        self._running = False
        self.recorder.end_update(step=self._trainer.state.global_step, **self._means())


def _mask(batch: Mapping[str, Any]) -> Tensor:
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def settings(trainer: Foreign) -> dict[str, object]:
    """Return the settings that determine the optimizer steps per generation, and others that rules use."""
    args = trainer.args
    steps = args.num_iterations * args.steps_per_generation // args.gradient_accumulation_steps
    return settings_of(
        args,
        _SETTINGS,
        algorithm="grpo",
        ppo_epochs=args.num_iterations,
        clip_range=trainer.epsilon_low,
        updates_per_batch=steps,
    )
