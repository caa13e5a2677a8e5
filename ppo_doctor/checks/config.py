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

#: Fewest letters of a word that is corrected: shorter ones are all near one another.
SHORTEST = 4


def words_unknown(view: RunView) -> Iterator[tuple[Setting, tuple[str, ...], str | None]]:
    """Yield settings with a word that is not on the trainer's list, the list, and its word that is one slip away."""
    trainer = detection.known_profile(view.run.framework)
    for name, setting in view.run.config.items():
        known = trainer.words.get(name) if trainer is not None else None
        if not known or setting.how == "default" or not isinstance(setting.value, str):
            continue
        word = setting.value.lower()
        if word in known or not word.replace("-", "_").isidentifier():
            continue  # a reference, an empty word or a path
        near = (other for other in known if len(other) >= SHORTEST and one_slip(word, other))
        yield setting, known, next(near, None)


#: Share of the records, or of the run, in which whitening of single samples has to show.
SHOWN = 0.9
#: Losses and levels with the ratio of a sequence, whose clip range is a hundred times smaller, or with a clip range of
#: weights (CISPO).
ANOTHER_RANGE = ("sequence", "sequence_token", "gspo", "gspo-token", "gspo_token", "cispo")
#: Usual size of a weight in a language model, and half a unit in the last place of bf16 as a share of it, at least.
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

    1 if every minibatch has one sample and the log shows the result of whitening it: a policy loss of 0 or NaN.
    """
    alone = view.fact("minibatch_of_one")
    shown = [view.fact(name) for name in ("surrogate_zero_share", "nonfinite_from", "numbers_lost")]
    if (
        alone is not None
        and alone.value == 1
        and any(one is not None and (one.number or 0.0) >= SHOWN for one in shown)
    ):
        return dataclasses.replace(alone, name="last_minibatch_samples", unit="samples")
    division, whitened = cut_of(view), view.setting("normalize_advantages")
    per_minibatch = view.setting("normalize_per_minibatch")
    traits = detection.traits_of(view.run.framework)
    whitens_single = "whitens_single_samples" in traits or (
        view.run.framework == "canonical" and per_minibatch is not None and per_minibatch.value is True
    )
    if division is None or not whitens_single or (whitened is not None and whitened.value is False):
        return None
    rollout, minibatch, setting, says = division
    return fact(rollout % minibatch or minibatch, setting, says, "samples", how="configured")


def cut_of(view: RunView) -> tuple[float, float, Setting, str] | None:
    """Return the samples of a rollout and of a minibatch, the setting that divides it, and both in words."""
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
    """Return the samples of a rollout if they are configured, and the settings in words."""
    steps, envs = _number(view, "rollout_steps"), _number(view, "num_envs")
    size = _number(view, "rollout_size")
    if steps is not None and envs is not None:
        return steps[1] * envs[1], f"{steps[0].key} = {steps[1]:g}, {envs[0].key} = {envs[1]:g}"
    return (size[1], f"{size[0].key} = {size[1]:g}") if size is not None and size[1] >= 1 else None


@statistic("clip_range")
def token_clip_range(view: RunView) -> Fact | None:
    """Return the clip range of token or action ratios; None if it is that of sequences, or of weights."""
    clip = _number(view, "clip_range")
    kinds = [view.run.config.get(name) for name in ("importance_sampling_level", "loss_type")]
    if any(k is not None and str(k.value).lower() in ANOTHER_RANGE for k in kinds):
        return None
    logged = view.run.series.get("clip_range")
    if logged is not None and len(logged):  # a schedule changes what the settings begin with
        usual = median(logged.values)
        says = f"{logged.raw} is {usual:g} in the median"
        return fact(usual, logged, says, how="observed")
    if clip is None:
        return None
    return fact(clip[1], clip[0], f"{clip[0].key} = {clip[1]:g}", how="configured")


@statistic("kl_coef")
def kl_coefficient(view: RunView) -> Fact | None:
    """Return the least coefficient of a penalty on the KL to the reference: configured, else the last logged."""
    configured = [n for name in ("kl_coef", "kl_loss_coef") if (n := _number(view, name)) is not None]
    if configured:
        setting, value = min(configured, key=lambda entry: entry[1])
        return fact(value, setting, f"{setting.key} = {value:g}", how="configured")
    logged = view.run.series.get("kl_coef")
    if logged is None or not len(logged):
        return None
    low = float(logged.values[-1])
    says = f"{logged.raw} at the end"
    return fact(low, logged, says, at=len(logged) - 1, how="observed")


@statistic("ptx_coef")
def pretraining_weight(view: RunView) -> Fact | None:
    """Return the coefficient of the pretraining loss that is added to the policy's (PPO-ptx)."""
    coefficient = _number(view, "ptx_coef")
    return (
        None
        if coefficient is None
        else fact(coefficient[1], coefficient[0], f"{coefficient[0].key} = {coefficient[1]:g}", how="configured")
    )


@statistic("precision+learning_rate")
def swallowed_step(view: RunView) -> Fact | None:
    """Return half a unit in the last place of a usual 16-bit weight over the learning rate; 0 for wider weights.

    Above 1 a step of Adam, which is about the learning rate, is lost to rounding in a weight of that size.
    """
    rate, half = _number(view, "learning_rate"), view.fact("half_precision")
    if rate is None or rate[1] <= 0 or half is None:
        return None
    value = USUAL_WEIGHT * HALF_UNIT / rate[1] if half.value else 0.0
    says = f"{half.says}, {rate[0].key} = {rate[1]:g}, a weight of {USUAL_WEIGHT:g}"
    return fact(value, rate[0], says, "times the step", how="configured")


def _number(view: RunView, name: str) -> tuple[Setting, float] | None:
    """Return a configured setting with its value as a number."""
    value = view.given(name)
    return None if value is None else (view.run.config[name], value)


_OPERATORS: dict[str, Operator] = {"below": "<", "at most": "<=", "equals": "==", "above": ">"}
#: Fewest records of a metric that is always 0.
FEWEST = 8
#: Numbers of environments that are tried if none is configured.
USUAL_ENVS = (1, 2, 4, 8, 16)


def judged(view: RunView) -> list[Setting]:
    """Return the configured numeric settings that have limits, in the order of their names."""
    config = view.run.config
    names = sorted(domains.JUDGED & config.keys())
    return [config[name] for name in names if _judged(view, name)]


def _judged(view: RunView, name: str) -> bool:
    """Return whether a setting is compared with its limits; not if the log shows other values."""
    value, logged = _domain_number(view, name), view.run.series.get(name)
    if name in domains.OF_CRITICS and view.kind.critic.value == "no":
        return False
    if value is None or not view.configured(name) or _of_evaluation(view.run.config[name].key):
        return False
    known = logged.values[np.isfinite(logged.values)] if logged is not None else ()
    return not len(known) or bool(np.isclose(known, value, rtol=1e-3, atol=0.0).any())


def _domain_number(view: RunView, name: str) -> float | None:
    """Return a setting as a number, also one that is not finite: other statistics skip it, but it breaks a limit."""
    setting = view.run.config.get(name)
    if setting is None or isinstance(setting.value, str | bool | None):
        return None
    return float(setting.value)


def _of_evaluation(key: str) -> bool:
    """Return whether a key is in a section of validation, evaluation or tests."""
    return any(part.startswith(("val", "eval", "test")) for part in key.lower().split(".")[:-1])


def _offences(view: RunView) -> Iterator[tuple[str, Limit]]:
    """Yield the settings that break a limit, with the limit."""
    run, kind = view.run, view.kind.samples.value or ""
    for name in sorted(domains.JUDGED & run.config.keys()):
        value = _domain_number(view, name)
        if value is None or not _judged(view, name):
            continue
        limit = domains.broken_limit(name, value, run.framework, kind)
        if limit is not None:
            yield name, limit


def _count(view: RunView, name: str, further: tuple[Evidence, ...] = ()) -> Fact | None:
    """Return how many settings break a limit that this statistic counts; None if there is none to compare."""
    settings = domains.counted_by(name, view.run.framework)
    if not any(_judged(view, setting) for setting in settings & view.run.config.keys()):
        return None
    broken = [_evidence(view, *offence) for offence in _offences(view) if offence[1].counted_by == name]
    return Fact(
        name=name, value=len(broken) + len(further), how="configured", unit="settings", counted=(*broken, *further)
    )


def _evidence(view: RunView, name: str, limit: Limit) -> Evidence:
    """Return the evidence of a setting that breaks a limit."""
    setting = view.run.config[name]
    value = _domain_number(view, name)
    default = detection.profile(view.run.framework).defaults.get(name)
    known = f"; the default is {default:g}" if isinstance(default, int | float) else ""
    if value is None or not np.isfinite(value):
        return _sentence(setting, f"{setting.key} is {value}: {limit.why}{known}")
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
    """Count settings without passes, minibatches or samples, and a minibatch that no rollout fills."""
    planned, size = view.fact("updates_planned"), view.run.config.get("minibatch_size")
    no_steps = planned is not None and planned.how != "default" and planned.value == 0
    no_minibatch = no_steps and (view.number("ppo_epochs") or 0) > 0
    further = (
        (_sentence(size, f"the rollout fills no minibatch of {size.value}"),)
        if no_minibatch and size is not None
        else ()
    )
    return _count(view, domains.NO_UPDATE, further)


@statistic("vf_coef", "critic_learning_rate")
def critic_untrained(view: RunView) -> Fact | None:
    """Count settings that do not train the critic; 1 if its own learning rate or its loss is always 0.

    The loss counts in runs on episodes with different rewards: there a squared error of exactly 0 was not computed or
    is multiplied by 0.
    """
    loss_counts = view.kind.samples.value == "episodes" and view.holds("rewards_differ")
    for name in ("critic_learning_rate", "value_loss") if loss_counts else ("critic_learning_rate",):
        logged = view.run.series.get(name)
        if logged is not None and len(logged) >= FEWEST and logged.resolution.exact and logged.at(0).all():
            says = f"{logged.raw} is 0 in every record"
            return fact(1, logged, says, how="observed", name=domains.CRITIC_UNTRAINED)
    return _count(view, domains.CRITIC_UNTRAINED)


@statistic("learning_rate")
def settings_impossible(view: RunView) -> Fact | None:
    """Count values that no run can have, and groups that do not divide the batch."""
    return _count(view, domains.IMPOSSIBLE, tuple(_sentence(*each) for each in broken_groups(view)))


@statistic("learning_rate")
def settings_unusual(view: RunView) -> Fact | None:
    """Count settings outside what is in use, unknown words, and a minibatch that divides no rollout."""
    unknown = tuple(
        _sentence(setting, f"{setting.key} = {setting.value} is none of those that we know: {', '.join(words)}")
        for setting, words, meant in words_unknown(view)
        if meant is None
    )
    return _count(view, domains.UNUSUAL, (*_odd_minibatch(view), *unknown))


@statistic("learning_rate")
def settings_misspelt(view: RunView) -> Fact | None:
    """Count keys that are nearly an absent setting of the trainer, and words that are nearly one of its values."""
    run = view.run
    if not view.held & run.config.keys() and not run.misspelt:
        return None
    profile = detection.profile(run.framework)
    known = "" if profile.name == detection.CANONICAL else f" of {profile.title}"
    misspelt = tuple(
        _sentence(setting, f"{setting.key} is no setting{known} that we know; did you mean {meant}, which {force}?")
        for meant, setting in run.misspelt.items()
        for force in [_in_force(view, profile, meant)]
    )
    misspelt += tuple(
        _sentence(setting, f"{setting.key} = {setting.value} is no value of it that we know; did you mean {meant}?")
        for setting, _, meant in words_unknown(view)
        if meant is not None
    )
    return Fact(name="settings_misspelt", value=len(misspelt), how="configured", unit="settings", counted=misspelt)


def _in_use(view: RunView, native: str) -> Setting | None:
    """Return the setting with the name that the log prints; None if it prints none."""
    tail = native.rpartition(".")[2]
    settings = (setting for setting in view.run.config.values() if setting.how != "default")
    return next((setting for setting in settings if setting.key.rpartition(".")[2] == tail), None)


def _in_force(view: RunView, profile: Profile, native: str) -> str:
    """Return what applies while a setting is absent, in words: what the log prints, else a documented default."""
    used = _in_use(view, native)
    if used is not None:
        return f"is {used.value} in what the log prints"
    tail = native.rpartition(".")[2]
    names = (name for name, keys in profile.config.items() if tail in {key.rpartition(".")[2] for key in keys})
    default = next((profile.defaults[name] for name in names if name in profile.defaults), None)
    return "is not given" + ("" if default is None else f", so that its default, {default}, is in force")


def _odd_minibatch(view: RunView) -> Iterator[Evidence]:
    """Yield a minibatch that is larger than a rollout or does not divide it, for known or any usual environments."""
    cut = cut_of(view)
    config, framework = view.run.config, view.run.framework
    left_over = detection.traits_of(framework).get("leftover_minibatch")
    as_default = tuple(detection.profile(framework).defaults.get(name) for name in ("rollout_size", "minibatch_size"))
    if cut is not None and cut[1] <= cut[0] and cut[0] % cut[1] and cut[:2] != as_default:
        left = left_over or "some are left over"
        yield _sentence(cut[2], f"{cut[3]}: a rollout of {cut[0]:g} samples is no multiple of {cut[1]:g}, and {left}")
    steps = view.number("rollout_steps")
    size, envs = view.number("minibatch_size"), view.number("num_envs")
    envs_configured = view.configured("num_envs")
    if not view.configured("minibatch_size") or left_over is None or None in (steps, size, envs):
        return
    rollout, minibatch, setting = float(steps or 0), float(size or 0), config["minibatch_size"]
    if rollout < 1 or minibatch < 1:
        return
    words = f"{setting.key} = {minibatch:g}, {config['rollout_steps'].key} = {rollout:g}"
    if minibatch > rollout * float(envs or 1):
        yield _sentence(
            setting, f"{words}: a rollout of {envs:g} environments{'' if envs_configured else ', the default,'} is less"
        )
    elif not envs_configured and all(rollout * number % minibatch for number in USUAL_ENVS):
        many = ", ".join(map(str, USUAL_ENVS))
        yield _sentence(
            setting,
            f"{words}, environments not told: divides the rollout of none of {many}, and {left_over}",
        )


def _sentence(setting: Setting, text: str) -> Evidence:
    """Return evidence that is a sentence."""
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


#: Metrics that are small, so that they print as 0 with few digits.
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
    logged = [series for name in SMALL_NUMBERS if (series := view.run.series.get(name)) is not None]
    logged = [series for series in logged if np.isfinite(series.values).sum() >= 3]
    if not logged:
        return None
    zeros = [s for s in logged if s.resolution.absolute > 0 and np.mean(finite_of(s.values) == 0) >= 0.95]
    says = ", ".join(f"{s.raw} to ±{s.resolution.absolute:.0e}" for s in zeros) or "no small number prints as 0"
    return fact(len(zeros), zeros[0] if zeros else None, says, "metrics", how="observed")
