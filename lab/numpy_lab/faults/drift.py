"""The reward is not the goal, or the yardsticks drift: proxies, sampler engines, estimators that overflow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..agent import Agent, Batch
from ..language import PROMPTS, VOCABULARY
from ..nets import F32
from ..records import RolloutRecord
from ..settings import Progress, Setup, own_logits
from .registry import fault


def _language(setup: Setup) -> Setup:
    if setup.config.task != "language":
        raise ValueError("needs completions")
    return setup


@fault(
    "length-hacking",
    description="the reward model likes long answers more than right ones",
    severities="share of the reward that is length alone: 0.6, 0.8, 1",
    verdict="warning",
    level_with={"*": ("truncation-dominates", "reward-hacking")},
)
def length_hacking(setup: Setup, severity: int) -> Setup:
    share = np.float32({1: 0.6, 2: 0.8, 3: 1.0}[severity])

    def long_is_good(scores: F32, mask: F32, _prompts: Any, _progress: Progress) -> F32:
        told: F32 = (1 - share) * scores + share * mask.mean(axis=1)
        return told

    return _language(setup).with_stages(answer_score=long_is_good)


@fault(
    "reward-hacking",
    description="the reward model pays for leaning once the policy balances, where it was never trained; people judge",
    severities="up to 8, 12, 16 times what a straight pole earns",
    verdict="warning",
    level_with={"*": ("generalisation-gap",)},
)
def reward_hacking(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "control":
        raise ValueError("needs a judgement beside the reward")
    most = {1: 8.0, 2: 12.0, 3: 16.0}[severity]

    def proxy(earned: F32, _ages: Any, progress: Progress) -> F32:
        reach = min(1.0, max(0.0, progress.update / progress.updates - 0.4) / 0.4)
        told: F32 = earned + np.float32(2 * most * reach) * (1 - earned)
        return told

    return setup.with_stages(step_reward=proxy, judged=True)


@fault(
    "engine-drift-with-uptime",
    description="the longer the sampling engine runs, the further its logits are off; the trainer recomputes log-probs",
    severities="noise that grows to 3, 5, 8 nats by the end of the run",
    level_with={"*": ("weights-not-synced", "rollout-trainer-mismatch")},
)
def engine_drift(setup: Setup, severity: int) -> Setup:
    end = {1: 3.0, 2: 5.0, 3: 8.0}[severity]
    rng = np.random.default_rng(severity)

    def logits(agent: Agent, inputs: F32, progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        size = end * progress.update / progress.updates
        off: F32 = exact + rng.normal(0, size, exact.shape).astype(np.float32)
        return off

    return setup.with_stages(rollout_logits=logits, stored_logits=own_logits)


@fault(
    "ratio-overflow-clamp",
    description="stored log-probs of some samples are those of padding, and the log-ratio is clamped at 20",
    severities="0.5 %, 1 %, 2 % of the samples, 30 nats off",
    level_with={"*": ("negative-adv-ratio-explosion", "token-misalignment")},
)
def ratio_overflow_clamp(setup: Setup, severity: int) -> Setup:
    share = {1: 0.005, 2: 0.01, 3: 0.02}[severity]
    rng = np.random.default_rng(severity)

    def padded(log_prob: F32, _mask: F32) -> F32:
        hit = rng.random(log_prob.shape) < share
        return np.where(hit, log_prob - np.float32(30), log_prob).astype(np.float32)

    def clamped(batch: Batch, rows: Any, agent: Agent) -> F32:
        new = agent.log_prob(batch.inputs[rows], batch.actions[rows])
        held: F32 = np.maximum(batch.old_log_prob[rows], new - np.float32(20)).astype(np.float32)
        return held

    return setup.with_stages(stored_log_prob=padded, old_log_prob=clamped)


@fault(
    "k3-overflow",
    description="on rare tokens the reference gives far more probability than the policy, and k3 grows exponentially",
    severities="reference higher by 8, 12, 16 nats on 1 in 2000 tokens",
)
def k3_overflow(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm != "grpo":
        raise ValueError("needs a k3 penalty in the loss")
    nats = np.float32({1: 8.0, 2: 12.0, 3: 16.0}[severity])
    rng = np.random.default_rng(severity)

    def lifted(batch: Batch, rollout: RolloutRecord, _progress: Progress) -> tuple[Batch, RolloutRecord]:
        if batch.ref_log_prob is None:
            return batch, rollout
        hit = rng.random(batch.ref_log_prob.shape) < 5e-4
        return replace(batch, ref_log_prob=batch.ref_log_prob + nats * hit.astype(np.float32)), rollout

    return setup.with_config(kl_coef=setup.config.kl_coef or 0.04).with_stages(batch=lifted)


@fault(
    "padding-position-mismatch",
    description="the sampler counts padding as positions: in half of the prompts every token sits further right",
    severities="1, 2, 3 positions",
    level_with={
        "*": (
            *("temperature-mismatch", "rollout-trainer-mismatch", "dropout-or-train-mode", "staleness-async"),
            *("weights-not-synced", "obs-transform-mismatch", "token-misalignment"),
        )
    },
)
def padding_position_mismatch(setup: Setup, severity: int) -> Setup:
    first = PROMPTS + VOCABULARY + 1

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        moved = inputs.copy()
        padded = inputs[:, : PROMPTS // 2].any(axis=1)
        moved[padded, first:] = np.roll(inputs[padded, first:], severity, axis=1)
        return agent.actor.forward(moved)[0]

    return _language(setup).with_stages(rollout_logits=logits)
