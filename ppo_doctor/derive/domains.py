"""Settings outside their domains, counted: one quantity for each cause that they are the witness of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor import frameworks
from ppo_doctor.derive.groups import broken_groups
from ppo_doctor.derive.plan import LEFT_OVER, cut_of
from ppo_doctor.derive.words import words_unknown
from ppo_doctor.frameworks import domains
from ppo_doctor.model import CONDITION, Evidence, Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.frameworks import Profile
    from ppo_doctor.frameworks.domains import Limit
    from ppo_doctor.model import Operator, Setting

_OPERATORS: dict[str, Operator] = {"below": "<", "at most": "<=", "equals": "==", "above": ">"}
#: Records from which on a number that is always 0 says something.
FEWEST = 8
#: Numbers of environments that are tried where a configuration tells none.
USUAL_ENVS = (1, 2, 4, 8, 16)


def judged(observations: Observations) -> list[Setting]:
    """Return the settings that were found, hold a number and have a domain, in the order of their names."""
    config = observations.run.config
    names = sorted(domains.JUDGED & config.keys())
    return [config[name] for name in names if _judged(observations, name)]


def _judged(observations: Observations, name: str) -> bool:
    """Tell whether a setting is to be judged: the log overrules what it shows to be otherwise."""
    value, logged = _number(observations, name), observations.run.series.get(name)
    if name in domains.OF_CRITICS and observations.kind.critic.value == "no":
        return False
    if value is None or not observations.configured(name) or _of_evaluation(observations.run.config[name].key):
        return False
    known = logged.values[np.isfinite(logged.values)] if logged is not None else ()
    return not len(known) or bool(np.isclose(known, value, rtol=1e-3, atol=0.0).any())


def _number(observations: Observations, name: str) -> float | None:
    """Return a setting as a number; one that is not finite, which other quantities do not see, breaks a limit."""
    setting = observations.run.config.get(name)
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    return float(setting.value)


def _of_evaluation(key: str) -> bool:
    return any(part.startswith(("val", "eval", "test")) for part in key.lower().split(".")[:-1])


def _offences(observations: Observations) -> Iterator[tuple[str, Limit]]:
    run, kind = observations.run, observations.kind.samples.value or ""
    for name in sorted(domains.JUDGED & run.config.keys()):
        value = _number(observations, name)
        if value is None or not _judged(observations, name):
            continue
        limit = domains.broken_limit(name, value, run.framework, kind)
        if limit is not None:
            yield name, limit


def _count(observations: Observations, name: str, further: tuple[Evidence, ...] = ()) -> Fact | None:
    """Return how many settings break a limit that this quantity counts; None where none was there to be judged."""
    held = domains.counted_by(name, observations.run.framework)
    if not any(_judged(observations, setting) for setting in held & observations.run.config.keys()):
        return None
    found = [_evidence(observations, *offence) for offence in _offences(observations) if offence[1].counted_by == name]
    return Fact(
        name=name, value=len(found) + len(further), how="configured", unit="settings", counted=(*found, *further)
    )


def _evidence(observations: Observations, name: str, limit: Limit) -> Evidence:
    setting = observations.run.config[name]
    value = _number(observations, name)
    default = frameworks.profile(observations.run.framework).defaults.get(name)
    known = f"; the default is {default:g}" if isinstance(default, int | float) else ""
    if value is None or not np.isfinite(value):
        return _said(setting, f"{setting.key} is {value}: {limit.why}{known}")
    return Evidence(
        metric=setting.key,
        raw=setting.key,
        statistic=f"{limit.why}{known}",
        observed=value,
        op=_OPERATORS[limit.test],
        bound=limit.bound,
        bound_source=limit.source,
        satisfied=1,
        of=1,
        source=setting.source,
    )


def _counter(name: str) -> Callable[[Observations], Fact | None]:
    return lambda observations: _count(observations, name)


rate_negative = _counter(domains.RATE_NEGATIVE)
discount_out_of_range = _counter(domains.DISCOUNT)
clip_range_closed = _counter(domains.CLIP_CLOSED)
gradient_bound_closed = _counter(domains.GRADIENT_CLOSED)


def no_update_configured(observations: Observations) -> Fact | None:
    """Count settings of no pass, minibatch or sample, and a minibatch that no rollout fills where a part is dropped."""
    planned, size = observations.fact("updates_planned"), observations.run.config.get("minibatch_size")
    found = planned is not None and planned.how != "default" and planned.value == 0
    none = found and (observations.number("ppo_epochs") or 0) > 0
    further = (_said(size, f"the rollout fills no minibatch of {size.value}"),) if none and size is not None else ()
    return _count(observations, domains.NO_UPDATE, further)


def critic_untrained(observations: Observations) -> Fact | None:
    """Count settings that do not train the critic, and a learning rate of its own or a loss that is always 0.

    A squared error of exactly 0 in every record is that of no critic, or has a coefficient of 0 in it.
    """
    told = observations.kind.samples.value == "episodes" and _paid(observations)
    for name in ("critic_learning_rate", "value_loss") if told else ("critic_learning_rate",):
        logged = observations.run.series.get(name)
        if logged is not None and len(logged) >= FEWEST and logged.resolution.exact and logged.at(0).all():
            says = f"{logged.raw} is 0 in every record"
            return Fact(name=domains.CRITIC_UNTRAINED, value=1, how="observed", source=logged.source(), says=says)
    return _count(observations, domains.CRITIC_UNTRAINED)


def _paid(observations: Observations) -> bool:
    differ = observations.fact("rewards_differ")
    return differ is not None and differ.value == 1


greedy_sampling = _counter(domains.GREEDY)
group_of_one = _counter(domains.GROUP_OF_ONE)


def settings_impossible(observations: Observations) -> Fact | None:
    """Count values that no run can mean, and groups that the batch does not hold a whole number of."""
    return _count(observations, domains.IMPOSSIBLE, tuple(_said(*each) for each in broken_groups(observations)))


def settings_unusual(observations: Observations) -> Fact | None:
    """Count settings outside what is in use, unknown words, and a minibatch that fits no number of environments."""
    unknown = tuple(
        _said(setting, f"{setting.key} = {setting.value} is none of those that we know: {', '.join(words)}")
        for setting, words, meant in words_unknown(observations)
        if meant is None
    )
    return _count(observations, domains.UNUSUAL, (*_odd_minibatch(observations), *unknown))


def settings_misspelt(observations: Observations) -> Fact | None:
    """Count keys that are nearly a setting of the framework which is not given, and words nearly one of its values."""
    run = observations.run
    if not observations.held & run.config.keys() and not run.misspelt:
        return None
    profile = frameworks.profile(run.framework)
    known = "" if profile.name == frameworks.CANONICAL else f" of {profile.title}"
    found = tuple(
        _said(setting, f"{setting.key} is no setting{known} that we know; did you mean {meant}, which {force}?")
        for meant, setting in run.misspelt.items()
        for force in [_in_force(observations, profile, meant)]
    )
    found += tuple(
        _said(setting, f"{setting.key} = {setting.value} is no value of it that we know; did you mean {meant}?")
        for setting, _, meant in words_unknown(observations)
        if meant is not None
    )
    return Fact(name="settings_misspelt", value=len(found), how="configured", unit="settings", counted=found)


def _in_use(observations: Observations, native: str) -> Setting | None:
    """Return the setting of a name that the log prints, None where it prints none."""
    tail = native.rpartition(".")[2]
    held = (setting for setting in observations.run.config.values() if setting.how != "default")
    return next((setting for setting in held if setting.key.rpartition(".")[2] == tail), None)


def _in_force(observations: Observations, profile: Profile, native: str) -> str:
    """Return what holds while a setting is not given, in words: what the log prints, else a documented default."""
    used = _in_use(observations, native)
    if used is not None:
        return f"is {used.value} in what the log prints"
    tail = native.rpartition(".")[2]
    names = (name for name, keys in profile.config.items() if tail in {key.rpartition(".")[2] for key in keys})
    default = next((profile.defaults[name] for name in names if name in profile.defaults), None)
    return "is not given" + ("" if default is None else f", so that its default, {default}, is in force")


def _odd_minibatch(observations: Observations) -> Iterator[Evidence]:
    """Yield what is odd of a minibatch: larger than a rollout, or no part of it, by the environments told or any."""
    cut = cut_of(observations)
    config, framework = observations.run.config, observations.run.framework
    as_default = tuple(frameworks.profile(framework).defaults.get(name) for name in ("rollout_size", "minibatch_size"))
    if cut is not None and cut[1] <= cut[0] and cut[0] % cut[1] and cut[:2] != as_default:
        left = LEFT_OVER.get(framework, "some are left over")
        yield _said(cut[2], f"{cut[3]}: a rollout of {cut[0]:g} samples is no multiple of {cut[1]:g}, and {left}")
    steps = observations.number("rollout_steps")
    size, envs = observations.number("minibatch_size"), observations.number("num_envs")
    told = observations.configured("num_envs")
    if not observations.configured("minibatch_size") or framework not in LEFT_OVER or None in (steps, size, envs):
        return
    rollout, minibatch, setting = float(steps or 0), float(size or 0), config["minibatch_size"]
    if rollout < 1 or minibatch < 1:
        return
    words = f"{setting.key} = {minibatch:g}, {config['rollout_steps'].key} = {rollout:g}"
    if minibatch > rollout * float(envs or 1):
        yield _said(setting, f"{words}: a rollout of {envs:g} environments{'' if told else ', the default,'} is less")
    elif not told and all(rollout * number % minibatch for number in USUAL_ENVS):
        many = ", ".join(map(str, USUAL_ENVS))
        yield _said(
            setting,
            f"{words}, environments not told: divides the rollout of none of {many}, and {LEFT_OVER[framework]}",
        )


def _said(setting: Setting, text: str) -> Evidence:
    """Return evidence that says itself what is so."""
    return Evidence(
        metric=setting.key,
        raw=setting.key,
        statistic=text,
        observed=1.0,
        op="==",
        bound=1.0,
        unit=CONDITION,
        bound_source="definition",
        satisfied=1,
        of=1,
        source=setting.source,
    )
