"""What a run of this kind never logs: nobody is to be asked for the episodes of a language model, or for its critic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from ppo_doctor.derive.table import DERIVED
from ppo_doctor.model.kinds import FACETS

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
        *("truncated_fraction", "mask_truncated", "unique_fraction", "ref_kl", "ref_kl_target"),
        *("kl_penalty_reward", "objective_entropy", "ptx_loss", "ptx_coef", "frac_reward_zero_std"),
        *("reward_group_std", "num_generations", "end_tokens"),
    }
)
#: Metrics and settings of a critic, which methods that compare the answers to a prompt do without.
OF_CRITICS = frozenset(
    {
        *("value_loss", "value_clip_fraction", "explained_variance", "values_mean", "values_std", "critic_grad_norm"),
        *("returns_mean", "returns_std", "clip_range_vf", "gae_lambda", "critic_warmup"),
    }
)
#: What only an engine beside the trainer, or the comparison with it, makes: it differs, or has an older policy.
OF_ENGINES = frozenset(
    {
        *("rollout_kl", "rollout_logp_diff", "rollout_logp_diff_max", "rollout_prob_diff", "rollout_prob_diff_max"),
        *("rollout_prob_corr", "rollout_ratio_mean", "rollout_ratio_min", "rollout_ratio_max"),
        *("policy_lag", "rollout_version"),
    }
)
#: Methods that compare the answers to a prompt.
WITHOUT_CRITIC = ("grpo", "rloo")
#: Facet and value → the metrics and settings that only such a run has.
_ONLY_OF: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {
        ("samples", "episodes"): OF_STEPS,
        ("samples", "completions"): OF_COMPLETIONS,
        ("actions", "continuous"): frozenset({"action_std"}),
        ("critic", "yes"): OF_CRITICS,
        ("rollout_engine", "yes"): OF_ENGINES,
    }
)


def never_logged(observations: Observations) -> frozenset[str]:
    """Return the metrics and settings that a run of this kind cannot hold."""
    return _never(observations.kind.known)


def not_for(observations: Observations, missing: tuple[str, ...]) -> str | None:
    """Return why quantities (`series.X`, `fact.X`) are not missed in a run of this kind; None where they are."""
    facet = _foreign_to(observations.kind.known, missing)
    return observations.kind.excludes(dict([facet])) if facet else None


@cache
def _foreign_to(known: tuple[str | None, ...], missing: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the first facet that keeps a run from holding what these quantities need, with its value in such runs."""
    return next(((facet, value) for facet, value, names in _lacking(known) if _all_need(missing, names)), None)


@cache
def _lacking(known: tuple[str | None, ...]) -> list[tuple[str, str, frozenset[str]]]:
    """Return what a run is known not to be: facet, value, and the metrics and settings that only such runs have."""
    values = dict(zip(FACETS, known, strict=True))
    return [(*only, names) for only, names in _ONLY_OF.items() if values[only[0]] not in (None, only[1])]


@cache
def _never(known: tuple[str | None, ...]) -> frozenset[str]:
    return frozenset[str]().union(*(names for _, _, names in _lacking(known)))


def _all_need(missing: tuple[str, ...], never: frozenset[str]) -> bool:
    """Tell whether one of the quantities has no way to be computed that does without all of `never`."""
    names = (reference.partition(".")[2] for reference in missing)
    ways = (DERIVED[name].any_of if name in DERIVED else ((name,),) for name in names)
    return any(all(not never.isdisjoint(group) for group in groups) for groups in ways)
