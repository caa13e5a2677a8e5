"""What a configuration plans: how far schedules, batches, discounts, clip ranges and penalties go."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ppo_doctor.arrays import median
from ppo_doctor.frameworks.planning import decay_is_off, planned_length
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import Setting

#: Frameworks that count rollout and minibatch in the same unit, and what becomes of a rest; those that whiten
#: advantages within a minibatch of one sample.
LEFT_OVER = {
    "sb3": "the last minibatch of each epoch holds the rest",
    "cleanrl": "one minibatch more holds the rest",
    "tianshou": "the last minibatch of each epoch holds the rest",
    "ml-agents": "the rest is dropped",
    "rllib-old": "the rest is dropped",
    "baselines-ppo1": "the rest is dropped",
    "torchrl": "the rest is dropped",
    "verl": "the trainer refuses to start",
    "rl-games": "the trainer refuses to start",
}
UNGUARDED = ("cleanrl",)
#: Share of the records, or of the run, in which what whitening makes of single samples shows.
SHOWN = 0.9
#: Losses and levels whose ratio is that of a sequence, which is clipped a hundred times closer, or whose clip range
#: caps a weight (CISPO).
ANOTHER_RANGE = ("sequence", "sequence_token", "gspo", "gspo-token", "gspo_token", "cispo")
#: Schedules that end nowhere.
ENDLESS = ("constant", "constant_with_warmup", "adaptive", "kl", "none", "fixed", "constant_schedule")
#: A weight of usual size in a language model, and the least share of it that half a unit in the last place of bf16 is.
USUAL_WEIGHT, HALF_UNIT = 0.02, 2.0**-9


def warmup_share(observations: Observations) -> Fact | None:
    """Return the share of the planned optimizer steps over which the learning rate warms up."""
    warmup, total = _number(observations, "warmup_steps"), _number(observations, "total_steps")
    if warmup is None or warmup[1] < 0:
        return None
    setting, steps = warmup
    if 0 < steps < 1:
        return _fact("warmup_share", steps, setting, f"{setting.key} = {steps:g}", "of the run")
    if total is None or total[1] <= 0:
        return None
    says = f"{setting.key} = {steps:g}, {total[0].key} = {total[1]:g}"
    return _fact("warmup_share", steps / total[1], setting, says, "of the run")


def decay_share(observations: Observations) -> Fact | None:
    """Return the share of the planned run over which the learning rate is set to decay."""
    decay, settings = _number(observations, "schedule_steps"), observations.run.config_raw
    if decay is None or decay[1] <= 0 or decay_is_off(settings):
        return None
    setting, steps = decay
    planned = planned_length(setting.key, settings)
    if planned is None or planned[1] < steps:
        return None
    share = steps / planned[1]
    says = f"{setting.key} = {steps:g}, {planned[0]} = {planned[1]:g}: the rate decays over {share:.0%} of the run"
    return _fact("decay_share", share, setting, says, "of the run")


def last_minibatch_samples(observations: Observations) -> Fact | None:
    """Return the samples of the last minibatch, for trainers that keep it and whiten advantages within it.

    1 where every minibatch holds one, and the log shows what whitening makes of it: a surrogate of 0, or of NaN.
    """
    alone = observations.fact("minibatch_of_one")
    shown = [observations.fact(name) for name in ("surrogate_zero_share", "nonfinite_from", "numbers_lost")]
    if alone is not None and alone.value == 1 and any(one is not None and _is_so(one.value) for one in shown):
        return dataclasses.replace(alone, name="last_minibatch_samples", unit="samples")
    cut, whitened = cut_of(observations), observations.setting("normalize_advantages")
    per_minibatch = observations.setting("normalize_per_minibatch")
    alike = observations.run.framework in UNGUARDED or (
        observations.run.framework == "canonical" and per_minibatch is not None and per_minibatch.value is True
    )
    if cut is None or not alike or (whitened is not None and whitened.value is False):
        return None
    rollout, minibatch, setting, says = cut
    return _fact("last_minibatch_samples", rollout % minibatch or minibatch, setting, says, "samples")


def _is_so(value: object) -> bool:
    return isinstance(value, int | float) and value >= SHOWN


def cut_of(observations: Observations) -> tuple[float, float, Setting, str] | None:
    """Return the samples of a rollout and of a minibatch, with the setting that cuts and how both follow."""
    rollout = _rollout(observations)
    parts, size = _number(observations, "num_minibatches"), _number(observations, "minibatch_size")
    if rollout is None or observations.run.framework not in (*LEFT_OVER, "canonical"):
        return None
    total, words = rollout
    if size is not None and size[1] >= 1 and float(size[1]).is_integer():
        return total, size[1], size[0], f"{words}, {size[0].key} = {size[1]:g}"
    if parts is not None and 1 <= parts[1] <= total:
        return total, total // parts[1], parts[0], f"{words}, {parts[0].key} = {parts[1]:g}"
    return None


def _rollout(observations: Observations) -> tuple[float, str] | None:
    """Return the samples of a rollout where the configuration tells them, and in words how."""
    steps, envs = _number(observations, "rollout_steps"), _number(observations, "num_envs")
    size = _number(observations, "rollout_size")
    if steps is not None and envs is not None:
        return steps[1] * envs[1], f"{steps[0].key} = {steps[1]:g}, {envs[0].key} = {envs[1]:g}"
    return (size[1], f"{size[0].key} = {size[1]:g}") if size is not None and size[1] >= 1 else None


def token_clip_range(observations: Observations) -> Fact | None:
    """Return the clip range of token or action ratios; None where it is that of sequences, or of weights."""
    clip = _number(observations, "clip_range")
    kinds = [observations.run.config.get(name) for name in ("importance_sampling_level", "loss_type")]
    if any(k is not None and str(k.value).lower() in ANOTHER_RANGE for k in kinds):
        return None
    logged = observations.run.series.get("clip_range")
    if logged is not None and len(logged):  # a schedule says what it becomes, and the settings where it begins
        usual = median(logged.values)
        says = f"{logged.raw} is {usual:g} in the median"
        return Fact(name="token_clip_range", value=usual, how="observed", source=logged.source(), says=says)
    if clip is None:
        return None
    return _fact("token_clip_range", clip[1], clip[0], f"{clip[0].key} = {clip[1]:g}")


def kl_coefficient(observations: Observations) -> Fact | None:
    """Return the least coefficient with which the KL to the reference is penalised, as configured, else as logged."""
    given = [n for name in ("kl_coef", "kl_loss_coef") if (n := _number(observations, name)) is not None]
    if given:
        setting, value = min(given, key=lambda entry: entry[1])
        return _fact("kl_coefficient", value, setting, f"{setting.key} = {value:g}")
    logged = observations.run.series.get("kl_coef")
    if logged is None or not len(logged):
        return None
    low = float(logged.values[-1])
    says = f"{logged.raw} at the end"
    return Fact(name="kl_coefficient", value=low, how="observed", source=logged.source(len(logged) - 1), says=says)


def pretraining_weight(observations: Observations) -> Fact | None:
    """Return the coefficient of the pretraining loss that is mixed into the policy's (PPO-ptx)."""
    found = _number(observations, "ptx_coef")
    return None if found is None else _fact("pretraining_weight", found[1], found[0], f"{found[0].key} = {found[1]:g}")


def swallowed_step(observations: Observations) -> Fact | None:
    """Return half a unit in the last place of a usual 16-bit weight over the learning rate; 0 for wider weights.

    Above 1 a step of Adam, which is about the learning rate, rounds away in a weight of that size.
    """
    rate, half = _number(observations, "learning_rate"), observations.fact("half_precision")
    if rate is None or rate[1] <= 0 or half is None:
        return None
    value = USUAL_WEIGHT * HALF_UNIT / rate[1] if half.value else 0.0
    says = f"{half.says}, {rate[0].key} = {rate[1]:g}, a weight of {USUAL_WEIGHT:g}"
    return _fact("swallowed_step", value, rate[0], says, "times the step")


def _number(observations: Observations, name: str) -> tuple[Setting, float] | None:
    """Return a setting that was found, and its value as a number."""
    value = observations.number(name)
    if value is None or not observations.configured(name):
        return None
    return observations.run.config[name], value


def _fact(name: str, value: float, setting: Setting, says: str, unit: str = "") -> Fact:
    return Fact(name=name, value=value, how="configured", unit=unit, source=setting.source, says=says)
