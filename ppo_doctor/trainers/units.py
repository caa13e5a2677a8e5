"""Convert percent, bits and ratios minus 1 to the units of metrics, as recognised by names and values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ppo_doctor.model.run import Series

#: At most this share of a fraction's numbers is damaged where they are beyond 1; more are percent.
DAMAGED = 0.05
#: Records from which on one number throughout is a setting and not a measured share.
FIXED = 8
#: A ratio whose median is nearer to 0 than this, and so far from 1, is a distance from 1.
NEAR_ZERO = 0.3
#: Records of a fresh policy, and how near to log2(n) they lie for so many actions; beyond, some ln(m) is as near.
FRESH, NEAR, MOST_ACTIONS = 3, 0.004, 7
#: The same below it where the name has the base of the logarithm, as "Ent2".
NEAR_NAMED = 0.05
_BASE_TWO = re.compile(r"2$|(?<=[A-Z])b$")
_DIVERGENCES = frozenset({"approx_kl", "approx_kl_k1", "probe_kl", "ref_kl"})
DIVERGENCES_OF_UPDATES = _DIVERGENCES - {"ref_kl"}
#: With fewer samples out of the clip range no KL (nats) is as large: a ratio of 0.8 has a logarithm of -0.22.
FEW, FAR = 0.1, 0.3
#: A unit that scripts print a KL in without saying so; by how much a KL is beyond the largest log-ratio's square.
THOUSANDTH, BEYOND = 1e-3, 3.0
#: What scripts multiply before they print it, and how their names say so: "kl100", "lrA4". Of "klx1e3" and "lr_e5" the
#: factor is taken where the name is read.
_SMALL = _DIVERGENCES | {"learning_rate"}
_TIMES = re.compile(r"(?<=[^\W\d_])(?<![xX])_?(?:(10{2,6})|(?<=[a-z])A([2-6]))\Z")
_BITS = re.compile(r"(?:(?<![A-Za-z])|(?<=[A-Z]))[Bb]its?(?![a-z])|(?<![A-Z])BITS?(?![A-Z])")
#: What says percent in a name; a percentage is at most so much.
_PERCENT, WHOLE = re.compile(r"%|percent|(?<![a-z])(?:pct|perc)(?![a-z])", re.IGNORECASE), 100


def in_own_units(series: Mapping[str, Series], guessed: Collection[str]) -> tuple[dict[str, Series], list[str]]:
    """Return series in the units of their metrics, with a sentence on each that was not.

    A unit in a name is believed. Numbers are asked only of those that were `guessed`, whose unit no profile declares.
    """
    kept, says = dict(series), []
    for name, one in sorted(series.items()):
        found = _as_named(one) or (_as_numbered(one) if name in guessed else None)
        if found is None or (found.name != name and found.name in kept):
            continue
        says.append(f"'{one.raw}' is read as {found.says}")
        del kept[name]
        kept[found.name] = replace(found, says="")
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
    """Tell whether a KL is far larger than the few samples beside it allow that a ratio left the clip range with."""
    if len(divergence) != len(share):
        return False
    # a share of 0 may be that of a ratio which is taken of the policy with itself
    few = np.isfinite(divergence.values) & (share.values < FEW) & (share.values > 0)
    far = divergence.values[few] > FAR
    return bool(few.sum() >= FIXED and far.mean() > 1 - DAMAGED * 2)


def _beyond(divergence: Series, largest: Series) -> bool:
    """Tell whether a KL is far larger than the largest ratio beside it allows: half the mean squared log-ratio."""
    if len(divergence) != len(largest):
        return False
    both = np.isfinite(divergence.values) & (largest.values > 1) & np.isfinite(largest.values)
    far = divergence.values[both] > BEYOND * np.square(np.log(largest.values[both]))
    return bool(both.sum() >= FIXED and far.mean() > 1 - DAMAGED * 2)


def _as_named(one: Series) -> Series | None:
    """Return what is named as bits in nats, and as percent as a fraction; a share of at most 1 is one already."""
    if one.name in _SMALL and (times := _TIMES.search(one.raw)):
        power = len(times[1]) - 1 if times[1] else int(times[2])
        return _scaled(one, 10.0**-power, f"{one.name} times 1e{power}")
    if one.unit == "nats" and _BITS.search(one.raw):
        return _scaled(one, math.log(2), f"{one.name} in bits")
    known = one.values[np.isfinite(one.values)]
    share = one.unit == "fraction" and len(known) and known.min() >= 0 and 1 < known.max() <= WHOLE
    return _scaled(one, 1 / WHOLE, f"percent of {one.name}") if share and _PERCENT.search(one.raw) else None


def _as_numbered(one: Series) -> Series | None:
    if one.unit == "fraction":
        return _of_fraction(one)
    return _ASKED[one.name](one) if one.name in _ASKED else None


def _scaled(one: Series, factor: float, says: str) -> Series:
    return replace(one, values=one.values * factor, resolution=one.resolution.scaled(factor), says=says)


def _of_fraction(share: Series) -> Series | None:
    """Return a share that is told in percent as a fraction, a constant share of clipped samples as the clip range."""
    known = share.values[np.isfinite(share.values)]
    if not len(known) or known.min() < 0 or not known.any():
        return None
    mostly = np.median(known) > 1 or (len(known) >= FIXED and np.mean(known > 1) > DAMAGED)
    percent = bool(mostly and known.max() <= WHOLE) or ("%" in share.raw and known.max() <= 1)
    if percent:
        says = f"percent of {share.name}: it reaches {known.max():.4g}"
        return _scaled(share, 1 / WHOLE, says)
    if share.name == "clip_fraction" and len(known) >= FIXED and known.min() == known.max() < 1:
        return replace(share, name="clip_range", unit="", says=f"clip_range: it is {known[0]:.4g} in every record")
    return None


def _of_ratio(ratio: Series) -> Series | None:
    """Return the mean ratio of a column that holds how far it is from 1; the distance where none is negative."""
    known = ratio.values[np.isfinite(ratio.values)]
    if not len(known) or abs(float(np.median(known))) > NEAR_ZERO:
        return None
    if known.min() >= 0 and known.any():
        return replace(ratio, name="ratio_abs_dev", says="ratio_abs_dev: it lies above 0, and a ratio around 1")
    return replace(ratio, values=ratio.values + 1, says="ratio_mean - 1: it lies around 0, and a ratio around 1")


def _of_entropy(entropy: Series) -> Series | None:
    """Return an entropy in bits as one in nats: by its name, or where a fresh policy's is that of n actions in bits."""
    known = entropy.values[np.isfinite(entropy.values)]
    if not len(known):
        return None
    start = float(np.median(known[:FRESH]))
    actions = 2.0**start if 0 < start < 8 else 0.0
    whole = math.ceil(actions - 0.05)
    near = NEAR_NAMED if _BASE_TWO.search(entropy.raw) else NEAR
    uniform = 2 <= whole <= MOST_ACTIONS and 1 - near < start / math.log2(whole) < 1 + NEAR
    in_nats = near == NEAR and any(abs(start / math.log(n) - 1) < NEAR for n in range(2, 4 * MOST_ACTIONS))
    bounded = uniform and known.max() <= math.log2(whole) * (1 + NEAR)
    if not bounded or in_nats:
        return None
    return _scaled(entropy, math.log(2), f"entropy in bits: it starts at {start:.4g}, that of {whole} actions")


_ASKED = {"ratio_mean": _of_ratio, "entropy": _of_entropy}
