"""Statistics of the learning rate: zero, warm-up, decay, usual range, and the KL that is left at a rate near 0."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.movement import STILL_KL, divergence_of, stays_at_reference
from ppo_doctor.checks.rewards import settled_at_once
from ppo_doctor.checks.series import (
    any_known,
    both,
    condition,
    fact,
    finite,
    zero_share,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, median
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import Fact
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Series
    from ppo_doctor.model.words import ConfigValue

#: Largest log-ratio (nats) of a step of Adam at learning rate 1, with up to some 1e5 weights in a layer.
NATS_PER_RATE = 300.0
#: The same for language models, whose smallest layers have a hundred times as many.
NATS_PER_RATE_COMPLETIONS = 3000.0
#: Share of the run's largest rate below which a rate moves nothing: a thousand steps count as one.
SPENT = 1e-3
#: Log-ratio (nats) over a whole run below which nothing can be learned.
UNMOVED = 0.05
#: Optimizer steps of a batch if unknown (most trainers default to 4 passes or more), and most that are counted.
FEW_UPDATES, MANY_UPDATES = 4.0, 64.0
#: A tenth of the lowest usual rates of small policies, and of language models.
ORDINARY, ORDINARY_COMPLETIONS = 1e-5, 1e-7
SLOW_WARMUP = 1e-4
#: Most records with a rate of 0 at the start of a warm-up.
WARMING = 2


def _plain_descent(view: RunView) -> bool:
    """Return whether the settings name SGD, whose rates do not compare with Adam's."""
    named = (value for key, value in view.run.config_raw.items() if "optim" in key.lower())
    return any(isinstance(value, str) and value.lower().rpartition(".")[2] == "sgd" for value in named)


@statistic("learning_rate")
def rate_largest(view: RunView) -> Fact | None:
    """Return the largest learning rate of Adam: logged, with the step at which it is reached, else configured."""
    if _plain_descent(view):
        return None
    series = view.logged("learning_rate")
    if series is not None:
        most = float(finite(series).max())
        at = int(np.argmax(series.values == most))
        since = series.axis.steps[at] if at else None
        return fact(most, series, f"{series.raw} reaches {most:.3g}", at=at, since=since)
    rate = view.given("learning_rate")
    if not view.run.series:
        return None  # without a log the limits of settings say what is unusual
    return None if rate is None else fact(rate, None, f"the configured learning rate is {rate:g}")


def _reach(view: RunView, rate: float) -> float | None:
    """Return the log-ratio (nats) that a learning rate can add up to over all updates; None if none is logged."""
    updates = view.logged("policy_loss", "approx_kl", "entropy", "loss", "clip_fraction")
    if updates is None:
        return None
    known = view.value("updates_effective")
    steps = len(updates) * max(1.0, min(known or FEW_UPDATES, MANY_UPDATES))
    return rate * (NATS_PER_RATE_COMPLETIONS if of_completions(view) else NATS_PER_RATE) * steps


@statistic("learning_rate")
def rate_ordinary(view: RunView) -> Fact | None:
    """Return whether the learning rate is large enough to have moved the policy."""
    rate = view.value("rate_largest")
    if rate is None:
        return None
    reach = _reach(view, rate)
    least = ORDINARY_COMPLETIONS if of_completions(view) else ORDINARY
    holds = both(rate >= least and not _followed(view), None if reach is None else reach >= UNMOVED)
    return condition(holds, view.logged("learning_rate"), f"the learning rate is {rate:.3g}")


def _followed(view: RunView) -> bool:
    """Return whether the policy hardly moves but as far as its rate allows, so that the rate is too small."""
    usual, per = view.value("divergence_usual"), view.value("root_divergence_per_rate")
    return usual is not None and per is not None and 1e-14 < usual < STILL_KL and per > 1


def of_completions(view: RunView) -> bool:
    """Return whether samples are completions of a language model, whose many weights move it at small rates."""
    return view.holds("completions") is True


@statistic("learning_rate")
def rate_zero_share(view: RunView) -> Fact | None:
    """Return the share of records with a learning rate of exactly 0; a warm-up has one or two of them."""
    rates = view.logged("learning_rate")
    if rates is not None:
        zeros = zero_share(rates, WARMING + 1)
        return None if zeros is None else fact(zeros, rates, f"the learning rate is 0 in {zeros:.0%} of the records")
    rate = view.given("learning_rate")
    if rate is None:
        return None
    setting = view.run.config["learning_rate"]
    return fact(float(rate == 0), setting, f"{setting.key} = {setting.value}", how="configured")


@statistic("learning_rate", "schedule_steps")
def rate_spent_at(view: RunView) -> Fact | None:
    """Return the share of the run after which the rate stays at or next to 0; 1 if it never does.

    If no rate is logged, the share of the planned run over which it is configured to decay.
    """
    series = view.logged("learning_rate")
    if series is None:
        planned = view.fact("decay_share") if view.run.series else None
        return planned and replace(planned, name="rate_spent_at")
    if len(series) < 4 or zero_share(series) is None:
        return None
    rates = np.abs(finite(series))
    if not rates.any():
        return None
    alive = np.flatnonzero(rates > SPENT * rates.max())
    at = (int(alive[-1]) + 1) / len(rates)
    says = f"{series.raw} is last above a thousandth of its largest at {at:.0%} of the run"
    return fact(at, series, says)


@statistic("learning_rate+entropy", "learning_rate+ref_kl")
def rate_warms_up_for_ever(view: RunView) -> Fact | None:
    """Return whether the rate still rises in the last record, is small there, and the policy has not moved."""
    series = view.logged("learning_rate")
    if series is None or len(series) < 6:
        return None
    rates = finite(series)
    rising = bool(np.all(np.diff(rates) > 0)) and float(rates[-1]) < SLOW_WARMUP
    constant = (view.holds(name) for name in ("policy_stands", "entropy_stands"))
    still = any_known(*constant, stays_at_reference(view))
    says = f"{series.raw} rises in every record and reaches {rates[-1]:.3g}"
    return condition(both(rising, still), series, says)


#: Share of the run's largest rate that counts as next to 0, and fewest records of it.
NEXT_TO_NONE, SOME = 0.05, 3


@statistic("approx_kl+learning_rate")
def kl_without_rate(view: RunView) -> Fact | None:
    """Return the median |KL| while the learning rate is next to 0; None if the KL is next to 0 at any rate."""
    by_rate = _kl_by_rate(view)
    if by_rate is None:
        return None
    divergence, left, _, says = by_rate
    return fact(left, divergence, says, "nats")


@statistic("approx_kl+learning_rate")
def kl_left_without_rate(view: RunView) -> Fact | None:
    """Return the median |KL| while the learning rate is next to 0, over that while it is at least a third of its top.

    The KL of learning falls with the square of the rate, here to a hundredth or less.
    """
    by_rate = _kl_by_rate(view)
    if by_rate is None:
        return None
    divergence, left, usual, says = by_rate
    return fact(left / usual, divergence, says)


def _kl_by_rate(view: RunView) -> tuple[Series, float, float, str] | None:
    """Return the KL, its median size at next to no rate and from a third of the rate on, and a sentence with both."""
    rates, divergence = view.logged("learning_rate"), divergence_of(view)
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


#: Usual rates of Adam for games and control: Stable-Baselines3's default, and the largest of most trainers' defaults.
EPISODES = (3e-4, 1e-3)
#: Usual rates for all weights of a language model: the default of GRPO trainers, and the largest rate of recipes.
FULL = (1e-6, 1e-5)
#: Usual rates of adapters (TRL's and Unsloth's recipes), and the largest of models trained from scratch.
ADAPTERS, FROM_SCRATCH = (5e-6, 5e-5), 1e-3
#: Keys that switch adapters on: their rank or a flag. Other settings of adapters are in any file.
_ADAPTER = lazy_pattern(
    r"(?:^|[._])(?:(?:lora|peft)[._]?(?:config[._])?(?:r|rank)|(?:use_)?(?:q?lora|peft|dora|adapter)|peft_config)$",
    re.IGNORECASE,
)
#: Values that switch adapters off.
_NO_ADAPTER = ("", "none", "false", "0", "full", "null")
#: A model's size in its name, in billions (B) or millions (M) of weights.
_SIZE = lazy_pattern(r"(?<![\w.])(\d+(?:\.\d+)?)\s?([bBmM])(?![A-Za-z0-9])|[-_](\d+(?:\.\d+)?)([bBmM])(?![A-Za-z])")
_MODEL = ("model", "model_name", "model_name_or_path", "model_id", "pretrain", "path", "base_model", "actor_model")
#: Number of weights from which on a model is not trained from scratch with reinforcement learning.
LARGE = 1e8
#: Largest usual KL of an update (nats); target KLs are seldom higher.
NEAR = 0.03
#: Fewest records that show the size of updates, and share of clipped samples below which updates are small.
SEVERAL, FEW = 8, 0.1
#: Mean distance of ratios from 1 at a KL of NEAR, for normal log-ratios, and a distance above rounding.
NEAR_RATIO, STILL_RATIO = math.sqrt(4 / math.pi * NEAR), 1e-4


@frozen
class Usual:
    """The lowest and the highest learning rate in use, and what policies they are for."""

    least: float
    most: float
    what: str


@statistic("learning_rate")
def rate_over_most(view: RunView) -> Fact | None:
    """Return the largest learning rate of the run over the largest that is usual for its trainer and task.

    At most 1 if every update of this run is known to be small: the rate is then usual for its policy.
    """
    times = _times(view, most=True)
    if times is None or not _stays_near(view):
        return times
    says = f"{times.says}; {view.says('divergence_largest')}"
    return replace(times, value=min(times.number or 0.0, 1.0), says=says)


def _stays_near(view: RunView) -> bool:
    """Return whether updates are known to be small: by their KL, clipping, or a slow departure from the reference."""
    if settled_at_once(view):
        return False
    return _small_updates(view) or _little_clipped(view) or _leaves_slowly(view)


def _little_clipped(view: RunView) -> bool:
    """Return whether samples are clipped at times and few of them in every record, so that ratios hardly spread."""
    clipped = view.values("clip_fraction")
    return clipped is not None and len(clipped) >= SEVERAL and 0 < float(clipped.max()) < FEW


def _leaves_slowly(view: RunView) -> bool:
    """Return whether the first updates moved the policy away from its reference, and not far."""
    divergence = view.values("ref_kl")
    return (
        divergence is not None
        and len(divergence) >= SEVERAL
        and bool((divergence[1:4] > STILL_KL).all() and (divergence[:4] < NEAR).all())
    )


def _small_updates(view: RunView) -> bool:
    """Return whether the KL of updates of several steps, or else the ratio, is that of small steps in every record."""
    usual, most = (view.value(f"divergence_{name}") for name in ("usual", "largest"))
    distances = view.values("ratio_abs_dev")
    if usual is None and distances is not None:  # with one step per batch the distances are 0
        return median(distances) > STILL_RATIO and float(distances.max()) <= NEAR_RATIO
    if usual is None or most is None or not view.holds("several_updates"):
        return False
    return usual > STILL_KL and most <= NEAR


@statistic("learning_rate")
def rate_over_least(view: RunView) -> Fact | None:
    """Return the largest learning rate of the run over the least that is usual for its trainer and task."""
    return _times(view, most=False)


def _times(view: RunView, *, most: bool) -> Fact | None:
    """Return the largest learning rate over the largest, or else the least, usual one."""
    rate = view.fact("rate_largest")
    if rate is None or not isinstance(rate.value, int | float):
        return None
    usual = _usual(view)
    against = usual.most if most else usual.least
    says = f"{rate.says}; usual for {usual.what} is {_span(usual)}"
    return fact(rate.value / against, rate, says, "times", how=rate.how, since=rate.since)


def _span(usual: Usual) -> str:
    return f"{usual.least:g}" if usual.least == usual.most else f"{usual.least:g} to {usual.most:g}"


def _usual(view: RunView) -> Usual:
    """Return the usual learning rates for the trainer and task of a run."""
    run = view.run
    profile = detection.profile(run.framework)
    declared = profile.defaults.get("learning_rate")
    default = (
        float(declared)
        if isinstance(declared, int | float) and not isinstance(declared, bool) and declared > 0
        else None
    )
    whose = profile.title if default is not None else "policies of games and control"
    if view.kind.samples.value != "completions":
        low, high = EPISODES
        return Usual(least=min(default or low, low), most=max(default or high, high), what=whose)
    return _of_language(run.config_raw, default)


def _of_language(raw: Mapping[str, ConfigValue], default: float | None) -> Usual:
    """Return the usual rates for a language model: of its adapters or its size, else of any size."""
    adapters, large = _has_adapters(raw), _is_large(raw)
    low, high = ADAPTERS if adapters else (default or FULL[0], FULL[1])
    what = "adapters of a language model" if adapters else "a language model"
    if not large:
        return Usual(least=low, most=max(FROM_SCRATCH, low), what=f"{what} of any size")
    return Usual(least=low, most=max(high, low), what=what if adapters else "all weights of a language model")


def _has_adapters(raw: Mapping[str, ConfigValue]) -> bool:
    """Return whether the settings switch adapters on."""
    for key, value in raw.items():
        word = str(value).lower()
        if _ADAPTER.search(key) and value is not None and word not in _NO_ADAPTER:
            return True
        if key.lower().rpartition(".")[2] in ("train_type", "tuner_type", "finetuning_type") and "lora" in word:
            return True
    return False


def _is_large(raw: Mapping[str, ConfigValue]) -> bool:
    """Return whether the name of the model shows too many weights to train from scratch."""
    for key, value in raw.items():
        if key.lower().rpartition(".")[2] not in _MODEL or not isinstance(value, str):
            continue
        for match in _SIZE.finditer(value):
            number, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
            if float(number) * (1e9 if unit in "bB" else 1e6) >= LARGE:
                return True
    return False
