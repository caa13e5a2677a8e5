"""Runs with nothing wrong: healthy training, and benign look-alikes of faults."""

from __future__ import annotations

import numpy as np

from ..agent import Agent
from ..nets import F32
from ..settings import Progress, Setup
from .registry import fault

_PACE = {1: 0.5, 2: 1.0, 3: 1.5}


@fault(
    "healthy",
    description="sound training that learns; nothing injected",
    severities="learning rate × 0.5, 1, 1.5 (all sound)",
    verdict="healthy",
)
def healthy(setup: Setup, severity: int) -> Setup:
    return setup.with_config(learning_rate=setup.config.learning_rate * _PACE[severity])


@fault(
    "benign-single-update",
    description="one optimizer step per rollout by configuration: the ratio is 1 by construction, and it learns",
    severities="learning rate × 1, 2, 4 (fewer steps want larger ones)",
    verdict="healthy",
    default_severity=3,
)
def benign_single_update(setup: Setup, severity: int) -> Setup:
    pace = {1: 1.0, 2: 2.0, 3: 4.0}[severity]
    learning_rate = setup.config.learning_rate * pace
    return setup.with_config(epochs=1, num_minibatches=1, learning_rate=learning_rate)


@fault(
    "dtype-noise-floor",
    description="the sampler's logits come out of 16-bit arithmetic: stored log-probs are off by a few hundredths",
    severities="noise of 0.01, 0.02, 0.04 nats per logit (half a unit of bfloat16 at 2, 4, 8)",
    verdict="healthy",
)
def dtype_noise_floor(setup: Setup, severity: int) -> Setup:
    spread = {1: 0.01, 2: 0.02, 3: 0.04}[severity]
    rng = np.random.default_rng(severity)

    def coarse(agent: Agent, inputs: F32, _progress: Progress) -> F32:
        exact, _ = agent.actor.forward(inputs)
        off: F32 = exact + rng.uniform(-spread, spread, exact.shape).astype(np.float32)
        return off

    return setup.with_stages(rollout_logits=coarse)


@fault(
    "log-rounding",
    description="sound training whose logger prints few decimals",
    severities="4, 3, 2 decimals",
    verdict="healthy",
)
def log_rounding(setup: Setup, severity: int) -> Setup:
    return setup.with_config(log_decimals={1: 4, 2: 3, 3: 2}[severity])
