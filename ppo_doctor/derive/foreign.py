"""What a run of this kind never logs: nobody is to be asked for the episodes of a language model, or for its critic."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ppo_doctor.derive.table import DERIVED

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations

#: Metrics and settings of steps of episodes, which completions do not have.
OF_STEPS = frozenset(
    {
        *("episode_return", "episode_return_min", "episode_return_max", "episode_length", "env_steps"),
        *("total_env_steps", "action_std", "num_envs", "rollout_steps"),
    }
)
#: Metrics and settings of completions, which steps of episodes do not have.
OF_COMPLETIONS = frozenset(
    {
        *("response_length", "response_length_min", "response_length_max", "max_response_length", "num_tokens"),
        *("truncated_fraction", "mask_truncated", "tokens_in_loss", "unique_fraction", "ref_kl", "ref_kl_target"),
        *("kl_penalty_reward", "objective_entropy", "ptx_loss", "ptx_coef", "frac_reward_zero_std"),
        *("reward_group_std", "num_generations"),
    }
)
#: Metrics and settings of a critic, which methods that compare the answers to a prompt do without.
OF_CRITICS = frozenset(
    {
        *("value_loss", "value_clip_fraction", "explained_variance", "values_mean", "values_std", "critic_grad_norm"),
        *("returns_mean", "returns_std", "clip_range_vf", "gae_lambda", "critic_warmup"),
    }
)
WITHOUT_CRITIC = ("grpo", "rloo")


def never_logged(observations: Observations) -> frozenset[str]:
    """Return the metrics and settings that a run of this kind cannot hold."""
    samples = observations.fact("completions")
    other = frozenset() if samples is None else OF_STEPS if samples.value else OF_COMPLETIONS
    return other | OF_CRITICS if observations.run.algorithm in WITHOUT_CRITIC else other


def not_for(observations: Observations, missing: tuple[str, ...]) -> str | None:
    """Return why quantities (`series.X`, `fact.X`) are not missed in a run of this kind; None where they are."""
    samples = observations.fact("completions")
    if samples is not None and _all_need(missing, OF_STEPS if samples.value else OF_COMPLETIONS):
        return f"not for {'completions' if samples.value else 'steps of episodes'}"
    algorithm = observations.run.algorithm
    return f"not for {algorithm}" if algorithm in WITHOUT_CRITIC and _all_need(missing, OF_CRITICS) else None


@cache
def _all_need(missing: tuple[str, ...], never: frozenset[str]) -> bool:
    """Tell whether one of the quantities has no way to be computed that does without all of `never`."""
    names = (reference.partition(".")[2] for reference in missing)
    ways = (DERIVED[name].any_of if name in DERIVED else ((name,),) for name in names)
    return any(all(not never.isdisjoint(group) for group in groups) for groups in ways)
