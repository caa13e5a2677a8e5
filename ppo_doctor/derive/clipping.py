"""How wide is the clip range really?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ppo_doctor.arrays import beside, finite_median, finite_of
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Series

#: Objectives whose ratios are sequence-level or length-normalised: a range of 3e-4 is usual there (GSPO).
SEQUENCE_LEVEL = ("sequence", "sequence_token", "gspo")


def implied_clip_range(observations: Observations) -> Fact | None:
    """Return the clip range in force in the first half of the run: logged, else configured, else an upper bound.

    A share f of samples outside 1 ± ε has mean k3 of at least about f·ε²/2 for small ε, so ε ≤ sqrt(2·KL/f). Schedules
    that end at zero are why only the first half counts. None for sequence-level ratios.
    """
    if _sequence_level(observations):
        return None
    logged = observations.run.series.get("clip_range")
    if logged is not None and len(logged):
        early = logged.values[: max(1, len(logged) // 2)]
        value = finite_median(early)
        says = f"median of the first {len(early)} records"
        return Fact(name="implied_clip_range", value=value, how="observed", source=logged.source(), says=says)
    configured = observations.number("clip_range")
    if configured is not None and observations.configured("clip_range"):
        setting = observations.run.config["clip_range"]
        says = f"{setting.key} = {configured:g}"
        return Fact(name="implied_clip_range", value=configured, how=setting.how, source=setting.source, says=says)
    return _from_divergence(observations)


def _sequence_level(observations: Observations) -> bool:
    settings = (observations.run.config.get(name) for name in ("importance_sampling_level", "loss_type"))
    return any(str(setting.value).lower() in SEQUENCE_LEVEL for setting in settings if setting)


def _from_divergence(observations: Observations) -> Fact | None:
    clipped, kl = observations.run.series.get("clip_fraction"), observations.run.series.get("approx_kl")
    if clipped is None or kl is None or not _of_one_sign(kl):
        return None
    found = bound_of_range(clipped, kl)
    if found is None:
        return None
    bound, says = found
    return Fact(name="implied_clip_range", value=bound, how="computed", source=clipped.source(), says=says)


def _of_one_sign(kl: Series) -> bool:
    """Tell whether an estimate of the KL has no noise that cancels: by its name, or as no record is 0 or below it."""
    if kl.estimator is None:
        known = finite_of(kl.values)
        return bool(len(known)) and float(known.min()) > 0
    return kl.estimator in ("k2", "k3", "exact")


def bound_of_range(clipped: Series, kl: Series) -> tuple[float, str] | None:
    """Return the widest clip range that so large a share can leave at so small a KL, and the formula."""
    half, shares = max(1, len(kl) // 2), beside(kl, clipped)
    if shares is None:
        return None
    share, divergence = finite_median(shares.values[:half]), finite_median(kl.values[:half])
    if not (share > 0 and divergence > 0):
        return None
    return math.sqrt(2 * divergence / share), f"at most sqrt(2·{divergence:.2g}/{share:.2g})"
