"""The canonical vocabulary of training settings, to which profiles map native keys."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from ppo_doctor.model.frozen import frozen

#: name → what it means. A profile that names another setting does not load.
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
        # what a step is credited with
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


#: Shorter names are all near one another; so are those that lack a letter of these, unless they begin alike.
SHORTEST, SHORTEST_WRITTEN = 5, 4
#: Names this long may be wrong in two places, if so much of them is the same.
LONG, MUCH = 10, 0.9
_DIGITS = re.compile(r"\d+")


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that somebody meant who wrote this one; None where none is that near.

    Names that differ in their digits alone are two of a kind, and no slip.
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
        and _near(name, other)
        and not _numbered(name, other)
    ]
    return min(near, key=lambda other: (not one_slip(name, other), other), default=None)


def one_slip(name: str, other: str) -> bool:
    """Tell whether one letter too many, too few, wrong, or swapped with its neighbour makes one name of the other."""
    if name == other:
        return False
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(name), len(other)) - start and name[-1 - end] == other[-1 - end]:
        end += 1
    left, right = name[start : len(name) - end], other[start : len(other) - end]
    return max(len(left), len(right)) == 1 or (len(left) == 2 and left == right[::-1])


def _near(name: str, other: str) -> bool:
    if one_slip(name, other):
        return True
    if min(len(name), len(other)) < LONG or name[0] != other[0]:
        return False
    return SequenceMatcher(None, name, other).ratio() >= MUCH


def _numbered(name: str, other: str) -> bool:
    """Tell whether names differ in their digits alone: in others at the same place, or in having some."""
    if _DIGITS.sub("", name) != _DIGITS.sub("", other):
        return False
    return _DIGITS.sub("0", name) == _DIGITS.sub("0", other) or not (_DIGITS.search(name) and _DIGITS.search(other))


Grade: TypeAlias = Literal["impossible", "pointless", "unusual"]
Test: TypeAlias = Literal["below", "at most", "equals", "above", "is no number"]

EPISODES, COMPLETIONS = "episodes", "completions"
#: Trainers of language models, whose samples are completions; those of the others are steps of episodes.
OF_COMPLETIONS = frozenset(
    {
        *("areal", "deepspeed-chat", "llama-factory", "minimind", "ms-swift", "nemo-aligner", "nemo-rl"),
        *("open-instruct", "openrlhf", "prime-rl", "roll", "slime", "torchtune", "trl-grpo", "trl-ppo"),
        *("trl-ppo-legacy", "trl-rloo", "trlx", "unsloth", "verl"),
    }
)
#: The profile of our own names, under which either kind of run is logged.
OF_EITHER = frozenset({"canonical"})
#: Trainers that scale gradients by the bound over their norm whatever the bound is; others take 0 for none.
_SCALE_BY_ANY_BOUND = frozenset(
    {"sb3", "cleanrl", "rsl-rl", "trl-ppo-legacy", "verl", "pufferlib", "torchrl", "baselines-ppo2", "stable-baselines"}
)
#: Trainers that refuse a group of one, or make its advantage 0.
COMPARE_GROUPS = frozenset({"trl-grpo", "trl-rloo", "ms-swift", "unsloth"})
#: Settings that methods without a critic do not read.
OF_CRITICS = frozenset({"vf_coef", "critic_learning_rate", "vf_error_clamp", "gae_lambda"})

#: Derived quantities that count offences: each is the witness of one cause, the last two of none.
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


@frozen
class Limit:
    """One limit of a setting and what breaking it means; `only` and `never` name the frameworks that it holds for."""

    setting: str
    grade: Grade
    test: Test
    bound: float
    why: str
    counted_by: str
    source: str = "definition"
    only: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()

    def holds_for(self, framework: str) -> bool:
        """Tell whether a framework has this limit."""
        return framework not in self.never and (not self.only or framework in self.only)

    def broken(self, value: float) -> bool:
        """Tell whether a value is beyond this limit."""
        return _TESTS[self.test](value, self.bound)


def _impossible(names: str, test: Test, bound: float, why: str, counted_by: str) -> list[Limit]:
    return [
        Limit(setting=name, grade="impossible", test=test, bound=bound, why=why, counted_by=counted_by)
        for name in names.split()
    ]


def _pointless(setting: str, bound: float, why: str, counted_by: str, source: str = "definition") -> Limit:
    return Limit(
        setting=setting, grade="pointless", test="equals", bound=bound, why=why, counted_by=counted_by, source=source
    )


_UPHILL = "the optimizer refuses a negative rate, or climbs its loss"
_WEIGHTS_OF_REWARDS = "what later rewards count for would grow with their distance, or change its sign"
_NO_STEP = "no optimizer step is taken"
_NO_SAMPLE = "nothing is sampled, and nothing trained"
_NO_ADAM = "Adam refuses it"
_UNTRAINED = "the critic is not trained"
_SIZES = "rollout_size local_rollout_size rollout_steps num_envs generation_batch_size"

WRONG: tuple[Limit, ...] = (
    *_impossible("learning_rate", "below", 0, _UPHILL, RATE_NEGATIVE),
    *_impossible("critic_learning_rate vf_coef vf_error_clamp", "below", 0, _UNTRAINED, CRITIC_UNTRAINED),
    _pointless("critic_learning_rate", 0, _UNTRAINED, CRITIC_UNTRAINED),
    _pointless("vf_coef", 0, _UNTRAINED, CRITIC_UNTRAINED),
    _pointless("vf_error_clamp", 0, _UNTRAINED, CRITIC_UNTRAINED),
    *_impossible("gamma gae_lambda", "below", 0, _WEIGHTS_OF_REWARDS, DISCOUNT),
    *_impossible("gamma gae_lambda", "above", 1, _WEIGHTS_OF_REWARDS, DISCOUNT),
    *_impossible("adam_eps adam_beta1 adam_beta2", "below", 0, _NO_ADAM, IMPOSSIBLE),
    *_impossible("adam_beta1 adam_beta2", "above", 1, _NO_ADAM, IMPOSSIBLE),
    *_impossible("ppo_epochs num_minibatches updates_per_batch", "below", 1, _NO_STEP, NO_UPDATE),
    *_impossible("gradient_accumulation_steps steps_per_generation", "below", 1, _NO_STEP, NO_UPDATE),
    # below 0 stands for the whole batch in Tianshou, and -1 for "as many as elsewhere" in files of Isaac Lab
    *_impossible("minibatch_size", "equals", 0, _NO_STEP, NO_UPDATE),
    Limit(
        setting="minibatch_size",
        grade="impossible",
        test="below",
        bound=0,
        why=_NO_STEP,
        counted_by=NO_UPDATE,
        never=frozenset({"rllib", "tianshou"}),  # -1 marks a key of RLlib that another has replaced
    ),
    *_impossible(_SIZES, "equals", 0, _NO_SAMPLE, NO_UPDATE),
    *_impossible(_SIZES, "below", -1, _NO_SAMPLE, NO_UPDATE),
    *_impossible("num_generations", "below", 1, _NO_SAMPLE, NO_UPDATE),
    Limit(
        setting="num_generations",
        grade="pointless",
        test="equals",
        bound=1,
        why="an answer that is compared with itself has an advantage of 0; the trainer may refuse it",
        counted_by=GROUP_OF_ONE,
        source="trl/trainer/grpo_trainer.py, trl/trainer/rloo_trainer.py: at least 2 generations",
        only=COMPARE_GROUPS,
    ),
    *_impossible("clip_range clip_range_high", "below", 0, "the ratio is clipped to a constant", CLIP_CLOSED),
    _pointless("clip_range", 0, "no ratio may fall: every sample is clipped after the first step", CLIP_CLOSED),
    _pointless(
        "clip_range_high", 0, "no ratio may rise: what earned more is clipped after the first step", CLIP_CLOSED
    ),
    Limit(
        setting="max_grad_norm",
        grade="pointless",
        test="at most",
        bound=0,
        why="every gradient is multiplied by 0, or by less",
        counted_by=GRADIENT_CLOSED,
        source="torch/nn/utils/clip_grad.py: the factor is the bound over the norm",
        only=_SCALE_BY_ANY_BOUND,
    ),
    Limit(
        setting="clip_range_vf",
        grade="impossible",
        test="at most",
        bound=0,
        why="the trainer refuses it: a range has to be positive, and none is given as null",
        counted_by=IMPOSSIBLE,
        source="stable_baselines3/ppo/ppo.py: asserts that it is positive",
        only=frozenset({"sb3"}),
    ),
    *_impossible("temperature", "below", 0, "no distribution has a negative temperature", IMPOSSIBLE),
    _pointless("temperature", 0, "sampling is greedy: all answers to a prompt are one", GREEDY),
    *_impossible("top_p", "below", 0, "there is no less than none of the probability", IMPOSSIBLE),
    _pointless("top_p", 0, "sampling is greedy, or the sampler refuses it", GREEDY),
    *_impossible("top_p", "above", 1, "there is no more than the whole probability", IMPOSSIBLE),
    *_impossible("max_response_length", "equals", 0, "an answer has at least one token", IMPOSSIBLE),
    *_impossible("max_response_length", "below", -1, "an answer has at least one token", IMPOSSIBLE),
    *_impossible("desired_kl kl_target ref_kl_target", "below", 0, "a KL divergence is at least 0", IMPOSSIBLE),
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
_LOSSES = ("grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo", "luspo", "vespo")
_ESTIMATORS = ("gae", "grpo", "rloo", "reinforce", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
#: Framework → setting → the words that it may be. Trainers add to them: another word is told, and is wrong where it is
#: nearly one of them.
WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "trl-grpo": {"loss_type": _LOSSES, "importance_sampling_level": ("token", "sequence", "sequence_token")},
        "verl": {
            "advantage_estimator": (*_ESTIMATORS, "remax", "opo", "grpo_passk", "gpg"),
            "loss_aggregation": ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
        },
        "openrlhf": {"advantage_estimator": (*_ESTIMATORS, "reinforce_baseline", "group_norm", "dr_grpo")},
    }
)
#: Trainers whose words are another's.
SAME_WORDS = MappingProxyType({"unsloth": "trl-grpo", "ms-swift": "trl-grpo"})


def words_of(setting: str, framework: str) -> tuple[str, ...]:
    """Return the words that a setting of a framework may be; none where it takes any."""
    return WORDS.get(SAME_WORDS.get(framework, framework), {}).get(setting, ())


#: Every setting that has a domain.
JUDGED = frozenset({limit.setting for limit in WRONG} | set(USUAL))


@cache
def counted_by(name: str, framework: str) -> frozenset[str]:
    """Return the settings that a quantity counts in a framework; where it is of no cause, all of them."""
    if name in (IMPOSSIBLE, UNUSUAL):
        return JUDGED
    held = (limit for limit in WRONG if limit.counted_by == name and limit.holds_for(framework))
    return frozenset(limit.setting for limit in held)


@lru_cache(maxsize=2048)  # ten quantities ask for the same settings, and so do the runs of a sweep
def broken_limit(setting: str, value: float, framework: str, kind: str) -> Limit | None:
    """Return the gravest limit that a value of a setting breaks; None for a usual one."""
    limits = (*_limits_of(setting, framework), *_usual(setting, kind))
    return next((limit for limit in limits if limit.broken(value)), None)


def _limits_of(setting: str, framework: str) -> Iterator[Limit]:
    yield Limit(
        setting=setting,
        grade="impossible",
        test="is no number",
        bound=0,
        why="it is not a number",
        counted_by=IMPOSSIBLE,
    )
    for limit in WRONG:
        if limit.setting == setting and limit.holds_for(framework):
            yield limit


_TASKS = {EPISODES: "games and control", COMPLETIONS: "language models"}


def _usual(setting: str, kind: str) -> Iterator[Limit]:
    """Yield the limits of what is usual; where the kind of samples is unknown, of what is so for neither."""
    ranges = USUAL.get(setting, {})
    held = [ranges[kind]] if kind in ranges else [] if kind else list(ranges.values())
    if not held:
        return
    low, high = min(low for low, _ in held), max(high for _, high in held)
    span = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
    sides: tuple[tuple[Test, float], ...] = (("below", low), ("above", high))
    for test, bound in sides:
        yield Limit(
            setting=setting,
            grade="unusual",
            test=test,
            bound=bound,
            why=f"usual{f' for {_TASKS[kind]}' if kind else ''} is {span}",
            counted_by=UNUSUAL,
            source=_RECIPES,
        )
