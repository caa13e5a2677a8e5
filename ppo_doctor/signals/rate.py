"""What the learning rate could do: nothing, a trace, as usual, or too much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, median
from ppo_doctor.signals.course import (
    any_known,
    both,
    condition,
    fact,
    finite,
    given,
    series_of,
    truth_of,
    value_of,
    zero_share,
)
from ppo_doctor.signals.movement import STILL_KL, divergence_of, stays_at_reference

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Series
    from ppo_doctor.signals.course import Observations

#: Log-ratio, in nats, that a step of Adam at learning rate 1 makes at most, with up to some 1e5 weights in a layer.
NATS_PER_RATE = 300.0
#: The same of language models, of whose layers the smallest have a hundred times as many.
NATS_PER_RATE_COMPLETIONS = 3000.0
#: A rate of less than this share of the run's largest moves nothing: a thousand steps of it are one.
SPENT = 1e-3
#: Log-ratio over a whole run below which nothing was learned.
UNMOVED = 0.05
#: Optimizer steps of a batch where the log does not tell: most trainers' default is 4 passes or more.
FEW_UPDATES, MANY_UPDATES = 4.0, 64.0
#: Rates that trainers of small policies, and of language models, are run at, less a factor of ten.
ORDINARY, ORDINARY_COMPLETIONS = 1e-5, 1e-7
SLOW_WARMUP = 1e-4
#: Records of a rate of 0 with which a warm-up may begin.
WARMING = 2


def _plain_descent(observations: Observations) -> bool:
    """Tell whether the settings name SGD, whose rates are not those of Adam."""
    named = (value for key, value in observations.run.config_raw.items() if "optim" in key.lower())
    return any(isinstance(value, str) and value.lower().rpartition(".")[2] == "sgd" for value in named)


def rate_largest(observations: Observations) -> Fact | None:
    """Return the largest learning rate of Adam: logged, with the step at which it is reached, else configured."""
    if _plain_descent(observations):
        return None
    series = series_of(observations, "learning_rate")
    if series is not None:
        most = float(finite(series).max())
        found = fact("rate_largest", most, series, f"{series.raw} reaches {most:.3g}")
        at = int(np.argmax(series.values == most))
        return replace(found, since=int(series.axis.steps[at]), source=series.source(at)) if at else found
    rate = given(observations, "learning_rate")
    if not observations.run.series:
        return None  # of a configuration alone the domains of settings say what is unusual
    return None if rate is None else fact("rate_largest", rate, None, f"the configured learning rate is {rate:g}")


def rate_reach(observations: Observations) -> Fact | None:
    """Return the log-ratio, in nats, that the logged rate can add up to over all updates of the run."""
    rate = value_of(observations.fact("rate_largest"))
    updates = series_of(observations, "policy_loss", "approx_kl", "entropy", "loss", "clip_fraction")
    if rate is None or updates is None:
        return None
    known = value_of(observations.fact("updates_effective"))
    steps = len(updates) * max(1.0, min(known or FEW_UPDATES, MANY_UPDATES))
    reach = rate * (NATS_PER_RATE_COMPLETIONS if of_completions(observations) else NATS_PER_RATE) * steps
    return fact(
        "rate_reach",
        reach,
        series_of(observations, "learning_rate"),
        f"{steps:g} steps at {rate:.3g} reach {reach:.2g} nats at most",
    )


def rate_ordinary(observations: Observations) -> Fact | None:
    """Tell whether the learning rate is one that would have moved the policy."""
    rate, reach = value_of(observations.fact("rate_largest")), value_of(observations.fact("rate_reach"))
    if rate is None:
        return None
    least = ORDINARY_COMPLETIONS if of_completions(observations) else ORDINARY
    holds = both(rate >= least and not _followed(observations), None if reach is None else reach >= UNMOVED)
    return condition(
        "rate_ordinary", holds, series_of(observations, "learning_rate"), f"the learning rate is {rate:.3g}"
    )


def _followed(observations: Observations) -> bool:
    """Tell whether the policy moves next to nothing, and as far as its rate lets it: then the rate is what is small."""
    usual, per = (
        value_of(observations.fact("divergence_usual")),
        value_of(observations.fact("root_divergence_per_rate")),
    )
    return usual is not None and per is not None and 1e-14 < usual < STILL_KL and per > 1


def of_completions(observations: Observations) -> bool:
    """Tell whether samples are completions of a language model, whose many weights move it at small rates."""
    return truth_of(observations.fact("completions")) is True


def rate_zero_share(observations: Observations) -> Fact | None:
    """Return the share of records with a learning rate of exactly 0; a warm-up begins there, with a record or two."""
    rates = series_of(observations, "learning_rate")
    zeros: float | None
    if rates is not None:
        zeros = zero_share(rates, WARMING + 1)
    else:
        rate = given(observations, "learning_rate")
        zeros = None if rate is None else float(rate == 0)
    if zeros is None:
        return None
    if rates is not None:
        return fact("rate_zero_share", zeros, rates, f"the learning rate is 0 in {zeros:.0%} of the records")
    setting = observations.run.config["learning_rate"]
    found = fact("rate_zero_share", zeros, None, f"{setting.key} = {setting.value}")
    return replace(found, how="configured", source=setting.source)


def rate_spent_at(observations: Observations) -> Fact | None:
    """Return the share of the run after which the rate is 0, or next to it, to the end; 1 where it is not.

    Where no rate is logged, the share of what is planned over which it is configured to decay.
    """
    series = series_of(observations, "learning_rate")
    if series is None:
        planned = observations.fact("decay_share") if observations.run.series else None
        return planned and replace(planned, name="rate_spent_at")
    if len(series) < 4 or zero_share(series) is None:
        return None
    rates = np.abs(finite(series))
    if not rates.any():
        return None
    alive = np.flatnonzero(rates > SPENT * rates.max())
    at = (int(alive[-1]) + 1) / len(rates)
    says = f"{series.raw} is last above a thousandth of its largest at {at:.0%} of the run"
    return fact("rate_spent_at", at, series, says)


def rate_warms_up_for_ever(observations: Observations) -> Fact | None:
    """Tell whether the rate still rises in the last record, is small there, and the policy has not moved."""
    series = series_of(observations, "learning_rate")
    if series is None or len(series) < 6:
        return None
    rates = finite(series)
    rising = bool(np.all(np.diff(rates) > 0)) and float(rates[-1]) < SLOW_WARMUP
    stand = (truth_of(observations.fact(name)) for name in ("policy_stands", "entropy_stands"))
    still = any_known(*stand, stays_at_reference(observations))
    says = f"{series.raw} rises in every record and reaches {rates[-1]:.3g}"
    return condition("rate_warms_up_for_ever", both(rising, still), series, says)


#: A rate of at most this share of the run's largest moves next to nothing; records of it, at least.
NEXT_TO_NONE, SOME = 0.05, 3


def kl_without_rate(observations: Observations) -> Fact | None:
    """Return the median |KL| where the learning rate is next to nothing; None where the KL is next to 0 at any rate."""
    found = _kl_by_rate(observations)
    if found is None:
        return None
    divergence, left, _, says = found
    return fact("kl_without_rate", left, divergence, says, "nats")


def kl_left_without_rate(observations: Observations) -> Fact | None:
    """Return the median |KL| where the learning rate is next to nothing, over that where it is at least a third.

    What learning moves falls with the square of the rate, to a hundredth of it and less here.
    """
    found = _kl_by_rate(observations)
    if found is None:
        return None
    divergence, left, usual, says = found
    return fact("kl_left_without_rate", left / usual, divergence, says)


def _kl_by_rate(observations: Observations) -> tuple[Series, float, float, str] | None:
    """Return the KL, its median size at next to no rate and at a third of the rate and more, and both as a sentence."""
    rates, divergence = series_of(observations, "learning_rate"), divergence_of(observations)
    sizes = beside(rates, divergence)
    if rates is None or divergence is None or sizes is None:
        return None
    most = float(finite(rates).max(initial=0.0))
    known = np.isfinite(sizes.values) & np.isfinite(rates.values)
    low, high = (known & at for at in (rates.values <= NEXT_TO_NONE * most, rates.values >= most / 3))
    if most <= 0 or low.sum() < SOME or high.sum() < SOME:
        return None
    left, usual = (float(median(np.abs(sizes.values[at]))) for at in (low, high))
    if usual <= max(divergence.resolution.absolute, STILL_KL):
        return None
    says = f"{divergence.raw} is {left:.3g} in the median where {rates.raw} is next to 0, and {usual:.3g} before"
    return divergence, left, usual, says
