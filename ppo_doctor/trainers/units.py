"""Convert series in percent, bits or other units to the units of their metrics, recognised by names and values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Series

#: Largest share of a fraction's values beyond 1 that counts as damage; with more they are percent.
DAMAGED = 0.05
#: Fewest records for a judgement; a share that is constant over so many is a setting.
FIXED = 8
#: A ratio whose median is nearer to 0 than this is a distance from 1.
NEAR_ZERO = 0.3
#: Number of records of an untrained policy, their largest relative distance from log2(n), and largest number n of
#: actions; for more, some ln(m) is as near.
FRESH, NEAR, MOST_ACTIONS = 3, 0.004, 7
#: Largest distance below log2(n) if the name contains the base of the logarithm, such as "Ent2".
NEAR_NAMED = 0.05
_BASE_TWO = lazy_pattern(r"2$|(?<=[A-Z])b$")
_DIVERGENCES = frozenset({"approx_kl", "approx_kl_k1", "probe_kl", "ref_kl"})
DIVERGENCES_OF_UPDATES = _DIVERGENCES - {"ref_kl"}
#: With at most this share of clipped samples no KL (nats) is so large: a ratio of 0.8 has a logarithm of -0.22.
FEW, FAR = 0.1, 0.3
#: Unit in which scripts print a KL without saying so, and least ratio of such a KL to the largest squared log-ratio.
THOUSANDTH, BEYOND = 1e-3, 3.0
#: Metrics that scripts multiply before printing, and the factor in their names: "kl100", "lrA4". The factors of
#: "klx1e3" and "lr_e5" are removed when names are parsed.
_SMALL = _DIVERGENCES | {"learning_rate"}
_TIMES = lazy_pattern(r"(?<=[^\W\d_])(?<![xX])_?(?:(10{2,6})|(?<=[a-z])A([2-6]))\Z")
_BITS = lazy_pattern(r"(?:(?<![A-Za-z])|(?<=[A-Z]))[Bb]its?(?![a-z])|(?<![A-Z])BITS?(?![A-Z])")
#: Words for percent in names, and the largest percentage.
_PERCENT, WHOLE = lazy_pattern(r"%|percent|(?<![a-z])(?:pct|perc)(?![a-z])", re.IGNORECASE), 100


def in_own_units(series: Mapping[str, Series], guessed: Collection[str]) -> tuple[dict[str, Series], list[str]]:
    """Return series in the units of their metrics, and a sentence on each that was converted.

    Units in names are used for every series; values decide only for `guessed` metrics, whose unit no profile declares.
    """
    kept, says = dict(series), []
    for name, one in sorted(series.items()):
        converted = _by_name(one) or (_by_values(one) if name in guessed else None)
        if converted is None or (converted.name != name and converted.name in kept):
            continue
        says.append(f"'{one.raw}' is read as {converted.says}")
        del kept[name]
        kept[converted.name] = replace(converted, says="")
    for name in sorted(DIVERGENCES_OF_UPDATES.intersection(kept, guessed)):
        share, largest = kept.get("clip_fraction"), kept.get("ratio_max")
        few = share is not None and _too_far(kept[name], share)
        if few or (largest is not None and _beyond(kept[name], largest)):
            why = "few samples are clipped" if few else "the largest ratio is next to 1"
            says.append(f"'{kept[name].raw}' is read in thousandths: {why} beside it")
            kept[name] = _scaled(kept[name], THOUSANDTH, "")
    if "entropy" in kept and kept["entropy"] is not series.get("entropy"):
        for name in sorted(_DIVERGENCES.intersection(kept, guessed)):
            if (mark := _BASE_TWO.search(series["entropy"].raw)) and kept[name].raw.endswith(mark[0]):
                says.append(f"'{kept[name].raw}' is read in bits, as '{series['entropy'].raw}' is")
                kept[name] = _scaled(kept[name], math.log(2), "")
    return kept, says


def _too_far(divergence: Series, share: Series) -> bool:
    """Return whether a KL is far larger than the small share of clipped samples allows."""
    if len(divergence) != len(share):
        return False
    # a share of 0 may come from a ratio of the policy to itself
    few = np.isfinite(divergence.values) & (share.values < FEW) & (share.values > 0)
    far = divergence.values[few] > FAR
    return bool(few.sum() >= FIXED and far.mean() > 1 - DAMAGED * 2)


def _beyond(divergence: Series, largest: Series) -> bool:
    """Return whether a KL, about half the mean squared log-ratio, is far larger than the largest ratio allows."""
    if len(divergence) != len(largest):
        return False
    both = np.isfinite(divergence.values) & (largest.values > 1) & np.isfinite(largest.values)
    far = divergence.values[both] > BEYOND * np.square(np.log(largest.values[both]))
    return bool(both.sum() >= FIXED and far.mean() > 1 - DAMAGED * 2)


def _by_name(one: Series) -> Series | None:
    """Return a series converted by the unit in its name: a factor, bits, or percent unless at most 1; else None."""
    if one.name in _SMALL and (times := _TIMES.search(one.raw)):
        power = len(times[1]) - 1 if times[1] else int(times[2])
        return _scaled(one, 10.0**-power, f"{one.name} times 1e{power}")
    if one.unit == "nats" and _BITS.search(one.raw):
        return _scaled(one, math.log(2), f"{one.name} in bits")
    known = one.values[np.isfinite(one.values)]
    share = one.unit == "fraction" and len(known) and known.min() >= 0 and 1 < known.max() <= WHOLE
    return _scaled(one, 1 / WHOLE, f"percent of {one.name}") if share and _PERCENT.search(one.raw) else None


def _by_values(one: Series) -> Series | None:
    """Return a series converted by its values, None if they are plausible as they are."""
    if one.unit == "fraction":
        return _of_fraction(one)
    return _CONVERSIONS[one.name](one) if one.name in _CONVERSIONS else None


def _scaled(one: Series, factor: float, says: str) -> Series:
    return replace(one, values=one.values * factor, resolution=one.resolution.scaled(factor), says=says)


def _of_fraction(share: Series) -> Series | None:
    """Return a share in percent as a fraction, a constant share of clipped samples as the clip range, else None."""
    known = share.values[np.isfinite(share.values)]
    if not len(known) or known.min() < 0 or not known.any():
        return None
    mostly = median(known) > 1 or (len(known) >= FIXED and np.mean(known > 1) > DAMAGED)
    percent = bool(mostly and known.max() <= WHOLE) or ("%" in share.raw and known.max() <= 1)
    if percent:
        says = f"percent of {share.name}: it reaches {known.max():.4g}"
        return _scaled(share, 1 / WHOLE, says)
    if share.name == "clip_fraction" and len(known) >= FIXED and known.min() == known.max() < 1:
        return replace(share, name="clip_range", unit="", says=f"clip_range: it is {known[0]:.4g} in every record")
    return None


def _of_ratio(ratio: Series) -> Series | None:
    """Return a column of ratio - 1 as the mean ratio, or as the distance from 1 if it is never negative; else None."""
    known = ratio.values[np.isfinite(ratio.values)]
    if not len(known) or abs(median(known)) > NEAR_ZERO:
        return None
    if known.min() >= 0 and known.any():
        return replace(ratio, name="ratio_abs_dev", says="ratio_abs_dev: it lies above 0, and a ratio around 1")
    return replace(ratio, values=ratio.values + 1, says="ratio_mean - 1: it lies around 0, and a ratio around 1")


def _of_entropy(entropy: Series) -> Series | None:
    """Return an entropy in nats if it starts at log2(n), the entropy of n equal actions in bits; else None."""
    known = entropy.values[np.isfinite(entropy.values)]
    if not len(known):
        return None
    start = median(known[:FRESH])
    actions = 2.0**start if 0 < start < 8 else 0.0
    whole = math.ceil(actions - 0.05)
    near = NEAR_NAMED if _BASE_TWO.search(entropy.raw) else NEAR
    uniform = 2 <= whole <= MOST_ACTIONS and 1 - near < start / math.log2(whole) < 1 + NEAR
    in_nats = near == NEAR and any(abs(start / math.log(n) - 1) < NEAR for n in range(2, 4 * MOST_ACTIONS))
    bounded = uniform and known.max() <= math.log2(whole) * (1 + NEAR)
    if not bounded or in_nats:
        return None
    return _scaled(entropy, math.log(2), f"entropy in bits: it starts at {start:.4g}, that of {whole} actions")


_CONVERSIONS = {"ratio_mean": _of_ratio, "entropy": _of_entropy}
