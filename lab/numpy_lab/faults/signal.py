"""What tells good samples from bad ones: rewards that are rare, broken, mis-scaled or turned round."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..nets import F32
from ..settings import Progress, Setup
from .registry import fault, onset

_NOTHING_EARNED = {
    "*": ("reward-pipeline-broken", "whiten-amplifies-noise"),
    "trl-grpo": ("adv-exactly-zero", "reward-pipeline-broken"),
}
_TARGET_LENGTHS = np.arange(16) % 5 + 2  # of the language task, EOS included


def _needs(setup: Setup, *, task: str | None = None, algorithm: str | None = None) -> None:
    if task not in (None, setup.config.task) or algorithm not in (None, setup.config.algorithm):
        raise ValueError(f"needs {task or algorithm}")


@fault(
    "reward-too-sparse",
    description="only a feat that the untrained policy almost never achieves is rewarded, and nothing short of it",
    severities="balance for 200, 300, 400 steps; a whole string of at least 4, 5, 6 tokens",
    level_with=_NOTHING_EARNED,
)
def reward_too_sparse(setup: Setup, severity: int) -> Setup:
    steps, tokens = {1: 200, 2: 300, 3: 400}[severity], {1: 4, 2: 5, 3: 6}[severity]

    def balanced(_rewards: F32, ages: Any, _progress: Progress) -> F32:
        reached: F32 = np.asarray(ages == steps, np.float32)
        return reached

    def whole(scores: F32, _mask: F32, prompts: Any, _progress: Progress) -> F32:
        earned = (scores > 0.999) & (_TARGET_LENGTHS[prompts] >= tokens)
        return np.asarray(earned, np.float32)

    return setup.with_stages(step_reward=balanced, answer_score=whole)


@fault(
    "reward-pipeline-broken",
    description="the reward function raises, its caller catches that and pays 0 to every sample",
    severities="begins at 60 %, at 30 %, at the start of the run",
    level_with={"*": ("reward-too-sparse", "whiten-amplifies-noise"), "trl-grpo": ("adv-exactly-zero",)},
)
def reward_pipeline_broken(setup: Setup, severity: int) -> Setup:
    begin = onset(severity)

    def paid(rewards: F32, _ages: Any, progress: Progress) -> F32:
        return rewards * np.float32(0) if progress.reached(begin) else rewards

    def scored(scores: F32, _mask: F32, _prompts: Any, progress: Progress) -> F32:
        return scores * np.float32(0) if progress.reached(begin) else scores

    return setup.with_stages(step_reward=paid, answer_score=scored)


def _in_parts(setup: Setup, begin: float) -> Setup:
    """Pay for the answer, for ending it, and a little for an even length.

    From `begin` on the first of these functions raises, and its caller pays 0.
    """
    _needs(setup, algorithm="grpo")

    def parts(scores: F32, mask: F32, progress: Progress) -> dict[str, F32]:
        ended = np.asarray(mask.sum(axis=1) < setup.config.max_tokens, np.float32)
        paid = scores * np.float32(0) if progress.reached(begin) else scores
        even = np.asarray(mask.sum(axis=1) % 2 == 0, np.float32)
        return {"match_reward": paid, "format_reward": np.float32(0.5) * ended, "style_reward": np.float32(0.1) * even}

    return setup.with_stages(answer_parts=parts)


@fault(
    "reward-part-broken",
    cause="reward-pipeline-broken",
    description="of three reward functions the one that counts raises from some point on, and its caller pays 0 for it",
    severities="begins at 75 %, at 55 %, at 35 % of the run",
)
def reward_part_broken(setup: Setup, severity: int) -> Setup:
    return _in_parts(setup, {1: 0.75, 2: 0.55, 3: 0.35}[severity])


@fault(
    "benign-reward-parts",
    cause="healthy",
    description="three reward functions, one of which is soon fulfilled by every answer",
    severities="learning rate × 0.7, 1, 1.3 (all sound)",
    verdict="healthy",
)
def benign_reward_parts(setup: Setup, severity: int) -> Setup:
    pace = {1: 0.7, 2: 1.0, 3: 1.3}[severity]
    return _in_parts(setup.with_config(learning_rate=setup.config.learning_rate * pace), 2.0)


@fault(
    "whiten-amplifies-noise",
    description="the reward that reaches the learner is a constant 0, and whitening blows the critic's residual up",
    severities="learning rate × 1, 2, 3",
    level_with={"*": ("reward-pipeline-broken", "reward-too-sparse")},
)
def whiten_amplifies_noise(setup: Setup, severity: int) -> Setup:
    _needs(setup, algorithm="ppo")

    def nothing(rewards: F32, *_rest: Any) -> F32:
        return rewards * np.float32(0)

    faster = setup.with_config(learning_rate=setup.config.learning_rate * severity)
    return faster.with_stages(step_reward=nothing, answer_score=nothing)


@fault(
    "reward-saturated",
    description="a task so easy that almost every answer earns the maximal reward from early on",
    severities="an answer of more than 1, 2, 3 tokens that ends counts (all sound)",
    verdict="healthy",
)
def reward_saturated(setup: Setup, severity: int) -> Setup:
    _needs(setup, algorithm="grpo")

    def easy(_scores: F32, mask: F32, _prompts: Any, _progress: Progress) -> F32:
        lengths = mask.sum(axis=1)
        good: F32 = ((lengths > severity) & (lengths < setup.config.max_tokens)).astype(np.float32)
        return good

    return setup.with_stages(answer_score=easy)


@fault(
    "group-std-zero-partial",
    description="most prompts are hopeless and some are trivial, so that their groups have equal rewards",
    severities="8, 10, 12 of 16 prompts hopeless, 4, 3, 2 trivial",
    verdict="warning",
)
def group_std_zero_partial(setup: Setup, severity: int) -> Setup:
    _needs(setup, algorithm="grpo")
    hopeless, trivial = {1: (8, 4), 2: (10, 3), 3: (12, 2)}[severity]

    def scored(scores: F32, _mask: F32, prompts: Any, _progress: Progress) -> F32:
        order = prompts * 5 % 16  # spreads them over target lengths
        return np.asarray(np.where(order < hopeless, 0, np.where(order < hopeless + trivial, 1, scores)), np.float32)

    return setup.with_stages(answer_score=scored)


@fault(
    "advantage-sign-flipped",
    description="the sign of the advantages is lost: the policy is pushed away from reward",
    severities="learning rate × 1, 1.5, 2",
    level_with={
        "trl-grpo": ("length-collapse",),
        "trl-ppo": ("reward-too-sparse",),
        "trl-ppo-legacy": ("length-collapse",),
    },
)
def advantage_sign_flipped(setup: Setup, severity: int) -> Setup:
    def flipped(values: F32, _progress: Progress) -> F32:
        return -values

    faster = setup.with_config(learning_rate=setup.config.learning_rate * {1: 1.0, 2: 1.5, 3: 2.0}[severity])
    return faster.with_stages(advantages=flipped)


@fault(
    "gamma-lambda-mismatch",
    description="the discount hides what an action leads to from the action",
    severities="gamma 0.3, 0.1, 0",
    verdict="warning",
    level_with={"canonical-lean": ("healthy",)},
)
def gamma_lambda_mismatch(setup: Setup, severity: int) -> Setup:
    _needs(setup, task="control")
    return setup.with_config(gamma={1: 0.3, 2: 0.1, 3: 0.0}[severity])


@fault(
    "truncation-dominates",
    description="the completion limit is shorter than most answers have to be",
    severities="limit of 2 tokens, of 1, and of 1 with nothing for a cut answer",
    level_with={"trl-ppo": ("whiten-amplifies-noise", "reward-too-sparse", "reward-pipeline-broken")},
)
def truncation_dominates(setup: Setup, severity: int) -> Setup:
    _needs(setup, task="language")
    cut = setup.with_config(token_budget={1: 2, 2: 1, 3: 1}[severity])

    def whole(scores: F32, _mask: F32, _prompts: Any, _progress: Progress) -> F32:
        complete: F32 = np.where(scores > 0.999, scores, np.float32(0))
        return complete

    return cut.with_stages(answer_score=whole) if severity == 3 else cut


@fault(
    "length-collapse",
    description="a penalty per token outweighs what an answer earns: completions shrink to nothing",
    severities="0.25, 0.35, 0.5 per token",
)
def length_collapse(setup: Setup, severity: int) -> Setup:
    _needs(setup, task="language")
    price = np.float32({1: 0.25, 2: 0.35, 3: 0.5}[severity])

    def brief(scores: F32, mask: F32, _prompts: Any, _progress: Progress) -> F32:
        short: F32 = scores - price * mask.sum(axis=1)
        return short

    return setup.with_stages(answer_score=brief)
