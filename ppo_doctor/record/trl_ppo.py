"""TRL's experimental PPOTrainer: a callback that looks into its one long `train()` from outside.

The loop calls no method between its minibatches, only functions of its module. While it trains, `selective_log_softmax`
(trl/experimental/ppo/ppo_trainer.py, 1.9 to 1.12) is wrapped there: called with gradients, it gives the new log-probs,
and the rest of the minibatch stands in the caller's variables, which are read and never changed.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from ppo_doctor.record.guard import guarded, tell_fault
from ppo_doctor.record.kinds import Foreign, Tensor
from ppo_doctor.record.recorder import Recorder

WRAPPED = "selective_log_softmax"
#: Variables of `train()` by what they hold.
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


class PpoRecorder(TrainerCallback):  # type: ignore[misc]
    """Writes a canonical record per rollout batch: `PpoRecorder.attach(trainer, "run.jsonl")` before `train()`.

    The trainer asks no callback whether to stop, so there is no `stop_on`. Other options are those of `Recorder`.
    """

    def __init__(self, trainer: Foreign, target: Any, **options: Any) -> None:  # noqa: ANN401 - path or logger
        self.quiet = False
        self._trainer = trainer
        self.recorder = Recorder(
            target,
            config=settings(trainer.args),
            clip_range=trainer.args.cliprange,
            reference=trainer.ref_model,
            **options,
        )
        self._module: dict[str, Any] = type(trainer).train.__globals__
        self._inner: Callable[..., Any] | None = None
        self._running = False
        self._logged: dict[str, list[float]] = defaultdict(list)

    @classmethod
    def attach(
        cls,
        trainer: Foreign,
        target: Any,  # noqa: ANN401 - path or logger
        *,
        every: int = 1,
        dump_when: str | None = None,
        dump_folder: str | None = None,
    ) -> PpoRecorder | None:
        """Return a recorder that the trainer calls from now on; None, and a line on stderr, where that fails."""
        try:
            made = cls(trainer, target, every=every, dump_when=dump_when, dump_folder=dump_folder)
            trainer.add_callback(made)
        except Exception as fault:  # noqa: BLE001 - whatever it is, training goes on
            tell_fault("the recorder cannot look into this trainer, training goes on", fault)
            return None
        return made

    def fail(self, fault: Exception) -> None:
        """Tell a fault and leave the trainer as it was."""
        self.quiet = True
        self._release()
        tell_fault("the recorder stops, training goes on", fault)
        self.recorder.close()

    @guarded
    def on_train_begin(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Wrap the function and watch model and optimizer, which exist by now."""
        self.recorder.watch(self._trainer.accelerator.unwrap_model(self._trainer.model), self._trainer.optimizer)
        self._inner = self._module[WRAPPED]
        self._module[WRAPPED] = self._evaluated

    @guarded
    def on_log(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Keep what TRL logs of scores and losses."""
        for name, value in (given.get("logs") or {}).items():
            if name in _LOGGED and isinstance(value, int | float):
                self._logged[_LOGGED[name]].append(float(value))

    @guarded
    def on_step_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Write the record of the batch."""
        if not self._running:
            return
        self._running = False
        numbers: dict[str, Tensor] = {name: statistics.fmean(values) for name, values in self._logged.items()}
        self._logged.clear()
        self.recorder.end_update(step=state.global_step, clip_range=self._trainer.args.cliprange, **numbers)

    @guarded
    def on_train_end(self, args: Foreign, state: Foreign, control: Foreign, **given: Foreign) -> None:  # noqa: ARG002
        """Leave the trainer's module as it was."""
        self._release()

    def _release(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            self._module[WRAPPED] = inner

    def _evaluated(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 - what the function returns
        inner = self._inner or sys.modules["trl.trainer.utils"].selective_log_softmax
        found = inner(*args, **kwargs)
        if sys.modules["torch"].is_grad_enabled():  # the rollout's passes have no gradients
            self._note(found, sys._getframe(1).f_locals)
        return found

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


def settings(args: Foreign) -> dict[str, object]:
    """Return the settings that decide how many optimizer steps a batch gets, and the rest that rules ask for."""
    told: dict[str, object] = {name: getattr(args, key, None) for key, name in _SETTINGS.items()}
    told["algorithm"] = "ppo"
    return {name: value for name, value in told.items() if value is not None}
