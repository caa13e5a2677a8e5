"""Training leaves the region where it works: steps, entropy, collapse."""

from __future__ import annotations

import numpy as np

from ..agent import Agent
from ..nets import F32
from ..settings import Progress, Setup, TrainConfig
from .registry import fault


@fault(
    "lr-too-high",
    description="the learning rate is far too large: every update leaves the trust region and the policy collapses",
    severities="learning rate × 20, 40, 80 (language: × 8, 14, 25)",
)
def lr_too_high(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    pace = {1: 20.0, 2: 40.0, 3: 80.0}[severity] if control else {1: 8.0, 2: 14.0, 3: 25.0}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * pace)


@fault(
    "over-reuse",
    description="far too many epochs on every batch",
    severities="epochs × 12, 20, 30",
)
def over_reuse(setup: Setup, severity: int) -> Setup:
    more = {1: 12, 2: 20, 3: 30}[severity]
    return setup.with_config(epochs=setup.config.epochs * more)


@fault(
    "entropy-collapse",
    description="the sign of the entropy bonus is wrong: the policy turns deterministic before it is good",
    severities="entropy coefficient -0.1, -0.3, -1 (language: -0.3, -0.6, -1)",
)
def entropy_collapse(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    weight = {1: 0.1, 2: 0.3, 3: 1.0}[severity] if control else {1: 0.3, 2: 0.6, 3: 1.0}[severity]
    return setup.with_config(ent_coef=-weight)


@fault(
    "entropy-explosion",
    description="midway the entropy bonus drowns the surrogate, and the policy returns to random",
    severities="entropy coefficient 1, 2, 4 from the start",
)
def entropy_explosion(setup: Setup, severity: int) -> Setup:
    return setup.with_config(ent_coef={1: 1.0, 2: 2.0, 3: 4.0}[severity])


@fault(
    "late-collapse",
    description="after a long healthy stretch the sampler drifts away from the trainer, and the policy collapses",
    severities="drift begins at 70 %, 60 %, 50 % of the run",
)
def late_collapse(setup: Setup, severity: int) -> Setup:
    begin = {1: 0.7, 2: 0.6, 3: 0.5}[severity]
    rng = np.random.default_rng(severity)

    def logits(agent: Agent, inputs: F32, progress: Progress) -> F32:
        exact = agent.actor.forward(inputs)[0]
        late = max(0.0, progress.update / progress.updates - begin)
        off: F32 = exact + rng.normal(0, 60.0 * late, exact.shape).astype(np.float32)
        return off if late else exact

    def rate(config: TrainConfig, progress: Progress) -> float:
        return config.learning_rate

    return setup.with_stages(rollout_logits=logits, learning_rate=rate)


@fault(
    "single-output-collapse",
    description="the reward pays for one fixed answer whatever the question, and the policy gives nothing else",
    severities="learning rate × 1, 2, 3",
)
def single_output_collapse(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "language":
        raise ValueError("needs answers")
    return setup.with_config(learning_rate=setup.config.learning_rate * severity, ent_coef=-0.4)


@fault(
    "grad-norm-spike",
    description="now and then one sample carries an absurd advantage, and the gradient norm with it",
    severities="× 100, 300, 1000 once in twelve updates",
)
def grad_norm_spike(setup: Setup, severity: int) -> Setup:
    size = np.float32({1: 100.0, 2: 300.0, 3: 1000.0}[severity])

    def advantages(values: F32, progress: Progress) -> F32:
        if progress.update % 12 != 7:
            return values
        spiked = values.copy()
        spiked.reshape(-1)[: max(1, values.size // 100)] *= size
        return spiked

    free = setup.with_config(normalize="none", max_grad_norm=None)
    return free.with_stages(advantages=advantages)
