"""Sampler and trainer disagree: the ratio is not 1 where it has to be."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable

import numpy as np

from ..agent import Agent
from ..nets import F32, MLP
from ..settings import Progress, Setup, own_logits
from .registry import fault

_FAMILY = (
    "temperature-mismatch",
    "rollout-trainer-mismatch",
    "dropout-or-train-mode",
    "staleness-async",
    "weights-not-synced",
)
#: Members that only language models have; their faults are in `drift`, where they can be injected.
_LANGUAGE = ("padding-position-mismatch", "retokenisation-drift", "moe-routing-mismatch")
_CONTROL = ("obs-transform-mismatch", "token-misalignment", "staleness-async", "dropout-or-train-mode")

Logits = Callable[[Agent, F32, Progress], F32]


def _level(cause: str) -> dict[str, tuple[str, ...]]:
    """Averages over all epochs hold the whole family level; so does a single number at the start."""
    family = {*_FAMILY, *_LANGUAGE, *_CONTROL} - {cause}
    return {"*": tuple(sorted(family))}


@fault(
    "temperature-mismatch",
    description="actions are sampled, and their log-probs stored, at a temperature that the trainer does not apply",
    severities="temperature 0.8, 0.7, 0.6",
    level_with=_level("temperature-mismatch"),
)
def temperature_mismatch(setup: Setup, severity: int) -> Setup:
    temperature = np.float32({1: 0.8, 2: 0.7, 3: 0.6}[severity])

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return agent.actor.forward(inputs)[0] / temperature

    return setup.with_stages(rollout_logits=logits)


@fault(
    "dropout-or-train-mode",
    description="dropout is on while actions are sampled and their log-probs stored, and off in the update",
    severities="drop 30 %, 45 %, 60 % of the last hidden layer",
    level_with=_level("dropout-or-train-mode"),
)
def dropout_or_train_mode(setup: Setup, severity: int) -> Setup:
    share = {1: 0.3, 2: 0.45, 3: 0.6}[severity]
    rng = np.random.default_rng(severity)

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        _, activations = agent.actor.forward(inputs)
        keep = rng.random(activations[-1].shape) >= share
        hidden = activations[-1] * keep / np.float32(1 - share)
        out: F32 = (hidden @ agent.actor.params[-2] + agent.actor.params[-1]).astype(np.float32)
        return out

    return setup.with_stages(rollout_logits=logits)


@fault(
    "token-misalignment",
    description="stored log-probs are those of the sample one position later",
    severities="shifted by 1, 2, 3 positions",
    level_with=_level("token-misalignment"),
)
def token_misalignment(setup: Setup, severity: int) -> Setup:
    def shifted(log_prob: F32, _mask: F32) -> F32:
        return np.roll(log_prob, severity, axis=1 if log_prob.shape[1] > 1 else 0)

    return setup.with_stages(stored_log_prob=shifted)


@fault(
    "staleness-async",
    description="actions come from the policy of some versions ago, and their log-probs from it too",
    severities="4, 8, 16 versions behind",
    level_with=_level("staleness-async"),
)
def staleness_async(setup: Setup, severity: int) -> Setup:
    versions: deque[MLP] = deque(maxlen={1: 5, 2: 9, 3: 17}[severity])

    def remember(agent: Agent, progress: Progress) -> None:
        if progress.update == 0:
            versions.clear()
        versions.append(copy.deepcopy(agent.actor))

    def logits(_agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return versions[0].forward(inputs)[0]

    return setup.with_stages(before_rollout=remember, rollout_logits=logits)


@fault(
    "weights-not-synced",
    description="the sampler keeps the weights that it started with",
    severities="no update reaches it: learning rate × 0.7, 1, 1.5",
    level_with=_level("weights-not-synced"),
)
def weights_not_synced(setup: Setup, severity: int) -> Setup:
    pace = {1: 0.7, 2: 1.0, 3: 1.5}[severity]
    held: list[MLP] = []

    def remember(agent: Agent, progress: Progress) -> None:
        if progress.update == 0:
            held[:] = [copy.deepcopy(agent.actor)]

    def logits(_agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return held[0].forward(inputs)[0]

    faster = setup.with_config(learning_rate=setup.config.learning_rate * pace)
    return faster.with_stages(before_rollout=remember, rollout_logits=logits)


@fault(
    "rollout-trainer-mismatch",
    description="the sampler computes other logits from the same weights: every one is off by noise",
    severities="standard deviation 0.3, 0.5, 0.8 nats",
    level_with=_level("rollout-trainer-mismatch"),
)
def rollout_trainer_mismatch(setup: Setup, severity: int) -> Setup:
    spread = {1: 0.3, 2: 0.5, 3: 0.8}[severity]
    rng = np.random.default_rng(severity)

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        off: F32 = exact + rng.normal(0, spread, exact.shape).astype(np.float32)
        return off

    return setup.with_stages(rollout_logits=logits)


@fault(
    "obs-transform-mismatch",
    description="the sampler sees observations through another normaliser than the update",
    severities="inputs × 2, 3, 5 on the sampler's side",
    level_with=_level("obs-transform-mismatch"),
)
def obs_transform_mismatch(setup: Setup, severity: int) -> Setup:
    scale = np.float32({1: 2.0, 2: 3.0, 3: 5.0}[severity])

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return agent.actor.forward(inputs * scale)[0]

    return setup.with_stages(rollout_logits=logits)


@fault(
    "ref-model-wrong",
    description="the reference is not the starting policy: other weights, or (severity 3) the policy itself",
    severities="other weights with outputs × 30, × 45, the policy itself",
)
def ref_model_wrong(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "language":
        raise ValueError("needs a reference model")

    def replace(agent: Agent, progress: Progress) -> None:
        if severity == 3:
            agent.reference = agent.actor
        elif progress.update == 0:
            agent.reference = _other(agent.actor, severity)

    return setup.with_config(kl_coef=setup.config.kl_coef or 0.02).with_stages(before_rollout=replace)


def _other(actor: MLP, severity: int) -> MLP:
    rng = np.random.default_rng(severity)
    other = copy.deepcopy(actor)
    gain = {1: 30.0, 2: 45.0}[severity]
    other.params[-2] = (rng.permuted(other.params[-2], axis=0) * np.float32(gain)).astype(np.float32)
    return other


@fault(
    "negative-kl",
    description="samples come from a flattened policy, and the KL to the reference is taken on them",
    severities="sampling temperature 6, 10, 20 without importance weights",
)
def negative_kl(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm != "ppo" or setup.config.task != "language":
        raise ValueError("needs a signed KL to the reference")
    temperature = np.float32({1: 6.0, 2: 10.0, 3: 20.0}[severity])

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        return agent.actor.forward(inputs)[0] / temperature

    return setup.with_stages(rollout_logits=logits, stored_logits=own_logits)


@fault(
    "benign-ref-sync",
    description="the reference model is replaced by the policy every few updates, by configuration",
    severities="every 20, 12, 8 updates",
    verdict="healthy",
)
def benign_ref_sync(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "language":
        raise ValueError("needs a reference model")
    period = {1: 20, 2: 12, 3: 8}[severity]

    def sync(agent: Agent, progress: Progress) -> None:
        if progress.update and progress.update % period == 0:
            agent.reference = copy.deepcopy(agent.actor)

    return setup.with_config(kl_coef=setup.config.kl_coef or 0.02).with_stages(before_rollout=sync)


@fault(
    "metric-logging-bug",
    description="the logged clip fraction forgets the absolute value and counts every ratio above 1 - ε",
    severities="ε as configured, doubled, and every ratio that is not 1",
    verdict="warning",
)
def metric_logging_bug(setup: Setup, severity: int) -> Setup:
    def counted(ratio: F32, clip_range: float) -> F32:
        bounds = {1: 1 - clip_range, 2: 1 - 2 * clip_range, 3: 0.0}
        out: F32 = (ratio > bounds[severity]).astype(np.float32)
        return out

    return setup.with_stages(clip_metric=counted)
