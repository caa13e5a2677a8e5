"""Do numbers stay finite, and how did the log end?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_median
from ppo_doctor.model import DIED
from ppo_doctor.signals.course import condition, fact, finite

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Series
    from ppo_doctor.signals.course import Observations

#: Metrics that are finite in every sound record. Explained variance is not: it has no value where returns are alike.
LOSSES = (
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "approx_kl_k1", "grad_norm", "ratio_mean"),
    *("ratio_max", "ref_kl", "kl_coef", "update_norm", "learning_rate"),
)
EARNED = ("episode_return", "reward_mean", "eval_return", "returns_mean", "values_mean", "advantages_mean")
#: The same counts in tensors.
TENSORS = ("weights_nonfinite", "log_probs_nonfinite")
#: Norms below it are a batch without a signal, not what a gradient of this run measures.
LEAST_NORM = 0.01
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


def tensors_nonfinite(observations: Observations) -> Fact | None:
    """Return how many weights of a checkpoint, or log-probs of a dump, are not finite, the most of any."""
    held = [series for name in TENSORS if (series := observations.run.series.get(name)) is not None and len(series)]
    if not held:
        return None
    worst = max(held, key=lambda series: float(series.values.max()))
    most = int(np.argmax(worst.values))
    found = fact("tensors_nonfinite", worst.values[most], worst, f"{worst.values[most]:g} values of {worst.raw}")
    return replace(found, source=worst.source(most))


def gradient_growth(observations: Observations) -> Fact | None:
    """Return the gradient norm that three records exceed, over its median in the first tenth of them.

    One record is a spike, three are none. A norm that starts without any signal counts as 0.01.
    """
    series = observations.run.series.get("grad_norm")
    if series is None or len(norms := finite(series)) < 5:
        return None
    first = float(finite_median(norms[: max(3, len(norms) // 10)]))
    top = float(np.sort(norms)[-3])
    says = f"{series.raw} is {first:.3g} at first and reaches {top:.3g}"
    return fact("gradient_growth", top / max(first, LEAST_NORM), series, says)


def loss_over_rewards(observations: Observations) -> Fact | None:
    """Return the largest |policy loss| over the largest |reward|, or over 1 where all rewards are smaller.

    A clipped surrogate is a mean of advantages times at most 1 + epsilon: about the reward at most, or the root of the
    batch size where advantages are whitened. What exceeds that by far is a ratio that nothing clips. A total loss may
    hold squared errors of values, and is held against the squared reward unless no critic is known to be trained.
    """
    series = observations.run.series
    loss = series.get("policy_loss", series.get("loss"))
    earned = next(
        (s for name in EARNED[:2] if (s := series.get(name)) is not None and np.isfinite(s.values).any()), None
    )
    if loss is None or earned is None or not np.isfinite(loss.values).any():
        return None
    reward = float(np.abs(finite(earned)).max())
    critic = observations.fact("critic")
    squared = "policy_loss" not in series and not (critic is not None and critic.value == "no")
    sizes = np.where(np.isfinite(loss.values), np.abs(loss.values), 0.0)
    most = int(np.argmax(sizes))
    says = f"{loss.raw} reaches {loss.values[most]:.3g}, |{earned.raw}| {reward:.3g}"
    found = fact("loss_over_rewards", sizes[most] / max(1.0, reward) ** (2 if squared else 1), loss, says)
    return replace(found, source=loss.source(most))  # the largest is no onset


def numbers_lost(observations: Observations) -> Fact | None:
    """Tell whether the run died of numbers that are not finite, or no longer logs its loss: NaN may be left out."""
    died, stopped = _died(observations), _loss_stops(observations)
    return died if died is not None and (died.value or stopped is None) else stopped


def _died(observations: Observations) -> Fact | None:
    """Tell whether the log ends in an exception about numbers that are not finite."""
    ends = [note for note in observations.run.notes if DIED in note.text]
    if not ends:
        return None
    told = ends[-1]
    found = fact("numbers_lost", float(told.died_of_numbers), None, told.text)
    return replace(found, how="observed", source=told.source)


def _loss_stops(observations: Observations) -> Fact | None:
    """Tell whether the policy loss is no longer logged while KL or gradient go on: a writer leaves NaN out."""
    loss = observations.run.series.get("policy_loss")
    others = [s for n in ("approx_kl", "grad_norm") if (s := observations.run.series.get(n)) is not None and len(s)]
    if loss is None or not len(loss) or not others:
        return None
    longest = max(others, key=len)
    stops = loss.axis.steps[-1] < longest.axis.steps[-1] and len(loss) < 0.9 * len(longest)
    says = f"{loss.raw} ends at step {loss.axis.steps[-1]}, {longest.raw} goes on to {longest.axis.steps[-1]}"
    return condition("numbers_lost", bool(stops), loss, says)
