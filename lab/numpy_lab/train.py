"""The outer loop: rollout, improve, probe, record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .agent import Agent, Batch
from .control import ControlTask
from .faults import FAULTS
from .language import LanguageTask
from .nets import F32, MLP
from .ppo import improve, k3_of
from .presets import base_config
from .records import MinibatchRecord, RolloutRecord, RunRecord, UpdateArrays, UpdateRecord
from .settings import Progress, Setup, Stages, Task, TrainConfig

ROW_SECONDS = {"rollout": 2e-4, "update": 3e-4}
"""Nominal cost of one sampled row and of one row of one optimizer step."""


def run(
    fault: str,
    *,
    task: Task = "control",
    seed: int = 0,
    severity: int | None = None,
    updates: int = 80,
    dialect: str | None = None,
    **overrides: Any,
) -> RunRecord:
    """Train with one fault injected and return the raw records.

    `dialect` picks the training conventions of that framework (algorithm, minibatch order, stop rule, clipping);
    `overrides` are fields of TrainConfig and are set before the fault is injected.
    """
    spec = FAULTS[fault]
    level = spec.default_severity if severity is None else severity
    healthy = Setup(replace(base_config(task, dialect), updates=updates, **overrides), Stages())
    return train(spec.inject(healthy, level), fault=fault, seed=seed, severity=level)


def train(setup: Setup, *, fault: str, seed: int, severity: int) -> RunRecord:
    """Train with a setup as it is and return the raw records, under the name of what was done to it."""
    with np.errstate(all="ignore"):
        records = tuple(_train(setup, seed))
    task = setup.config.task
    return RunRecord(fault=fault, task=task, seed=seed, severity=severity, config=setup.config, updates=records)


def _train(setup: Setup, seed: int) -> list[UpdateRecord]:
    init_rng, rollout_rng, order_rng = np.random.default_rng(seed).spawn(3)
    kind = ControlTask if setup.config.task == "control" else LanguageTask
    task = kind(setup, rollout_rng)
    agent = Agent(setup.config, task.features, task.actions, init_rng)
    records: list[UpdateRecord] = []
    for update in range(setup.config.updates):
        progress = Progress(update, setup.config.updates)
        setup.stages.before_rollout(agent, progress)
        now = setup.with_config(kl_coef=setup.stages.kl_coef(setup.config, _last_kl(records)))
        task.setup = now
        batch, rollout = setup.stages.batch(*task.rollout(agent, progress), progress)
        cumulative = records[-1].cumulative_epochs if records else 0
        record = _update(agent, batch, rollout, now, progress, order_rng, task.global_step, cumulative)
        records.append(replace(record, kl_coef=now.config.kl_coef))
    return records


def _update(
    agent: Agent,
    batch: Batch,
    rollout: RolloutRecord,
    setup: Setup,
    progress: Progress,
    rng: np.random.Generator,
    global_step: int,
    cumulative_epochs: int,
) -> UpdateRecord:
    learning_rate = setup.stages.learning_rate(setup.config, progress)
    before, critic_before = agent.actor.snapshot(), _snapshot(agent.critic)
    raw = batch.advantages.copy()
    minibatches = improve(agent, batch, setup, learning_rate, rng)
    epochs = minibatches[-1].epoch + 1
    arrays = _arrays(agent, batch, setup, progress, before, raw)
    update_work = ROW_SECONDS["update"] * sum(m.tokens for m in minibatches if m.stepped)
    return UpdateRecord(
        update=progress.update,
        global_step=global_step,
        learning_rate=learning_rate,
        clip_range=setup.config.clip_range,
        rollout=rollout,
        minibatches=tuple(minibatches),
        update_norm=agent.actor.distance(before),
        value_update_norm=agent.critic.distance(critic_before) if agent.critic else None,
        optimizer_steps=_steps(minibatches),
        cumulative_epochs=cumulative_epochs + epochs,
        probe_kl=k3_of(arrays.probe_log_prob, arrays.stored_log_prob, batch.mask),
        rollout_kl=_rollout_kl(arrays),
        arrays=arrays,
        work=ROW_SECONDS["rollout"] * rollout.steps + update_work,
        update_work=update_work,
        changed_fraction=_changed(agent.actor, before),
        action_std=agent.action_std,
    )


def _last_kl(records: list[UpdateRecord]) -> float:
    """The sequence KL to the reference of the last rollout; NaN before the first and without completions."""
    completions = records[-1].rollout.completions if records else None
    return completions.ref_kl_sum if completions else float("nan")


def _arrays(agent: Agent, batch: Batch, setup: Setup, progress: Progress, before: list[F32], raw: F32) -> UpdateArrays:
    sampler = None
    if setup.stages.stored_logits:
        inputs = batch.inputs.reshape(-1, batch.inputs.shape[-1])
        outputs = setup.stages.rollout_logits(agent, inputs, progress)
        actions = batch.actions.reshape(-1, *batch.actions.shape[2:])
        sampler = agent.distribution.log_prob(outputs, actions).reshape(batch.mask.shape)
    return UpdateArrays(
        raw_advantages=raw,
        stored_log_prob=batch.sampled_log_prob,
        probe_log_prob=agent.log_prob(batch.inputs, batch.actions),
        sampler_log_prob=sampler,
        mask=batch.mask,
        before=before,
        after=agent.actor.snapshot(),
        weights=agent.actor.params,
        held=setup.stages.held(agent),
        old_policy=agent.old_policy.params if agent.old_policy else None,
    )


def _rollout_kl(arrays: UpdateArrays) -> float | None:
    """k1 of the sampler against the stored log-probs."""
    if arrays.sampler_log_prob is None:
        return None
    gap = (arrays.sampler_log_prob - arrays.stored_log_prob) * arrays.mask
    return float(gap.sum() / arrays.mask.sum())


def _changed(now: MLP, before: list[Any]) -> float:
    same = sum(int((a == b).sum()) for a, b in zip(now.params, before, strict=True))
    return 1.0 - same / sum(param.size for param in now.params)


def _snapshot(net: MLP | None) -> list[Any]:
    return net.snapshot() if net else []


def _steps(minibatches: list[MinibatchRecord]) -> int:
    return sum(m.stepped and not m.skipped for m in minibatches)


def configured_steps(config: TrainConfig) -> int:
    """K as the configuration promises it."""
    return config.epochs * config.num_minibatches
