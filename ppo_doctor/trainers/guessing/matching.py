"""Assign columns to metrics jointly, by the weights of their candidates."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ppo_doctor.trainers.guessing.abbreviations import Reading

#: What it counts, in nats, that a column is none of our metrics, and by how much a reading has to beat all others.
OPEN, MARGIN = -1.3, 1.3
#: Columns that are assigned; a script's own log has no more of its own names.
MOST_COLUMNS = 24
#: Metrics that only a policy trained by its own old samples has, and those of any method with a policy and a critic.
_OF_PPO = frozenset(
    {"approx_kl", "approx_kl_k1", "approx_kl_max", "probe_kl", "clip_fraction", "ratio_mean", "ratio_max", "ratio_min"}
    | {"ratio_std", "ratio_abs_dev", "clip_range", "ref_kl"}
)
_OF_POLICIES = frozenset({"policy_loss", "entropy", "entropy_loss", "value_loss", "explained_variance"})
#: Metrics that differ in how they are taken, of which a wrong one is no wrong guess.
_ALIKE = (
    frozenset({"approx_kl", "approx_kl_k1", "approx_kl_k2", "probe_kl"}),
    frozenset({"reward_std", "reward_group_std"}),
    frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total"}),
)
#: metric → weight and reading of a column
Candidates = Mapping[str, tuple[float, Reading]]
#: So many metrics of a policy, or one of PPO among so many, make a log one of PPO.
ENOUGH, ENOUGH_WITH_PPO = 3, 2


def solved(held: Mapping[str, Candidates], spoken: Mapping[str, Collection[str]] | None = None) -> dict[str, Reading]:
    """Return key → reading of the heaviest assignment, without the columns for which another one is nearly as heavy.

    `spoken` are the metrics that the name of each column speaks of. What a name speaks of is not made unclear by
    columns whose names do not.
    """
    named = spoken or {}
    while True:
        heaviest, total = best(held)
        clear = {
            key: metric
            for key, metric in heaviest.items()
            if total - best(_otherwise(held, key, metric, named))[1] >= MARGIN
        }
        if not (dropped := heaviest.keys() - clear.keys()):
            return {key: held[key][metric][1] for key, metric in clear.items()}
        # what an unclear column is likeliest is not given to one that is less like it
        claimed = {heaviest[key]: held[key][heaviest[key]][0] for key in dropped}
        held = {
            key: {m: fate for m, fate in candidates.items() if fate[0] >= claimed.get(m, fate[0])}
            for key, candidates in held.items()
            if key not in dropped
        }


def _otherwise(
    held: Mapping[str, Candidates], key: str, metric: str, spoken: Mapping[str, Collection[str]]
) -> dict[str, Candidates]:
    """Return the columns, one of them without a metric; of one whose name speaks of it, those that do not as well."""
    if metric not in spoken.get(key, ()):
        return {**held, key: _without(held[key], metric)}
    return {
        of: candidates if of != key and metric in spoken.get(of, ()) else _without(candidates, metric)
        for of, candidates in held.items()
    }


def looks_like_ppo(metrics: Collection[str]) -> bool:
    """Tell whether metrics are those of PPO or its kin: its ratio, clipping or KL, or a policy's several losses."""
    ours, policies = _OF_PPO.intersection(metrics), _OF_POLICIES.intersection(metrics)
    return len(policies) >= ENOUGH or (bool(ours) and len(ours) + len(policies) >= ENOUGH_WITH_PPO)


def _without(candidates: Candidates, metric: str) -> Candidates:
    """Return the candidates of a column without a metric, and without what is the same by another estimator."""
    same = next((alike for alike in _ALIKE if metric in alike), {metric})
    return {name: fate for name, fate in candidates.items() if name not in same}


def best(columns: Mapping[str, Candidates]) -> tuple[dict[str, str], float]:
    """Return column → metric of the heaviest assignment, and what it weighs; columns may stay open.

    Kuhn's and Munkres' algorithm, by shortest augmenting paths; each column has an open place of its own.
    """
    keys = list(columns)
    metrics = sorted({metric for candidates in columns.values() for metric in candidates})
    costs = [
        [-candidates[m][0] if m in candidates else _NEVER for m in metrics]
        + [-OPEN if place == row else _NEVER for place in range(len(keys))]
        for row, candidates in enumerate(columns.values())
    ]
    rows = _matched(costs)
    total = -sum(costs[row][at] for row, at in enumerate(rows))
    return {keys[row]: metrics[at] for row, at in enumerate(rows) if at < len(metrics)}, total


_NEVER = 1e6


def _matched(costs: list[list[float]]) -> list[int]:
    """Return the place of each row in the cheapest assignment of all rows to different places."""
    places = len(costs[0]) if costs else 0
    row_price, place_price = [0.0] * (len(costs) + 1), [0.0] * (places + 1)
    taken_by = [0] * (places + 1)  # rows and places count from 1; 0 is none
    for row in range(1, len(costs) + 1):
        taken_by[0], at = row, 0
        least, before, visited = [float("inf")] * (places + 1), [0] * (places + 1), [False] * (places + 1)
        while taken_by[at]:
            visited[at] = True
            here, step, following = taken_by[at], float("inf"), 0
            for place in range(1, places + 1):
                if visited[place]:
                    continue
                reduced = costs[here - 1][place - 1] - row_price[here] - place_price[place]
                if reduced < least[place]:
                    least[place], before[place] = reduced, at
                if least[place] < step:
                    step, following = least[place], place
            for place in range(places + 1):
                if visited[place]:
                    row_price[taken_by[place]] += step
                    place_price[place] -= step
                else:
                    least[place] -= step
            at = following
        while at:
            taken_by[at], at = taken_by[before[at]], before[at]
    found = {row: place for place, row in enumerate(taken_by) if place and row}
    return [found[row] - 1 for row in range(1, len(costs) + 1)]
