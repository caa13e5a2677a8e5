"""Runs with nothing wrong: healthy training, and benign look-alikes of faults."""

from __future__ import annotations

from ..settings import Setup
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
