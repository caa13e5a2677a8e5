"""Infer from values to how many digits a log prints them, and metrics that other columns imply."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import beside, distinct, finite_of
from ppo_doctor.model.run import Fact, Note, Series, SourceRef
from ppo_doctor.model.words import OUTCOMES
from ppo_doctor.trainers.units import in_own_units

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray

#: A column needs this many distinct values before its printing tells how it was rounded.
DISTINCT = 20
#: From so many values on the longest of a column has all the digits that the log prints.
SEVERAL = 5
#: Columns printed with more decimals than this count as written in full.
MOST_DECIMALS = 6
#: Values that are looked at first.
PROBE = 16


def fits(values: FloatArray, decimals: int) -> bool:
    """Tell whether every value could have been rounded to that many decimals; an all-zero column could."""
    finite = values[np.isfinite(values)]
    return not _vast(finite) and bool(np.array_equal(np.round(finite, decimals), finite))


def _vast(values: FloatArray) -> bool:
    """Tell whether some value is beyond 1e15, where float64 has no decimals left and rounding may overflow."""
    return bool((np.abs(values) > 1e15).any())


def inferred_decimals(values: FloatArray) -> int | None:
    """Return the decimals to which a column was rounded, or None if it was not or too few values tell.

    Whole numbers are counts, not rounded measurements.
    """
    finite = finite_of(values)[:4096]
    if _written_in_full(finite[:PROBE]):
        return None
    held = distinct(finite)
    if len(held) < DISTINCT or _vast(held) or np.array_equal(held, np.round(held)):
        return None
    for decimals in range(1, MOST_DECIMALS + 1):
        if np.array_equal(np.round(held, decimals), held):
            return decimals
    return None


def _written_in_full(values: FloatArray) -> bool:
    """Tell whether a few values below a million surely have more decimals than any rounded column: the usual case."""
    small = values[np.abs(values) < 1e6]
    return bool((np.round(small, MOST_DECIMALS) != small).any())


#: Records whose zeros have one sign by no accident, and the coarsest print that shows the loss of an ordinary step.
SIGNS, FINE = 12, 5e-5


def with_common_resolution(named: Mapping[str, Series]) -> dict[str, Series]:
    """Give a column that cannot tell its own rounding the finest rounding of a log that rounds everything.

    An all-zero column says nothing about its digits; if every telling column was rounded, so was this one.
    """
    if any(s.resolution.exact and _tells_fractions(s) for s in named.values()):
        return dict(named)  # the usual log, known by its first column
    fractional = [s for s in named.values() if not s.resolution.exact and _tells_fractions(s)]
    if not fractional or _by_digits(named.values()):
        return dict(named)
    finest = min(series.resolution.absolute for series in fractional)
    places = round(-np.log10(2 * finest))
    if not all(fits(s.values, places) for s in named.values() if s.resolution.exact):
        return dict(named)  # a column of few values has more decimals: they are not common
    return {name: _rounded(s, finest) if s.resolution.exact else s for name, s in named.items()}


def with_signed_zeros(named: dict[str, Series]) -> dict[str, Series]:
    """Take a policy loss that prints as 0 for an exact 0 where no record has the other sign.

    The mean of advantages that are not 0 at a ratio of 1 is rounding of either sign, which print keeps (-0.00000).
    Steps too small to print leave losses of one sign as well, the negative one, beside a gradient that is not 0.
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
    """Tell whether numbers were cut to so many digits (%.4g) rather than decimals: then a 0 is one in full.

    The digits are as many in each column of several values, and the decimals are not.
    """
    held = [values for s in columns if len(values := distinct(finite_of(s.values)[:4096])) >= SEVERAL]
    fractions = [values for values in held if not _vast(values) and not np.array_equal(values, np.round(values))]
    places = {next((n for n in range(1, MOST_DECIMALS + 1) if fits(values, n)), 0) for values in fractions}
    return len(places) > 1 and len({max(map(_digits, values.tolist())) for values in fractions}) == 1


def _digits(value: float) -> int:
    """Return the significant digits of a number, without the zeros behind them."""
    return len(f"{abs(value):.14e}".partition("e")[0].replace(".", "").rstrip("0")) if value else 0


def _tells_fractions(series: Series) -> bool:
    values = series.values
    telling = len(distinct(finite_of(values)[:4096])) >= DISTINCT
    return telling and not np.array_equal(np.round(values), values, equal_nan=True)


def _rounded(series: Series, absolute: float) -> Series:
    values = series.values[np.isfinite(series.values)]
    if len(values) and np.array_equal(np.round(values), values) and np.abs(values).max() > 1:
        return series  # a counter
    return replace(series, resolution=replace(series.resolution, absolute=absolute))


#: The metric of such a column.
AT_FIRST = "first_ratio_dev"
#: Metrics of a ratio, and what each is where new and old log-probs agree.
IDENTITIES = {"ratio_abs_dev": 0.0, "ratio_std": 0.0, "ratio_max": 1.0, "ratio_min": 1.0}
_RATIO, _ERROR = (
    r"(?:w|q|rho|ρ|ratio|is|iw|isr|imp|odds|d?log_?p(?:robs?)?|d?lp)",
    r"(?:err|error|dev|gap|off|diff|drift)",
)
_FIRST = r"(?:0|first|start|pre|init|mb0|before)"
#: "w_err0", "rho_start", "ratio_first_dev", "first_ratio_err", "q0_prom", "lp_gap0": a mean log-ratio is one too
_NAMED = re.compile(
    rf"\|?(?:{_RATIO}_?(?:{_ERROR}_?)?{_FIRST}|{_FIRST}_?{_RATIO})(?:_?{_ERROR}|-1)?\|?(?:_(?:pct|prom|milli|e3))?",
    re.IGNORECASE,
)
#: Records with clipped samples at a ratio of 1, at least, and the least share of samples in them that tells.
CONTRADICTED, TELLS = 3, 1e-3
#: Least distance of the mean ratio from 1 for each share of clipped samples, at the narrowest range that is usual.
NARROW = 0.01


def is_named_so(key: str) -> bool:
    """Tell whether a name says that it is the ratio of the first minibatch."""
    return _NAMED.fullmatch(key.strip()) is not None


def with_first_minibatches(named: dict[str, Series]) -> dict[str, Series]:
    """Take a ratio that is 1 in records in which samples are clipped for that of first minibatches: it clips none.

    A mean may be 1 by itself.
    """
    clipped = named.get("clip_fraction")
    for metric, identity in IDENTITIES.items():
        ratio = named.get(metric)
        shares = beside(ratio, clipped)
        if ratio is None or shares is None:
            continue
        tells = shares.values > max(TELLS, ratio.resolution.absolute / NARROW)
        ones = tells & np.isfinite(ratio.values) & ratio.at(identity)
        if ones.sum() >= CONTRADICTED:
            first = replace(ratio, name=AT_FIRST, values=np.abs(ratio.values - identity))
            return {name: each for name, each in named.items() if name != metric} | {AT_FIRST: first}
    return named


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
