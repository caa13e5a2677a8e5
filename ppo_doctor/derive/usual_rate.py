"""The learning rates that are usual for a run's trainer and task, which is what a rate is high or low against."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor import frameworks
from ppo_doctor.arrays import median
from ppo_doctor.model import Fact
from ppo_doctor.model.frozen import frozen
from ppo_doctor.signals.course import told_of, truth_of, value_of, values_of
from ppo_doctor.signals.movement import STILL_KL
from ppo_doctor.signals.rewards import settled_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.derive import Observations
    from ppo_doctor.model import ConfigValue

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


def rate_over_most(observations: Observations) -> Fact | None:
    """Return the largest learning rate of the run over the largest that is usual for its trainer and task.

    A rate is large by what it does: one at which no update of this run goes far is usual for its policy.
    """
    found = _times(observations, "rate_over_most", most=True)
    times = value_of(found)
    if found is None or times is None or not _stays_near(observations):
        return found
    says = f"{found.says}; {told_of(observations, 'divergence_largest')}"
    return replace(found, value=min(times, 1.0), says=says)


def _stays_near(observations: Observations) -> bool:
    """Tell whether updates are known to be small: by their KL or clipping, or by how slowly the reference is left."""
    if settled_at_once(observations):
        return False
    return _small_updates(observations) or _little_clipped(observations) or _leaves_slowly(observations)


def _little_clipped(observations: Observations) -> bool:
    """Tell whether samples are clipped at times, and few of them in every record: then ratios hardly spread."""
    clipped = values_of(observations, "clip_fraction")
    return clipped is not None and len(clipped) >= SEVERAL and 0 < float(clipped.max()) < FEW


def _leaves_slowly(observations: Observations) -> bool:
    """Tell whether the first updates took the policy away from its reference, and not far."""
    apart = values_of(observations, "ref_kl")
    return (
        apart is not None and len(apart) >= SEVERAL and bool((apart[1:4] > STILL_KL).all() and (apart[:4] < NEAR).all())
    )


def _small_updates(observations: Observations) -> bool:
    """Tell whether the KL of updates of several steps is known to be that of small steps, in every record."""
    usual, most = (value_of(observations.fact(f"divergence_{name}")) for name in ("usual", "largest"))
    away = values_of(observations, "ratio_abs_dev")
    if usual is None and away is not None:  # of one step on a batch alone no ratio but 1 is seen
        return median(away) > STILL_RATIO and float(away.max()) <= NEAR_RATIO
    if usual is None or most is None or not truth_of(observations.fact("several_updates")):
        return False
    return usual > STILL_KL and most <= NEAR


def rate_over_least(observations: Observations) -> Fact | None:
    """Return the largest learning rate of the run over the least that is usual for its trainer and task."""
    return _times(observations, "rate_over_least", most=False)


def _times(observations: Observations, name: str, *, most: bool) -> Fact | None:
    found = observations.fact("rate_largest")
    if found is None or not isinstance(found.value, int | float):
        return None
    usual = _usual(observations)
    against = usual.most if most else usual.least
    says = f"{found.says}; usual for {usual.what} is {_span(usual)}"
    return Fact(
        name=name,
        value=found.value / against,
        how=found.how,
        unit="times",
        source=found.source,
        says=says,
        since=found.since,
    )


def _span(usual: Usual) -> str:
    return f"{usual.least:g}" if usual.least == usual.most else f"{usual.least:g} to {usual.most:g}"


def _usual(observations: Observations) -> Usual:
    run = observations.run
    profile = frameworks.profile(run.framework)
    told = profile.defaults.get("learning_rate")
    default = float(told) if isinstance(told, int | float) and not isinstance(told, bool) and told > 0 else None
    whose = profile.title if default is not None else "policies of games and control"
    if observations.kind.samples.value != "completions":
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
