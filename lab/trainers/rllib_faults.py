"""What a user of RLlib gets wrong: forks of its learner, of what goes into the batch, and of the loop around both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from lab.edits import edited

Fork = Callable[[], None]
"""Changes the library in this process, which makes one run only."""


def loss(changes: Mapping[str, str]) -> Fork:
    """Return a fork whose loss has lines changed."""

    def fork() -> None:
        PPOTorchLearner.compute_loss_for_module = edited(PPOTorchLearner.compute_loss_for_module, changes)

    return fork


def advantages(changes: Mapping[str, str]) -> Fork:
    """Return a fork whose advantages are made by other lines."""

    def fork() -> None:
        call = edited(GeneralAdvantageEstimation.__call__, changes)
        GeneralAdvantageEstimation.__call__ = call  # type: ignore[method-assign]

    return fork


OLD = "curr_action_dist.logp(batch[Columns.ACTIONS]) - batch[Columns.ACTION_LOGP]"
NEW = "curr_action_dist.logp(batch[Columns.ACTIONS])"
aliased = loss({OLD: f"{NEW} - {NEW}.detach()"})
"""The old log-prob of the ratio is that of the policy that is being updated; the KL still compares with the sampler."""

detached = loss({OLD: f"{NEW}.detach() - batch[Columns.ACTION_LOGP]", "+= self.curr": "+= 0.0 * self.curr"})
"""The new log-prob is detached, and the term of the KL was switched off as well."""

flipped = loss({"-surrogate_loss\n": "surrogate_loss\n"})
"""The surrogate is minimised."""

zero = advantages({"module_value_targets - module_vf_preds\n": "module_value_targets - module_value_targets\n"})
"""Targets minus targets instead of targets minus values."""


def one_epoch() -> None:
    """Let a wrapper of the learner forget to pass the number of epochs on."""
    update = PPOTorchLearner.update

    def once(self: Any, *given: Any, **more: Any) -> Any:
        return update(self, *given, **{**more, "num_epochs": 1})

    PPOTorchLearner.update = once


def unsynced() -> None:
    """Keep the weights of the runner as they were made: a filter of policies that matches none."""
    EnvRunnerGroup.sync_weights = lambda *_, **__: None


def seldom_synced() -> None:
    """Hand weights to the runner at every sixth iteration only."""
    sync, calls = EnvRunnerGroup.sync_weights, [0]

    def seldom(self: Any, *given: Any, **more: Any) -> None:
        calls[0] += 1
        if calls[0] % 6 == 1:
            sync(self, *given, **more)

    EnvRunnerGroup.sync_weights = seldom


class Constant(gymnasium.RewardWrapper[Any, Any]):
    """A verifier that fails silently: its default comes out, whatever was done."""

    def __init__(self, env: Any, value: float = 0.0) -> None:
        super().__init__(env)
        self.value = value

    def reward(self, reward: Any) -> float:
        """Return the default."""
        return self.value
