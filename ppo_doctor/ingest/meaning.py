"""What names leave open and numbers decide: columns never filled, entropy losses that are entropies, counters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ppo_doctor.arrays import beside
from ppo_doctor.ingest.units import in_own_units
from ppo_doctor.model import OUTCOMES, Fact, Note, Series, SourceRef

#: Of these not all can be exactly 0 in a whole run.
UNFILLED = frozenset({"learning_rate", "policy_loss", "value_loss", "entropy"})
#: Trainers of language models compute it as 1 - MSE / Var(returns) as well, where those of agents leave the bias out:
#: beside these a variance that is explained is not known to be free of it.
OF_COMPLETIONS = frozenset({"ref_kl", "response_length", "kl_penalty_reward"})
#: A divergence that is one number to the last bit, and not 0, in so many records is a floor or a clamp of the logger's:
#: between two updates it differs by a tenth and more, which coarser decimals would hide.
DIVERGENCES, ALIKE, COARSE = ("approx_kl", "approx_kl_k1", "approx_kl_k2"), 8, 0.1
#: Of the records with a loss at most this share may have a reward, where some of them are further steps on a batch.
MOST_BATCHES = 0.75
#: Records that are looked at for the start of a run.
FIRST = 3
#: By how much a distance grows from the start of a run to its last third; a KL per update rather falls.
GROWN = 4
#: What a name says of a KL between two updates.
_OF_UPDATES = re.compile(r"approx|old|ppo", re.IGNORECASE)
#: Nats, below ln 2 = 0.69: a fresh policy has more, over two actions or with a deviation of 1, and a usual coefficient
#: of 0.1 and less times the entropy of any small policy is less.
FRESH = 0.6


def settled(
    series: Mapping[str, Series],
    guessed: Collection[str],
    path: str,
    named: Collection[str] = (),
    *,
    groups: bool = False,
) -> tuple[dict[str, Series], list[Note]]:
    """Return series as their numbers say what they are, with a note on each that is not what its name said.

    `guessed` are the metrics that were read by their names, of which no framework says more, `named` those that
    somebody named, of which only the unit is open. `groups` tells an algorithm of groups of completions.
    """
    kept, notes = _filled(series)
    kept, told = in_own_units(kept, {*guessed, *named})
    notes += told
    if "explained_variance" in guessed and "explained_variance" in kept and OF_COMPLETIONS & kept.keys():
        kept["explained_variance"] = replace(kept["explained_variance"], estimator="with bias")
    away = partial(_to_reference, groups=groups)
    meant = (("entropy_loss", _entropy), ("optimizer_steps", _counted_up), ("approx_kl", away))
    for name, asked in meant:
        if name in guessed and name in kept and (found := asked(kept[name])) and found.name not in kept:
            kept = {key: one for key, one in kept.items() if key != name} | {found.name: found}
            notes.append(f"'{found.raw}' is read as {found.name}: {found.says}")
            kept[found.name] = replace(found, says="")
    if "success_rate" in kept and kept.keys().isdisjoint(OUTCOMES["reward"]):
        share = kept.pop("success_rate")
        notes.append(f"'{share.raw}' is read as reward_mean: no other reward is logged")
        kept["reward_mean"] = replace(share, name="reward_mean")
    if (lag := _lag(kept)) is not None:
        kept["policy_lag"] = lag
    return kept, [Note(text=text, source=SourceRef(path=path)) for text in notes]


def _lag(series: Mapping[str, Series]) -> Series | None:
    """Return by how many versions the sampler's weights are behind the trained ones, where both are logged.

    Both count from the same start where they are equal at some record, and the sampler never leads.
    """
    sampling = series.get("rollout_version")
    trained = beside(sampling, series.get("policy_version"))
    if trained is None or sampling is None or "policy_lag" in series:
        return None
    lag = trained.values - sampling.values
    known = np.flatnonzero(np.isfinite(lag))
    if not len(known) or lag[known].min() != 0:
        return None
    axis = sampling.axis if len(known) == len(lag) else sampling.axis.take(known)
    says = f"{trained.raw} less {sampling.raw}"
    return replace(sampling, name="policy_lag", axis=axis, values=lag[known], unit="", how="computed", says=says)


def generations(series: Mapping[str, Series], guessed: Collection[str], path: str) -> dict[str, Fact]:
    """Return the fact that a reward stands only beside a new batch, where further steps on it have none."""
    reward, loss = series.get("reward_mean"), series.get("loss") or series.get("grad_norm")
    if "reward_mean" not in guessed or reward is None or loss is None or not OF_COMPLETIONS & series.keys():
        return {}
    if not len(reward) < MOST_BATCHES * len(loss):
        return {}
    source = SourceRef(path=path, key=reward.raw)
    fact = Fact(name="generation_marker", value="reward_mean", how="computed", source=source)
    return {fact.name: fact}


def _filled(series: Mapping[str, Series]) -> tuple[dict[str, Series], list[str]]:
    """Leave out what a script writes as 0, or as NaN, in every record, for want of a number.

    Learning rate, entropy and losses cannot all be exactly 0 from the first record to the last: a rate of 0 changes
    neither the entropy of a fresh policy nor the error of its critic. Discrete actions have no deviation.
    """
    zero = {name for name, one in series.items() if len(one) and one.at(0).all()}
    never = {name: "0" for name in sorted(zero) if zero >= UNFILLED}
    if (std := series.get("action_std")) is not None and len(std) and np.isnan(std.values).all():
        never["action_std"] = "NaN"
    notes = [
        f"{', '.join(series[name].raw for name in never if never[name] == value)}: {value} in every record, taken for"
        " columns that were never filled"
        for value in dict.fromkeys(never.values())
    ]
    bounds = {name: one for name in DIVERGENCES if (one := series.get(name)) is not None and _is_bound(one)}
    notes += [f"{one.raw}: {one.values[0]:g} in every record, taken for a floor or a clamp" for one in bounds.values()]
    return {name: one for name, one in series.items() if name not in never and name not in bounds}, notes


def _is_bound(kl: Series) -> bool:
    values = kl.values
    alike = len(values) >= ALIKE and values[0] != 0 and bool((values == values[0]).all())
    return alike and kl.resolution.absolute < COARSE * abs(float(values[0]))


def _entropy(loss: Series) -> Series | None:
    """Return the entropy that an entropy loss is without its coefficient, by how large it is in a fresh policy."""
    start = loss.values[np.isfinite(loss.values)][:FIRST]
    if not len(start) or abs(np.median(start)) < FRESH or len(set(np.sign(start))) > 1:
        return None
    sign = float(np.sign(start[0]))
    says = f"{abs(start[0]):.3g} at the start is that of a fresh policy, without a coefficient"
    return replace(loss, name="entropy", values=sign * loss.values, unit="nats", says=says)


def _to_reference(kl: Series, *, groups: bool) -> Series | None:
    """Return the KL to where training began: one that only its name calls a KL, 0 at first and growing from there.

    A KL between two updates is above 0 from the first update on, and does not add up. Scripts of GRPO log the KL of
    their penalty: there, growing at all is enough where the name does not say what else it is.
    """
    values = kl.values[np.isfinite(kl.values)]
    away = np.flatnonzero(values > 0)
    begins = int(away[0]) if len(away) else 0
    third = (len(values) - begins) // 3
    if third < FIRST or not 0 < begins <= third or values[:begins].any() or not values[begins:].all():
        return None
    first, last = (float(np.median(part)) for part in (values[begins : begins + third], values[-third:]))
    least = 1 if groups and not _OF_UPDATES.search(kl.raw) else GROWN
    grown = last > least * first > 0
    return replace(kl, name="ref_kl", says="it is 0 at first and grows from there") if grown else None


def _counted_up(counter: Series) -> Series | None:
    """Return a counter of the run's steps, where one that was taken for a batch's never falls."""
    values = counter.values[np.isfinite(counter.values)]
    if len(values) < FIRST or not (np.diff(values) >= 0).all() or values[-1] <= values[0]:
        return None
    return replace(counter, name="optimizer_steps_total", says="it never falls")
