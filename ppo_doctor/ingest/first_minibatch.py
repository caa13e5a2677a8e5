"""Columns of the ratio that are measured at the first minibatch of a batch, where it must be 1."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside

if TYPE_CHECKING:
    from ppo_doctor.model import Series

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
