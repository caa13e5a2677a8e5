"""Statistics of NaN and infinite numbers, spikes and explosions: gradient norm, KL, value loss, policy loss, reward."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.checks.rewards import reward_of
from ppo_doctor.checks.series import condition, fact, fact_since, finite, recorded
from ppo_doctor.checks.statistics import REWARDS_LOGGED, statistic
from ppo_doctor.model.arrays import finite_median, median, quantile

if TYPE_CHECKING:
    from ppo_doctor.checks.run_view import RunView
    from ppo_doctor.model.run import Fact, Series

#: Metrics that are finite in every healthy record. Explained variance is not: it is undefined if all returns are equal.
LOSSES = (
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "approx_kl_k1", "grad_norm", "ratio_mean"),
    *("ratio_max", "update_norm", "learning_rate"),
)
#: Means over the steps of a rollout. A broken update makes them non-finite.
COMPUTED = ("returns_mean", "values_mean", "advantages_mean")
#: Means over episodes or samples. They are non-finite if no episode has ended or if a reward was.
EARNED = ("episode_return", "reward_mean", "eval_return")
#: Metrics that only the reference model makes NaN.
REFERENCE = ("ref_kl", "kl_coef")
#: Counts of non-finite numbers in tensors.
TENSORS = ("weights_nonfinite", "log_probs_nonfinite")
#: Fewest records from which spikes are reported.
LEAST_RECORDS = 6
#: A single record counts as much as several that are smaller by this factor.
LEAP = 1000
#: Assumed growth of rewards if none are logged, and the largest growth that is taken into account.
TENFOLD, BOUNDLESS = 10.0, 1e100
#: KLs of the policy, and the size (nats) below which a spike is not reported.
KLS, LEAST_KL = ("approx_kl", "approx_kl_k2", "ref_kl"), 0.1
#: Fewest finite rewards before the reward becomes non-finite.
BEFORE = 3
#: A spike is this many times the norm that this share of the records does not exceed.
SPIKE, MOST = 20, 0.85
#: Smaller norms come from batches without a signal and are no measure of this run's gradient.
LEAST_NORM = 0.01
#: A metric stays broken if more than this share of the records from its first non-finite one is non-finite.
MOSTLY = 0.5
#: Fewest records of a suspicious straight line, and the largest distance from it as a share of the range.
MEASURED, OFF_LINE = 10, 1e-6
#: The range has to be this many times the printed precision; otherwise scatter cannot be seen.
FINELY = 100
#: Metrics that are measured on samples. Schedules and counters may be straight lines.
ON_SAMPLES = ("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "grad_norm", *EARNED)


@statistic(
    *("policy_loss", "value_loss", "loss", "entropy", "approx_kl", "reward_mean", "episode_return", "eval_return")
)
def measured_on_a_line(view: RunView) -> Fact | None:
    """Return how many metrics of samples are exactly a straight line over the records, as only a formula gives."""
    measured, on_line = [], []
    for name in ON_SAMPLES:
        series = view.logged(name)
        values = np.zeros(0) if series is None else finite(series)
        if series is None or len(values) < MEASURED:
            continue
        measured.append(series)
        spread = float(np.ptp(values))
        near = max(OFF_LINE * spread, series.resolution.absolute)
        if not near < spread / FINELY or abs(values[0] - 2 * values[1] + values[2]) > 8 * near:
            continue
        places = np.arange(len(values)) - (len(values) - 1) / 2
        off = values - values.mean() - places * (places @ values) / (places @ places)
        if np.abs(off).max() <= near:
            on_line.append(series)
    if not measured:
        return None
    names = ", ".join(series.raw for series in on_line)
    says = f"{names} on a straight line in every record" if on_line else "none is on a straight line"
    return fact(len(on_line), (on_line or measured)[0], says)


@statistic("policy_loss", "loss", "approx_kl", "grad_norm", "reward_mean", "episode_return", "eval_return")
def nonfinite_from(view: RunView) -> Fact | None:
    """Return the length, as a share of the run, of the part from which on a metric is mostly non-finite; else 0.

    The metric that breaks at the earliest step is taken.
    """
    worst: tuple[float, Series, int] | None = None
    for series in recorded(view, *LOSSES, *COMPUTED):
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
    return fact_since(share, series, first, says)


@statistic("policy_loss", "loss", "approx_kl", "grad_norm")
def nonfinite_at_times(view: RunView) -> Fact | None:
    """Return in how many records a loss, KL or norm is non-finite although later records are finite again."""
    logged = [(series, ~np.isfinite(series.values)) for series in recorded(view, *LOSSES)]
    if not logged:
        return None
    passing = [(s, b) for s, b in logged if b.any() and float(b[int(np.argmax(b)) :].mean()) <= MOSTLY]
    series, broken = max(passing or logged, key=lambda pair: int(pair[1].sum()))
    count = int(broken.sum()) if passing else 0
    if not count:
        return fact(0.0, series, f"{series.raw} is finite", "records")
    says = f"{series.raw} is not finite in {count} of {len(series)} records, and finite again later"
    return fact_since(count, series, int(np.argmax(broken)), says, "records")


@statistic(*REWARDS_LOGGED)
def reward_nonfinite(view: RunView) -> Fact | None:
    """Return the share of records with a non-finite reward: no episode has ended, or a reward was not finite."""
    return _share_nonfinite(view, EARNED)


@statistic(*REWARDS_LOGGED)
def reward_breaks(view: RunView) -> Fact | None:
    """Return whether the reward was finite in three records at least and is non-finite from some record to the end.

    If episodes are longer than a rollout, gaps are usual: the last one has to be longer than all before.
    """
    rewards = recorded(view, *EARNED)
    if not rewards:
        return None
    for series in rewards:
        known = np.flatnonzero(np.isfinite(series.values))
        first = int(known[-1]) + 1 if len(known) else len(series)
        longest = int(np.diff(known, prepend=-1).max()) - 1 if len(known) else 0
        if len(known) >= BEFORE and len(series) - first > longest:
            says = f"{series.raw} is {series.values[first]} from step {series.axis.steps[first]} to the end"
            return fact_since(1.0, series, first, says)
    return fact(0.0, rewards[0], f"{rewards[0].raw} ends with a number")


@statistic("ref_kl", "kl_coef")
def reference_nonfinite(view: RunView) -> Fact | None:
    """Return the share of records in which the KL to the reference is non-finite."""
    return _share_nonfinite(view, REFERENCE)


def _share_nonfinite(view: RunView, names: tuple[str, ...]) -> Fact | None:
    """Return the share of non-finite records of the metric in which it is largest."""
    logged = recorded(view, *names)
    if not logged:
        return None
    series = max(logged, key=lambda s: float((~np.isfinite(s.values)).mean()))
    broken = ~np.isfinite(series.values)
    if not broken.any():
        return fact(0.0, series, f"{series.raw} is finite")
    says = f"{series.raw} is not finite in {int(broken.sum())} of {len(series)} records"
    return fact_since(float(broken.mean()), series, int(np.argmax(broken)), says)


@statistic("weights_nonfinite", "log_probs_nonfinite")
def tensors_nonfinite(view: RunView) -> Fact | None:
    """Return the largest count of non-finite weights in a checkpoint or log-probs in a dump."""
    counts = recorded(view, *TENSORS)
    if not counts:
        return None
    worst = max(counts, key=lambda series: float(series.values.max()))
    most = int(np.argmax(worst.values))
    return fact(worst.values[most], worst, f"{worst.values[most]:g} values of {worst.raw}", at=most)


@statistic("grad_norm")
def gradient_growth(view: RunView) -> Fact | None:
    """Return the third largest gradient norm over the median of the first tenth of the records.

    A single larger record is a spike; it counts at a thousandth of its size. A first median below 0.01 counts as 0.01.
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
    half_way = int(np.argmax(series.values > top / math.sqrt(growth)))  # an explosion is exponential
    return fact_since(growth, series, half_way, says)


@statistic("grad_norm")
def gradient_spikes(view: RunView) -> Fact | None:
    """Return in how many records the gradient norm is above twenty times its 85th percentile.

    One spike counts as two if the reward collapses right after it.
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
    """Return whether the rewards after a step are below those before it by more than half of the whole range."""
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
    """Return the largest KL over its median, for the KL in which this is most; 0 if it stays below a tenth of a nat."""
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
    """Return the value loss at the end over what its early values and the growth of the rewards account for.

    A squared error grows with the square of the rewards. If no rewards are logged, they are assumed to grow tenfold,
    and the largest error of the first third is the start. The loss has to stay high for three records and a twentieth
    of the run, or to leap by a factor of a million in the last record. Early values below 0.01 count as 0.01, as a run
    may begin without any reward.
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
    return fact_since(max(kept, leap), series, int(over[0]), says)


def _reward_growth(view: RunView) -> float | None:
    """Return the largest |reward| over the median of the first tenth, at least 1; None for fewer than eight records."""
    found = reward_of(view)
    if found is None or len(found[1]) < 8:
        return None
    sizes = np.abs(found[1])
    early = median(sizes[: max(3, len(sizes) // 10)])
    return min(max(1.0, float(sizes.max()) / early), BOUNDLESS) if early > 0 else BOUNDLESS


@statistic("policy_loss+reward_mean", "policy_loss+episode_return", "loss+reward_mean")
def loss_over_rewards(view: RunView) -> Fact | None:
    """Return the largest |policy loss| over the largest |reward|, or over 1 if all rewards are smaller.

    A clipped surrogate is a mean of advantages times at most 1 + epsilon: at most about the reward, or the root of the
    batch size if advantages are whitened. A far larger one comes from a ratio that nothing clips. A total loss may
    include squared value errors, so it is compared with the squared reward unless the run is known to have no critic.
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
    """Return whether the run died of non-finite numbers or stopped logging its loss, as writers that omit NaN do."""
    died, stopped = _died(view), _loss_stops(view)
    return died if died is not None and (died.value or stopped is None) else stopped


def _died(view: RunView) -> Fact | None:
    """Return whether the log ends with an exception about non-finite numbers; None if with no exception."""
    ends = [note for note in view.run.notes if note.died]
    if not ends:
        return None
    return fact(float(ends[-1].event == "died_of_numbers"), ends[-1], ends[-1].text, how="observed")


def _loss_stops(view: RunView) -> Fact | None:
    """Return whether the policy loss is no longer logged although KL or gradient norm are."""
    loss = view.run.series.get("policy_loss")
    others = recorded(view, "approx_kl", "grad_norm")
    if loss is None or not len(loss) or not others:
        return None
    longest = max(others, key=len)
    stops = loss.axis.steps[-1] < longest.axis.steps[-1] and len(loss) < 0.9 * len(longest)
    says = f"{loss.raw} ends at step {loss.axis.steps[-1]}, {longest.raw} goes on to {longest.axis.steps[-1]}"
    return condition(bool(stops), loss, says)
