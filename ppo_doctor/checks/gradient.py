"""Statistics of the gradient norm (zero, below Adam's epsilon, overflow, clipping), precision and adaptive rates."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.series import (
    condition,
    condition_series,
    fact,
    finite,
    zero_share,
)
from ppo_doctor.checks.statistics import statistic
from ppo_doctor.model.arrays import beside, finite_median, finite_of, same
from ppo_doctor.model.run import CONDITION, Fact, Series
from ppo_doctor.trainers import detection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import BoolArray, FloatArray, Setting
    from ppo_doctor.model.words import ConfigValue

#: Warnings of PyTorch for a checkpointed block, or a loss, without an input that requires a gradient.
NO_GRADIENT = ("None of the inputs have requires_grad", "does not require grad")


@statistic("grad_norm", "actor_grad_norm")
def gradient_said_missing(view: RunView) -> Fact | None:
    """Return whether PyTorch warned that no input requires a gradient and the logged norm is 0 in print.

    A forward pass without gradients, such as the reference model's, gives the same warning, but the norm is then not 0.
    """
    series = view.logged("actor_grad_norm", "grad_norm")
    warning = next((note for note in view.run.notes if any(text in note.text for text in NO_GRADIENT)), None)
    if series is None or not len(finite(series)):
        return None
    holds = warning is not None and bool((finite(series) == 0).all())
    says = f"{series.raw} is 0 in every record" + (f"; {warning.text}" if warning is not None else "")
    return condition(holds, warning or series, says)


@statistic("loss+grad_norm+reward_std")
def silent_on_paid_batches(view: RunView) -> Fact | None:
    """Return whether loss and gradient are exactly 0 although rewards differ within the groups."""
    loss, deviations = view.logged("loss"), view.logged("reward_std")
    flat = view.logged("frac_reward_zero_std")
    zeros = zero_share(view.logged("actor_grad_norm", "grad_norm"))
    if loss is None or deviations is None or zeros is None:
        return None
    silent = float((finite(loss) == 0).mean()) > 0.9 and zeros > 0.9
    differ = float(finite_median(deviations.values)) > 0 and (flat is None or float(finite_median(flat.values)) < 0.9)
    says = f"{loss.raw} and the gradient are exactly 0 while {deviations.raw} is {finite_median(deviations.values):.3g}"
    return condition(silent and differ, loss, says)


@statistic("grad_norm+truncated_fraction")
def silent_where_all_cut(view: RunView) -> Fact | None:
    """Return whether the gradient is exactly 0 in just those records in which every completion was truncated."""
    cut, norms = view.logged("truncated_fraction"), view.logged("grad_norm")
    if cut is None or norms is None:
        return None
    by_step = dict(zip(norms.axis.steps.tolist(), norms.values.tolist(), strict=True))
    pairs = [
        (share, by_step[step])
        for step, share in zip(cut.axis.steps.tolist(), cut.values, strict=True)
        if step in by_step
    ]
    whole = [norm for share, norm in pairs if share >= 0.999]
    rest = [norm for share, norm in pairs if share < 0.999]
    holds = bool(whole and rest) and not any(whole) and sum(n > 0 for n in rest) >= 0.9 * len(rest)
    says = f"{norms.raw} is 0 in the {len(whole)} records in which {cut.raw} is 1, and above 0 in the others"
    return condition(holds, norms, says)


@statistic("max_grad_norm")
def clip_norm(view: RunView) -> Fact | None:
    """Return the configured bound of the gradient norm."""
    bound = view.given("max_grad_norm")
    return None if bound is None else fact(bound, None, f"gradients are clipped to a norm of {bound:g}")


@statistic("minibatch_size", "num_minibatches+rollout_steps")
def minibatch_of_one(view: RunView) -> Fact | None:
    """Return whether the settings make minibatches of one sample although advantages are normalised."""
    normalised = view.run.config.get("normalize_advantages")
    if normalised is not None and normalised.value is False:
        return None
    setting, size = _minibatch(view)
    if setting is None and _single_sample(view):
        return condition(True, None, "batch_size = 1")
    if setting is None or size is None or size <= 0:
        return None
    return condition(size <= 1, setting, f"a minibatch holds {size:g} samples", how="configured")


def _single_sample(view: RunView) -> bool:
    """Return whether the batch size of an unknown trainer is 1, be it a rollout's or a minibatch's."""
    size = view.run.config_raw.get("batch_size")
    return size == 1 and size is not True and view.holds("completions") is not True


def _minibatch(view: RunView) -> tuple[Setting | None, float | None]:
    """Return the setting that gives the samples of a minibatch, and their number; None for what is not configured."""
    config = view.run.config
    if view.configured("minibatch_size"):
        return config["minibatch_size"], view.number("minibatch_size")
    if not all(map(view.configured, ("num_minibatches", "rollout_steps"))):
        return None, None
    steps, parts = view.number("rollout_steps"), view.number("num_minibatches")
    size = None if not steps or not parts else steps * (view.number("num_envs") or 1) / parts
    return config["num_minibatches"], size


#: Least number of parameters of a policy: a coordinate's rms gradient is then at most a tenth of the norm.
FEWEST_PARAMETERS = 100
#: Native names of Adam's epsilon (transformers, torch optimizers in a configuration, this project's canonical form).
EPSILON_KEYS = ("adam_eps", "adam_epsilon", "optimizer_eps", "optim_eps")
EPSILON_TAILS = ("optimizer_kwargs.eps", "optim.eps", "optimizer.eps")
DTYPE_KEYS = ("torch_dtype", "model_dtype", "param_dtype", "dtype")
#: Parts of keys of formats that are not the weights': of autocast, of the rollout engine, of other models.
NOT_WEIGHTS = frozenset(
    {
        *("mixed_precision", "megatron", "rollout", "actor_infer", "generation", "vllm", "sglang", "engine", "ds"),
        *("ref", "reference", "critic", "reward_model", "reward", "rm"),
    }
)
#: Values that leave the format to another setting.
UNDECIDED = ("auto", "none", "")
HALF = ("bf16", "bfloat16", "fp16", "float16", "half")
#: Keys of engines that keep a float32 copy of 16-bit weights for the optimizer: DeepSpeed's ZeRO, FSDP in transformers,
#: Megatron's distributed optimizer. verl's FSDP keeps weights in its model_dtype.
ENGINES = frozenset(
    {"deepspeed", "deepspeed_config", "use_deepspeed", "zero_stage", "fsdp", "use_distributed_optimizer"}
)
#: Keys whose value may name such an engine, and parts of its names.
ENGINE_NAMED_BY, ENGINE_NAMES = ("strategy", "distributed_type", "config_file"), ("deepspeed", "zero", "megatron")
#: Values that switch an engine off.
OFF = ("", "none", "false", "0", "no")
#: Bounds of the adaptive learning rate in rsl_rl (rsl_rl/algorithms/ppo.py), and the lower one of skrl
#: (skrl/resources/schedulers/torch/kl_adaptive.py).
BOUNDS = (1e-6, 1e-5, 1e-2)
#: Factor of one change of the rate (several at once, if each minibatch counts), tolerance, fewest such changes.
NOTCH, NEAR_NOTCH, FEWEST_NOTCHES = 1.5, 0.01, 3
#: Tolerance for a single change of several notches: one in 500 is that near by chance.
ONE_CHANGE = 0.001
#: Records that are tested first, since most schedules differ there.
FIRST_CHANGES = 64


@statistic("grad_norm")
def gradient_over_epsilon(view: RunView) -> Fact | None:
    """Return an upper bound of a coordinate's rms gradient over Adam's epsilon; below 1 epsilon shrinks the step.

    Adam's step is lr·m/(sqrt(v) + eps): with sqrt(v) far below eps it is gradient descent at lr/eps. With N parameters
    the rms gradient of a coordinate is the norm over sqrt(N), and N is at least 100.
    """
    eps = _epsilon(view)
    norm = view.run.series.get("grad_norm")
    usual = finite_median(norm.values) if norm is not None else math.nan
    limit = view.number("max_grad_norm")
    if view.configured("max_grad_norm") and limit:
        usual = min(usual, limit) if np.isfinite(usual) else limit
    if eps is None or not usual > 0:
        return None
    value = usual / math.sqrt(FEWEST_PARAMETERS) / eps
    of = norm if norm is not None and len(norm) else view.run.config["max_grad_norm"]
    says = f"gradient norm {usual:.3g} after clipping, epsilon {eps:g}"
    return fact(value, of, says, "times")


def _epsilon(view: RunView) -> float | None:
    """Return Adam's configured epsilon; None if it is unknown or 0."""
    configured = view.given("adam_eps")
    if configured is not None:
        return configured if configured > 0 else None
    for key, value in view.run.config_raw.items():
        if (key in EPSILON_KEYS or key.endswith(EPSILON_TAILS)) and isinstance(value, int | float):
            return float(value) if value > 0 else None
    return None


@statistic("skipped_steps")
def skipped_share(view: RunView) -> Series | None:
    """Return the share of a record's optimizer steps that the loss scaler skipped."""
    skipped = view.run.series.get("skipped_steps")
    if skipped is None or not len(skipped):
        return None
    planned = view.run.facts.get("updates_configured")
    executed = view.run.series.get("optimizer_steps")
    if planned is not None and planned.how != "default" and planned.number is not None:
        whole: FloatArray = np.full(len(skipped), planned.number)
    elif (executed := beside(skipped, executed)) is not None:
        whole = executed.values + skipped.values
    else:
        return None
    values = np.minimum(1.0, skipped.values / np.maximum(whole, 1.0))
    return dataclasses.replace(skipped, name="skipped_share", values=values, unit="of the steps", how="computed")


@statistic("precision")
def half_precision(view: RunView) -> Fact | None:
    """Return 1 if the configuration stores weights in 16 bits, 0 if in more; None if only autocast is configured."""
    setting = view.run.config.get("precision")
    raw = view.run.config_raw
    named = setting.value if setting is not None else next((raw[key] for key in raw if _of_weights(key)), None)
    if not isinstance(named, str):
        return None
    word = named.lower().removeprefix("torch.")
    if word in UNDECIDED:
        return None
    engine = _engine_with_copy(raw) if word in HALF else None
    says = f"weights in {named}" + (f" with a float32 copy ({engine})" if engine else "")
    value = float(word in HALF and engine is None)
    return fact(value, setting, says, CONDITION, how="configured")


def _engine_with_copy(raw: Mapping[str, ConfigValue]) -> str | None:
    """Return the setting that runs the optimizer on a float32 copy of the weights; None if there is none."""
    for key, value in raw.items():
        *above, last = key.lower().split(".")
        word = str(value).lower()
        by_key = not {last, *above}.isdisjoint(ENGINES) and word not in OFF
        by_value = last in ENGINE_NAMED_BY and any(name in word for name in ENGINE_NAMES)
        if by_key or by_value:
            return f"{key} = {value}"
    return None


def _of_weights(key: str) -> bool:
    """Return whether a key is the number format of the policy's weights, not of computations with them."""
    *above, last = key.lower().split(".")
    return last in DTYPE_KEYS and not NOT_WEIGHTS & set(above)


@statistic("learning_rate+desired_kl")
def controller_idle(view: RunView) -> Series | None:
    """Return 1 in records in which an adaptive rate cannot follow the KL or is at or next to a limit, else 0.

    rsl_rl divides or multiplies by 1.5 outside half to twice the desired KL, within 1e-5 to 1e-2. Without a logged or a
    desired KL, a rate at a bound or one notch inside counts as unable to follow. So does a rate that moves there: if
    the KL scatters around what the last notch gives, the rate bounces off the bound repeatedly. A controller that is
    not configured is recognised by its notches.
    """
    rate = view.run.series.get("learning_rate")
    if rate is None or len(rate) < 3 or _fixed(view):
        return None
    adaptive = "adaptive_learning_rate" in view.run.facts or view.configured("desired_kl")
    if not adaptive and not _moves_by_notches(rate.values):
        return None
    level = bool(same(finite_of(rate.values), float(np.nanmax(rate.values))).all())
    if level and not _at_a_bound(rate.values[:1]).any():
        return None  # never changed and not at a bound: a fixed schedule
    stays = same(rate.values[1:], rate.values[:-1])
    wanted = _wants_change(view, rate)[1:]
    axis = rate.axis.take(np.arange(1, len(rate)))
    at_bounds = np.where(stays, wanted | _at_a_bound(rate.values[1:]), _next_to_a_bound(rate.values[1:]))
    says = f"{rate.raw} at a bound, next to it, or unmoved although the KL asks for another,"
    return condition_series(dataclasses.replace(rate, axis=axis), "controller_idle", at_bounds.astype(np.float64), says)


def _moves_by_notches(rates: FloatArray) -> bool:
    """Return whether every change of a rate is a whole power of 1.5, unless it ends at a bound."""
    known = rates[np.isfinite(rates) & (rates > 0)]
    return _by_notches(known[:FIRST_CHANGES], fewest=0) and _by_notches(known)


def _by_notches(rates: FloatArray, *, fewest: int = FEWEST_NOTCHES) -> bool:
    """Return whether the changes of these rates are whole powers of 1.5, and enough of them."""
    notches = np.log(rates[1:] / rates[:-1]) / np.log(NOTCH)
    moves = notches[(np.abs(notches) > NEAR_NOTCH) & ~_at_a_bound(rates[1:])]
    whole = np.round(moves)
    off = np.abs(moves - whole)
    enough = len(moves) >= fewest or (np.abs(whole).sum() >= fewest and bool(np.all(off < ONE_CHANGE)))
    return enough and bool(np.all((whole != 0) & (off < NEAR_NOTCH)))


def _at_a_bound(rates: FloatArray) -> BoolArray:
    """Return where a rate is at one of the bounds."""
    return np.asarray(np.logical_or.reduce([same(rates, bound) for bound in BOUNDS]))


def _next_to_a_bound(rates: FloatArray) -> BoolArray:
    """Return where a rate is at one of the bounds, or within one notch of it."""
    reach = NOTCH ** (1 + NEAR_NOTCH)
    return np.asarray(np.logical_or.reduce([(rates >= bound / reach) & (rates <= bound * reach) for bound in BOUNDS]))


def _fixed(view: RunView) -> bool:
    """Return whether a schedule is configured that does not adapt to the KL."""
    schedule = view.run.config.get("lr_schedule")
    return schedule is not None and str(schedule.value).lower() not in ("adaptive", "kl", "kladaptive", "kladaptivelr")


def _wants_change(view: RunView, rate: Series) -> BoolArray:
    """Return where a controller would change the rate: by the KL if it is known, else next to a bound."""
    kl, desired = beside(rate, view.series("kl_size")), view.number("desired_kl")
    if kl is not None and desired:
        return (kl.values > 2 * desired) | ((kl.values < desired / 2) & ~kl.at(0))
    return _next_to_a_bound(rate.values)


@statistic("grad_norm", "actor_grad_norm")
def policy_gradient(view: RunView) -> Series | None:
    """Return the gradient norm of the policy if it is logged, else that of everything that is trained."""
    series = view.run.series
    return series.get("actor_grad_norm", series.get("grad_norm"))


@statistic("grad_norm", "actor_grad_norm")
def gradient_of_policy(view: RunView) -> Series | None:
    """Return the gradient norm if it is the policy's alone: so named, or the critic has its own or is missing."""
    alone, norm = (view.run.series.get(name) for name in ("actor_grad_norm", "grad_norm"))
    if alone is not None or norm is None:
        return alone
    of_critic = view.run.series.get("critic_grad_norm")  # if the critic has its own norm, the other is the policy's
    return norm if of_critic is not None or view.kind.facet("critic").value == "no" else None


@statistic("grad_norm+policy_loss", "grad_norm+loss")
def overflowing_gradient(view: RunView) -> Series | None:
    """Return 1 where the gradient norm is infinite and every loss of the record is finite, else 0."""
    norm = view.run.series.get("grad_norm")
    names = ("policy_loss", "loss", "value_loss")
    losses = [loss for name in names if (loss := beside(norm, view.run.series.get(name))) is not None]
    if norm is None or not len(norm) or not losses:
        return None
    sound = np.all([np.isfinite(series.values) for series in losses], axis=0)
    values = (np.isposinf(norm.values) & sound).astype(np.float64)
    says = f"{norm.raw} infinite, with a finite loss,"
    return condition_series(norm, "overflowing_gradient", values, says)


#: Values of a setting that switch clipping off.
SPIKES_OFF = ("none", "null", "inf")


@statistic("approx_kl+entropy+max_grad_norm", "ratio_std+entropy+max_grad_norm")
def unclipped_cliff(view: RunView) -> Fact | None:
    """Return the sharpest lasting fall of the updates' KL if the configuration does not clip gradients.

    None if gradients are clipped or the setting is unknown, since a fall then has other reasons.
    """
    limit, fall = _clip(view), view.fact("movement_cliff")
    if fall is None or limit is None or math.isfinite(limit):
        return None
    return dataclasses.replace(fall, name="unclipped_cliff", says=f"{fall.says}; no gradient is clipped")


def _clip(view: RunView) -> float | None:
    """Return the norm at which gradients are clipped, infinite if the configuration clips none; None if unknown."""
    setting = view.run.config.get("max_grad_norm")
    if setting is None or "grad_norm_after_clipping" in view.run.facts:
        return None
    limit = view.number("max_grad_norm")
    if limit is None:
        return math.inf if str(setting.value).lower() in SPIKES_OFF else None
    off = detection.traits_of(view.run.framework).get("zero_grad_norm") == "off"
    return math.inf if limit == 0 and off else limit
