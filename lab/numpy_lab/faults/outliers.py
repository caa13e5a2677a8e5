"""A few samples that are far from the rest: ratios that no clip bounds, gradients that stand alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..agent import Agent, Batch
from ..nets import F32
from ..settings import Progress, Setup
from .registry import fault

#: Every so many updates a batch holds them; never in the first tenth of a run.
_PERIOD = 7


def _struck(progress: Progress) -> bool:
    return progress.reached(0.1) and progress.update % _PERIOD == 0


@fault(
    "negative-adv-ratio-explosion",
    description="now and then a few samples are replayed whose stored log-probs are far too low: no clip bounds their "
    "ratio where the advantage is negative, and nothing the gradient",
    severities="stored log-probs 9, 11, 13 nats too low in one sample of fifty",
)
def negative_adv_ratio_explosion(setup: Setup, severity: int) -> Setup:
    low = np.float32({1: 9.0, 2: 11.0, 3: 13.0}[severity])
    struck = [False]

    def look(_agent: Agent, progress: Progress) -> None:
        struck[0] = _struck(progress)

    def stored(batch: Batch, rows: Any, _agent: Agent) -> F32:
        log_prob: F32 = batch.old_log_prob[rows].copy()
        if struck[0]:
            log_prob[np.asarray(rows) % 50 == 0] -= low
        return log_prob

    return setup.with_config(max_grad_norm=None).with_stages(before_rollout=look, old_log_prob=stored)


@fault(
    "grad-norm-spike",
    description="now and then one corrupt sample outweighs its batch: nothing clips the gradient, and the policy pays",
    severities="a gradient 300, 1000, 3000 times as large, in another direction",
)
def grad_norm_spike(setup: Setup, severity: int) -> Setup:
    times = {1: 300.0, 2: 1000.0, 3: 3000.0}[severity]
    rng = np.random.default_rng(severity)
    struck = [False]

    def look(_agent: Agent, progress: Progress) -> None:
        struck[0] = _struck(progress)

    def corrupted(grads: list[F32]) -> list[F32]:
        if not struck[0]:
            return grads
        struck[0] = False  # one minibatch
        scale = [times * float(np.sqrt(np.mean(np.square(grad)))) for grad in grads]
        return [(g + rng.normal(0, s, g.shape)).astype(np.float32) for g, s in zip(grads, scale, strict=True)]

    return setup.with_config(max_grad_norm=None).with_stages(before_rollout=look, gradients=corrupted)
