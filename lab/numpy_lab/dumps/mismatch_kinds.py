"""Dumps of runs whose ratio compares the wrong policies, or whose policy gets no update."""

from __future__ import annotations

from collections import deque

import numpy as np

from ..agent import Agent, Batch
from ..nets import F32, MLP, Int, log_softmax
from ..settings import Progress
from .capture import LONGEST_PADDING, LONGEST_ROW, Plan, Update, frozen_copy, log_probs_of
from .kind import kind

# The old policy follows the new one

kind(
    "aliased-dump",
    "old-policy-aliased",
    Plan(fault="old-policy-aliased", severity=1),
    level_with=("old-logp-resynced-per-minibatch",),
)
kind(
    "aliased-dump-minibatches",
    "old-policy-aliased",
    Plan(fault="old-policy-aliased", severity=2, algorithm="ppo"),
    shape="minibatches",
    form="pt",
    level_with=("old-logp-resynced-per-minibatch",),
)
kind(
    "aliased-module", "old-policy-aliased", Plan(fault="old-policy-aliased", severity=1), shape="checkpoints", form="pt"
)
kind(
    "equal-copies",
    "old-logp-resynced-per-minibatch",
    Plan(fault="old-logp-resynced-per-minibatch", severity=1),
    shape="checkpoints",
    form="pt",
)
for _form, _algorithm in (("npz", "grpo"), ("safetensors", "ppo")):
    kind(
        f"resync-per-minibatch-{_form}",
        "old-logp-resynced-per-minibatch",
        Plan(fault="old-logp-resynced-per-minibatch", severity=1, algorithm=_algorithm),
        form=_form,
        level_with=("old-policy-aliased",),
    )
    kind(
        f"resync-per-epoch-{_form}",
        "old-logp-resynced-per-epoch",
        Plan(fault="old-logp-resynced-per-epoch", severity=1, algorithm=_algorithm),
        form=_form,
    )
kind(
    "resync-per-epoch-minibatches",
    "old-logp-resynced-per-epoch",
    Plan(fault="old-logp-resynced-per-epoch", severity=2),
    shape="minibatches",
)

# Sampler and trainer compute different log-probs


def _tempered(seed: int) -> Plan:
    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return agent.actor.forward(inputs)[0] / np.float32(0.6)

    return Plan(stages={"rollout_logits": logits}, algorithm=("grpo", "ppo")[seed % 2], updates=10, dumped=(5, 7, 9))


def _truncated(seed: int) -> Plan:
    """Sample from the smallest set of tokens with a probability of 0.8, and store what the sampler used."""

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return nucleus(agent.actor.forward(inputs)[0], 0.8)

    return Plan(stages={"rollout_logits": logits}, algorithm=("grpo", "ppo")[seed % 2])


def nucleus(logits: F32, mass: float) -> F32:
    """Return logits with those outside the smallest set of at least this probability far below the rest."""
    probabilities = np.exp(log_softmax(logits))
    order = np.argsort(-probabilities, axis=-1)
    ordered = np.take_along_axis(probabilities, order, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered
    kept = np.empty_like(before, dtype=bool)
    np.put_along_axis(kept, order, before < mass, axis=-1)
    cut: F32 = np.where(kept, logits, np.float32(-1e4)).astype(np.float32)
    return cut


def _noisy_sampler(seed: int) -> Plan:
    rng = np.random.default_rng([seed, 1])

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        off: F32 = exact + rng.normal(0, 0.4, exact.shape).astype(np.float32)
        return off

    return Plan(stages={"rollout_logits": logits}, recomputed=True)


def _dropped(seed: int, share: float = 0.2) -> Plan:
    """Compute the update's log-probs with dropout of the last hidden layer; sampling and the old ones without."""
    rng = np.random.default_rng([seed, 2])

    def forward(agent: Agent, batch: Batch, rows: Int, _update: Update) -> F32:
        dropped = frozen_copy(agent.actor)
        inputs = batch.inputs[rows].reshape(-1, batch.inputs.shape[-1])
        hidden = dropped.forward(inputs)[1][-1]
        keep = (rng.random(hidden.shape) >= share) / np.float32(1 - share)
        logits = ((hidden * keep) @ dropped.params[-2] + dropped.params[-1]).astype(np.float32)
        flat = log_softmax(logits)[np.arange(len(inputs)), batch.actions[rows].ravel()]
        return np.asarray(flat, np.float32).reshape(batch.actions[rows].shape)

    return Plan(forward=forward, recomputed=True, algorithm=("grpo", "ppo")[seed % 2])


def _cached(seed: int) -> Plan:
    """Sample with errors that grow from token to token, as a quantised cache of keys and values makes them."""
    rng = np.random.default_rng([seed, 5])

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        place = inputs[:, -LONGEST_ROW:].argmax(axis=-1)[:, None] / np.float32(LONGEST_ROW)
        off: F32 = exact + (0.8 * place * rng.normal(0, 1, exact.shape)).astype(np.float32)
        return off

    return Plan(stages={"rollout_logits": logits}, recomputed=True, algorithm=("grpo", "ppo")[seed % 2])


def _padded(seed: int) -> Plan:
    """Compute the update's log-probs with positions that count the padding before a prompt, more the more there is."""

    def forward(agent: Agent, batch: Batch, rows: Int, update: Update) -> F32:
        inputs = batch.inputs[rows].copy()
        length = inputs.shape[1]
        share = (update.padding[rows] / np.float32(LONGEST_PADDING))[:, None, None].astype(np.float32)
        positions = inputs[:, :, -length:]
        inputs[:, :, -length:] = positions * (1 - share) + np.roll(positions, 1, axis=2) * share
        return log_probs_of(agent.actor, batch, rows, inputs)

    return Plan(forward=forward, recomputed=True, updates=30, dumped=(21, 25, 29), algorithm=("grpo", "ppo")[seed % 2])


def _stale(seed: int, lag: int = 6) -> Plan:
    versions: deque[MLP] = deque(maxlen=lag + 1)

    def remember(agent: Agent, progress: Progress) -> None:
        if progress.update == 0:
            versions.clear()
        versions.append(frozen_copy(agent.actor))

    def logits(_agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return versions[0].forward(inputs)[0]

    stages = {"before_rollout": remember, "rollout_logits": logits}
    return Plan(stages=stages, updates=24, dumped=(13, 18, 23), algorithm=("grpo", "ppo")[seed % 2])


def _rounded(seed: int, bits: int = 8) -> Plan:
    """Compute the update's logits in bfloat16, from hidden layers that were summed in another order."""
    rng = np.random.default_rng([seed, 3])

    def forward(agent: Agent, batch: Batch, rows: Int, _update: Update) -> F32:
        inputs = batch.inputs[rows].reshape(-1, batch.inputs.shape[-1])
        logits = agent.actor.forward(inputs)[0]
        step = np.float32(2.0**-bits) * np.maximum(np.abs(logits), 1)
        off = logits + (step * rng.uniform(-1, 1, logits.shape)).astype(np.float32)
        flat = log_softmax(off)[np.arange(len(inputs)), batch.actions[rows].ravel()]
        return np.asarray(flat, np.float32).reshape(batch.actions[rows].shape)

    return Plan(forward=forward, recomputed=True, algorithm=("grpo", "ppo")[seed % 2])


def versioned(held: dict[str, object], update: Update, _rng: np.random.Generator) -> None:
    """Write which version of the policy sampled, six updates ago, and which one is trained."""
    held["policy_version"] = np.full(len(np.asarray(held["log_probs"])), update.number - 6)
    held["current_version"] = update.number


def _shifted(_seed: int) -> Plan:
    return Plan(fault="token-misalignment", severity=1, algorithm="ppo")


kind("shift-by-one", "token-misalignment", _shifted)
kind("shift-by-one-first", "token-misalignment", _shifted, shape="first", form="pt")
kind("temperature", "temperature-mismatch", _tempered)
kind("temperature-first", "temperature-mismatch", _tempered, shape="first", form="safetensors")
kind("top-p", "temperature-mismatch", _truncated)
kind("top-p-minibatches", "temperature-mismatch", _truncated, shape="minibatches")
kind(
    "dropout",
    "dropout-or-train-mode",
    _dropped,
    level_with=("rollout-trainer-mismatch",),
    without=("rollout_log_probs",),
)
kind("dropout-three", "dropout-or-train-mode", _dropped, form="pt")
kind("noisy-sampler", "rollout-trainer-mismatch", _noisy_sampler)
kind("cached-sampler", "rollout-trainer-mismatch", _cached)
kind("cached-sampler-first", "rollout-trainer-mismatch", _cached, shape="first", form="safetensors")
kind("padding", "padding-position-mismatch", _padded)
kind("padding-first", "padding-position-mismatch", _padded, shape="first")
kind("stale", "staleness-async", _stale, change=versioned)
kind(
    "stale-unversioned",
    "staleness-async",
    _stale,
    level_with=("weights-not-synced", "obs-transform-mismatch", "rollout-trainer-mismatch"),
    form="safetensors",
)
kind(
    "unsynced",
    "weights-not-synced",
    lambda seed: _stale(seed, lag=1000),
    level_with=("staleness-async", "obs-transform-mismatch", "rollout-trainer-mismatch"),
)
kind("dtype-noise", "dtype-noise-floor", _rounded)
kind("dtype-noise-first", "dtype-noise-floor", _rounded, shape="first", form="pt")

# The policy gets no update

#: What is usual for language models in 16 bits, relative to their weights.
HALF_RATE = 6e-6
kind(
    "frozen",
    "no-grad-path",
    Plan(fault="no-grad-path", severity=3),
    shape="checkpoints",
    form="pt",
    level_with=("optimizer-orphaned-params",),
)
kind(
    "orphaned",
    "optimizer-orphaned-params",
    Plan(fault="optimizer-orphaned-params", severity=3),
    shape="checkpoints",
    form="pt",
)
kind("lr-zero", "lr-zero", Plan(fault="lr-zero", severity=3), shape="checkpoints", form="pt")
kind(
    "bf16-swallowed",
    "bf16-swallowed-update",
    Plan(fault="bf16-swallowed-update", severity=3, config={"learning_rate": HALF_RATE}),
    shape="checkpoints",
    form="pt",
)
