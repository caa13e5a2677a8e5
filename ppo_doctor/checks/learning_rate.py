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
from ppo_doctor.model.run import Fact
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Series
    from ppo_doctor.model.words import ConfigValue

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


def _plain_descent(view: RunView) -> bool:
    """Tell whether the settings name SGD, whose rates are not those of Adam."""
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
        return None  # of a configuration alone the domains of settings say what is unusual
    return None if rate is None else fact(rate, None, f"the configured learning rate is {rate:g}")


def _reach(view: RunView, rate: float) -> float | None:
    """Return the log-ratio, in nats, that a learning rate can add up to over all updates of the run."""
    updates = view.logged("policy_loss", "approx_kl", "entropy", "loss", "clip_fraction")
    if updates is None:
        return None
    known = view.value("updates_effective")
    steps = len(updates) * max(1.0, min(known or FEW_UPDATES, MANY_UPDATES))
    return rate * (NATS_PER_RATE_COMPLETIONS if of_completions(view) else NATS_PER_RATE) * steps


@statistic("learning_rate")
def rate_ordinary(view: RunView) -> Fact | None:
    """Tell whether the learning rate is one that would have moved the policy."""
    rate = view.value("rate_largest")
    if rate is None:
        return None
    reach = _reach(view, rate)
    least = ORDINARY_COMPLETIONS if of_completions(view) else ORDINARY
    holds = both(rate >= least and not _followed(view), None if reach is None else reach >= UNMOVED)
    return condition(holds, view.logged("learning_rate"), f"the learning rate is {rate:.3g}")


def _followed(view: RunView) -> bool:
    """Return whether the policy hardly moves, but as far as its rate allows: then the rate is what is too small."""
    usual, per = view.value("divergence_usual"), view.value("root_divergence_per_rate")
    return usual is not None and per is not None and 1e-14 < usual < STILL_KL and per > 1


def of_completions(view: RunView) -> bool:
    """Tell whether samples are completions of a language model, whose many weights move it at small rates."""
    return view.holds("completions") is True


@statistic("learning_rate")
def rate_zero_share(view: RunView) -> Fact | None:
    """Return the share of records with a learning rate of exactly 0; a warm-up begins there, with a record or two."""
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
    """Return the share of the run after which the rate is 0, or next to it, to the end; 1 where it is not.

    Where no rate is logged, the share of what is planned over which it is configured to decay.
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
    """Tell whether the rate still rises in the last record, is small there, and the policy has not moved."""
    series = view.logged("learning_rate")
    if series is None or len(series) < 6:
        return None
    rates = finite(series)
    rising = bool(np.all(np.diff(rates) > 0)) and float(rates[-1]) < SLOW_WARMUP
    stand = (view.holds(name) for name in ("policy_stands", "entropy_stands"))
    still = any_known(*stand, stays_at_reference(view))
    says = f"{series.raw} rises in every record and reaches {rates[-1]:.3g}"
    return condition(both(rising, still), series, says)


#: A rate of at most this share of the run's largest moves next to nothing; records of it, at least.
NEXT_TO_NONE, SOME = 0.05, 3


@statistic("approx_kl+learning_rate")
def kl_without_rate(view: RunView) -> Fact | None:
    """Return the median |KL| where the learning rate is next to nothing; None where the KL is next to 0 at any rate."""
    found = _kl_by_rate(view)
    if found is None:
        return None
    divergence, left, _, says = found
    return fact(left, divergence, says, "nats")


@statistic("approx_kl+learning_rate")
def kl_left_without_rate(view: RunView) -> Fact | None:
    """Return the median |KL| where the learning rate is next to nothing, over that where it is at least a third.

    What learning moves falls with the square of the rate, to a hundredth of it and less here.
    """
    found = _kl_by_rate(view)
    if found is None:
        return None
    divergence, left, usual, says = found
    return fact(left / usual, divergence, says)


def _kl_by_rate(view: RunView) -> tuple[Series, float, float, str] | None:
    """Return the KL, its median size at next to no rate and at a third of the rate and more, and both as a sentence."""
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


#: Policies of games and control, in Adam: Stable-Baselines3's default, and the largest of most trainers' defaults.
EPISODES = (3e-4, 1e-3)
#: Language models: the default of GRPO's trainers where all weights are trained, and the largest rate of recipes.
FULL = (1e-6, 1e-5)
#: Adapters, whose matrices start at 0 (TRL's and Unsloth's recipes), and models small enough to train from nothing.
ADAPTERS, FROM_NOTHING = (5e-6, 5e-5), 1e-3
#: Keys that switch adapters on: by their rank, by a flag, by what is trained. Their other settings stand in any file.
_ADAPTER = re.compile(
    r"(?:^|[._])(?:(?:lora|peft)[._]?(?:config[._])?(?:r|rank)|(?:use_)?(?:q?lora|peft|dora|adapter)|peft_config)$",
    re.IGNORECASE,
)
#: Values that switch them off.
_NO_ADAPTER = ("", "none", "false", "0", "full", "null")
#: A model's size in its name, in units of a thousand million weights or a million.
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s?([bBmM])(?![A-Za-z0-9])|[-_](\d+(?:\.\d+)?)([bBmM])(?![A-Za-z])")
_MODEL = ("model", "model_name", "model_name_or_path", "model_id", "pretrain", "path", "base_model", "actor_model")
#: Weights of a model that nobody trains from nothing with reinforcement.
LARGE = 1e8
#: The largest KL of an update that is usual, in nats; a target KL is seldom set higher.
NEAR = 0.03
#: Records that tell how updates are, and the share of clipped samples that small updates leave.
SEVERAL, FEW = 8, 0.1
#: The mean distance of ratios from 1 at that KL, for normal log-ratios, and one above what arithmetic leaves.
NEAR_RATIO, STILL_RATIO = math.sqrt(4 / math.pi * NEAR), 1e-4


@frozen
class Usual:
    """The least and the largest learning rate in use, and in words for what."""

    least: float
    most: float
    what: str


@statistic("learning_rate")
def rate_over_most(view: RunView) -> Fact | None:
    """Return the largest learning rate of the run over the largest that is usual for its trainer and task.

    A rate is large by what it does: one at which no update of this run goes far is usual for its policy.
    """
    found = _times(view, most=True)
    if found is None or not _stays_near(view):
        return found
    says = f"{found.says}; {view.says('divergence_largest')}"
    return replace(found, value=min(found.number or 0.0, 1.0), says=says)


def _stays_near(view: RunView) -> bool:
    """Tell whether updates are known to be small: by their KL or clipping, or by how slowly the reference is left."""
    if settled_at_once(view):
        return False
    return _small_updates(view) or _little_clipped(view) or _leaves_slowly(view)


def _little_clipped(view: RunView) -> bool:
    """Tell whether samples are clipped at times, and few of them in every record: then ratios hardly spread."""
    clipped = view.values("clip_fraction")
    return clipped is not None and len(clipped) >= SEVERAL and 0 < float(clipped.max()) < FEW


def _leaves_slowly(view: RunView) -> bool:
    """Tell whether the first updates took the policy away from its reference, and not far."""
    apart = view.values("ref_kl")
    return (
        apart is not None and len(apart) >= SEVERAL and bool((apart[1:4] > STILL_KL).all() and (apart[:4] < NEAR).all())
    )


def _small_updates(view: RunView) -> bool:
    """Tell whether the KL of updates of several steps is known to be that of small steps, in every record."""
    usual, most = (view.value(f"divergence_{name}") for name in ("usual", "largest"))
    away = view.values("ratio_abs_dev")
    if usual is None and away is not None:  # of one step on a batch alone no ratio but 1 is seen
        return median(away) > STILL_RATIO and float(away.max()) <= NEAR_RATIO
    if usual is None or most is None or not view.holds("several_updates"):
        return False
    return usual > STILL_KL and most <= NEAR


@statistic("learning_rate")
def rate_over_least(view: RunView) -> Fact | None:
    """Return the largest learning rate of the run over the least that is usual for its trainer and task."""
    return _times(view, most=False)


def _times(view: RunView, *, most: bool) -> Fact | None:
    found = view.fact("rate_largest")
    if found is None or not isinstance(found.value, int | float):
        return None
    usual = _usual(view)
    against = usual.most if most else usual.least
    says = f"{found.says}; usual for {usual.what} is {_span(usual)}"
    return fact(found.value / against, found, says, "times", how=found.how, since=found.since)


def _span(usual: Usual) -> str:
    return f"{usual.least:g}" if usual.least == usual.most else f"{usual.least:g} to {usual.most:g}"


def _usual(view: RunView) -> Usual:
    run = view.run
    profile = detection.profile(run.framework)
    told = profile.defaults.get("learning_rate")
    default = float(told) if isinstance(told, int | float) and not isinstance(told, bool) and told > 0 else None
    whose = profile.title if default is not None else "policies of games and control"
    if view.kind.samples.value != "completions":
        low, high = EPISODES
        return Usual(least=min(default or low, low), most=max(default or high, high), what=whose)
    return _of_language(run.config_raw, default)


def _of_language(raw: Mapping[str, ConfigValue], default: float | None) -> Usual:
    """Return what is usual for a language model: by its adapters or its size, else of any size."""
    adapters, large = _has_adapters(raw), _is_large(raw)
    low, high = ADAPTERS if adapters else (default or FULL[0], FULL[1])
    what = "adapters of a language model" if adapters else "a language model"
    if not large:
        return Usual(least=low, most=max(FROM_NOTHING, low), what=f"{what} of any size")
    return Usual(least=low, most=max(high, low), what=what if adapters else "all weights of a language model")


def _has_adapters(raw: Mapping[str, ConfigValue]) -> bool:
    for key, value in raw.items():
        word = str(value).lower()
        if _ADAPTER.search(key) and value is not None and word not in _NO_ADAPTER:
            return True
        if key.lower().rpartition(".")[2] in ("train_type", "tuner_type", "finetuning_type") and "lora" in word:
            return True
    return False


def _is_large(raw: Mapping[str, ConfigValue]) -> bool:
    """Tell whether the name of the model says that it has too many weights to be trained from nothing."""
    for key, value in raw.items():
        if key.lower().rpartition(".")[2] not in _MODEL or not isinstance(value, str):
            continue
        for match in _SIZE.finditer(value):
            number, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
            if float(number) * (1e9 if unit in "bB" else 1e6) >= LARGE:
                return True
    return False
