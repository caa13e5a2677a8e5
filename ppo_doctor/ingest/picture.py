"""Whether metrics that columns were given are together those of a policy's training, and what speaks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ppo_doctor.ingest.left_over import EARNINGS, ENOUGH, MOVEMENTS
from ppo_doctor.ingest.own_names import PLAINLY, Said, says
from ppo_doctor.ingest.readings import Reading, readings

#: Metrics of what moved the policy.
_MOVING = frozenset(
    {"policy_loss", "loss", "value_loss", "explained_variance", "grad_norm", "learning_rate", "optimizer_steps"}
)
#: What only the update of a policy by ratios has.
_OF_UPDATES = frozenset({"clip_fraction", "approx_kl", "ratio_abs_dev", "ratio_mean"})
#: What policies have and other models have not, or seldom under such names.
_OF_POLICIES = MOVEMENTS | frozenset(
    {"policy_loss", "value_loss", "entropy", "action_std", "explained_variance", "reward_std", "ratio_max", "ratio_min"}
    | {"frac_reward_zero_std", "kl_term", "advantages_std"}
)
#: Of these four parts all, or three where so many metrics are hinted at by names or shown by others.
PARTS, MANY = 4, 6
#: Metrics that only policies have, of which names or other columns tell: with what is earned, and with any other.
TOLD, TOLD_AND_EARNED = 5, 4
#: Of these, at least, in names that mean one thing, and what is earned, beside words of other tasks.
PLAIN_ENOUGH = 2


def is_of_a_policy(keys: Collection[str], named: Collection[str]) -> bool:
    """Tell whether names say plainly that a log holds several metrics that only a policy has."""
    plain = {one.metric for key in keys for one in readings(key)[:1] if one.cost <= PLAINLY}
    metrics = plain | set(named)
    return not EARNINGS.isdisjoint(metrics) and len(metrics & _OF_POLICIES) >= PLAIN_ENOUGH


def is_a_picture(
    chosen: Mapping[str, Reading],
    told: Mapping[str, Said],
    company: Mapping[tuple[str, str], float],
    named: Collection[str],
) -> bool:
    """Tell whether metrics together are those of a policy's training, and something speaks for it but their forms."""
    metrics = {reading.metric for reading in chosen.values()} | set(named)
    sure = not metrics.isdisjoint({"entropy", "action_std"}) or metrics >= {
        "value_loss",
        "explained_variance",
        "policy_loss",
    }
    parts = sure + sum(bool(metrics & part) for part in (EARNINGS, MOVEMENTS, _MOVING))
    by_name = _by_name(chosen, told)
    shown = {r.metric for key, r in chosen.items() if company.get((key, r.metric))}
    ours = shown & {"approx_kl", "clip_fraction", "ratio_abs_dev"}
    told_of = by_name | shown | set(named)
    if parts < PARTS:
        return (parts == PARTS - 1 and len(told_of) >= MANY) or (len(by_name) >= ENOUGH and bool(by_name & _OF_UPDATES))
    return len(metrics) >= ENOUGH and (len(ours) > 1 or (len(told_of) >= 3 and not MOVEMENTS.isdisjoint(told_of)))


def is_told(chosen: Mapping[str, Reading], told: Mapping[str, Said], named: Collection[str]) -> bool:
    """Tell whether names alone speak for so many metrics of a policy that no other log has them."""
    by_name = _by_name(chosen, told) | set(named)
    enough = TOLD_AND_EARNED if by_name & EARNINGS else TOLD
    return bool(by_name & MOVEMENTS) and len(by_name & _OF_POLICIES) >= enough


def _by_name(chosen: Mapping[str, Reading], told: Mapping[str, Said]) -> set[str]:
    """Return the metrics that names speak for; letters alone are also those of other things, but for a whole of them.

    Open, high, low, close and volume are letters too, of which none is a KL and a share of samples.
    """
    named_so = {key: r.metric for key, r in chosen.items() if says(told[key], r.metric)}
    metrics = set(named_so.values())
    whole = len(metrics) >= ENOUGH and metrics >= {"approx_kl", "clip_fraction"}
    return metrics if whole or any(len(key) > 1 for key in named_so) else set()
