"""Passes over a rollout, counted in its clip fractions: each of them is a number of samples over all that were seen.

After e passes over B samples in equal minibatches, the mean of all clip fractions is n/(e·B) with a whole n. Where E
passes run, n is a multiple of E/gcd(e, E) for a smaller e as often as chance has it: clipping differs between passes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_of, mean_of, variance_of
from ppo_doctor.model import Fact

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.derive import Observations
    from ppo_doctor.model import FloatArray, Series

    Counts = npt.NDArray[np.int64]

#: Trainers whose clip fraction is a plain mean of all minibatches of all passes, at steps that count samples.
SAID_TO_AVERAGE = ("sb3", "cleanrl")
#: Others whose clip fraction can only prove that passes were run: what it averages over is not known.
MAY_AVERAGE = ("canonical",)
#: As written where several processes train, each on its own share of the rollout, and one of them logs.
SHARED_OUT = ("world_size", "local_num_envs", "local_batch_size", "device_ids")
#: At which chance a smaller number of passes is believed.
CHANCE = 1e-6
#: Float32 rounds the mean of a minibatch and the number in a container, each by half of 2^-23; doubled.
ROUNDING = 2.0**-22
#: Largest error of a count n: beyond it a fraction of one pass looks like one of another.
READABLE = 0.2
#: From here on counts sit at their maximum, where they stop to differ between passes.
MOST = 0.5
#: Single samples that are off by themselves are clipped in each pass alike. They scatter as Poisson's counts do, whose
#: variance over the mean is 3 in one of a million draws of thirty; steps of a policy clip many at once, or none.
BUNCHED = 3.0
#: Least share of records without any clipping: a ratio that begins off its 1 leaves none.
UNCLIPPED = 0.25
#: Least share of records that no single pass could show: passes that all clip alike look like a single one.
UNLIKE = 0.25


def passes_by_clip_counts(observations: Observations) -> Fact | None:
    """Return the share of the configured passes that clip fractions show as executed; 1 where they show all.

    None where the rollout, the passes or the rounding leave it open, where passes may stop early, or where minibatches
    differ in size.
    """
    clipped, plan = observations.run.series.get("clip_fraction"), _plan(observations)
    if clipped is None or plan is None or not _of_whole_rollouts(observations, clipped, plan[1]):
        return None
    passes, samples = plan
    values = finite_of(clipped.values)
    some = values[(values > 0) & (values < MOST)]
    off = clipped.resolution.absolute + some * ROUNDING
    if not len(some) or float(np.max(off)) * passes * samples > READABLE:
        return None
    found = next((e for e in range(1, passes + 1) if _fits(some, off, e * samples)), None)
    if found is None or _chance(found, passes, len(some)) > CHANCE:
        return None
    if found < passes and not _believed(observations, values, samples, found):
        return None
    return _fact(clipped, passes, samples, found, len(some))


def _fact(clipped: Series, passes: int, samples: int, found: int, records: int) -> Fact:
    whole = f"a multiple of 1/({found} × {samples:d})"
    says = f"in all {records} records that clip, {clipped.raw} is {whole}: {found} of {passes} passes over {samples}"
    chance = f", by chance in one of 10^{-math.log10(_chance(found, passes, records)):.0f} runs of {passes} passes"
    return Fact(
        name="passes_by_clip_counts",
        value=found / passes,
        how="observed",
        unit="of the configured passes",
        source=clipped.source(),
        says=says + (chance if found < passes else ", and of no fewer"),
    )


def _plan(observations: Observations) -> tuple[int, int] | None:
    """Return the configured passes and the samples of a rollout, where all of them are run in equal minibatches."""
    rest = observations.fact("batch_remainder")
    passes, stop = observations.number("ppo_epochs"), observations.number("target_kl")
    if rest is None or rest.value != 0 or not passes or stop or not observations.configured("ppo_epochs"):
        return None
    rollout = _rollout(observations)
    whole = rollout is not None and float(rollout).is_integer() and passes.is_integer() and passes > 1
    return (int(passes), int(rollout)) if whole and rollout is not None else None


def _rollout(observations: Observations) -> float | None:
    """Return the samples of a rollout that the configuration of a single process tells."""
    ranks = observations.number("num_ranks")
    if (ranks or 1) > 1 or any(name in observations.run.config_raw for name in SHARED_OUT):
        return None
    for names in (("rollout_steps", "num_envs"), ("rollout_size",)):
        if all(map(observations.configured, names)):
            return math.prod(observations.number(name) or 0.0 for name in names)
    return None


def _of_whole_rollouts(observations: Observations, clipped: Series, samples: int) -> bool:
    """Tell whether the log fits the rollout: records that steps of an environment number stand whole rollouts apart."""
    if observations.run.framework in MAY_AVERAGE:
        return samples > 0
    said = observations.run.framework in SAID_TO_AVERAGE and clipped.aggregation == "all minibatches"
    gaps = np.diff(clipped.axis.steps)
    return said and samples > 0 and not (np.all(gaps > 1) and np.any(gaps % samples))


def _fits(values: FloatArray, off: FloatArray, seen: int) -> bool:
    counts = values * seen
    return bool(np.all(np.abs(counts - np.round(counts)) <= off * seen))


def _chance(found: int, passes: int, records: int) -> float:
    """Return how likely so many records fit `found` passes where another number was run: at most 1/2 for each."""
    share = 0.5 if found == passes else math.gcd(found, passes) / passes
    return float(share ** min(records, 30))


def _believed(observations: Observations, values: FloatArray, samples: int, found: int) -> bool:
    """Tell whether it is steps of the policy that clip, sample by sample: nothing else says how many passes there were.

    A common divisor of all counts shows that samples are repeated, or that fewer of them are averaged.
    """
    if observations.run.framework not in SAID_TO_AVERAGE or _never_steps(observations):
        return False
    counts = np.round(values * (found * samples)).astype(np.int64)
    if np.gcd.reduce(counts[(values > 0) & (values < MOST)]) != 1:
        return False
    unlike = counts[counts > 0] % found != 0
    return mean_of(unlike) >= UNLIKE or _steps_clip(counts)


def _steps_clip(counts: Counts) -> bool:
    """Tell whether clipping comes in bunches and ceases, as that of steps does; shape [records]."""
    bunched = variance_of(counts.astype(np.float64)) >= BUNCHED * mean_of(counts.astype(np.float64))
    return bool(bunched and mean_of(counts == 0) >= UNCLIPPED)


def _never_steps(observations: Observations) -> bool:
    """Tell whether the learning rate is 0: then all passes clip alike."""
    rate = observations.run.series.get("learning_rate")
    stands = rate is not None and bool((rate.at(0) | ~np.isfinite(rate.values)).all())
    return stands or observations.number("learning_rate") == 0
