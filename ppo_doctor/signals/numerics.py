"""Do numbers stay finite, and how did the log end?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model import DIED
from ppo_doctor.signals.course import condition, fact

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Series
    from ppo_doctor.signals.course import Observations

#: Metrics that are finite in every sound record. Explained variance is not: it has no value where returns are alike.
LOSSES = (
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "approx_kl_k1", "grad_norm", "ratio_mean"),
    *("ratio_max", "ref_kl", "kl_coef", "update_norm", "learning_rate"),
)
EARNED = ("episode_return", "reward_mean", "eval_return", "returns_mean", "values_mean", "advantages_mean")
#: Share of what follows the first broken record that is broken as well, in a metric that may miss one now and then.
MOSTLY = 0.5


def nonfinite_from(observations: Observations) -> Fact | None:
    """Return the share of the run, from the first of them on, after which numbers are not finite; 0 where all are."""
    worst: tuple[float, Series, int] | None = None
    for name in (*LOSSES, *EARNED):
        series = observations.run.series.get(name)
        if series is None or not len(series):
            continue
        broken = ~np.isfinite(series.values)
        first = int(np.argmax(broken))
        if not broken.any() or (name in EARNED and float(broken[first:].mean()) <= MOSTLY):
            continue
        if worst is None or series.axis.steps[first] < worst[1].axis.steps[worst[2]]:
            worst = (1 - first / len(series), series, first)
    if worst is None:
        known = next((s for n in (*LOSSES, *EARNED) if (s := observations.run.series.get(n)) is not None), None)
        return None if known is None else fact("nonfinite_from", 0.0, known, "every loss and reward is finite")
    share, series, first = worst
    says = f"{series.raw} is {series.values[first]} at step {series.axis.steps[first]}, first of {share:.0%} of the run"
    found = fact("nonfinite_from", share, series, says)
    return replace(found, source=series.source(first), since=int(series.axis.steps[first]))


def died_of_nonfinite(observations: Observations) -> Fact | None:
    """Tell whether the log ends in an exception about numbers that are not finite."""
    ends = [note for note in observations.run.notes if DIED in note.text]
    if not ends:
        return None
    told = ends[-1]
    found = fact("died_of_nonfinite", float(told.died_of_numbers), None, told.text)
    return replace(found, how="observed", source=told.source)


def losses_stop(observations: Observations) -> Fact | None:
    """Tell whether the policy loss is no longer logged while KL or gradient go on: a writer leaves NaN out."""
    loss = observations.run.series.get("policy_loss")
    others = [s for n in ("approx_kl", "grad_norm") if (s := observations.run.series.get(n)) is not None and len(s)]
    if loss is None or not len(loss) or not others:
        return None
    longest = max(others, key=len)
    stops = loss.axis.steps[-1] < longest.axis.steps[-1] and len(loss) < 0.9 * len(longest)
    says = f"{loss.raw} ends at step {loss.axis.steps[-1]}, {longest.raw} goes on to {longest.axis.steps[-1]}"
    return condition("losses_stop", bool(stops), loss, says)
