"""Statistics of non-finite numbers, and how the log ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.rewards import reward_of
from ppo_doctor.checks.series import condition, fact, finite
from ppo_doctor.checks.statistics import REWARDS_LOGGED, statistic
from ppo_doctor.model.arrays import finite_median, median, quantile

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, Series

#: Metrics that are finite in every sound record. Explained variance is not: it has no value where returns are alike.
LOSSES = (
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "approx_kl_k1", "grad_norm", "ratio_mean"),
    *("ratio_max", "update_norm", "learning_rate"),
)
#: Means over the rollout's steps, which an update can break.
COMPUTED = ("returns_mean", "values_mean", "advantages_mean")
#: Means over episodes or samples: not finite where none has ended, and where one was paid so.
EARNED = ("episode_return", "reward_mean", "eval_return")
#: What a reference model, and nothing else, makes NaN.
REFERENCE = ("ref_kl", "kl_coef")
#: The same counts in tensors.
TENSORS = ("weights_nonfinite", "log_probs_nonfinite")
#: Records from which on a course is told.
LEAST_RECORDS = 6
#: One record says as much as several of a thousandth of its size.
LEAP = 1000
#: By how much rewards may grow where none are logged.
TENFOLD, BOUNDLESS = 10.0, 1e100
#: Divergences of the policy, and the size below which none of them is told of.
KLS, LEAST_KL = ("approx_kl", "approx_kl_k2", "ref_kl"), 0.1
#: Numbers that a reward had before it breaks.
BEFORE = 3
#: A spike is so many times the usual norm.
SPIKE, MOST = 20, 0.85
#: Norms below it are a batch without a signal, not what a gradient of this run measures.
LEAST_NORM = 0.01
#: Share of what follows the first broken record that is broken as well, in a metric that may miss one now and then.
MOSTLY = 0.5
#: Records through which a measured number is on no straight line, and by how much of its range it may be off one.
MEASURED, OFF_LINE = 10, 1e-6
#: A print tells scatter where its digits are so many times finer than the range.
FINELY = 100
#: What is measured on samples; schedules and counters are straight lines by right.
ON_SAMPLES = ("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "grad_norm", *EARNED)


@statistic(
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "reward_mean", "episode_return", "eval_return")
)
def measured_on_a_line(view: RunView) -> Fact | None:
    """Return how many metrics of samples are a straight line over the records, exactly: a formula, no measurement."""
    told, on_line = None, []
    for name in ON_SAMPLES:
        series = view.logged(name)
        values = np.zeros(0) if series is None else finite(series)
        if series is None or len(values) < MEASURED:
            continue
        told = told or series
        if not np.ptp(values):
            continue
        places = np.arange(len(values)) - (len(values) - 1) / 2
        off = values - values.mean() - places * (places @ values) / (places @ places)
        if np.abs(off).max() <= max(OFF_LINE * np.ptp(values), series.resolution.absolute) < np.ptp(values) / FINELY:
            on_line.append(series)
    if told is None:
        return None
    names = ", ".join(series.raw for series in on_line)
    says = f"{names} on a straight line in every record" if on_line else "none is on a straight line"
    return fact(len(on_line), on_line[0] if on_line else told, says)


@statistic("policy_loss", "loss", "approx_kl", "grad_norm", "reward_mean", "episode_return", "eval_return")
def nonfinite_from(view: RunView) -> Fact | None:
    """Return the share of the run from which on most numbers of a metric are not finite; 0 where there is none."""
    worst: tuple[float, Series, int] | None = None
    for name in (*LOSSES, *COMPUTED):
        series = view.run.series.get(name)
        if series is None or not len(series):
            continue
        broken = ~np.isfinite(series.values)
        first = int(np.argmax(broken))
        if not broken.any() or float(broken[first:].mean()) <= MOSTLY:
            continue
        if worst is None or series.axis.steps[first] < worst[1].axis.steps[worst[2]]:
            worst = (1 - first / len(series), series, first)
    if worst is None:
        logged = map(view.run.series.get, (*LOSSES, *COMPUTED, *EARNED))
        known = next((series for series in logged if series is not None), None)
        return None if known is None else fact(0.0, known, "no loss stays NaN or infinite")
    share, series, first = worst
    says = f"{series.raw} is {series.values[first]} at step {series.axis.steps[first]}, first of {share:.0%} of the run"
    return fact(share, series, says, at=first, since=series.axis.steps[first])


@statistic("policy_loss", "loss", "approx_kl", "grad_norm")
def nonfinite_at_times(view: RunView) -> Fact | None:
    """Return in how many records a loss, KL or norm is not finite though later ones are."""
    held = [s for name in LOSSES if (s := view.run.series.get(name)) is not None and len(s)]
    if not held:
        return None
    logged = [(series, ~np.isfinite(series.values)) for series in held]
    passing = [(s, b) for s, b in logged if b.any() and float(b[int(np.argmax(b)) :].mean()) <= MOSTLY]
    series, broken = max(passing or logged, key=lambda pair: int(pair[1].sum()))
    count = int(broken.sum()) if passing else 0
    says = f"{series.raw} is not finite in {count} of {len(series)} records, and finite again later"
    if not count:
        return fact(0.0, series, f"{series.raw} is finite", "records")
    first = int(np.argmax(broken))
    return fact(count, series, says, "records", at=first, since=series.axis.steps[first])


@statistic(*REWARDS_LOGGED)
def reward_nonfinite(view: RunView) -> Fact | None:
    """Return the share of the records whose reward is not finite: no episode has ended, or one was paid so.

    Infinite is what only a reward can be; NaN is also the mean of none.
    """
    return _share_nonfinite(view, EARNED)


@statistic(*REWARDS_LOGGED)
def reward_breaks(view: RunView) -> Fact | None:
    """Tell whether a reward that was a number in three records is none from some record to the end.

    Where episodes are longer than a rollout it is none in most records: so many in a row say nothing at the end either.
    """
    held = [s for name in EARNED if (s := view.run.series.get(name)) is not None and len(s)]
    if not held:
        return None
    for series in held:
        known = np.flatnonzero(np.isfinite(series.values))
        first = int(known[-1]) + 1 if len(known) else len(series)
        longest = int(np.diff(known, prepend=-1).max()) - 1 if len(known) else 0
        if len(known) >= BEFORE and len(series) - first > longest:
            step = int(series.axis.steps[first])
            says = f"{series.raw} is {series.values[first]} from step {step} to the end"
            return fact(1.0, series, says, at=first, since=step)
    return fact(0.0, held[0], f"{held[0].raw} ends with a number")


@statistic("ref_kl", "kl_coef")
def reference_nonfinite(view: RunView) -> Fact | None:
    """Return the share of the records whose KL to the reference is not finite."""
    return _share_nonfinite(view, REFERENCE)


def _share_nonfinite(view: RunView, names: tuple[str, ...]) -> Fact | None:
    held = [s for each in names if (s := view.run.series.get(each)) is not None and len(s)]
    if not held:
        return None
    series = max(held, key=lambda s: float((~np.isfinite(s.values)).mean()))
    broken = ~np.isfinite(series.values)
    if not broken.any():
        return fact(0.0, series, f"{series.raw} is finite")
    first = int(np.argmax(broken))
    says = f"{series.raw} is not finite in {int(broken.sum())} of {len(series)} records"
    return fact(broken.mean(), series, says, at=first, since=series.axis.steps[first])


@statistic("weights_nonfinite", "log_probs_nonfinite")
def tensors_nonfinite(view: RunView) -> Fact | None:
    """Return how many weights of a checkpoint, or log-probs of a dump, are not finite, the most of any."""
    held = [series for name in TENSORS if (series := view.run.series.get(name)) is not None and len(series)]
    if not held:
        return None
    worst = max(held, key=lambda series: float(series.values.max()))
    most = int(np.argmax(worst.values))
    return fact(worst.values[most], worst, f"{worst.values[most]:g} values of {worst.raw}", at=most)


@statistic("grad_norm")
def gradient_growth(view: RunView) -> Fact | None:
    """Return the gradient norm that three records exceed, over its median in the first tenth of them.

    One record is a spike, three are none; one a million times as large counts as an explosion. A norm that starts
    without any signal counts as 0.01.
    """
    series = view.run.series.get("grad_norm")
    if series is None or len(norms := finite(series)) < 5:
        return None
    first = float(finite_median(norms[: max(3, len(norms) // 10)]))
    top = max(float(np.sort(norms)[-3]), float(norms.max()) / LEAP)
    growth = top / max(first, LEAST_NORM)
    says = f"{series.raw} is {first:.3g} at first and reaches {top:.3g}"
    if not growth > 1 or not np.isfinite(growth):
        return fact(growth, series, says)
    at = int(np.argmax(series.values > top / math.sqrt(growth)))  # half of the way, as an explosion goes
    return fact(growth, series, says, at=at, since=series.axis.steps[at])


@statistic("grad_norm")
def gradient_spikes(view: RunView) -> Fact | None:
    """Return in how many records the gradient norm is twenty times what most stay below; 0 where that is usual.

    One spike counts as two where the reward is gone right after it.
    """
    series = view.run.series.get("grad_norm")
    if series is None or len(norms := finite(series)) < LEAST_RECORDS:
        return None
    usual = max(quantile(norms, MOST), LEAST_NORM)
    high = series.values > SPIKE * usual
    says = f"{series.raw} is below {usual:.3g} in most and above {SPIKE * usual:.3g} in {int(high.sum())} records"
    if not high.any():
        return fact(0.0, series, says, "records")
    at = int(np.argmax(high))
    step = int(series.axis.steps[at])
    gone = _reward_gone_at(view, step)
    says += f", at step {step}, right before the reward is gone" if gone else ""
    return fact(float(max(high.sum(), 2 * gone)), series, says, "records", at=at, since=step if gone else None)


def _reward_gone_at(view: RunView, step: int) -> bool:
    """Tell whether the reward of the records after a step is below all of before, by more than half of its range."""
    paid = view.logged(*EARNED)
    if paid is None:
        return False
    known = np.isfinite(paid.values)
    steps, values = paid.axis.steps[known], paid.values[known]
    before, after = values[steps <= step][-LEAST_RECORDS:], values[steps > step][1 : 1 + LEAST_RECORDS]
    if len(before) < LEAST_RECORDS or len(after) < BEFORE:
        return False
    return bool(after.max() < before.min() and before.min() - after.max() > np.ptp(values) / 2)


@statistic("approx_kl", "approx_kl_k2", "ref_kl")
def kl_spike(view: RunView) -> Fact | None:
    """Return how many times its median the largest KL is, of the KL in which that is most; 0 below a tenth of a nat."""
    logged = [series for name in KLS if (series := view.run.series.get(name)) is not None]
    spikes = [found for found in map(_kl_spike, logged) if found is not None]
    return max(spikes, key=lambda found: found.number or 0.0, default=None)


def _kl_spike(series: Series) -> Fact | None:
    sizes = np.where(np.isfinite(series.values), np.abs(series.values), np.nan)
    usual = finite_median(sizes)
    if np.count_nonzero(sizes == sizes) < LEAST_RECORDS or usual == 0:  # noqa: PLR0124 - NaN
        return None
    at = int(np.nanargmax(sizes))
    times = float(sizes[at]) / usual if sizes[at] > LEAST_KL else 0.0
    many = f"above {SPIKE * usual:.3g} in {int((sizes > SPIKE * usual).sum())} of {len(sizes)} records"
    says = f"{series.raw} is {sizes[at]:.3g} at step {series.axis.steps[at]}, and {many}; its median is {usual:.3g}"
    return fact(times, series, says, "times", at=at)


@statistic("value_loss")
def value_loss_explosion(view: RunView) -> Fact | None:
    """Return by how many times the value loss outgrew, at the end, what its early values and the rewards account for.

    A squared error grows with the square of the rewards; where none are logged they are taken to grow tenfold, from the
    largest error of the first third. The loss has to stay there for three records, and a twentieth of the run; one leap
    of a million times says as much. The floor of 0.01 keeps a run that begins without any reward from counting its
    first reward as growth without bound.
    """
    series = view.run.series.get("value_loss")
    values = np.abs(finite(series)) if series is not None else np.empty(0)
    if series is None or len(values) < 2:
        return None
    rewards = _reward_growth(view)
    first = max(1, len(values) // 3) if rewards is None else max(3, len(values) // 10)
    early = float(values[:first].max()) if rewards is None else median(values[:first])
    base, last = max(0.01, early), max(3, len(values) // 20)
    tails = [values[-last * times :] for times in (1, 2, 4) if last * times < len(values) - first]
    kept = max((quantile(tail, 0.2) for tail in tails), default=0.0) / base / (rewards or TENFOLD) ** 2
    leap = float(values[-1]) / max(0.01, float(values[:-1].max()), base) / LEAP / TENFOLD**2
    says = f"{series.raw} goes from {base:.3g} early on to {float(values[-1]):.3g}"
    over = np.flatnonzero(np.abs(series.values) > LEAP * base)
    if not len(over):
        return fact(max(kept, leap), series, says)
    return fact(max(kept, leap), series, says, at=int(over[0]), since=series.axis.steps[over[0]])


def _reward_growth(view: RunView) -> float | None:
    """Return the largest |reward| over the usual one of the first tenth, 1 at least; None where few are logged."""
    found = reward_of(view)
    if found is None or len(found[1]) < 8:
        return None
    sizes = np.abs(found[1])
    early = median(sizes[: max(3, len(sizes) // 10)])
    return min(max(1.0, float(sizes.max()) / early), BOUNDLESS) if early > 0 else BOUNDLESS


@statistic("policy_loss+reward_mean", "policy_loss+episode_return", "loss+reward_mean")
def loss_over_rewards(view: RunView) -> Fact | None:
    """Return the largest |policy loss| over the largest |reward|, or over 1 where all rewards are smaller.

    A clipped surrogate is a mean of advantages times at most 1 + epsilon: about the reward at most, or the root of the
    batch size where advantages are whitened. What exceeds that by far is a ratio that nothing clips. A total loss may
    hold squared errors of values, and is held against the squared reward unless no critic is known to be trained.
    """
    series = view.run.series
    loss = series.get("policy_loss", series.get("loss"))
    earned = next(
        (s for name in EARNED[:2] if (s := series.get(name)) is not None and np.isfinite(s.values).any()), None
    )
    if loss is None or earned is None or not np.isfinite(loss.values).any():
        return None
    reward = float(np.abs(finite(earned)).max())
    critic = view.fact("critic")
    squared = "policy_loss" not in series and not (critic is not None and critic.value == "no")
    sizes = np.where(np.isfinite(loss.values), np.abs(loss.values), 0.0)
    most = int(np.argmax(sizes))
    says = f"{loss.raw} reaches {loss.values[most]:.3g}, |{earned.raw}| {reward:.3g}"
    return fact(sizes[most] / max(1.0, reward) ** (2 if squared else 1), loss, says, at=most)


@statistic("policy_loss+approx_kl", "policy_loss+grad_norm")
def numbers_lost(view: RunView) -> Fact | None:
    """Tell whether the run died of numbers that are not finite, or no longer logs its loss: NaN may be left out."""
    died, stopped = _died(view), _loss_stops(view)
    return died if died is not None and (died.value or stopped is None) else stopped


def _died(view: RunView) -> Fact | None:
    """Tell whether the log ends in an exception about numbers that are not finite."""
    ends = [note for note in view.run.notes if note.died]
    if not ends:
        return None
    return fact(float(ends[-1].event == "died_of_numbers"), ends[-1], ends[-1].text, how="observed")


def _loss_stops(view: RunView) -> Fact | None:
    """Tell whether the policy loss is no longer logged while KL or gradient go on: a writer leaves NaN out."""
    loss = view.run.series.get("policy_loss")
    others = [s for n in ("approx_kl", "grad_norm") if (s := view.run.series.get(n)) is not None and len(s)]
    if loss is None or not len(loss) or not others:
        return None
    longest = max(others, key=len)
    stops = loss.axis.steps[-1] < longest.axis.steps[-1] and len(loss) < 0.9 * len(longest)
    says = f"{loss.raw} ends at step {loss.axis.steps[-1]}, {longest.raw} goes on to {longest.axis.steps[-1]}"
    return condition(bool(stops), loss, says)
