"""Training leaves the region where it works: steps, entropy, collapse."""

from __future__ import annotations

from ..settings import Progress, Setup, TrainConfig
from .registry import fault


@fault(
    "lr-too-high",
    description="the learning rate is far too large: every update leaves the trust region and the policy collapses",
    severities="learning rate × 100, 140, 200 (language: × 20, 28, 40)",
)
def lr_too_high(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    pace = {1: 100.0, 2: 140.0, 3: 200.0}[severity] if control else {1: 20.0, 2: 28.0, 3: 40.0}[severity]
    return setup.with_config(learning_rate=setup.config.learning_rate * pace)


@fault(
    "over-reuse",
    description="far too many epochs on every batch",
    severities="epochs × 8, 12, 16, at a learning rate × 15 (language: × 4) that four epochs would bear",
)
def over_reuse(setup: Setup, severity: int) -> Setup:
    more = {1: 8, 2: 12, 3: 16}[severity]
    pace = 15.0 if setup.config.task == "control" else 4.0
    return setup.with_config(
        epochs=setup.config.epochs * more, learning_rate=setup.config.learning_rate * pace, num_minibatches=4
    )


@fault(
    "entropy-collapse",
    description="the sign of the entropy bonus is wrong: the policy turns deterministic before it is good",
    severities="entropy coefficient -6, -12, -24 (language: -0.5, -0.65, -0.8)",
    level_with=dict.fromkeys(("trl-grpo", "trl-ppo", "trl-ppo-legacy"), ("single-output-collapse",)),
)
def entropy_collapse(setup: Setup, severity: int) -> Setup:
    control = setup.config.task == "control"
    weight = {1: 6.0, 2: 12.0, 3: 24.0}[severity] if control else {1: 0.5, 2: 0.65, 3: 0.8}[severity]
    return setup.with_config(ent_coef=-weight)


@fault(
    "entropy-explosion",
    description="the entropy bonus drowns the surrogate, and the policy stays random",
    severities="entropy coefficient 2, 4, 8",
)
def entropy_explosion(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "control":
        raise ValueError("TRL's trainers have no entropy bonus")
    return setup.with_config(ent_coef={1: 2.0, 2: 4.0, 3: 8.0}[severity])


@fault(
    "late-collapse",
    description="after a long healthy stretch the schedule restarts at an absurd rate, and the policy collapses",
    severities="restart at 70 %, 62 %, 55 % of the run, learning rate × 500, 1000, 3000 (language: × 80, 90, 100)",
    level_with={"trl-ppo-legacy": ("nan-inf",)},
)
def late_collapse(setup: Setup, severity: int) -> Setup:
    begin = {1: 0.7, 2: 0.62, 3: 0.55}[severity]
    control = setup.config.task == "control"
    pace = {1: 500.0, 2: 1000.0, 3: 3000.0}[severity] if control else {1: 80.0, 2: 90.0, 3: 100.0}[severity]

    def rate(config: TrainConfig, progress: Progress) -> float:
        return config.learning_rate * (pace if progress.reached(begin) else 1.0)

    return setup.with_stages(learning_rate=rate)


@fault(
    "single-output-collapse",
    description="an entropy bonus of the wrong sign leaves one answer to every question",
    severities="entropy coefficient -0.4, -0.6, -0.8",
    level_with={"*": ("entropy-collapse",)},
)
def single_output_collapse(setup: Setup, severity: int) -> Setup:
    if setup.config.task != "language":
        raise ValueError("needs answers")
    return setup.with_config(ent_coef={1: -0.4, 2: -0.6, 3: -0.8}[severity])
