"""Training leaves the region where it works: steps, entropy, collapse."""

from __future__ import annotations

import numpy as np

from ..agent import Agent
from ..nets import F32
from ..settings import Progress, Setup
from .registry import fault


@fault(
    "lr-too-high",
    description="the learning rate is far too large: every update leaves the trust region and the policy collapses",
    severities="learning rate × 60, 100, 200 (language: × 15, 25, 40)",
)
def lr_too_high(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    pace = {1: 60.0, 2: 100.0, 3: 200.0}[severity] if control else {1: 15.0, 2: 25.0, 3: 40.0}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * pace)


@fault(
    "over-reuse",
    description="far too many epochs on every batch",
    severities="epochs × 8, 12, 16, at a learning rate × 8 (language: × 4) that four epochs would bear",
)
def over_reuse(setup: Setup, severity: int) -> Setup:
    more = {1: 8, 2: 12, 3: 16}[severity]
    pace = 8.0 if setup.config.task == "control" else 4.0
    return setup.with_config(
        epochs=setup.config.epochs * more, learning_rate=setup.config.learning_rate * pace, num_minibatches=4
    )


@fault(
    "entropy-collapse",
    description="the sign of the entropy bonus is wrong: the policy turns deterministic before it is good",
    severities="entropy coefficient -0.5, -1, -2 (language: -0.3, -0.6, -1)",
)
def entropy_collapse(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    weight = {1: 0.5, 2: 1.0, 3: 2.0}[severity] if control else {1: 0.3, 2: 0.6, 3: 1.0}[severity]
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
        off: F32 = exact + rng.normal(0, min(3.0, 20.0 * late), exact.shape).astype(np.float32)
        return off if late else exact

    return setup.with_stages(rollout_logits=logits)


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
