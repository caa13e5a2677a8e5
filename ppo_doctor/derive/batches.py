"""How many samples does a statistic rest on: of a rollout, of a minibatch, of an answer?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside, finite_of, mean_of, median
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

#: Records that a median, or a comparison of two ends of a run, needs.
LEAST = 6
#: Records that tell how long completions were at first: a price on tokens halves them within six.
EARLIEST = 3
#: An upper bound of a length tells of shrinking only well below the length at first, which is an estimate.
SAYS_SO = 0.3
#: What is within this share of the limit has hit it, all but for a token that ends it.
NEAR = 0.05
#: Environment steps between two records of updates that can hold one rollout only.
NARROW = 64


def rollout_steps_seen(observations: Observations) -> Fact | None:
    """Return the environment steps of one rollout: counted where steps and rollouts are, else as configured.

    Failing both, records of updates that stand a few environment steps apart: their rollouts held no more than that.
    """
    return _counted(observations) or _configured(observations) or _spaced(observations)


def _counted(observations: Observations) -> Fact | None:
    steps = observations.run.series.get("env_steps")
    rollouts = beside(steps, observations.run.series.get("iteration"))
    if steps is None or rollouts is None or len(steps) < LEAST:
        return None
    done, taken = np.diff(rollouts.values), np.diff(steps.values)
    usable = np.isfinite(done) & np.isfinite(taken) & (done > 0) & (taken > 0)
    if usable.sum() < LEAST - 1:
        return None
    value = median(taken[usable] / done[usable])
    says = f"{steps.raw} per {rollouts.raw}"
    return _fact("rollout_steps_seen", value, "environment steps", steps, says)


def _configured(observations: Observations) -> Fact | None:
    """Only for tasks with episodes: a batch of sequences holds many tokens."""
    if not _has_episodes(observations) or not observations.configured("rollout_steps"):
        return _rollout_size(observations)
    steps, envs = observations.number("rollout_steps"), observations.number("num_envs")
    if not steps or not envs:
        return None
    source = observations.run.config["rollout_steps"].source
    says = f"{steps:g} steps × {envs:g} environments"
    return Fact(
        name="rollout_steps_seen",
        value=steps * envs,
        how="configured",
        unit="environment steps",
        source=source,
        says=says,
    )


def _has_episodes(observations: Observations) -> bool:
    """Tell whether samples are steps of an environment, by the log, or by a configuration that is all there is."""
    if "from_settings" not in observations.run.facts:
        return "episode_return" in observations.run.series
    counts = observations.run.facts.get("steps_are_env_steps")
    return bool(counts and counts.value) or any(map(observations.configured, ("rollout_steps", "num_envs")))


def _spaced(observations: Observations) -> Fact | None:
    """Return the spacing of updates in environment steps where it is so narrow that it bounds the rollout.

    A wide one bounds nothing: several updates may lie between two records.
    """
    counts = observations.run.facts.get("steps_are_env_steps")
    updates = observations.run.series.get("policy_loss")
    if counts is None or not counts.value or updates is None or len(updates) < LEAST:
        return None
    apart = np.diff(updates.axis.steps)
    value = median(apart[apart > 0].astype(np.float64)) if (apart > 0).sum() >= LEAST - 1 else np.inf
    if value > NARROW:
        return None
    return _fact("rollout_steps_seen", value, "environment steps", updates, "updates are this many steps apart")


def _rollout_size(observations: Observations) -> Fact | None:
    size = observations.number("rollout_size")
    if not _has_episodes(observations) or not size or not observations.configured("rollout_size"):
        return None
    setting = observations.run.config["rollout_size"]
    return Fact(
        name="rollout_steps_seen",
        value=size,
        how="configured",
        unit="environment steps",
        source=setting.source,
        says=f"{setting.key} = {size:g}",
    )


def discount_horizon(observations: Observations) -> Fact | None:
    """Return 1/(1 - gamma), the steps over which a reward fades to a third; only for episodes of many more steps.

    None where the discount is a default, and where episodes are known not to be at least five times as long.
    """
    gamma, length = observations.number("gamma"), observations.run.series.get("episode_length")
    if gamma is None or not observations.configured("gamma") or gamma >= 1:
        return None
    horizon = 1 / (1 - gamma)
    finite: FloatArray = finite_of(length.values) if length is not None else np.empty(0)
    if len(finite) >= LEAST and median(finite) < 5 * horizon:
        return None
    setting = observations.run.config["gamma"]
    lasting = f"of {median(finite):.3g} steps" if len(finite) >= LEAST else "whose length is not logged"
    says = f"{setting.key} = {gamma:g}, episodes {lasting}"
    return Fact(
        name="discount_horizon", value=horizon, how="configured", unit="steps", source=setting.source, says=says
    )


def share_cut(observations: Observations) -> Series | None:
    """Return the share of completions that hit the length limit: logged, else the least that their mean length tells.

    Where the mean is d below a limit of L, at most d / (0.05 L) of all are more than a twentieth below it (Markov's
    inequality). None where the mean is beyond the limit by more than the token that ends a completion.
    """
    logged, mean = (observations.run.series.get(name) for name in ("truncated_fraction", "response_length"))
    limit = observations.number("max_response_length")
    if logged is not None and len(logged):
        return replace(logged, name="share_cut")
    if mean is None or not len(mean) or not limit or not observations.configured("max_response_length"):
        return None
    if float(np.nanmax(mean.values)) > limit + 1:
        return None
    values = np.clip(1.0 - (limit - mean.values) / (NEAR * limit), 0.0, 1.0)
    says = f"the share that {mean.raw} next to a limit of {limit:g} tokens makes"
    return replace(mean, name="share_cut", values=values, unit="fraction", how="computed", says=says)


def truncation_rise(observations: Observations) -> Fact | None:
    """Return by how much the share of truncated completions rose from the first to the last fifth of the run."""
    ends = _ends(observations.run.series.get("truncated_fraction"))
    if ends is None:
        return None
    series, first, last = ends
    says = f"{series.raw} went from {first:.3g} to {last:.3g}"
    return _fact("truncation_rise", last - first, "fraction", series, says)


def length_left(observations: Observations) -> Fact | None:
    """Return the mean length of completions, or its bound, in the last fifth of the run over that in the first."""
    ends = _length_ends(observations)
    if ends is None or ends[1] <= 0:
        return None
    series, first, last = ends
    says = f"{series.raw} went from {first:.3g} to {last:.3g}"
    if series.name == "objective_entropy":
        says = f"{series.raw} counts each token of padding as -1: at most {last:.3g} tokens, and {first:.3g} at first"
    return _fact("length_left", last / first, "of the first fifth", series, says)


def _length_ends(observations: Observations) -> tuple[Series, float, float] | None:
    """Return the length of completions with that of the first records and of the last fifth, or what bounds it.

    Without a logged length: TRL's PPO sums -log p over an answer and counts -1 for each token of padding, so that the
    sum plus the longest length is at least the length. The first length takes the entropy per token. None where that
    bound says little.
    """
    logged = _ends(observations.run.series.get("response_length"), first=EARLIEST)
    if logged is not None:
        return logged
    whole, token = (
        _ends(observations.run.series.get(name), first=EARLIEST) for name in ("objective_entropy", "entropy")
    )
    longest = observations.number("max_response_length")
    if whole is None or token is None or not longest or token[1] < 0:
        return None
    first, last = (whole[1] + longest) / (token[1] + 1), whole[2] + longest
    return (whole[0], first, last) if 0 <= last <= SAYS_SO * first else None


def _ends(series: Series | None, first: int = LEAST) -> tuple[Series, float, float] | None:
    """Return a series with the mean of its first records and the median of its last fifth."""
    finite = finite_of(series.values) if series is not None else np.empty(0)
    if series is None or len(finite) < 2 * LEAST:
        return None
    fifth = max(3, len(finite) // 5)
    start = max(3, min(fifth, first))  # a collapse may be over within the first fifth
    return series, mean_of(finite[:start]), median(finite[-fifth:])


def _fact(name: str, value: float, unit: str, series: Series, says: str) -> Fact:
    return Fact(name=name, value=value, how="observed", unit=unit, source=series.source(), says=says)
