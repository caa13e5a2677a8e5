"""A PPO loop in JAX: its arrays and weights are taken as they are, and the causes are named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402

import ppo_doctor  # noqa: E402
from ppo_doctor.record import Recorder, measures  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
BATCH, FEATURES, ACTIONS, EPOCHS = 256, 6, 4, 4
CONFIG = {"algorithm": "ppo", "ppo_epochs": EPOCHS, "num_minibatches": 1, "clip_range": 0.2}


def log_prob(weights: Any, obs: Any, actions: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(obs @ weights["w"] + weights["b"]), actions[:, None], 1)[:, 0]


def surrogate(new: Any, old: Any, advantages: Any) -> Any:
    ratio = jnp.exp(new - old)
    return -jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages).mean()


@jax.jit
def pulled(weights: Any, obs: Any, actions: Any, old: Any, advantages: Any) -> Any:
    """Return new log-probs, the loss's gradient by them, and by the weights."""
    new, back = jax.vjp(lambda w: log_prob(w, obs, actions), weights)
    gradient = jax.grad(surrogate)(new, old, advantages)
    return new, gradient, back(gradient)[0]


def train(path: Any, *, rate: float = 0.3, aliased: bool = False, updates: int = 30) -> None:
    made = np.random.default_rng(0)
    weights = {"w": jnp.zeros((FEATURES, ACTIONS)), "b": jnp.zeros(ACTIONS)}
    held = {"weights": weights}
    arrays = lambda: jax.tree_util.tree_leaves(held["weights"])  # noqa: E731
    recorder = Recorder(path, config=CONFIG, clip_range=0.2, model=arrays)
    for _ in range(updates):
        obs = jnp.asarray(made.normal(0, 1, (BATCH, FEATURES)), jnp.float32)
        chances = np.asarray(jax.nn.softmax(obs @ held["weights"]["w"] + held["weights"]["b"]), np.float64)
        actions = jnp.asarray([made.choice(ACTIONS, p=row / row.sum()) for row in chances])
        rewards = (actions == obs[:, :ACTIONS].argmax(1)).astype(jnp.float32)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        stored = log_prob(held["weights"], obs, actions)
        recorder.start_update(advantages=rewards - rewards.mean())
        for epoch in range(EPOCHS):
            old = log_prob(held["weights"], obs, actions) if aliased else stored
            new, gradient, grads = pulled(held["weights"], obs, actions, old, advantages)
            told = {"advantages": advantages, "epoch": epoch, "log_prob_gradient": gradient}
            recorder.minibatch(new_log_prob=new, old_log_prob=old, **told)
            norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree_util.tree_leaves(grads)))
            held["weights"] = jax.tree_util.tree_map(lambda w, g: w - rate * g, held["weights"], grads)
            recorder.optimizer_step(grad_norm=norm)
        after = log_prob(held["weights"], obs, actions)
        recorder.end_update(
            probe=lambda after=after, stored=stored: (after, stored),
            learning_rate=rate,
            reward_mean=rewards.mean(),
            reward_std=rewards.std(),
        )
    assert not recorder.quiet
    recorder.close()


@pytest.mark.parametrize(
    ("case", "fault"),
    [("healthy", {}), ("lr-zero", {"rate": 0.0}), ("old-logp-resynced-per-minibatch", {"aliased": True})],
)
def test_the_cause_is_named(tmp_path, case, fault):
    train(tmp_path / "run.jsonl", **fault)
    diagnosis = ppo_doctor.analyze(tmp_path / "run.jsonl")
    faults = [cause for cause in diagnosis.causes if not cause.benign]
    if case == "healthy":
        assert (diagnosis.verdict, faults) == ("healthy", [])
    else:
        assert case in (faults[0].id, *faults[0].level_with)
        assert faults[0].confidence == "established"


def test_movement_is_read_off_arrays_that_are_replaced(tmp_path):
    train(tmp_path / "run.jsonl", updates=3)
    first = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[1])
    assert first["changed_fraction"] == 1
    assert 0 < first["update_norm"] < 4 * 0.3 * first["grad_norm"] * 1.5


def test_statistics_are_those_of_numpy():
    made = np.random.default_rng(0)
    arrays = [made.normal(0, 1, (8, 5)).astype(np.float32) for _ in range(2)]
    arrays += [made.normal(0, 1, 8).astype(np.float32), made.random((8, 5)) > 0.3]
    one = measures.row(*(jnp.asarray(each) for each in arrays), (-0.2, 0.2))
    assert np.asarray(one) == pytest.approx(measures.row(*arrays, (-0.2, 0.2)), rel=1e-4, abs=1e-5)
