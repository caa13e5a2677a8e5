"""Samples that teach nothing: copies of one text, returns that the critic knows beforehand, masks on ratios."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..agent import Agent, Batch
from ..nets import F32
from ..records import RolloutRecord
from ..settings import Progress, Setup, own_logits
from .registry import fault, onset

#: TRL's cap on the importance ratio of a sequence, beyond which it is masked.
CAP = 3.0


def _grouped(setup: Setup) -> Setup:
    if setup.config.algorithm != "grpo":
        raise ValueError("needs groups")
    return setup


@fault(
    "duplicate-generations",
    description="the sampler runs at a temperature of next to 0: all completions of a prompt are the same text",
    severities="from 60 %, from 30 %, from the start of the run on",
    level_with={"*": ("adv-exactly-zero",)},
)
def duplicate_generations(setup: Setup, severity: int) -> Setup:
    begin = onset(severity)

    def logits(agent: Agent, inputs: F32, progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        sharp: F32 = exact * np.float32(1e5 if progress.reached(begin) else 1)
        return sharp

    return _grouped(setup).with_stages(rollout_logits=logits, stored_logits=own_logits)


@fault(
    "baseline-absorbs-signal",
    description="the critic sees the outcome: its values are the returns but for rounding, which is all that is left",
    severities="rounding of 5 %, 3 %, 1 % of the returns' deviation",
)
def baseline_absorbs_signal(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm != "ppo" or setup.config.task != "control":
        raise ValueError("needs a critic of episodes")
    share = np.float32({1: 0.05, 2: 0.03, 3: 0.01}[severity])
    rng = np.random.default_rng(severity)

    def foreseen(batch: Batch, rollout: RolloutRecord, _progress: Progress) -> tuple[Batch, RolloutRecord]:
        spread = batch.returns.std()
        left = (share * spread * rng.normal(size=batch.returns.shape)).astype(np.float32)
        values = batch.returns - left
        told = replace(
            rollout,
            advantages_raw_mean=float(left.mean()),
            advantages_raw_std=float(left.std()),
            values_mean=float(values.mean()),
            values_std=float(values.std()),
            explained_variance=float(1 - left.var() / batch.returns.var()),
        )
        return replace(batch, values=values, advantages=left), told

    return setup.with_stages(batch=foreseen)


@fault(
    "is-mask-discards-batch",
    description="the sampler's logits are sharper than the trainer's, and sequences beyond the cap are masked",
    severities="logits × 2, 3, 4: a half of the sequences are masked, most, nearly all",
    level_with={"*": ("rollout-trainer-mismatch", "temperature-mismatch")},
)
def is_mask_discards_batch(setup: Setup, severity: int) -> Setup:
    sharper = np.float32({1: 2.0, 2: 3.0, 3: 4.0}[severity])
    seen: list[Agent] = []

    def meet(agent: Agent, _progress: Progress) -> None:
        seen[:] = [agent]

    def logits(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        # a policy that starts uniform has no logits to sharpen: the engine adds some of its own
        exact = agent.actor.forward(inputs)[0]
        wave: F32 = np.sin(np.arange(exact.shape[-1])).astype(np.float32)
        off: F32 = (exact + wave) * sharper
        return off

    def masked(batch: Batch, rollout: RolloutRecord, progress: Progress) -> tuple[Batch, RolloutRecord]:
        ratios = sequence_ratios(seen[0], batch, logits(seen[0], _rows(batch), progress))
        kept = ((ratios <= CAP) * ratios).astype(np.float32)
        told = (float(kept.mean()), float(kept.min()), float(kept.max()))
        return replace(batch, advantages=batch.advantages * kept[:, None]), replace(rollout, importance=told)

    return _grouped(setup).with_stages(
        before_rollout=meet, rollout_logits=logits, stored_logits=own_logits, batch=masked
    )


def _rows(batch: Batch) -> F32:
    rows: F32 = batch.inputs.reshape(-1, batch.inputs.shape[-1])
    return rows


def sequence_ratios(agent: Agent, batch: Batch, outputs: F32) -> F32:
    """Return for each sequence the probability of the trainer over that of the sampler."""
    actions = batch.actions.reshape(-1, *batch.actions.shape[2:])
    sampler = agent.distribution.log_prob(outputs, actions).reshape(batch.mask.shape)
    gap = ((batch.old_log_prob - sampler) * batch.mask).sum(axis=1)
    ratios: F32 = np.exp(np.minimum(gap, 50)).astype(np.float32)
    return ratios
