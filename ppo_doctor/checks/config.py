"""Check the configuration: warm-up, decay, minibatches, clip range, KL coefficient, limits and spelling of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import fact
from ppo_doctor.checks.sizes import broken_groups
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import distinct, finite_of, median
from ppo_doctor.model.rules import Evidence
from ppo_doctor.model.run import CONDITION, Fact
from ppo_doctor.trainers import detection
from ppo_doctor.trainers import settings as domains
from ppo_doctor.trainers.settings import one_slip
from ppo_doctor.trainers.updates import decay_is_off, planned_length

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import FloatArray, Setting
    from ppo_doctor.model.words import Operator
    from ppo_doctor.trainers.profiles import Profile
    from ppo_doctor.trainers.settings import Limit

#: Shorter words are all near one another.
SHORTEST = 4


def words_unknown(view: RunView) -> Iterator[tuple[Setting, tuple[str, ...], str | None]]:
    """Yield settings that hold a word not on the list, the list, and the word on it that is one slip away."""
    trainer = detection.known_profile(view.run.framework)
    for name, setting in view.run.config.items():
        known = trainer.words.get(name) if trainer is not None else None
        if not known or setting.how == "default" or not isinstance(setting.value, str):
            continue
        word = setting.value.lower()
        if word in known or not word.replace("-", "_").isidentifier():
            continue  # a reference, an empty word or a path, which something else decides
        near = (other for other in known if len(other) >= SHORTEST and one_slip(word, other))
        yield setting, known, next(near, None)


#: Share of the records, or of the run, in which what whitening makes of single samples shows.
SHOWN = 0.9
#: Losses and levels whose ratio is that of a sequence, which is clipped a hundred times closer, or whose clip range
#: caps a weight (CISPO).
ANOTHER_RANGE = ("sequence", "sequence_token", "gspo", "gspo-token", "gspo_token", "cispo")
#: Schedules that end nowhere.
ENDLESS = ("constant", "constant_with_warmup", "adaptive", "kl", "none", "fixed", "constant_schedule")
#: A weight of usual size in a language model, and the least share of it that half a unit in the last place of bf16 is.
USUAL_WEIGHT, HALF_UNIT = 0.02, 2.0**-9


@statistic("warmup_steps+total_steps")
def warmup_share(view: RunView) -> Fact | None:
    """Return the share of the planned optimizer steps over which the learning rate warms up."""
    warmup, total = _number(view, "warmup_steps"), _number(view, "total_steps")
    if warmup is None or warmup[1] < 0:
        return None
    setting, steps = warmup
    if 0 < steps < 1:
        return fact(steps, setting, f"{setting.key} = {steps:g}", "of the run", how="configured")
    if total is None or total[1] <= 0:
        return None
    says = f"{setting.key} = {steps:g}, {total[0].key} = {total[1]:g}"
    return fact(steps / total[1], setting, says, "of the run", how="configured")


@statistic("schedule_steps")
def decay_share(view: RunView) -> Fact | None:
    """Return the share of the planned run over which the learning rate is set to decay."""
    decay, settings = _number(view, "schedule_steps"), view.run.config_raw
    if decay is None or decay[1] <= 0 or decay_is_off(settings):
        return None
    setting, steps = decay
    planned = planned_length(setting.key, settings)
    if planned is None or planned[1] < steps:
        return None
    share = steps / planned[1]
    says = f"{setting.key} = {steps:g}, {planned[0]} = {planned[1]:g}: the rate decays over {share:.0%} of the run"
    return fact(share, setting, says, "of the run", how="configured")


@statistic("rollout_steps+num_envs+num_minibatches", "minibatch_size+policy_loss")
def last_minibatch_samples(view: RunView) -> Fact | None:
    """Return the samples of the last minibatch, for trainers that keep it and whiten advantages within it.

    1 where every minibatch holds one, and the log shows what whitening makes of it: a surrogate of 0, or of NaN.
    """
    alone = view.fact("minibatch_of_one")
    shown = [view.fact(name) for name in ("surrogate_zero_share", "nonfinite_from", "numbers_lost")]
    if alone is not None and alone.value == 1 and any(one is not None and _is_so(one.value) for one in shown):
        return dataclasses.replace(alone, name="last_minibatch_samples", unit="samples")
    cut, whitened = cut_of(view), view.setting("normalize_advantages")
    per_minibatch = view.setting("normalize_per_minibatch")
    traits = detection.traits_of(view.run.framework)
    alike = "whitens_single_samples" in traits or (
        view.run.framework == "canonical" and per_minibatch is not None and per_minibatch.value is True
    )
    if cut is None or not alike or (whitened is not None and whitened.value is False):
        return None
    rollout, minibatch, setting, says = cut
    return fact(rollout % minibatch or minibatch, setting, says, "samples", how="configured")


def _is_so(value: object) -> bool:
    return isinstance(value, int | float) and value >= SHOWN


def cut_of(view: RunView) -> tuple[float, float, Setting, str] | None:
    """Return the samples of a rollout and of a minibatch, with the setting that cuts and how both follow."""
    rollout = _rollout(view)
    parts, size = _number(view, "num_minibatches"), _number(view, "minibatch_size")
    traits = detection.traits_of(view.run.framework)
    if rollout is None or ("leftover_minibatch" not in traits and traits.get("samples") != "either"):
        return None
    total, words = rollout
    if size is not None and size[1] >= 1 and float(size[1]).is_integer():
        return total, size[1], size[0], f"{words}, {size[0].key} = {size[1]:g}"
    if parts is not None and 1 <= parts[1] <= total:
        return total, total // parts[1], parts[0], f"{words}, {parts[0].key} = {parts[1]:g}"
    return None


def _rollout(view: RunView) -> tuple[float, str] | None:
    """Return the samples of a rollout where the configuration tells them, and in words how."""
    steps, envs = _number(view, "rollout_steps"), _number(view, "num_envs")
    size = _number(view, "rollout_size")
    if steps is not None and envs is not None:
        return steps[1] * envs[1], f"{steps[0].key} = {steps[1]:g}, {envs[0].key} = {envs[1]:g}"
    return (size[1], f"{size[0].key} = {size[1]:g}") if size is not None and size[1] >= 1 else None


@statistic("clip_range")
def token_clip_range(view: RunView) -> Fact | None:
    """Return the clip range of token or action ratios; None where it is that of sequences, or of weights."""
    clip = _number(view, "clip_range")
    kinds = [view.run.config.get(name) for name in ("importance_sampling_level", "loss_type")]
    if any(k is not None and str(k.value).lower() in ANOTHER_RANGE for k in kinds):
        return None
    logged = view.run.series.get("clip_range")
    if logged is not None and len(logged):  # a schedule says what it becomes, and the settings where it begins
        usual = median(logged.values)
        says = f"{logged.raw} is {usual:g} in the median"
        return fact(usual, logged, says, how="observed")
    if clip is None:
        return None
    return fact(clip[1], clip[0], f"{clip[0].key} = {clip[1]:g}", how="configured")


@statistic("kl_coef")
def kl_coefficient(view: RunView) -> Fact | None:
    """Return the least coefficient with which the KL to the reference is penalised, as configured, else as logged."""
    given = [n for name in ("kl_coef", "kl_loss_coef") if (n := _number(view, name)) is not None]
    if given:
        setting, value = min(given, key=lambda entry: entry[1])
        return fact(value, setting, f"{setting.key} = {value:g}", how="configured")
    logged = view.run.series.get("kl_coef")
    if logged is None or not len(logged):
        return None
    low = float(logged.values[-1])
    says = f"{logged.raw} at the end"
    return fact(low, logged, says, at=len(logged) - 1, how="observed")


@statistic("ptx_coef")
def pretraining_weight(view: RunView) -> Fact | None:
    """Return the coefficient of the pretraining loss that is mixed into the policy's (PPO-ptx)."""
    found = _number(view, "ptx_coef")
    return None if found is None else fact(found[1], found[0], f"{found[0].key} = {found[1]:g}", how="configured")


@statistic("precision+learning_rate")
def swallowed_step(view: RunView) -> Fact | None:
    """Return half a unit in the last place of a usual 16-bit weight over the learning rate; 0 for wider weights.

    Above 1 a step of Adam, which is about the learning rate, rounds away in a weight of that size.
    """
    rate, half = _number(view, "learning_rate"), view.fact("half_precision")
    if rate is None or rate[1] <= 0 or half is None:
        return None
    value = USUAL_WEIGHT * HALF_UNIT / rate[1] if half.value else 0.0
    says = f"{half.says}, {rate[0].key} = {rate[1]:g}, a weight of {USUAL_WEIGHT:g}"
    return fact(value, rate[0], says, "times the step", how="configured")


def _number(view: RunView, name: str) -> tuple[Setting, float] | None:
    """Return a setting that was found, and its value as a number."""
    value = view.given(name)
    return None if value is None else (view.run.config[name], value)


_OPERATORS: dict[str, Operator] = {"below": "<", "at most": "<=", "equals": "==", "above": ">"}
#: Records from which on a number that is always 0 says something.
FEWEST = 8
#: Numbers of environments that are tried where a configuration tells none.
USUAL_ENVS = (1, 2, 4, 8, 16)


def judged(view: RunView) -> list[Setting]:
    """Return the settings that were found, hold a number and have a domain, in the order of their names."""
    config = view.run.config
    names = sorted(domains.JUDGED & config.keys())
    return [config[name] for name in names if _judged(view, name)]


def _judged(view: RunView, name: str) -> bool:
    """Tell whether a setting is to be judged: the log overrules what it shows to be otherwise."""
    value, logged = _domain_number(view, name), view.run.series.get(name)
    if name in domains.OF_CRITICS and view.kind.critic.value == "no":
        return False
    if value is None or not view.configured(name) or _of_evaluation(view.run.config[name].key):
        return False
    known = logged.values[np.isfinite(logged.values)] if logged is not None else ()
    return not len(known) or bool(np.isclose(known, value, rtol=1e-3, atol=0.0).any())


def _domain_number(view: RunView, name: str) -> float | None:
    """Return a setting as a number; one that is not finite, which other quantities do not see, breaks a limit."""
    setting = view.run.config.get(name)
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    return float(setting.value)


def _of_evaluation(key: str) -> bool:
    return any(part.startswith(("val", "eval", "test")) for part in key.lower().split(".")[:-1])


def _offences(view: RunView) -> Iterator[tuple[str, Limit]]:
    run, kind = view.run, view.kind.samples.value or ""
    for name in sorted(domains.JUDGED & run.config.keys()):
        value = _domain_number(view, name)
        if value is None or not _judged(view, name):
            continue
        limit = domains.broken_limit(name, value, run.framework, kind)
        if limit is not None:
            yield name, limit


def _count(view: RunView, name: str, further: tuple[Evidence, ...] = ()) -> Fact | None:
    """Return how many settings break a limit that this quantity counts; None where none was there to be judged."""
    held = domains.counted_by(name, view.run.framework)
    if not any(_judged(view, setting) for setting in held & view.run.config.keys()):
        return None
    found = [_evidence(view, *offence) for offence in _offences(view) if offence[1].counted_by == name]
    return Fact(
        name=name, value=len(found) + len(further), how="configured", unit="settings", counted=(*found, *further)
    )


def _evidence(view: RunView, name: str, limit: Limit) -> Evidence:
    setting = view.run.config[name]
    value = _domain_number(view, name)
    default = detection.profile(view.run.framework).defaults.get(name)
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


def _counter(name: str, *settings: str) -> None:
    """Register the count of settings that break a limit as a statistic."""
    statistic(*settings, name=name)(lambda view: _count(view, name))


_counter(domains.RATE_NEGATIVE, "learning_rate")
_counter(domains.DISCOUNT, "gamma", "gae_lambda")
_counter(domains.CLIP_CLOSED, "clip_range")
_counter(domains.GRADIENT_CLOSED, "max_grad_norm")
_counter(domains.GREEDY, "temperature")
_counter(domains.GROUP_OF_ONE, "num_generations")


@statistic("ppo_epochs")
def no_update_configured(view: RunView) -> Fact | None:
    """Count settings of no pass, minibatch or sample, and a minibatch that no rollout fills where a part is dropped."""
    planned, size = view.fact("updates_planned"), view.run.config.get("minibatch_size")
    found = planned is not None and planned.how != "default" and planned.value == 0
    none = found and (view.number("ppo_epochs") or 0) > 0
    further = (_said(size, f"the rollout fills no minibatch of {size.value}"),) if none and size is not None else ()
    return _count(view, domains.NO_UPDATE, further)


@statistic("vf_coef", "critic_learning_rate")
def critic_untrained(view: RunView) -> Fact | None:
    """Count settings that do not train the critic, and a learning rate of its own or a loss that is always 0.

    A squared error of exactly 0 in every record is that of no critic, or has a coefficient of 0 in it.
    """
    told = view.kind.samples.value == "episodes" and _paid(view)
    for name in ("critic_learning_rate", "value_loss") if told else ("critic_learning_rate",):
        logged = view.run.series.get(name)
        if logged is not None and len(logged) >= FEWEST and logged.resolution.exact and logged.at(0).all():
            says = f"{logged.raw} is 0 in every record"
            return fact(1, logged, says, how="observed", name=domains.CRITIC_UNTRAINED)
    return _count(view, domains.CRITIC_UNTRAINED)


def _paid(view: RunView) -> bool:
    differ = view.fact("rewards_differ")
    return differ is not None and differ.value == 1


@statistic("learning_rate")
def settings_impossible(view: RunView) -> Fact | None:
    """Count values that no run can mean, and groups that the batch does not hold a whole number of."""
    return _count(view, domains.IMPOSSIBLE, tuple(_said(*each) for each in broken_groups(view)))


@statistic("learning_rate")
def settings_unusual(view: RunView) -> Fact | None:
    """Count settings outside what is in use, unknown words, and a minibatch that fits no number of environments."""
    unknown = tuple(
        _said(setting, f"{setting.key} = {setting.value} is none of those that we know: {', '.join(words)}")
        for setting, words, meant in words_unknown(view)
        if meant is None
    )
    return _count(view, domains.UNUSUAL, (*_odd_minibatch(view), *unknown))


@statistic("learning_rate")
def settings_misspelt(view: RunView) -> Fact | None:
    """Count keys that are nearly a setting of the framework which is not given, and words nearly one of its values."""
    run = view.run
    if not view.held & run.config.keys() and not run.misspelt:
        return None
    profile = detection.profile(run.framework)
    known = "" if profile.name == detection.CANONICAL else f" of {profile.title}"
    found = tuple(
        _said(setting, f"{setting.key} is no setting{known} that we know; did you mean {meant}, which {force}?")
        for meant, setting in run.misspelt.items()
        for force in [_in_force(view, profile, meant)]
    )
    found += tuple(
        _said(setting, f"{setting.key} = {setting.value} is no value of it that we know; did you mean {meant}?")
        for setting, _, meant in words_unknown(view)
        if meant is not None
    )
    return Fact(name="settings_misspelt", value=len(found), how="configured", unit="settings", counted=found)


def _in_use(view: RunView, native: str) -> Setting | None:
    """Return the setting of a name that the log prints, None where it prints none."""
    tail = native.rpartition(".")[2]
    held = (setting for setting in view.run.config.values() if setting.how != "default")
    return next((setting for setting in held if setting.key.rpartition(".")[2] == tail), None)


def _in_force(view: RunView, profile: Profile, native: str) -> str:
    """Return what holds while a setting is not given, in words: what the log prints, else a documented default."""
    used = _in_use(view, native)
    if used is not None:
        return f"is {used.value} in what the log prints"
    tail = native.rpartition(".")[2]
    names = (name for name, keys in profile.config.items() if tail in {key.rpartition(".")[2] for key in keys})
    default = next((profile.defaults[name] for name in names if name in profile.defaults), None)
    return "is not given" + ("" if default is None else f", so that its default, {default}, is in force")


def _odd_minibatch(view: RunView) -> Iterator[Evidence]:
    """Yield what is odd of a minibatch: larger than a rollout, or no part of it, by the environments told or any."""
    cut = cut_of(view)
    config, framework = view.run.config, view.run.framework
    left_over = detection.traits_of(framework).get("leftover_minibatch")
    as_default = tuple(detection.profile(framework).defaults.get(name) for name in ("rollout_size", "minibatch_size"))
    if cut is not None and cut[1] <= cut[0] and cut[0] % cut[1] and cut[:2] != as_default:
        left = left_over or "some are left over"
        yield _said(cut[2], f"{cut[3]}: a rollout of {cut[0]:g} samples is no multiple of {cut[1]:g}, and {left}")
    steps = view.number("rollout_steps")
    size, envs = view.number("minibatch_size"), view.number("num_envs")
    told = view.configured("num_envs")
    if not view.configured("minibatch_size") or left_over is None or None in (steps, size, envs):
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
            f"{words}, environments not told: divides the rollout of none of {many}, and {left_over}",
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


@statistic("loss+ref_kl+kl_coef")
def kl_term_share(view: RunView) -> Fact | None:
    """Return the coefficient of the KL term that the loss shows, over the configured one.

    None if the loss does not show it, or if no positive coefficient is configured.
    """
    shown = view.fact("kl_in_loss")
    coefficients = (view.given(name) for name in ("kl_loss_coef", "kl_coef"))
    positive = next((number for number in coefficients if number is not None and number > 0), None)
    if shown is None or positive is None or not isinstance(shown.value, float):
        return None
    return fact(shown.value / positive, shown, f"{shown.says}, over the configured {positive:g}", "of the configured")


#: Metrics that are small, and print as 0 with few digits.
SMALL_NUMBERS = ("learning_rate", "approx_kl", "grad_norm", "policy_loss")


@statistic("learning_rate")
def rate_left(view: RunView) -> Fact | None:
    """Return the last learning rate over its peak if it falls without a jump in the second half, else 1."""
    rate = view.logged("learning_rate", fewest=5)
    if rate is None:
        return None
    values = finite_of(rate.values)
    peak = float(values.max())
    if not peak > 0:
        return None
    half = values[len(values) // 2 :]
    falls = bool((np.diff(half) <= 1e-12 * peak).all()) and _gradual(half, peak)
    says = f"{rate.raw} falls from {peak:.3g} to {values[-1]:.3g}"
    left = float(values[-1]) / peak if falls else 1.0
    return fact(left, rate, says, "of the peak", how="observed")


def _gradual(half: FloatArray, peak: float) -> bool:
    """Return whether the rate changes over many records, as by a schedule, and not by a jump."""
    return bool(len(distinct(half)) > len(half) // 2 and np.abs(np.diff(half)).max(initial=0.0) < 0.3 * peak)


@statistic("learning_rate", "approx_kl", "grad_norm")
def printed_zeros(view: RunView) -> Fact | None:
    """Return the number of metrics that print as 0 in almost every record because the log prints too few digits."""
    held = [series for name in SMALL_NUMBERS if (series := view.run.series.get(name)) is not None]
    held = [series for series in held if np.isfinite(series.values).sum() >= 3]
    if not held:
        return None
    zeros = [s for s in held if s.resolution.absolute > 0 and np.mean(finite_of(s.values) == 0) >= 0.95]
    says = ", ".join(f"{s.raw} to ±{s.resolution.absolute:.0e}" for s in zeros) or "no small number prints as 0"
    return fact(len(zeros), zeros[0] if zeros else None, says, "metrics", how="observed")
