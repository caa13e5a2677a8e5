"""Dumps of runs whose signal or log is wrong, and of sound ones of many kinds."""

from __future__ import annotations

import numpy as np

from ..nets import F32
from ..settings import own_logits
from .capture import Plan, Update
from .kind import kind

# The signal is wrong


def permuted(held: dict[str, object], update: Update, rng: np.random.Generator) -> None:
    """Give every sample another one's advantages: a gather came back in another order."""
    order = rng.permutation(len(update.prompts))
    held["advantages"] = update.batch.advantages[order][np.concatenate(update.samples)]


def regrouped(held: dict[str, object], update: Update, _rng: np.random.Generator) -> None:
    """Take the statistics of groups that do not share a prompt: rows were laid out generation by generation."""
    scores = update.scores.astype(np.float64).reshape(8, -1).T.copy()  # groups of every 12th row
    centred = scores - scores.mean(axis=1, keepdims=True)
    used = (centred / (scores.std(axis=1, keepdims=True, ddof=1) + 1e-4)).T.reshape(-1, 1)
    tokens = np.ones_like(update.batch.mask)
    held["advantages"] = (used * tokens)[np.concatenate(update.samples)].astype(np.float32)


def collided(held: dict[str, object], update: Update, _rng: np.random.Generator) -> None:
    """Take three of the twelve groups for one, because their prompts have one key."""
    scores = update.scores.astype(np.float64)
    place = np.arange(len(scores)) // 8
    place[place < 3] = 0
    used = np.zeros((len(scores), 1))
    for group in np.unique(place):
        own = place == group
        used[own, 0] = (scores[own] - scores[own].mean()) / (scores[own].std(ddof=1) + 1e-4)
    tokens = np.ones_like(update.batch.mask)
    held["advantages"] = (used * tokens)[np.concatenate(update.samples)].astype(np.float32)


def _climbing_down(seed: int) -> Plan:
    def flipped(grads: list[F32]) -> list[F32]:
        return [-grad for grad in grads]

    return Plan(stages={"gradients": flipped}, algorithm=("grpo", "ppo")[seed % 2], updates=5, dumped=(2, 3, 4))


kind("permuted", "advantage-misaligned", Plan(), change=permuted)
kind("permuted-gae", "advantage-misaligned", Plan(algorithm="ppo"), change=permuted)
kind("wrong-groups", "grouping-broken", Plan(), change=regrouped)
kind("collided-groups", "grouping-broken", Plan(), change=collided)
kind(
    "sign-flip", "advantage-sign-flipped", Plan(fault="advantage-sign-flipped", severity=1, updates=5, dumped=(2, 3, 4))
)
kind(
    "sign-flip-gae",
    "advantage-sign-flipped",
    Plan(fault="advantage-sign-flipped", severity=1, algorithm="ppo", updates=5, dumped=(2, 3, 4)),
    form="pt",
)
kind("loss-flipped", "advantage-sign-flipped", _climbing_down)
kind("empty-mask", "loss-mask-empty", Plan(fault="loss-mask-empty", severity=3))
kind(
    "zero-advantages", "adv-exactly-zero", Plan(stages={"advantages": lambda values, _progress: values * np.float32(0)})
)

# The log is wrong

kind("log-counts-unclipped", "metric-logging-bug", Plan(), shape="logged", clip_logged=lambda share: 1 - share)
kind(
    "log-in-per-cent",
    "metric-logging-bug",
    Plan(algorithm="ppo"),
    shape="logged",
    clip_logged=lambda share: share * 100,
)

# Nothing is wrong

kind("sound-logged", "healthy", Plan(), shape="logged")
kind("sound-logged-gae", "healthy", Plan(algorithm="ppo"), shape="logged", form="pt")
kind("sound", "healthy", Plan())
kind("sound-gae", "healthy", Plan(algorithm="ppo"))
kind("sound-minibatches", "healthy", Plan(), shape="minibatches")
kind("sound-minibatches-gae", "healthy", Plan(algorithm="ppo"), shape="minibatches", form="safetensors")
kind("sound-first", "healthy", Plan(algorithm="ppo"), shape="first")
kind("sound-safetensors", "healthy", Plan(severity=1), form="safetensors")
kind("sound-pt", "healthy", Plan(severity=3), form="pt")
kind("sound-rows", "healthy", Plan(), form="jsonl")
kind("sound-slow", "healthy", Plan(config={"learning_rate": 3e-4}))
kind("sound-fast", "healthy", Plan(config={"learning_rate": 1e-2}))
kind("sound-one-minibatch", "healthy", Plan(config={"num_minibatches": 1}))
kind("sound-many-epochs", "healthy", Plan(config={"epochs": 8}))
kind("sound-single", "healthy", Plan(fault="benign-single-update", severity=2))
kind(
    "sound-first-update",
    "healthy",
    Plan(updates=1, dumped=(0,), fault="benign-single-update", severity=1),
    shape="first",
)
kind("sound-start", "healthy", Plan(updates=2, dumped=(0, 1)))
kind("sound-converged", "healthy", Plan(updates=60, dumped=(50, 55, 59)))
kind("sound-half", "healthy", Plan(), change=lambda held, _u, _r: _halved(held), form="safetensors")
kind("sound-recomputed", "healthy", Plan(recomputed=True, stages={"stored_logits": own_logits}), form="pt")
kind("sound-no-mask", "healthy", Plan(), without=("response_mask",))
kind(
    "sound-bare",
    "healthy",
    Plan(),
    without=("response_mask", "advantages", "group_ids", "epoch", "minibatch", "rewards"),
)
kind("sound-checkpoints", "healthy", Plan(), shape="checkpoints", form="pt")
kind("sound-checkpoints-gae", "healthy", Plan(algorithm="ppo"), shape="checkpoints", form="safetensors")
kind("sound-whitened", "healthy", Plan(), change=lambda held, _u, _r: _whitened(held))
kind("sound-centred", "healthy", Plan(), change=lambda held, u, _r: _centred(held, u))
kind("sound-long", "healthy", Plan(config={"num_prompts": 48, "max_tokens": 16}))


def _halved(held: dict[str, object]) -> None:
    for name in ("log_probs", "old_log_probs"):
        held[name] = np.asarray(held[name], np.float16)


def _whitened(held: dict[str, object]) -> None:
    """Whiten advantages over all tokens in the loss, as REINFORCE++ does after its groups."""
    values, keep = np.asarray(held["advantages"]), np.asarray(held["response_mask"])
    chosen = values[keep]
    held["advantages"] = ((values - chosen.mean()) / (chosen.std() + 1e-8)).astype(np.float32)


def _centred(held: dict[str, object], update: Update) -> None:
    """Leave out the division by the group's deviation, as Dr. GRPO does."""
    groups = update.scores.reshape(-1, 8)
    centred = (groups - groups.mean(axis=1, keepdims=True)).reshape(-1, 1) * np.ones_like(update.batch.mask)
    held["advantages"] = centred[np.concatenate(update.samples)]
