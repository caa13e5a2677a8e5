"""What the gradient norm says: exactly 0, below what the optimizer sees, or alive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ppo_doctor.arrays import finite_median
from ppo_doctor.signals.course import condition, fact, finite, series_of, truth_of, value_of, zero_share

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, Setting
    from ppo_doctor.signals.course import Observations


#: What PyTorch says where a checkpointed block, or a loss, has no input that requires a gradient.
NO_GRADIENT = ("None of the inputs have requires_grad", "does not require grad")


def gradient_zero_share(observations: Observations) -> Fact | None:
    """Return the share of records with a gradient norm of exactly 0."""
    series = series_of(observations, "actor_grad_norm", "grad_norm")
    zeros = zero_share(series)
    if series is None or zeros is None:
        return None
    return fact("gradient_zero_share", zeros, series, f"{series.raw} is exactly 0 in {zeros:.0%} of the records")


def gradient_said_missing(observations: Observations) -> Fact | None:
    """Tell whether PyTorch warned that no input requires a gradient, and the logged norm is 0 as far as it is printed.

    A pass without gradients gives the same warning, as that of a reference does: there the norm is not 0.
    """
    series = series_of(observations, "actor_grad_norm", "grad_norm")
    told = next((note for note in observations.run.notes if any(text in note.text for text in NO_GRADIENT)), None)
    if series is None or not len(finite(series)):
        return None
    holds = told is not None and bool((finite(series) == 0).all())
    says = f"{series.raw} is 0 in every record" + (f"; {told.text}" if told is not None else "")
    found = condition("gradient_said_missing", holds, series, says)
    return found and (replace(found, source=told.source) if told is not None else found)


def silent_on_paid_batches(observations: Observations) -> Fact | None:
    """Tell whether loss and gradient are exactly 0 though rewards differ inside the groups."""
    loss, deviations = series_of(observations, "loss"), series_of(observations, "reward_std")
    flat = series_of(observations, "frac_reward_zero_std")
    zeros = value_of(observations.fact("gradient_zero_share"))
    if loss is None or deviations is None or zeros is None:
        return None
    silent = float((finite(loss) == 0).mean()) > 0.9 and zeros > 0.9
    differ = float(finite_median(deviations.values)) > 0 and (flat is None or float(finite_median(flat.values)) < 0.9)
    says = f"{loss.raw} and the gradient are exactly 0 while {deviations.raw} is {finite_median(deviations.values):.3g}"
    return condition("silent_on_paid_batches", silent and differ, loss, says)


def silent_where_all_cut(observations: Observations) -> Fact | None:
    """Tell whether the gradient is exactly 0 in just those records in which every completion was cut."""
    cut, norms = series_of(observations, "truncated_fraction"), series_of(observations, "grad_norm")
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
    return condition("silent_where_all_cut", holds, norms, says)


def clip_norm(observations: Observations) -> Fact | None:
    """Return the configured bound of the gradient norm."""
    bound = observations.number("max_grad_norm") if observations.configured("max_grad_norm") else None
    return None if bound is None else fact("clip_norm", bound, None, f"gradients are clipped to a norm of {bound:g}")


def minibatch_of_one(observations: Observations) -> Fact | None:
    """Tell whether the settings leave one sample in a minibatch whose advantages are normalised."""
    normalised = observations.run.config.get("normalize_advantages")
    if normalised is not None and normalised.value is False:
        return None
    setting, size = _minibatch(observations)
    if setting is None and _single_sample(observations):
        return condition("minibatch_of_one", holds=True, series=None, says="batch_size = 1")
    if setting is None or size is None or size <= 0:
        return None
    found = condition("minibatch_of_one", size <= 1, None, f"a minibatch holds {size:g} samples")
    return found and replace(found, how="configured", source=setting.source)


def _single_sample(observations: Observations) -> bool:
    """Tell whether a batch size of an unknown trainer is 1: whether it is a rollout's or a minibatch's, it is alone."""
    told = observations.run.config_raw.get("batch_size")
    return told == 1 and told is not True and truth_of(observations.fact("completions")) is not True


def _minibatch(observations: Observations) -> tuple[Setting | None, float | None]:
    """Return the samples of a minibatch as configured, and the setting that says so."""
    config = observations.run.config
    if observations.configured("minibatch_size"):
        return config["minibatch_size"], observations.number("minibatch_size")
    if not all(map(observations.configured, ("num_minibatches", "rollout_steps"))):
        return None, None
    steps, parts = observations.number("rollout_steps"), observations.number("num_minibatches")
    size = None if not steps or not parts else steps * (observations.number("num_envs") or 1) / parts
    return config["num_minibatches"], size
