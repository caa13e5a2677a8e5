"""What samples can tell apart: room for other answers, advantages beside returns, spread in groups, terms of a loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, median, quantile
from ppo_doctor.derive.critic import WITH_BIAS
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records that a quotient of two metrics takes to tell something.
LEAST = 6
#: Records that tell what a critic knew from the start.
FIRST = 3
#: Records that quantiles of a part of a run rest on.
MANY = 12
#: Share of its first entropy that a policy with a choice keeps.
KEPT = 0.5


def answer_entropy(observations: Observations) -> Fact | None:
    """Return the entropy of a whole answer in nats over the last third: that of a token × tokens of an answer.

    Two samples of a policy are the same text with a probability of about exp(-entropy).
    """
    pair = _beside(observations, "entropy", "response_length")
    if pair is None:
        return None
    entropy, lengths = pair
    values = _last_third(entropy.values * lengths.values)
    says = f"{entropy.raw} × {lengths.raw} over the last third"
    return _fact("answer_entropy", values, entropy, says, unit="nats")


def critic_foresight(observations: Observations) -> Fact | None:
    """Return the median explained variance of the first half of a run whose policy keeps its entropy in that half.

    None where entropy has no scale or is spent, for what a policy without choice will earn is no secret, and where the
    logged number counts the critic's bias.
    """
    explained, entropy = observations.run.series.get("explained_variance"), observations.series("entropy_share")
    if explained is None or entropy is None or explained.estimator == WITH_BIAS:
        return None
    kept = entropy.values[: max(1, len(entropy) // 2)]
    if not np.isfinite(kept).any() or median(finite_of(kept)) < KEPT:
        return None
    values = explained.values[: len(explained) // 2]
    return _fact("critic_foresight", values, explained, f"median {explained.raw} over the first half")


def first_explained(observations: Observations) -> Fact | None:
    """Return the median explained variance of the first three records, before a new critic can have learnt much.

    None where the logged number counts the critic's bias, or where too few records follow.
    """
    explained = observations.run.series.get("explained_variance")
    if explained is None or explained.estimator == WITH_BIAS or np.isfinite(explained.values).sum() < LEAST:
        return None
    first = explained.values[np.isfinite(explained.values)][:FIRST]
    says = f"median {explained.raw} of the first {FIRST} records"
    return Fact(name="first_explained", value=median(first), how="computed", source=explained.source(), says=says)


def explained_late(observations: Observations) -> Fact | None:
    """Return the median explained variance of the later half of a run."""
    return _explained(observations, "explained_late", 0.5, 0.5, "median {} of the later half")


def explained_late_low(observations: Observations) -> Fact | None:
    """Return the lowest decile of the explained variance in the later half of a run."""
    return _explained(observations, "explained_late_low", 0.5, 0.1, "lowest decile of {} in the later half")


def explained_high(observations: Observations) -> Fact | None:
    """Return the highest decile of the explained variance after the first tenth of a run."""
    return _explained(observations, "explained_high", 0.1, 0.9, "highest decile of {} after the start")


def _explained(observations: Observations, name: str, since: float, share: float, says: str) -> Fact | None:
    """Return a quantile of the explained variance from a share of the run on.

    None with few records, where the number counts the critic's bias, and where half of them or more repeat the last.
    """
    explained = observations.run.series.get("explained_variance")
    if explained is None or explained.estimator == WITH_BIAS:
        return None
    values = finite_of(explained.values)
    values = values[round(since * len(values)) :]
    if len(values) < MANY or (np.diff(values) == 0).mean() >= 0.5:
        return None
    value, source = quantile(values, share), explained.source()
    return Fact(name=name, value=value, how="computed", source=source, says=says.format(explained.raw))


def raw_advantage_share(observations: Observations) -> Fact | None:
    """Return the deviation of advantages before whitening over that of returns, in the last two thirds.

    With returns = advantage + value this is √(1 - explained variance): what the critic leaves to learn from.
    """
    pair = _beside(observations, "advantages_raw_std", "returns_std")
    if pair is None:
        return None
    raw, returns = pair
    alive = np.where(returns.values > 0, returns.values, math.nan)
    values = (raw.values / alive)[len(raw) // 3 :]
    return _fact("raw_advantage_share", values, raw, f"{raw.raw} / {returns.raw} over the last two thirds")


def group_spread_share(observations: Observations) -> Fact | None:
    """Return the deviation of rewards within groups over that of the whole batch.

    The variance of a batch is that within its groups and that between them: a share s leaves 1 - s² to the prompts.
    """
    pair = _beside(observations, "reward_group_std", "reward_std")
    if pair is None:
        return None
    within, whole = pair
    alive = np.where(whole.values > 0, whole.values, math.nan)
    return _fact("group_spread_share", within.values / alive, within, f"{within.raw} / {whole.raw}")


def kl_term_share(observations: Observations) -> Fact | None:
    """Return the coefficient of the KL term that the loss shows, over the configured one.

    None where the loss does not show it, or the configuration names none, or another one than a positive.
    """
    shown, configured = observations.fact("kl_in_loss"), _coefficient(observations)
    if shown is None or configured is None or not isinstance(shown.value, float):
        return None
    says = f"{shown.says}, over the configured {configured:g}"
    value = shown.value / configured
    return Fact(
        name="kl_term_share", value=value, how="computed", unit="of the configured", source=shown.source, says=says
    )


def _coefficient(observations: Observations) -> float | None:
    given = [observations.number(name) for name in ("kl_loss_coef", "kl_coef") if observations.configured(name)]
    positive = [number for number in given if number is not None and number > 0]
    return positive[0] if positive else None


def _beside(observations: Observations, *names: str) -> tuple[Series, Series] | None:
    """Return two logged series of the same records."""
    first, second = (observations.run.series.get(name) for name in names)
    return None if first is None or second is None or first.axis is not second.axis else (first, second)


def _last_third(values: FloatArray) -> FloatArray:
    return values[len(values) - len(values) // 3 :]


def _fact(name: str, values: FloatArray, series: Series, says: str, *, unit: str = "") -> Fact | None:
    known = finite_of(values)
    if len(known) < LEAST:
        return None
    return Fact(name=name, value=median(known), how="computed", unit=unit, source=series.source(), says=says)
