"""PPO in one file, after purejaxrl/ppo.py of luchris429/purejaxrl: same network, loss, advantages, settings and prints.

The loop over updates is Python's, so that each is logged, as forks that log more than returns have it. `forks` are the
lines that a forked script has changed; each is named where it acts.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import distrax
import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.linen.initializers import constant, orthogonal
from flax.training.train_state import TrainState
from gymnax.wrappers import FlattenObservationWrapper, LogWrapper

#: The settings of the script, but for a fifth of its steps.
CONFIG: Mapping[str, Any] = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 1e5,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
}
#: What the wrapper of the environment says of episodes.
EPISODES = ("returned_episode", "returned_episode_returns", "returned_episode_lengths")
#: Optimizer steps after which the fork "nan-reward" divides 0 by 0.
BREAKS_AFTER = 1000


def _mlp(x: Any, outputs: int, scale: float) -> Any:
    for _ in range(2):
        x = nn.tanh(nn.Dense(64, kernel_init=orthogonal(np.sqrt(2)), bias_init=constant(0.0))(x))
    return nn.Dense(outputs, kernel_init=orthogonal(scale), bias_init=constant(0.0))(x)


class ActorCritic(nn.Module):
    """Actor and critic apart from each other; layers 0 to 2 are the actor's."""

    action_dim: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        pi = distrax.Categorical(logits=_mlp(x, self.action_dim, 0.01))
        return pi, jnp.squeeze(_mlp(x, 1, 1.0), -1)


class Transition(NamedTuple):
    done: Any
    action: Any
    value: Any
    reward: Any
    log_prob: Any
    obs: Any
    info: Any


def schedule_of(config: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the learning rate by optimizer step."""

    def linear(count: Any) -> Any:
        updates = count // (config["NUM_MINIBATCHES"] * config["UPDATE_EPOCHS"])
        return config["LR"] * (1.0 - updates / config["NUM_UPDATES"])

    return linear if config["ANNEAL_LR"] else lambda _: config["LR"]


def _optimizer(config: Mapping[str, Any], forks: Set[str]) -> Any:
    rate = schedule_of(config) if config["ANNEAL_LR"] else config["LR"]
    tx = optax.chain(optax.clip_by_global_norm(config["MAX_GRAD_NORM"]), optax.adam(rate, eps=1e-5))
    if "actor-frozen" not in forks:
        return tx

    def label(params: Any) -> Any:  # the first three layers were to be kept of a pretrained network
        return {"params": {name: "kept" if int(name[-1]) < 3 else "trained" for name in params["params"]}}

    return optax.multi_transform({"trained": tx, "kept": optax.set_to_zero()}, label)


def make_train(config: Mapping[str, Any], forks: Set[str]) -> tuple[Any, Any]:  # noqa: PLR0915 - as the script
    """Return a function that makes the state of training, and one that does an update."""
    env, env_params = gymnax.make(config["ENV_NAME"])
    env = LogWrapper(FlattenObservationWrapper(env))
    network = ActorCritic(env.action_space(env_params).n)
    clip = config["CLIP_EPS"]

    def init(rng: Any) -> Any:
        rng, of_network, of_envs = jax.random.split(rng, 3)
        seen = jnp.zeros(env.observation_space(env_params).shape).reshape(-1)
        params = network.init(of_network, seen)
        state = TrainState.create(apply_fn=network.apply, params=params, tx=_optimizer(config, forks))
        resets = jax.random.split(of_envs, config["NUM_ENVS"])
        obsv, env_state = jax.vmap(env.reset, in_axes=(0, None))(resets, env_params)
        return (state, env_state, obsv, rng), params

    def update(runner_state: Any, first_params: Any) -> Any:  # noqa: PLR0915 - nested as in the script
        def _env_step(runner_state: Any, _: Any) -> Any:
            state, env_state, last_obs, rng = runner_state
            rng, of_action, of_step = jax.random.split(rng, 3)
            pi, value = network.apply(state.params, last_obs)
            if "never-synced" in forks:  # the sampler has a copy of the weights, which stays as it was made
                pi, _ = network.apply(first_params, last_obs)
            action = pi.sample(seed=of_action)
            log_prob = pi.log_prob(action)
            steps = jax.random.split(of_step, config["NUM_ENVS"])
            in_axes = (0, 0, 0, None)
            obsv, env_state, reward, terminated, truncated, info = jax.vmap(env.step, in_axes=in_axes)(
                steps, env_state, action, env_params
            )
            done = (terminated | truncated).astype(jnp.float32)
            if "nan-reward" in forks:  # a reward over the spread of lengths, which is 0 at last
                spread = jnp.zeros_like(reward)
                reward = jnp.where(state.step > BREAKS_AFTER, (reward - 1.0) / spread, reward)
            told = {name: info[name] for name in EPISODES}
            return (state, env_state, obsv, rng), Transition(done, action, value, reward, log_prob, last_obs, told)

        runner_state, batch = jax.lax.scan(_env_step, runner_state, None, config["NUM_STEPS"])
        state, env_state, last_obs, rng = runner_state
        _, last_val = network.apply(state.params, last_obs)

        def _advantage(carried: Any, step: Any) -> Any:
            gae, next_value = carried
            done = jnp.zeros_like(step.done) if "done-ignored" in forks else step.done
            delta = step.reward + config["GAMMA"] * next_value * (1 - done) - step.value
            gae = delta + config["GAMMA"] * config["GAE_LAMBDA"] * (1 - done) * gae
            return (gae, step.value), gae

        _, advantages = jax.lax.scan(_advantage, (jnp.zeros_like(last_val), last_val), batch, reverse=True)
        targets = advantages + batch.value
        if "flipped" in forks:  # values minus returns
            advantages = -advantages

        def _loss(params: Any, batch: Any, gae: Any, targets: Any) -> Any:
            pi, value = network.apply(params, batch.obs)
            log_prob = pi.log_prob(batch.action)
            clipped = batch.value + (value - batch.value).clip(-clip, clip)
            value_loss = 0.5 * jnp.maximum(jnp.square(value - targets), jnp.square(clipped - targets)).mean()
            old = jax.lax.stop_gradient(log_prob) if "resynced" in forks else batch.log_prob
            log_ratio = log_prob - old
            ratio = jnp.exp(log_ratio)
            gae = (gae - gae.mean()) / (gae.std() + 1e-8)
            actor = -jnp.minimum(ratio * gae, jnp.clip(ratio, 1 - clip, 1 + clip) * gae).mean()
            entropy = pi.entropy().mean()
            total = actor + config["VF_COEF"] * value_loss - config["ENT_COEF"] * entropy
            kl, cut = ((ratio - 1) - log_ratio).mean(), (jnp.abs(ratio - 1) > clip).mean()
            return total, (value_loss, actor, entropy, kl, cut)

        def _minibatch(state: Any, given: Any) -> Any:
            (total, rest), grads = jax.value_and_grad(_loss, has_aux=True)(state.params, *given)
            return state.apply_gradients(grads=grads), (total, *rest, optax.global_norm(grads))

        def _epoch(carried: Any, _: Any) -> Any:
            state, rng = carried
            rng, of_order = jax.random.split(rng)
            order = jax.random.permutation(of_order, config["NUM_STEPS"] * config["NUM_ENVS"])

            def _parts(x: Any) -> Any:
                return x.reshape((-1, *x.shape[2:]))[order].reshape((config["NUM_MINIBATCHES"], -1, *x.shape[2:]))

            parts = jax.tree_util.tree_map(_parts, (batch._replace(info=batch.reward), advantages, targets))
            state, losses = jax.lax.scan(_minibatch, state, parts)
            return (state, rng), losses

        (state, rng), losses = jax.lax.scan(_epoch, (state, rng), None, config["UPDATE_EPOCHS"])
        explained = 1 - jnp.var(targets - batch.value) / jnp.var(targets)
        losses = (*jax.tree_util.tree_map(jnp.mean, losses), explained)
        return (state, env_state, last_obs, rng), (batch.info, losses)

    return init, update


@dataclass(frozen=True, slots=True)
class Update:
    """What is known after an update."""

    number: int
    env_steps: int
    episodes: list[tuple[int, float]]
    """The step and the return of each episode that ended."""
    last: Mapping[str, float | None]
    """Means over the episodes of the last update in which any ended."""
    losses: Mapping[str, float]
    rate: float


#: The names of what an update returns, in its order.
LOSSES = ("total", "value", "actor", "entropy", "approx_kl", "clip_frac", "grad_norm", "explained_var")


def updates(config: Mapping[str, Any], forks: Set[str]) -> Iterator[Update]:
    """Train from beginning to end."""
    init, update = make_train(config, forks)
    state, first = jax.jit(init)(jax.random.PRNGKey(config["SEED"]))
    compiled, rate = jax.jit(update), schedule_of(config)
    last: dict[str, float | None] = dict.fromkeys(EPISODES[1:])
    for number in range(config["NUM_UPDATES"]):
        state, (info, losses) = compiled(state, first)
        info = jax.device_get(info)
        ended = info["returned_episode"]
        if ended.any():
            last = {name: float(info[name][ended].mean()) for name in EPISODES[1:]}
        times = (number * config["NUM_STEPS"] + 1 + np.arange(config["NUM_STEPS"])) * config["NUM_ENVS"]
        steps = np.broadcast_to(times[:, None], ended.shape)[ended]
        episodes = list(zip(steps, info["returned_episode_returns"][ended], strict=True))
        named = dict(zip(LOSSES, map(float, losses), strict=True))
        done = (number + 1) * config["NUM_STEPS"] * config["NUM_ENVS"]
        count = number * config["NUM_MINIBATCHES"] * config["UPDATE_EPOCHS"]
        yield Update(number, done, episodes, last, named, float(rate(count)))


def console(update: Update, losses: bool) -> str:
    """Return what the script prints in its debugging mode; a fork prints the losses too."""
    lines = [f"global step={step}, episodic return={value}\n" for step, value in update.episodes]
    if losses:
        names = {"total_loss": "total", "value_loss": "value", "actor_loss": "actor", "entropy": "entropy"}
        told = " ".join(f"{name}={update.losses[key]:.4f}" for name, key in names.items())
        lines.append(f"update {update.number}: {told}\n")
    return "".join(lines)


def history(update: Update, since: float) -> dict[str, Any]:
    """Return a record as a fork sends it to wandb."""
    episodes = {name: value for name, value in update.last.items() if value is not None}
    losses = {f"{name}_loss": update.losses[name] for name in ("total", "value", "actor")}
    told = {"update_step": update.number, "env_step": update.env_steps, **episodes, **losses}
    return {**told, "entropy": update.losses["entropy"], "_step": update.number, "_runtime": round(since, 3)}


def row(update: Update) -> dict[str, Any]:
    """Return a row as a fork writes it to metrics.csv."""
    losses = {(f"loss/{name}" if place < 4 else name): update.losses[name] for place, name in enumerate(LOSSES)}
    return {"update": update.number, "timestep": update.env_steps, **update.last, **losses, "lr": update.rate}


def run(folder: Path, config: dict[str, Any], forks: Set[str], logs: Set[str]) -> None:
    """Train, and write those of console, losses, history and table that `logs` has."""
    config["NUM_UPDATES"] = int(config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"] // config["NUM_ENVS"])
    begun, found = time.time(), []
    for update in updates(config, forks):
        found.append(update)
        if "console" in logs:
            with (folder / "train.log").open("a", encoding="utf-8") as file:
                file.write(console(update, "losses" in logs))
        if "history" in logs:
            with (folder / "wandb-history.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(history(update, time.time() - begun)) + "\n")
    if "table" in logs:
        with (folder / "metrics.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row(found[0]))
            writer.writeheader()
            writer.writerows(map(row, found))
