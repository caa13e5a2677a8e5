"""A callback that records Stable-Baselines3's PPO from outside `train()`.

The library calls no callback inside `train()`, so while it runs, two methods of the instance are wrapped:
`rollout_buffer.get`, which returns minibatches, and `policy.evaluate_actions`, which returns new log-probs
(stable_baselines3/ppo/ppo.py, 2.9). How the loss uses them is computed from the gradient.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ppo_doctor.record.guard import guarded, tell
from ppo_doctor.record.measures import Foreign, Tensor
from ppo_doctor.record.recorder import Recorder

__all__ = ["RecorderCallback"]


#: Largest number of samples that the probe evaluates again after the update.
PROBED = 256
_LOGGED = {"policy_loss": "train/policy_gradient_loss", "value_loss": "train/value_loss", "loss": "train/loss"}


class RecorderCallback(BaseCallback):  # type: ignore[misc]
    """Writes a canonical record per update: `model.learn(..., callback=RecorderCallback("run.jsonl"))`.

    Args:
        target: path, logger or list of these, as for `Recorder`.
        every: record one of this many updates.
        probe: evaluate up to `PROBED` samples again after each recorded update.
        stop_on: end training, with a line on stderr, once a cause at least as severe is confirmed.
        dump_when, dump_folder: as for `Recorder`.

    Raises:
        ValueError: as `Recorder`.
    """

    turn = nullcontext()

    def __init__(
        self,
        target: Any,  # noqa: ANN401 - path or logger
        *,
        every: int = 1,
        probe: bool = True,
        stop_on: str | None = None,
        dump_when: str | None = None,
        dump_folder: str | None = None,
    ) -> None:
        super().__init__()
        self.quiet, self.pid = False, os.getpid()
        self.recorder = Recorder(target, every=every, stop_on=stop_on, dump_when=dump_when, dump_folder=dump_folder)
        self._probe = probe
        self._taken: list[tuple[Any, str]] = []
        self._epoch = -1
        self._batch: Any = None
        self._first: tuple[tuple[Tensor, ...], Tensor] | None = None
        self._training = self._told_stop = False

    def fail(self, fault: Exception) -> None:
        """Report a fault, restore the model, and stop recording."""
        self.quiet = True
        self._release()
        self.recorder.stop(fault)

    @guarded
    def _on_training_start(self) -> None:
        self.recorder.configure(settings(self.model))
        self.recorder.watch(self.model.policy, self.model.policy.optimizer)

    @guarded
    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        self.recorder.start_update(advantages=buffer.advantages)
        self._epoch, self._batch, self._first, self._training = -1, None, None, True
        self._wrap(buffer, "get", self._handed_out)
        self._wrap(self.model.policy, "evaluate_actions", self._evaluated)

    @guarded
    def _on_rollout_start(self) -> None:
        self._finish()

    @guarded
    def _on_training_end(self) -> None:
        self._finish()

    def _on_step(self) -> bool:
        if not self.recorder.should_stop:
            return True
        if not self._told_stop:
            self._told_stop = True
            tell(f"training is stopped: {self.recorder.stop_reason}")
        return False

    def _wrap(self, owner: Foreign, name: str, around: Callable[..., Any]) -> None:
        inner = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: around(inner, *args, **kwargs))
        self._taken.append((owner, name))

    def _release(self) -> None:
        """Remove the wrappers, so that the methods of the class are used again."""
        for owner, name in self._taken:
            vars(owner).pop(name, None)
        self._taken.clear()

    def _handed_out(self, inner: Callable[..., Iterator[Any]], *args: object, **kwargs: object) -> Iterator[Any]:
        self._epoch += 1
        for batch in inner(*args, **kwargs):
            self._batch = batch
            yield batch

    def _evaluated(self, inner: Callable[..., Any], *args: object, **kwargs: object) -> object:
        try:
            result = inner(*args, **kwargs)
        except Exception:
            self._probe = False  # the same pass would fail again
            self._finish()  # earlier minibatches may show the cause
            raise
        self._note(args, result[1], result[2])
        return result

    @guarded
    def _note(self, arguments: tuple[Tensor, ...], log_prob: Tensor, entropy: Tensor) -> None:
        batch, self._batch = self._batch, None  # only the first evaluation of a minibatch belongs to the loss
        if batch is None:
            return
        self._first = self._first or (arguments, batch.old_log_prob)
        advantages = batch.advantages
        if self.model.normalize_advantage and len(advantages) > 1:  # as train() does
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        scalars = {} if entropy is None else {"entropy": entropy.detach().mean()}
        self.recorder.minibatch(
            new_log_prob=log_prob,
            old_log_prob=batch.old_log_prob,
            advantages=advantages,
            epoch=self._epoch,
            clip_range=float(self.model.clip_range(self.model._current_progress_remaining)),
            **scalars,
        )

    @guarded
    def _finish(self) -> None:
        self._release()
        if not self._training:
            return
        self._training = False
        logged = self.logger.name_to_value
        numbers = {name: logged[key] for name, key in _LOGGED.items() if key in logged}
        numbers |= episodes(self.model) | {"explained_variance": logged.get("train/explained_variance")}
        clip = float(self.model.clip_range(self.model._current_progress_remaining))
        probe = self._probed if self._probe and self._first else None
        self.recorder.end_update(step=self.model.num_timesteps, probe=probe, clip_range=clip, **numbers)

    def _probed(self) -> tuple[Tensor, Tensor]:
        """Return new and stored log-probs of samples of the first minibatch; the buffer is empty by then."""
        arguments, stored = self._first or ((), None)
        return self.model.policy.evaluate_actions(*(_head(each) for each in arguments))[1], _head(stored)


def _head(values: Tensor) -> Tensor:
    return {k: v[:PROBED] for k, v in values.items()} if isinstance(values, dict) else values[:PROBED]


def episodes(model: Foreign) -> dict[str, float]:
    """Return the mean return and length of the last finished episodes, empty without any."""
    finished = list(model.ep_info_buffer or ())
    if not finished:
        return {}
    names = {"episode_return": "r", "episode_length": "l"}
    return {name: statistics.fmean(float(one[key]) for one in finished) for name, key in names.items()}


def settings(model: Foreign) -> Mapping[str, object]:
    """Return the settings that determine the optimizer steps per batch, and others that rules use."""
    names = {
        "ppo_epochs": "n_epochs",
        "minibatch_size": "batch_size",
        "rollout_steps": "n_steps",
        "num_envs": "n_envs",
        "normalize_advantages": "normalize_advantage",
    }
    same = ("gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "target_kl")
    values = {name: getattr(model, key, None) for name, key in {**names, **{n: n for n in same}}.items()}
    values["rollout_size"] = model.n_steps * model.n_envs
    values["clip_range"] = float(model.clip_range(1.0))
    if isinstance(model.learning_rate, int | float):
        values["learning_rate"] = float(model.learning_rate)
    return {name: value for name, value in values.items() if value is not None}
