"""Names by their company: the columns that no name settles, given to metrics jointly.

Each column has candidates: what its name may mean (`readings`), as far as its numbers allow it and fit it (`shapes`).
One metric is one column's, so that the assignment of all of them is chosen for which the sum is largest. What a column
is given stands only if any other assignment, that column left open included, is clearly worse: a wrong guess costs more
than a column that nobody reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.ingest.readings import Reading, of_others, readings
from ppo_doctor.ingest.shapes import SHAPES, support

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

#: What it counts, in nats, that a column is none of our metrics, and by how much a reading has to beat all others.
OPEN, MARGIN = -1.3, 0.8
#: By how much rarer a metric is in logs of the other kind of training, and which are of one kind.
OTHER_KIND = 1.5
_OF_AGENTS = frozenset({"episode_return", "episode_length", "action_std", "success_rate", "explained_variance"})
_OF_LANGUAGE = frozenset({"reward_mean", "response_length", "ref_kl", "returns_mean"})
#: What it weighs that a script names its policy's loss and its critic's alike: "La" beside "Lc".
PAIRED, _PAIR = 0.8, ("policy_loss", "value_loss")
#: What it weighs that a log of training holds a return, where no name has settled which column it is.
#: And against another one beside it.
EARNED, ANOTHER = 0.8, 1.0
_EARNED = frozenset({"episode_return", "reward_mean", "returns_mean"})
#: Columns that are assigned; a script's own log has no more of its own names.
MOST_COLUMNS = 24
#: Metrics that only a policy trained by its own old samples has, and those of any method with a policy and a critic.
_OF_PPO = frozenset(
    {"approx_kl", "approx_kl_k1", "approx_kl_max", "probe_kl", "clip_fraction", "ratio_mean", "ratio_max", "ratio_min"}
    | {"ratio_std", "ratio_abs_dev", "clip_range", "ref_kl"}
)
_OF_POLICIES = frozenset({"policy_loss", "entropy", "entropy_loss", "value_loss", "explained_variance"})
#: metric → weight and reading of a column
Fates = Mapping[str, tuple[float, Reading]]
#: So many metrics of a policy, or one of PPO among so many, make a log one of PPO.
ENOUGH, ENOUGH_WITH_PPO = 3, 2


def assigned(
    columns: Mapping[str, FloatArray], named: Collection[str], keys: Collection[str], *, language: bool = False
) -> Mapping[str, Reading]:
    """Return key → reading for the columns that are clear, nothing where the log does not look like one of PPO.

    `named` are the metrics that names alone have settled, `keys` all keys of the log.
    """
    if any(map(of_others, keys)):
        return {}
    weighed = {key: _weighed(key, values, named, language) for key, values in columns.items()}
    held = _paired(dict([each for each in weighed.items() if each[1]][:MOST_COLUMNS]))
    found = solved(held)
    return found if looks_like_ppo({*named, *(reading.metric for reading in found.values())}) else {}


def solved(held: Mapping[str, Fates]) -> dict[str, Reading]:
    """Return key → reading of the heaviest assignment, without the columns for which another one is nearly as heavy."""
    while True:
        heaviest, total = best(held)
        clear = {
            key: metric
            for key, metric in heaviest.items()
            if total - best({**held, key: _without(held[key], metric)})[1] >= MARGIN
        }
        if not (dropped := heaviest.keys() - clear.keys()):
            return {key: held[key][metric][1] for key, metric in clear.items()}
        # what an unclear column is likeliest is not given to one that is less like it
        claimed = {heaviest[key]: held[key][heaviest[key]][0] for key in dropped}
        held = {
            key: {m: fate for m, fate in fates.items() if fate[0] >= claimed.get(m, fate[0])}
            for key, fates in held.items()
            if key not in dropped
        }


def looks_like_ppo(metrics: Collection[str]) -> bool:
    """Tell whether metrics are those of PPO or its kin: its ratio, clipping or KL, or a policy's several losses."""
    ours, policies = _OF_PPO.intersection(metrics), _OF_POLICIES.intersection(metrics)
    return len(policies) >= ENOUGH or (bool(ours) and len(ours) + len(policies) >= ENOUGH_WITH_PPO)


def _weighed(key: str, values: FloatArray, named: Collection[str], language: bool) -> Fates:
    """Return metric → weight and reading of a column; nothing where it is likelier the same as one that is named."""
    meant = [reading for reading in readings(key, language=language) if reading.metric in SHAPES]
    commonest = max((_expected(reading.metric, language) for reading in meant), default=0.0)
    fates: dict[str, tuple[float, Reading]] = {}
    again = OPEN
    for reading in meant:
        if reading.offset and values.size and np.nanmin(values) >= 0:
            continue  # a mean distance from 1, which is never negative, is no mean from which 1 was taken
        fit = support(reading.metric, values * reading.scale + reading.offset)
        weight = -reading.cost + _expected(reading.metric, language) - commonest
        if reading.metric in _EARNED:
            weight += EARNED if _EARNED.isdisjoint(named) else -ANOTHER
        if fit is not None and reading.metric in named:
            again = max(again, fit + weight)
        elif fit is not None:
            fates[reading.metric] = (fit + weight, reading)
    return {metric: fate for metric, fate in fates.items() if fate[0] > again}


def _paired(columns: Mapping[str, Fates]) -> dict[str, Fates]:
    """Return the columns with more weight where one is named for the policy as another is for the critic."""
    forms = {
        metric: {(fates[metric][1].form, key) for key, fates in columns.items() if metric in fates} for metric in _PAIR
    }
    alike = {
        metric: {key for form, key in forms[metric] if any(form == f and key != k for f, k in forms[other])}
        for metric, other in (_PAIR, _PAIR[::-1])
    }
    return {
        key: {m: (weight + PAIRED * (key in alike.get(m, ())), reading) for m, (weight, reading) in fates.items()}
        for key, fates in columns.items()
    }


def _expected(metric: str, language: bool) -> float:
    """Return how common a metric is in logs of this kind, in nats below the commonest."""
    return SHAPES[metric].expected - (OTHER_KIND if metric in (_OF_AGENTS if language else _OF_LANGUAGE) else 0.0)


def _without(fates: Fates, metric: str) -> Fates:
    return {name: fate for name, fate in fates.items() if name != metric}


def best(columns: Mapping[str, Fates]) -> tuple[dict[str, str], float]:
    """Return column → metric of the heaviest assignment, and what it weighs; columns may stay open.

    Kuhn's and Munkres' algorithm, by shortest augmenting paths; each column has an open place of its own.
    """
    keys = list(columns)
    metrics = sorted({metric for fates in columns.values() for metric in fates})
    costs = [
        [-fates[m][0] if m in fates else _NEVER for m in metrics]
        + [-OPEN if place == row else _NEVER for place in range(len(keys))]
        for row, fates in enumerate(columns.values())
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
