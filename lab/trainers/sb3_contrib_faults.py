"""Faults of sb3-contrib's RecurrentPPO and MaskablePPO, as forks, callbacks and scripts have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker

from lab.edits import edited


def forked(base: type[Any], **changes: str) -> type[Any]:
    """Return the trainer with one piece of its update replaced: its `old` by its `new`."""
    return type(base.__name__, (base,), {"train": edited(base.train, {changes["old"]: changes["new"]})})


def resynced(base: type[Any]) -> type[Any]:
    """Return a fork that takes the old log-probs anew at the beginning of each epoch."""
    fork = forked(
        base, old="self.rollout_buffer.get(self.batch_size)", new="self.anew(self.rollout_buffer.get(self.batch_size))"
    )
    fork.anew = _anew
    return fork


def _anew(model: Any, batches: Any) -> list[Any]:
    """Return an epoch's minibatches with the log-probs of the policy as it is."""
    return [each._replace(old_log_prob=_log_prob(model.policy, each)) for each in batches]


def _log_prob(policy: Any, batch: Any) -> Any:
    rest = (
        {"lstm_states": batch.lstm_states, "episode_starts": batch.episode_starts}
        if hasattr(batch, "lstm_states")
        else {"action_masks": batch.action_masks}
    )
    with torch.no_grad():
        return policy.evaluate_actions(batch.observations, batch.actions.long().flatten(), **rest)[1]


def touched(base: type[Any], touch: Any) -> type[Any]:
    """Return the trainer with a step of its own between rollout and update, as a callback at the rollout's end has."""

    def collect_rollouts(self: Any, *given: Any, **named: Any) -> bool:
        goes_on = base.collect_rollouts(self, *given, **named)
        touch(self)
        return goes_on

    return type(base.__name__, (base,), {"collect_rollouts": collect_rollouts})


def backwards(model: Any) -> None:
    """Advantages were appended while going backwards, and nobody turned them round."""
    model.rollout_buffer.advantages = model.rollout_buffer.advantages[::-1].copy()


def neighbours(model: Any) -> None:
    """Each environment gets the advantages of its neighbour."""
    model.rollout_buffer.advantages = np.roll(model.rollout_buffer.advantages, 1, axis=1)


def over_the_end(model: Any) -> None:
    """Advantages and returns are made as if no episode ever ended."""
    buffer = model.rollout_buffer
    starts = buffer.episode_starts.copy()
    buffer.episode_starts[:] = 0.0
    with torch.no_grad():
        last = torch.as_tensor(buffer.values[-1])
    buffer.compute_returns_and_advantage(last_values=last, dones=np.zeros(buffer.n_envs))
    buffer.episode_starts = starts


def detached_values(base: type[Any]) -> type[Any]:
    """Return a fork whose values are detached before the value loss: the critic stays what it was."""
    return forked(base, old="values = values.flatten()", new="values = values.flatten().detach()")


def forgets_episodes(base: type[Any] = RecurrentPPO) -> type[Any]:
    """Return a fork that does not reset the recurrent state at an episode's start, in the update alone."""
    return forked(base, old="rollout_data.episode_starts,\n", new="th.zeros_like(rollout_data.episode_starts),\n")


def unmasked(base: type[Any] = MaskablePPO) -> type[Any]:
    """Return a fork whose update does not hand the masks on."""
    return forked(base, old="action_masks=rollout_data.action_masks,", new="action_masks=None,")


def replace_actor(model: Any) -> None:
    """Swap in another actor after the optimizer was made; nobody tells the optimizer."""
    policy = model.policy
    width, actions = policy.action_net.in_features, policy.action_net.out_features
    first = policy.mlp_extractor.policy_net[0].in_features
    policy.mlp_extractor.policy_net = torch.nn.Sequential(
        torch.nn.Linear(first, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh()
    )
    policy.action_net = torch.nn.Linear(width, actions)
    if hasattr(policy, "lstm_actor"):
        policy.lstm_actor = torch.nn.LSTM(policy.lstm_actor.input_size, policy.lstm_actor.hidden_size)


def no_step_left(env: Any) -> Any:
    """Forbid the chain's step to the left at its left end."""
    return ActionMasker(env, lambda task: np.array([task.unwrapped.place > 0, True, True]))


def all_allowed(env: Any) -> Any:
    """Give a task without masks one that allows everything."""
    return ActionMasker(env, lambda task: np.ones(task.action_space.n, dtype=bool))


def lin_8e3(rest: float) -> float:
    """A linear schedule to 0."""
    return 8e-3 * rest


def lin_clip(rest: float) -> float:
    """The clip range shrinks to 0 with it."""
    return 0.3 * rest + 1e-6
