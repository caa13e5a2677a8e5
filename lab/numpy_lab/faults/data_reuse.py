"""The batch is used more or less often than configured."""

from __future__ import annotations

from ..settings import Setup, TrainConfig
from .registry import fault


@fault(
    "epochs-not-executed",
    description="the configuration promises several epochs, the loop runs one",
    severities="2, 4, 8 epochs configured, 1 executed",
)
def epochs_not_executed(setup: Setup, severity: int) -> Setup:
    def one(_config: TrainConfig) -> int:
        return 1

    return setup.with_config(epochs={1: 2, 2: 4, 3: 8}[severity]).with_stages(epochs=one)
