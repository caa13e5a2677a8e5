"""A plain PPO loop in NumPy: a linear policy, plain gradient descent, a task of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ppo_doctor.record import Recorder

UPDATES, EPOCHS, MINIBATCHES, BATCH, FEATURES, ACTIONS, CLIP = 100, 4, 4, 256, 8, 4, 0.2


def chosen(weights: Any, seen: Any, actions: Any) -> tuple[Any, Any]:
    """Return the log-probs of actions, and the probabilities of all."""
    logits = seen @ weights
    every = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return every[np.arange(len(actions)), actions], np.exp(every)


def train(
    path: Path, rate: float, *, watched: bool = True, config: Any = None, updates: int = UPDATES, **told: Any
) -> None:
    """Train, and record what a loop has at hand; `told` goes to `end_update`."""
    made = np.random.default_rng(0)
    weights, teacher = made.normal(0, 0.01, (FEATURES, ACTIONS)), made.normal(0, 1, (FEATURES, ACTIONS))
    recorder = Recorder(path, config=config, clip_range=CLIP, model=(lambda: [weights]) if watched else None)
    for _ in range(updates):
        seen = made.normal(size=(BATCH, FEATURES))
        shares = chosen(weights, seen, np.zeros(BATCH, int))[1]
        actions = (shares.cumsum(1) > made.random((BATCH, 1))).argmax(1)
        stored = chosen(weights, seen, actions)[0]
        rewards = (actions == (seen @ teacher).argmax(1)) + made.normal(0, 0.1, BATCH)
        raw = rewards - rewards.mean()
        recorder.start_update(advantages=raw)
        for epoch in range(EPOCHS):
            for some in np.split(made.permutation(BATCH), MINIBATCHES):
                new, shares = chosen(weights, seen[some], actions[some])
                advantages, ratio = raw[some] / raw.std(), np.exp(new - stored[some])
                bounded = np.clip(ratio, 1 - CLIP, 1 + CLIP)
                recorder.minibatch(
                    new_log_prob=new,
                    old_log_prob=stored[some],
                    advantages=advantages,
                    epoch=epoch,
                    policy_loss=-np.minimum(ratio * advantages, bounded * advantages).mean(),
                    entropy=-(shares * np.log(shares)).sum(1).mean(),
                )
                pull = np.where(ratio * advantages <= bounded * advantages, advantages * ratio, 0)[:, None] / len(some)
                gradient = seen[some].T @ ((np.eye(ACTIONS)[actions[some]] - shares) * pull)
                weights += rate * gradient
                recorder.optimizer_step(grad_norm=np.linalg.norm(gradient))
        recorder.end_update(reward_mean=rewards.mean(), reward_std=rewards.std(), **told)
    recorder.close()
