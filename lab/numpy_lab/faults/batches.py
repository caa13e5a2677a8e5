"""The wrong rows meet: batches that never change, advantages of other samples, sets that do not belong together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..advantages import GROUP_EPS
from ..agent import Batch
from ..nets import F32
from ..records import RolloutRecord
from ..settings import Progress, Setup
from .registry import fault, onset

Collected = tuple[Batch, RolloutRecord]


@fault(
    "stuck-batch",
    description="the iterator is built anew for every step, so that each update trains on the batch of the first",
    severities="from 60 %, from 30 %, from the start of the run on",
    level_with={"canonical-lean": ("lr-too-high", "over-reuse", "staleness-async")},
)
def stuck_batch(setup: Setup, severity: int) -> Setup:
    begin = onset(severity)
    held: list[Collected] = []

    def first_again(batch: Batch, rollout: RolloutRecord, progress: Progress) -> Collected:
        if progress.update == 0:
            held.clear()
        if not progress.reached(begin):
            return batch, rollout
        if not held:
            held.append((batch, rollout))
        same, told = held[0]
        return same, replace(told, episodes=rollout.episodes)

    return setup.with_stages(batch=first_again)


@fault(
    "advantage-misaligned",
    description="rows of the advantages are not those of the samples any more when the loss meets them",
    severities="shifted by one row, reversed, shuffled",
    level_with={"*": ("grouping-broken", "truncation-dominates")},
)
def advantage_misaligned(setup: Setup, severity: int) -> Setup:
    rng = np.random.default_rng(severity)
    language = setup.config.task == "language"

    def moved(rows: F32) -> F32:
        if severity == 1:
            return np.roll(rows, 1, axis=0)
        return rows[::-1].copy() if severity == 2 else rng.permutation(rows)

    def misplaced(values: F32, _progress: Progress) -> F32:
        return moved(values) if language else moved(values.ravel()).reshape(values.shape)

    return setup.with_stages(advantages=misplaced)


@fault(
    "grouping-broken",
    description="prompts earn on different scales, and the sets that rewards are compared in mix prompts",
    severities="sets of two prompts, of the whole batch, one completion of each prompt; levels 1, 2, 2 apart",
    level_with={"*": ("advantage-misaligned", "truncation-dominates")},
)
def grouping_broken(setup: Setup, severity: int) -> Setup:
    if setup.config.algorithm != "grpo":
        raise ValueError("needs groups")
    size = setup.config.num_generations
    apart = np.float32({1: 1.0, 2: 2.0, 3: 2.0}[severity])
    seen: list[F32] = []

    def remember(scores: F32, _mask: F32, prompts: Any, _progress: Progress) -> F32:
        paid: F32 = scores + apart * (np.asarray(prompts) % 4).astype(np.float32)
        seen[:] = [paid]
        return paid

    def regrouped(values: F32, _progress: Progress) -> F32:
        sets = _sets(severity, size)(seen[0])
        centred = sets - sets.mean(axis=1, keepdims=True)
        whole = centred / (sets.std(axis=1, keepdims=True, ddof=1) + np.float32(GROUP_EPS))
        wrong = whole.T.ravel() if severity == 3 else whole.ravel()
        return np.broadcast_to(wrong[:, None], values.shape).astype(np.float32)

    return setup.with_stages(answer_score=remember, advantages=regrouped)


def _sets(severity: int, size: int) -> Callable[[F32], F32]:
    if severity == 3:
        return lambda scores: scores.reshape(-1, size).T
    width = 2 * size if severity == 1 else -1
    return lambda scores: scores.reshape(-1, width) if width > 0 else scores.reshape(1, -1)
