"""Settings of training by canonical name, with limits and usual values, and the recognition of misspelt names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from difflib import SequenceMatcher
from functools import cache, lru_cache
from os.path import commonprefix
from types import MappingProxyType
from typing import Literal, TypeAlias

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.trainers.detection import traits_of

#: Name → meaning. A profile with a setting that is not listed here does not load.
SETTINGS = MappingProxyType(
    {
        # data reuse
        "ppo_epochs": "passes over a rollout batch",
        "num_minibatches": "optimizer batches per pass",
        "minibatch_size": "samples (or prompts, where the framework counts prompts) per optimizer step or micro-batch",
        "max_minibatch_size": "largest minibatch that is not split and accumulated",
        "rollout_size": "samples (or prompts) per rollout batch",
        "local_rollout_size": "samples of one rank's part of a rollout batch",
        "rollout_steps": "environment steps per environment and rollout",
        "num_envs": "environments that act in parallel",
        "num_ranks": "data-parallel ranks of the trainer",
        "generation_batches": "generation batches that are trained on together",
        "generation_batch_size": "samples of one generation batch",
        "buffer_size": "optimizer batches kept for one update",
        "updates_per_batch": "optimizer steps per rollout batch",
        "gradient_accumulation_steps": "micro-batches per optimizer step",
        "steps_per_generation": "micro-batches per generation",
        "num_generations": "completions per prompt",
        "shuffle": "whether minibatches are drawn in random order",
        # step size
        "learning_rate": "learning rate of the policy at the start",
        "critic_learning_rate": "learning rate of the critic at the start",
        "anneal_lr": "whether the learning rate falls linearly to 0",
        "lr_schedule": "how the learning rate changes",
        "warmup_steps": "steps or share of the learning rate's warm-up",
        "schedule_steps": "steps over which the learning rate decays",
        "max_grad_norm": "norm to which gradients are clipped",
        "max_grad_norm_unused": "a bound of the gradient norm that the trainer does not apply",
        "optimizer": "name of the optimizer",
        "adam_eps": "what Adam adds to the root of the mean squared gradient",
        "adam_beta1": "decay of Adam's mean gradient",
        "adam_beta2": "decay of Adam's mean squared gradient",
        # clipping and divergence from the old policy
        "clip_range": "clip range of the ratio (the lower one where there are two)",
        "clip_range_high": "upper clip range of the ratio",
        "clip_range_dual": "bound of the ratio for negative advantages (dual clip)",
        "clip_range_vf": "clip range of value predictions",
        "clip_range_unused": "a clip range that the framework reads only under a switch",
        "use_clip_range": "the switch for separate lower and upper clip ranges",
        "vf_error_clamp": "bound at which the squared value error saturates",
        "target_kl": "KL to the old policy that stops the epochs",
        "early_stopping": "whether target_kl stops the epochs",
        "desired_kl": "KL to the old policy that an adaptive learning rate steers to",
        "kl_target": "KL to the old policy that an adaptive penalty steers to",
        "use_kl_loss": "whether a KL term is in the loss",
        # reference model
        "kl_coef": "coefficient of the KL penalty",
        "kl_loss_coef": "coefficient of a KL term in the loss, where the framework also has a penalty in the reward",
        "use_kl_in_reward": "whether the KL penalty is part of the reward",
        "ref_kl_target": "KL to the reference model that an adaptive coefficient steers to",
        "kl_estimator": "estimator of the KL to the reference model",
        "sync_ref_model": "whether the reference model follows the policy",
        # credit assignment
        "gamma": "discount",
        "gae_lambda": "lambda of generalised advantage estimation",
        "normalize_advantages": "whether advantages are normalised",
        "normalize_per_minibatch": "whether advantages are normalised in each minibatch instead of the whole batch",
        "advantage_estimator": "how advantages are computed",
        "scale_rewards": "over what rewards are scaled to unit deviation",
        "reward_scale": "factor of the rewards that are learned from",
        "normalize_rewards": "whether rewards are normalised",
        "reward_clip": "bound of rewards",
        "whiten_rewards": "whether rewards are whitened before advantages",
        # loss
        "ent_coef": "coefficient of the entropy bonus",
        "vf_coef": "coefficient of the value loss",
        "ptx_coef": "coefficient of a pretraining loss beside the policy's",
        "loss_type": "variant of the policy loss",
        "loss_aggregation": "how token losses are averaged",
        "importance_sampling_level": "whether the ratio is of tokens or of sequences",
        "rollout_correction": "whether the loss is reweighted for the rollout engine's own log-probs",
        "bypass_old_log_prob": "whether the rollout engine's log-probs serve as the old policy's",
        "force_on_policy_ratio": "whether the ratio is fixed at 1",
        "mask_truncated": "whether truncated completions are left out of the loss",
        "use_vtrace": "whether V-trace replaces GAE",
        # models and sampling
        "temperature": "sampling temperature",
        "sampler_temperature": "temperature that is passed to the generator alone",
        "top_p": "share of the probability from which tokens are sampled",
        "disable_dropout": "whether dropout is switched off",
        "critic_warmup": "updates before the policy is trained",
        "max_response_length": "longest completion",
        "max_policy_lag": "versions by which a sample may be old",
        "precision": "number format of training",
        # extent
        "total_steps": "steps planned",
        "total_env_steps": "environment steps planned",
        "total_episodes": "episodes planned",
        "train_epochs": "passes over the prompts",
        "logging_steps": "steps per record",
        "algorithm": "name of the algorithm",
    }
)

#: Settings that trainers log as they are in force → the metric.
IN_FORCE = MappingProxyType(
    {"learning_rate": "learning_rate", "clip_range": "clip_range", "kl_coef": "kl_coef", "ent_coef": "entropy_coef"}
)


#: Names of this length and shorter are near to most others: they need the same first letter, or have no near name.
SHORTEST, SHORTEST_WRITTEN = 5, 4
#: Names of at least this length may differ in two places if this share of them is the same.
LONG, MUCH = 10, 0.9
_DIGITS = lazy_pattern(r"\d+")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name of which a name is probably a misspelling, None if none is near.

    Names that differ only in their digits are two names, and no misspelling.
    """
    if len(name) < SHORTEST_WRITTEN:
        return None
    if len(name) < SHORTEST:
        known = [other for other in known if other[:1] == name[:1] and len(other) > len(name) and one_slip(name, other)]
    near = [
        other
        for other in known
        if len(other) >= SHORTEST
        and abs(len(other) - len(name)) <= 2
        and (one_slip(name, other) or _similar(name, other))
        and not _differ_in_digits(name, other)
    ]
    return min(near, key=lambda other: (not one_slip(name, other), other), default=None)


def one_slip(name: str, other: str) -> bool:
    """Return whether two names differ by one letter, or by two neighbouring letters that are swapped."""
    if name == other:
        return False
    start = len(commonprefix((name, other)))
    left, right = name[start:], other[start:]
    end = len(commonprefix((left[::-1], right[::-1])))
    left, right = left[: len(left) - end], right[: len(right) - end]
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])


def _similar(name: str, other: str) -> bool:
    long = min(len(name), len(other)) >= LONG and name[0] == other[0]
    return long and SequenceMatcher(None, name, other).ratio() >= MUCH


def _differ_in_digits(name: str, other: str) -> bool:
    """Return whether two names differ only in the digits at some place, or in that one of them has digits."""
    if _DIGITS.sub("", name) != _DIGITS.sub("", other):
        return False
    return _DIGITS.sub("0", name) == _DIGITS.sub("0", other) or not (_DIGITS.search(name) and _DIGITS.search(other))


Grade: TypeAlias = Literal["impossible", "pointless", "unusual"]
Test: TypeAlias = Literal["below", "at most", "equals", "above", "is no number"]

EPISODES, COMPLETIONS = "episodes", "completions"
#: Settings that methods without a critic do not read.
OF_CRITICS = frozenset({"vf_coef", "critic_learning_rate", "vf_error_clamp", "gae_lambda"})

#: Quantities that count settings beyond a limit. Each is evidence of one cause, the last two of none.
RATE_NEGATIVE, DISCOUNT = "rate_negative", "discount_out_of_range"
NO_UPDATE, CLIP_CLOSED, GRADIENT_CLOSED = "no_update_configured", "clip_range_closed", "gradient_bound_closed"
CRITIC_UNTRAINED, GREEDY, GROUP_OF_ONE = "critic_untrained", "greedy_sampling", "group_of_one"
IMPOSSIBLE, UNUSUAL = "settings_impossible", "settings_unusual"

_TESTS: Mapping[Test, Callable[[float, float], bool]] = MappingProxyType(
    {
        "below": operator.lt,
        "at most": operator.le,
        "equals": operator.eq,
        "above": operator.gt,
        "is no number": lambda value, _: math.isnan(value),
    }
)


@frozen(kw_only=False)
class Limit:
    """One limit of a setting and what breaking it means.

    A limit with a `trait` applies to trainers whose trait is `having`; None stands for trainers without that trait.
    """

    setting: str
    test: Test
    bound: float
    why: str
    counted_by: str
    grade: Grade = "impossible"
    source: str = "definition"
    trait: str = ""
    having: str | bool | None = None

    def applies_to(self, trainer: str) -> bool:
        """Return whether this limit applies to a trainer."""
        return not self.trait or traits_of(trainer).get(self.trait) == self.having

    def is_broken_by(self, value: float) -> bool:
        """Return whether a value is beyond this limit."""
        return _TESTS[self.test](value, self.bound)


def _limits(
    settings: str,
    test: Test,
    bound: float,
    why: str,
    counted_by: str,
    grade: Grade = "impossible",
    source: str = "definition",
    trait: tuple[str, str | bool | None] = ("", None),
) -> tuple[Limit, ...]:
    return tuple(Limit(setting, test, bound, why, counted_by, grade, source, *trait) for setting in settings.split())


_UPHILL = "the optimizer refuses a negative rate, or climbs its loss"
_WEIGHTS_OF_REWARDS = "what later rewards count for would grow with their distance, or change its sign"
_NO_STEP = "no optimizer step is taken"
_NO_SAMPLE = "nothing is sampled, and nothing trained"
_NO_ADAM = "Adam refuses it"
_UNTRAINED = "the critic is not trained"
_CONSTANT_RATIO = "the ratio is clipped to a constant"
_NO_FALL = "no ratio may fall: every sample is clipped after the first step"
_NO_RISE = "no ratio may rise: what earned more is clipped after the first step"
_ALONE = "an answer that is compared with itself has an advantage of 0; the trainer may refuse it"
_TIMES_ZERO = "every gradient is multiplied by 0, or by less"
_NO_RANGE = "the trainer refuses it: a range has to be positive, and none is given as null"
_EMPTY = "an answer has at least one token"
_GREEDY = "sampling is greedy: all answers to a prompt are one"
_NO_PROBABILITY = "there is no less than none of the probability"
_TOO_MUCH = "there is no more than the whole probability"
_SIZES = "rollout_size local_rollout_size rollout_steps num_envs generation_batch_size"
_STEPS = "ppo_epochs num_minibatches updates_per_batch gradient_accumulation_steps steps_per_generation"
_OF_GROUPS = "trl/trainer/grpo_trainer.py, trl/trainer/rloo_trainer.py: at least 2 generations"
_OF_NORMS = "torch/nn/utils/clip_grad.py: the factor is the bound over the norm"
_OF_SB3 = "stable_baselines3/ppo/ppo.py: asserts that it is positive"
_COMPARES, _STOPS = ("compares_groups", True), ("zero_grad_norm", "stops updates")
_REFUSES = ("refuses_zero_clip_range_vf", True)

#: The limits of each setting, the gravest first.
WRONG: tuple[Limit, ...] = (
    *_limits("learning_rate", "below", 0, _UPHILL, RATE_NEGATIVE),
    *_limits("critic_learning_rate vf_coef vf_error_clamp", "below", 0, _UNTRAINED, CRITIC_UNTRAINED),
    *_limits("critic_learning_rate vf_coef vf_error_clamp", "equals", 0, _UNTRAINED, CRITIC_UNTRAINED, "pointless"),
    *_limits("gamma gae_lambda", "below", 0, _WEIGHTS_OF_REWARDS, DISCOUNT),
    *_limits("gamma gae_lambda", "above", 1, _WEIGHTS_OF_REWARDS, DISCOUNT),
    *_limits("adam_eps adam_beta1 adam_beta2", "below", 0, _NO_ADAM, IMPOSSIBLE),
    *_limits("adam_beta1 adam_beta2", "above", 1, _NO_ADAM, IMPOSSIBLE),
    *_limits(_STEPS, "below", 1, _NO_STEP, NO_UPDATE),
    # Below 0 is the whole batch in Tianshou, and "as many as elsewhere" in files of Isaac Lab.
    *_limits("minibatch_size", "equals", 0, _NO_STEP, NO_UPDATE),
    *_limits("minibatch_size", "below", 0, _NO_STEP, NO_UPDATE, trait=("negative_minibatch_size", None)),
    *_limits(_SIZES, "equals", 0, _NO_SAMPLE, NO_UPDATE),
    *_limits(_SIZES, "below", -1, _NO_SAMPLE, NO_UPDATE),
    *_limits("num_generations", "below", 1, _NO_SAMPLE, NO_UPDATE),
    *_limits("num_generations", "equals", 1, _ALONE, GROUP_OF_ONE, "pointless", _OF_GROUPS, _COMPARES),
    *_limits("clip_range clip_range_high", "below", 0, _CONSTANT_RATIO, CLIP_CLOSED),
    *_limits("clip_range", "equals", 0, _NO_FALL, CLIP_CLOSED, "pointless"),
    *_limits("clip_range_high", "equals", 0, _NO_RISE, CLIP_CLOSED, "pointless"),
    *_limits("max_grad_norm", "at most", 0, _TIMES_ZERO, GRADIENT_CLOSED, "pointless", _OF_NORMS, _STOPS),
    *_limits("clip_range_vf", "at most", 0, _NO_RANGE, IMPOSSIBLE, "impossible", _OF_SB3, _REFUSES),
    *_limits("temperature", "below", 0, "no distribution has a negative temperature", IMPOSSIBLE),
    *_limits("temperature", "equals", 0, _GREEDY, GREEDY, "pointless"),
    *_limits("top_p", "below", 0, _NO_PROBABILITY, IMPOSSIBLE),
    *_limits("top_p", "equals", 0, "sampling is greedy, or the sampler refuses it", GREEDY, "pointless"),
    *_limits("top_p", "above", 1, _TOO_MUCH, IMPOSSIBLE),
    *_limits("max_response_length", "equals", 0, _EMPTY, IMPOSSIBLE),
    *_limits("max_response_length", "below", -1, _EMPTY, IMPOSSIBLE),
    *_limits("desired_kl kl_target ref_kl_target", "below", 0, "a KL divergence is at least 0", IMPOSSIBLE),
)

_RECIPES = (
    "expert: documented defaults of the trainers that have profiles, and published recipes, with room on both sides"
)
#: Setting → the least and the largest value in use, by kind of samples. Clip ranges, KL targets and gradient bounds
#: have rules of their own, which tell what is too small.
USUAL: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "learning_rate": {EPISODES: (1e-6, 0.02), COMPLETIONS: (1e-8, 1e-3)},
        "critic_learning_rate": {EPISODES: (1e-6, 0.02), COMPLETIONS: (1e-8, 1e-3)},
        "gamma": {EPISODES: (0.8, 1.0), COMPLETIONS: (0.95, 1.0)},
        "gae_lambda": {EPISODES: (0.5, 1.0), COMPLETIONS: (0.9, 1.0)},
        "ppo_epochs": {EPISODES: (1, 50), COMPLETIONS: (1, 16)},
        "num_minibatches": {EPISODES: (1, 1024), COMPLETIONS: (1, 1024)},
        "updates_per_batch": {EPISODES: (1, 1000), COMPLETIONS: (1, 64)},
        "clip_range": {EPISODES: (0.0, 0.5), COMPLETIONS: (0.0, 1.0)},
        "ent_coef": {EPISODES: (0.0, 0.2), COMPLETIONS: (0.0, 0.1)},
        "vf_coef": {EPISODES: (0.0, 10.0), COMPLETIONS: (0.0, 10.0)},
        "max_grad_norm": {EPISODES: (0.0, math.inf), COMPLETIONS: (0.0, math.inf)},
        "target_kl": {EPISODES: (0.0, math.inf), COMPLETIONS: (0.0, math.inf)},
        "kl_coef": {EPISODES: (0.0, 10.0), COMPLETIONS: (0.0, 1.0)},
        "kl_loss_coef": {EPISODES: (0.0, 10.0), COMPLETIONS: (0.0, 1.0)},
        "num_generations": {COMPLETIONS: (1, 512)},
        "temperature": {COMPLETIONS: (0.3, 1.5)},
        "top_p": {COMPLETIONS: (0.5, 1.0)},
    }
)
#: Every setting that has a domain.
JUDGED = frozenset({limit.setting for limit in WRONG} | set(USUAL))
_NO_NUMBER = _limits(" ".join(sorted(JUDGED)), "is no number", 0, "it is not a number", IMPOSSIBLE)


@cache
def counted_by(quantity: str, trainer: str) -> frozenset[str]:
    """Return the settings that a quantity counts for a trainer: all of them if it belongs to no cause."""
    if quantity in (IMPOSSIBLE, UNUSUAL):
        return JUDGED
    return frozenset(limit.setting for limit in WRONG if limit.counted_by == quantity and limit.applies_to(trainer))


@lru_cache(maxsize=2048)  # ten quantities need the same settings, and so do the runs of a sweep
def broken_limit(setting: str, value: float, trainer: str, samples: str) -> Limit | None:
    """Return the most severe limit that a value of a setting breaks, None for a usual value."""
    limits = [limit for limit in (*_NO_NUMBER, *WRONG) if limit.setting == setting and limit.applies_to(trainer)]
    return next((limit for limit in (*limits, *_usual(setting, samples)) if limit.is_broken_by(value)), None)


_TASKS = {EPISODES: "games and control", COMPLETIONS: "language models"}


def _usual(setting: str, samples: str) -> list[Limit]:
    """Return the limits of usual values: of one kind of samples, of both together if `samples` is empty."""
    ranges = USUAL.get(setting, {})
    known = [ranges[samples]] if samples in ranges else [] if samples else list(ranges.values())
    if not known:
        return []
    low, high = min(low for low, _ in known), max(high for _, high in known)
    span = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
    why = f"usual{f' for {_TASKS[samples]}' if samples else ''} is {span}"
    sides: tuple[tuple[Test, float], ...] = (("below", low), ("above", high))
    return [Limit(setting, test, bound, why, UNUSUAL, "unusual", _RECIPES) for test, bound in sides]
