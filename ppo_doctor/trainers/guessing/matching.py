"""Assign columns to metrics jointly: the assignment with the largest sum of weights, as far as it is clear."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ppo_doctor.trainers.guessing.abbreviations import Reading
from ppo_doctor.trainers.guessing.weights import ENOUGH_POLICY_METRICS, ENOUGH_WITH_PPO, MARGIN, OPEN

#: Metrics that only PPO and its kin have, because they compare a policy with its own old samples.
_PPO_METRICS = frozenset(
    {"approx_kl", "approx_kl_k1", "approx_kl_max", "probe_kl", "clip_fraction", "ratio_mean", "ratio_max", "ratio_min"}
    | {"ratio_std", "ratio_abs_dev", "clip_range", "ref_kl"}
)
#: Metrics of any method with a policy and a critic.
_ACTOR_CRITIC_METRICS = frozenset({"policy_loss", "entropy", "entropy_loss", "value_loss", "explained_variance"})
#: Groups of metrics that differ only in how they are computed: to confuse them is no wrong guess.
_SAME_QUANTITY = (
    frozenset({"approx_kl", "approx_kl_k1", "approx_kl_k2", "probe_kl"}),
    frozenset({"reward_std", "reward_group_std"}),
    frozenset({"episode_return", "reward_mean", "returns_mean", "reward_total"}),
)
#: metric → weight of the metric for a column, in nats, and how the column's numbers are converted to it
Candidates = Mapping[str, tuple[float, Reading]]
_FORBIDDEN = 1e6


def solved(columns: Mapping[str, Candidates], named: Mapping[str, Collection[str]] | None = None) -> dict[str, Reading]:
    """Return column → reading of the best assignment, without the columns for which another one is nearly as good.

    `named` are the metrics that each column's name suggests. A column whose name suggests its metric is compared only
    with assignments that give the metric to another column whose name suggests it too.
    """
    named = named or {}
    while True:
        assigned, total = best_assignment(columns)
        clear = {
            key: metric
            for key, metric in assigned.items()
            if total - best_assignment(_alternatives(columns, key, metric, named))[1] >= MARGIN
        }
        if not (unclear := assigned.keys() - clear.keys()):
            return {key: columns[key][metric][1] for key, metric in clear.items()}
        # the likeliest metric of an unclear column is not given to a column that is less like it
        claimed = {assigned[key]: columns[key][assigned[key]][0] for key in unclear}
        columns = {
            key: {m: each for m, each in candidates.items() if each[0] >= claimed.get(m, each[0])}
            for key, candidates in columns.items()
            if key not in unclear
        }


def _alternatives(
    columns: Mapping[str, Candidates], key: str, metric: str, named: Mapping[str, Collection[str]]
) -> dict[str, Candidates]:
    """Return the candidates of all columns without a metric of one column.

    If the column's name suggests the metric, columns whose names do not suggest it lose it too.
    """
    if metric not in named.get(key, ()):
        return {**columns, key: _without(columns[key], metric)}
    return {
        other: candidates if other != key and metric in named.get(other, ()) else _without(candidates, metric)
        for other, candidates in columns.items()
    }


def _without(candidates: Candidates, metric: str) -> Candidates:
    """Return candidates without a metric and without those of the same quantity."""
    same = next((group for group in _SAME_QUANTITY if metric in group), {metric})
    return {name: each for name, each in candidates.items() if name not in same}


def looks_like_ppo(metrics: Collection[str]) -> bool:
    """Tell whether metrics are those of PPO or its kin: a ratio, a clip fraction or a KL, or several losses."""
    ppo, others = _PPO_METRICS.intersection(metrics), _ACTOR_CRITIC_METRICS.intersection(metrics)
    return len(others) >= ENOUGH_POLICY_METRICS or (bool(ppo) and len(ppo) + len(others) >= ENOUGH_WITH_PPO)


def best_assignment(columns: Mapping[str, Candidates]) -> tuple[dict[str, str], float]:
    """Return column → metric of the assignment with the largest total weight, and that weight, in nats.

    A column may stay open, at the weight `OPEN`. The algorithm is that of Kuhn and Munkres, by shortest augmenting
    paths.
    """
    keys = list(columns)
    metrics = sorted({metric for candidates in columns.values() for metric in candidates})
    costs = [
        [-candidates[m][0] if m in candidates else _FORBIDDEN for m in metrics]
        + [-OPEN if place == row else _FORBIDDEN for place in range(len(keys))]
        for row, candidates in enumerate(columns.values())
    ]
    rows = _matched(costs)
    total = -sum(costs[row][at] for row, at in enumerate(rows))
    return {keys[row]: metrics[at] for row, at in enumerate(rows) if at < len(metrics)}, total


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
    row_of = {row: place for place, row in enumerate(taken_by) if place and row}
    return [row_of[row] - 1 for row in range(1, len(costs) + 1)]
