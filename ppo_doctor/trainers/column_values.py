"""Infer from the values of columns how they were rounded, and which metrics they are if names leave that open."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import beside, distinct, finite_of, median
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Fact, Note, Series, SourceRef
from ppo_doctor.model.words import OUTCOMES
from ppo_doctor.trainers.units import in_own_units

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: Fewest distinct values from which the rounding of a column is inferred.
DISTINCT = 20
#: Fewest distinct values of which the longest shows all digits that a log prints.
SEVERAL = 5
#: Columns printed with more decimals than this count as not rounded.
MOST_DECIMALS = 6
#: Number of values that are examined first.
PROBE = 16


def fits(values: FloatArray, decimals: int) -> bool:
    """Return whether every value may have been rounded to that many decimals, as all zeros may."""
    finite = values[np.isfinite(values)]
    return not _vast(finite) and bool(np.array_equal(np.round(finite, decimals), finite))


def _vast(values: FloatArray) -> bool:
    """Return whether some value is beyond 1e15, where float64 has no decimals left and rounding may overflow."""
    return bool((np.abs(values) > 1e15).any())


def inferred_decimals(values: FloatArray) -> int | None:
    """Return the decimals to which a column was rounded, None if it was not or has too few values to decide.

    Integers count as exact, because they are mostly counts.
    """
    finite = finite_of(values)[:4096]
    if _written_in_full(finite[:PROBE]):
        return None
    different = distinct(finite)
    if len(different) < DISTINCT or _vast(different) or np.array_equal(different, np.round(different)):
        return None
    for decimals in range(1, MOST_DECIMALS + 1):
        if np.array_equal(np.round(different, decimals), different):
            return decimals
    return None


def _written_in_full(values: FloatArray) -> bool:
    """Return whether some value below a million has more decimals than a rounded column may have, the usual case."""
    small = values[np.abs(values) < 1e6]
    return bool((np.round(small, MOST_DECIMALS) != small).any())


#: Fewest records for judging signs of zeros, and coarsest resolution that shows the loss of an ordinary step.
SIGNS, FINE = 12, 5e-5


def with_common_resolution(named: Mapping[str, Series]) -> dict[str, Series]:
    """Return series with the finest rounding of a log for columns whose own rounding is unknown, such as zeros.

    The series are unchanged unless every column of many different fractions was rounded.
    """
    if any(s.resolution.exact and _has_fractions(s) for s in named.values()):
        return dict(named)  # the usual log, decided by its first column
    fractional = [s for s in named.values() if not s.resolution.exact and _has_fractions(s)]
    if not fractional or _by_digits(named.values()):
        return dict(named)
    finest = min(series.resolution.absolute for series in fractional)
    places = round(-np.log10(2 * finest))
    if not all(fits(s.values, places) for s in named.values() if s.resolution.exact):
        return dict(named)  # a column of few values has more decimals
    return {name: _rounded(s, finest) if s.resolution.exact else s for name, s in named.items()}


def with_signed_zeros(named: dict[str, Series]) -> dict[str, Series]:
    """Return series with a policy loss as exactly 0 if it prints as 0 with one sign in every record.

    At a ratio of 1 the mean of advantages other than 0 is rounding error of either sign, which print keeps (-0.00000).
    Steps too small to print leave only negative losses, which count as exact if the gradient norm is 0 too.
    """
    loss, gradient = named.get("policy_loss"), named.get("grad_norm")
    if loss is None or len(loss) < SIGNS or loss.values.any() or not 0 < loss.resolution.absolute <= FINE:
        return named
    negative = np.signbit(loss.values)
    silent = gradient is not None and not gradient.values.any()
    if negative.any() and not (silent and negative.all()):
        return named
    return {**named, "policy_loss": replace(loss, resolution=replace(loss.resolution, absolute=0.0))}


def _by_digits(columns: Iterable[Series]) -> bool:
    """Return whether a log prints a fixed number of significant digits (%.4g), so that a 0 is exact.

    Then all columns of several values have the same number of digits, but not of decimals.
    """
    several = [values for s in columns if len(values := distinct(finite_of(s.values)[:4096])) >= SEVERAL]
    fractions = [values for values in several if not _vast(values) and not np.array_equal(values, np.round(values))]
    places = {next((n for n in range(1, MOST_DECIMALS + 1) if fits(values, n)), 0) for values in fractions}
    return len(places) > 1 and len({max(map(_digits, values.tolist())) for values in fractions}) == 1


def _digits(value: float) -> int:
    """Return the number of significant digits of a number, without trailing zeros."""
    return len(f"{abs(value):.14e}".partition("e")[0].replace(".", "").rstrip("0")) if value else 0


def _has_fractions(series: Series) -> bool:
    """Return whether a series has at least DISTINCT different values that are not all integers."""
    values = series.values
    many = len(distinct(finite_of(values)[:4096])) >= DISTINCT
    return many and not np.array_equal(np.round(values), values, equal_nan=True)


def _rounded(series: Series, absolute: float) -> Series:
    values = series.values[np.isfinite(series.values)]
    if len(values) and np.array_equal(np.round(values), values) and np.abs(values).max() > 1:
        return series  # a counter
    return replace(series, resolution=replace(series.resolution, absolute=absolute))


#: The metric of a ratio's distance from 1 in the first minibatch.
AT_FIRST = "first_ratio_dev"
#: Metric of a ratio → its value if new and old log-probs are equal.
IDENTITIES = {"ratio_abs_dev": 0.0, "ratio_std": 0.0, "ratio_max": 1.0, "ratio_min": 1.0}
_RATIO, _ERROR = (
    r"(?:w|q|rho|ρ|ratio|is|iw|isr|imp|odds|d?log_?p(?:robs?)?|d?lp)",
    r"(?:err|error|dev|gap|off|diff|drift)",
)
_FIRST = r"(?:0|first|start|pre|init|mb0|before)"
#: "w_err0", "rho_start", "ratio_first_dev", "first_ratio_err", "q0_prom", "lp_gap0" (a mean log-ratio)
_NAMED = lazy_pattern(
    rf"\|?(?:{_RATIO}_?(?:{_ERROR}_?)?{_FIRST}|{_FIRST}_?{_RATIO})(?:_?{_ERROR}|-1)?\|?(?:_(?:pct|prom|milli|e3))?",
    re.IGNORECASE,
)
#: Fewest records with clipped samples at a ratio of 1, and smallest share of clipped samples in them.
CONTRADICTED, LEAST_CLIPPED = 3, 1e-3
#: Least distance of the mean ratio from 1 per share of clipped samples, at the narrowest usual clip range.
NARROW = 0.01


def is_named_so(key: str) -> bool:
    """Return whether a key names the ratio of the first minibatch."""
    return _NAMED.fullmatch(key.strip()) is not None


def with_first_minibatches(named: dict[str, Series]) -> dict[str, Series]:
    """Return series with a ratio as AT_FIRST if it is exactly 1 in records with clipped samples.

    A ratio of 1 clips nothing, so it belongs to the first minibatch. A mean is not judged, because it may be 1 anyway.
    """
    clipped = named.get("clip_fraction")
    for metric, identity in IDENTITIES.items():
        ratio = named.get(metric)
        shares = beside(ratio, clipped)
        if ratio is None or shares is None:
            continue
        enough = shares.values > max(LEAST_CLIPPED, ratio.resolution.absolute / NARROW)
        ones = enough & np.isfinite(ratio.values) & ratio.at(identity)
        if ones.sum() >= CONTRADICTED:
            first = replace(ratio, name=AT_FIRST, values=np.abs(ratio.values - identity))
            return {name: each for name, each in named.items() if name != metric} | {AT_FIRST: first}
    return named


#: Metrics that cannot all be exactly 0 in a whole run.
UNFILLED = frozenset({"learning_rate", "policy_loss", "value_loss", "entropy"})
#: Metrics of language models, whose trainers may compute explained variance as 1 - MSE / Var(returns), which includes
#: the bias; trainers of agents leave it out.
OF_COMPLETIONS = frozenset({"ref_kl", "response_length", "kl_penalty_reward"})
#: Divergences that are a constant other than 0 in this many records are a floor or a clamp of the logger. COARSE is the
#: largest resolution, relative to the value, at which real differences between updates would show.
DIVERGENCES, ALIKE, COARSE = ("approx_kl", "approx_kl_k1", "approx_kl_k2"), 8, 0.1
#: Largest share of records with a loss that have a reward, if other records are further steps on the same batch.
MOST_BATCHES = 0.75
#: Number of records that count as the start of a run.
FIRST = 3
#: Least factor by which a distance grows from the start of a run to its last third; a KL per update rather falls.
GROWN = 4
#: Words in names of a KL between two updates.
_OF_UPDATES = lazy_pattern(r"approx|old|ppo", re.IGNORECASE)
#: Least entropy of an untrained policy in nats; two actions have ln 2 = 0.69. With a usual coefficient of at most 0.1,
#: an entropy loss is smaller.
FRESH = 0.6


def settled(
    series: Mapping[str, Series],
    guessed: Collection[str],
    path: str,
    named: Collection[str] = (),
    *,
    groups: bool = False,
) -> tuple[dict[str, Series], list[Note]]:
    """Return series under the metrics and units that their values show, and a note for each change.

    `guessed` are metrics that were guessed from names; `named` are those that the user named, of which only the unit is
    open. `groups` says that the algorithm compares groups of completions.
    """
    kept, notes = _filled(series)
    kept, changes = in_own_units(kept, {*guessed, *named})
    notes += changes
    if "explained_variance" in guessed and "explained_variance" in kept and OF_COMPLETIONS & kept.keys():
        kept["explained_variance"] = replace(kept["explained_variance"], estimator="with bias")
    to_reference = partial(_to_reference, groups=groups)
    rules = (("entropy_loss", _entropy), ("optimizer_steps", _counted_up), ("approx_kl", to_reference))
    for name, rule in rules:
        if name in guessed and name in kept and (other := rule(kept[name])) and other.name not in kept:
            kept = {key: one for key, one in kept.items() if key != name} | {other.name: other}
            notes.append(f"'{other.raw}' is read as {other.name}: {other.says}")
            kept[other.name] = replace(other, says="")
    if "success_rate" in kept and kept.keys().isdisjoint(OUTCOMES["reward"]):
        share = kept.pop("success_rate")
        notes.append(f"'{share.raw}' is read as reward_mean: no other reward is logged")
        kept["reward_mean"] = replace(share, name="reward_mean")
    if (lag := _lag(kept)) is not None:
        kept["policy_lag"] = lag
    return kept, [Note(text=text, source=SourceRef(path=path)) for text in notes]


def _lag(series: Mapping[str, Series]) -> Series | None:
    """Return by how many versions the sampler's weights are behind the trained ones, None unless both are logged.

    The difference is used only if both are equal in some record and the sampler is never ahead, because otherwise they
    may not count from the same start.
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
    """Return the fact that only the first record of a batch has a reward, and further steps on it have none."""
    reward, loss = series.get("reward_mean"), series.get("loss") or series.get("grad_norm")
    if "reward_mean" not in guessed or reward is None or loss is None or not OF_COMPLETIONS & series.keys():
        return {}
    if not len(reward) < MOST_BATCHES * len(loss):
        return {}
    source = SourceRef(path=path, key=reward.raw)
    fact = Fact(name="generation_marker", value="reward_mean", how="computed", source=source)
    return {fact.name: fact}


def _filled(series: Mapping[str, Series]) -> tuple[dict[str, Series], list[str]]:
    """Return series without columns that were never filled or are bounds of the logger, and notes on these.

    Learning rate, entropy and losses cannot all be 0 in every record: a rate of 0 changes neither the entropy
    of an untrained policy nor the error of its critic. A deviation of actions is always NaN if they are discrete.
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
    """Return an entropy loss as an entropy if it has no coefficient, by its size at the start; else None."""
    start = loss.values[np.isfinite(loss.values)][:FIRST]
    if not len(start) or abs(median(start)) < FRESH or len(set(np.sign(start))) > 1:
        return None
    sign = float(np.sign(start[0]))
    says = f"{abs(start[0]):.3g} at the start is that of a fresh policy, without a coefficient"
    return replace(loss, name="entropy", values=sign * loss.values, unit="nats", says=says)


def _to_reference(kl: Series, *, groups: bool) -> Series | None:
    """Return a KL as that to the reference if it is 0 at first and grows from there, else None.

    A KL between two updates is above 0 from the first update on and does not add up. Scripts of GRPO log the KL of
    their penalty, so any growth is enough there unless the name says otherwise.
    """
    values = kl.values[np.isfinite(kl.values)]
    away = np.flatnonzero(values > 0)
    begins = int(away[0]) if len(away) else 0
    third = (len(values) - begins) // 3
    if third < FIRST or not 0 < begins <= third or values[:begins].any() or not values[begins:].all():
        return None
    first, last = (median(part) for part in (values[begins : begins + third], values[-third:]))
    least = 1 if groups and not _OF_UPDATES.search(kl.raw) else GROWN
    grown = last > least * first > 0
    return replace(kl, name="ref_kl", says="it is 0 at first and grows from there") if grown else None


def _counted_up(counter: Series) -> Series | None:
    """Return a counter of steps in a batch as one of steps in the whole run if it never falls, else None."""
    values = counter.values[np.isfinite(counter.values)]
    if len(values) < FIRST or not (np.diff(values) >= 0).all() or values[-1] <= values[0]:
        return None
    return replace(counter, name="optimizer_steps_total", says="it never falls")
