"""Faults of XuanCe's PPO as forks and scripts have them, and what the lab's tasks need to be run by it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import torch
from xuance.torch.agents import OnPolicyAgent
from xuance.torch.learners.policy_gradient.ppo_learner import PPO_Learner

from lab.edits import edited

Wrap = Callable[[Any], Any]


class Task:
    """A task as XuanCe's registry of environments takes it: any of gymnasium's, with wrappers of our own."""

    def __init__(self, config: Any, wrap: Wrap, **more: Any) -> None:
        self.env = wrap(gymnasium.make(config.env_id, **more))
        self.env.action_space.seed(config.env_seed)
        self.env.reset(seed=config.env_seed)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.metadata, self.max_episode_steps = self.env.metadata, getattr(self.env, "_max_episode_steps", 1000)

    def reset(self) -> Any:
        """Begin an episode."""
        return self.env.reset()

    def step(self, action: Any) -> Any:
        """Do an action."""
        return self.env.step(action)

    def close(self) -> None:
        """End."""
        self.env.close()


def _in_update(old: str, new: str) -> None:
    PPO_Learner.update = edited(PPO_Learner.update, {old: new})


def flip_surrogate() -> None:
    """Lose the minus of the actor's loss, and with it the minimum's sense."""
    _in_update("a_loss = -torch.minimum(", "a_loss = torch.minimum(")


def flip_advantages() -> None:
    """Take values minus returns for advantages."""
    _in_update("torch.as_tensor(samples['advantages'], ", "-torch.as_tensor(samples['advantages'], ")


def alias() -> None:
    """Take the old log-prob from the policy that is updated."""
    _in_update("(log_prob - old_logp_batch)", "(log_prob - log_prob.detach())")


def flip_entropy() -> None:
    """Add the entropy to the loss, as it stands."""
    _in_update("a_loss - self.ent_coef", "a_loss + self.ent_coef")


def detach_values() -> None:
    """Detach the values before the critic's loss."""
    _in_update("self.mse_loss(v_pred, ", "self.mse_loss(v_pred.detach(), ")


def return_early() -> None:
    """Return from within the loop over epochs."""
    OnPolicyAgent.train_epochs = edited(
        OnPolicyAgent.train_epochs, {"    return train_info": "        return train_info"}
    )


def count_rollouts() -> None:
    """Count the schedule's iterations in rollouts, where it is stepped in minibatches."""
    PPO_Learner.estimate_total_iterations = edited(
        PPO_Learner.estimate_total_iterations,
        {"update_times * self.config.n_epochs * self.config.n_minibatch": "update_times"},
    )


def swap_actor(agent: Any) -> None:
    """Swap in an actor of the same shape after the optimizer was made."""
    agent.policy.actor = _fresh(agent.policy.actor)


def swap_all(agent: Any) -> None:
    """Make the optimizer for a copy of the policy."""
    twin = copy.deepcopy(agent.policy)
    agent.learner.optimizer = torch.optim.Adam(twin.parameters(), agent.config.learning_rate, eps=1e-5)
    agent.learner.scheduler = None


def _fresh(actor: Any) -> Any:
    made = copy.deepcopy(actor)
    for part in made.modules():
        if isinstance(part, torch.nn.Linear):
            torch.nn.init.orthogonal_(part.weight)
    return made


def sampled_by_stale(every: int) -> Callable[[Any], None]:
    """Return what makes a copy of the policy sample, which takes over the weights after every so many rollouts."""

    def change(agent: Any) -> None:
        learns, updated = agent.learner.policy, agent.train_epochs
        agent.policy, count = copy.deepcopy(learns), 0

        def train_epochs(n_epochs: int = 1) -> Any:
            nonlocal count
            count += 1
            told = updated(n_epochs)
            if count % every == 0:
                agent.policy.load_state_dict(learns.state_dict())
            return told

        agent.train_epochs = train_epochs

    return change
