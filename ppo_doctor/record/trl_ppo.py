"""A callback that records TRL's experimental PPOTrainer from outside its `train()`.

The loop calls no method between its minibatches, only functions of its module. While it trains, `selective_log_softmax`
(trl/experimental/ppo/ppo_trainer.py, 1.9 to 1.12) is wrapped: called with gradients, it returns the new log-probs, and
the rest of the minibatch is read from the caller's variables, which are never changed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ppo_doctor.record.guard import guarded
from ppo_doctor.record.measures import Foreign, Tensor
from ppo_doctor.record.recorder import Recorder
from ppo_doctor.record.trl import TrainerRecorder, settings_of

__all__ = ["PpoRecorder"]


WRAPPED = "selective_log_softmax"
#: Names of variables in `train()`.
_OLD, _ADVANTAGES, _EPOCH, _PADDING, _CHOSEN = (
    *("mb_logprobs", "mb_advantage", "ppo_epoch_idx", "padding_mask", "micro_batch_inds"),
)
_LOGGED = {
    "objective/scores": "reward_mean",
    "policy/entropy_avg": "entropy",
    "loss/policy_avg": "policy_loss",
    "loss/value_avg": "value_loss",
}
_SETTINGS = {
    "learning_rate": "learning_rate",
    "temperature": "temperature",
    "max_grad_norm": "max_grad_norm",
    "kl_coef": "kl_coef",
    "num_ppo_epochs": "ppo_epochs",
    "num_mini_batches": "num_minibatches",
    "cliprange": "clip_range",
    "gamma": "gamma",
    "lam": "gae_lambda",
}


class PpoRecorder(TrainerRecorder):
    """Writes a canonical record per rollout batch: `PpoRecorder.attach(trainer, "run.jsonl")` before `train()`.

    The trainer asks no callback whether to stop, so there is no `stop_on`. Other options are those of `Recorder`.
    """

    LOGGED = _LOGGED

    def __init__(
        self,
        trainer: Foreign,
        target: Any,  # noqa: ANN401 - path or logger
        *,
        every: int = 1,
        dump_when: str | None = None,
        dump_folder: str | None = None,
    ) -> None:
        recorder = Recorder(
            target,
            every=every,
            config=settings_of(trainer.args, _SETTINGS, algorithm="ppo", updates_per_batch=_updates(trainer.args)),
            clip_range=trainer.args.cliprange,
            reference=trainer.ref_model,
            dump_when=dump_when,
            dump_folder=dump_folder,
        )
        super().__init__(trainer, recorder)
        self._module: dict[str, Any] = type(trainer).train.__globals__
        self._inner: Callable[..., Any] | None = None
        self._running = False

    @guarded
    def on_train_begin(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Wrap the function and watch model and optimizer, which exist by now."""
        self.recorder.watch(self._trainer.accelerator.unwrap_model(self._trainer.model), self._trainer.optimizer)
        self._inner = self._module[WRAPPED]
        self._module[WRAPPED] = self._evaluated

    @guarded
    def on_step_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Write the record of the batch."""
        if not self._running:
            return
        self._running = False
        self.recorder.end_update(step=state.global_step, clip_range=self._trainer.args.cliprange, **self._means())

    @guarded
    def on_train_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Restore the trainer's module."""
        self._release()

    def _release(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            self._module[WRAPPED] = inner

    def _evaluated(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 - what the function returns
        inner = self._inner or sys.modules["trl.trainer.utils"].selective_log_softmax
        result = inner(*args, **kwargs)
        if sys.modules["torch"].is_grad_enabled():  # the rollout's passes have no gradients
            self._note(result, sys._getframe(1).f_locals)
        return result

    @guarded
    def _note(self, log_prob: Tensor, caller: Mapping[str, Any]) -> None:
        if caller.get("self") is not self._trainer:
            return
        if not self._running:
            self._running = True
            self.recorder.start_update()
        self.recorder.minibatch(
            new_log_prob=log_prob,
            old_log_prob=caller[_OLD],
            advantages=caller[_ADVANTAGES],
            mask=~caller[_PADDING][caller[_CHOSEN]],
            epoch=caller[_EPOCH],
        )


def _updates(args: Foreign) -> int:
    """Return the optimizer steps per rollout batch; gradients accumulate across mini-batches."""
    micro_batches = args.num_mini_batches * math.ceil(args.local_mini_batch_size / args.per_device_train_batch_size)
    return int(max(args.num_ppo_epochs * micro_batches // args.gradient_accumulation_steps, 1))
