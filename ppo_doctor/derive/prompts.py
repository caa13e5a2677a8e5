"""How much of a reward's spread are the prompts, and how much the answers to one prompt?"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import finite_median, finite_parts, median
from ppo_doctor.derive.conditions import condition
from ppo_doctor.derive.rewards import reward_blocks
from ppo_doctor.model import EXACT, Fact

if TYPE_CHECKING:
    from ppo_doctor.derive import Observations
    from ppo_doctor.model import BoolArray, Series

#: What the deviations of a reward's parts are called, the part's name behind it.
PART = "reward_component_std."
#: Records that a quotient of two metrics takes to tell something.
LEAST = 6
#: Share of its first entropy that a policy that has changed keeps at most.
CHANGED = 0.9


#: Share of its first entropy below which a policy hardly chooses.
CHOICE = 0.2
#: A length this close to a whole number is one.
WHOLE = 1e-3


def lengths_by_prompt(observations: Observations) -> Series | None:
    """Return 1 where the mean length times the number of prompts is a whole number, else 0.

    Completions that are the same within each group have a mean over prompts, where any others have one over
    completions: one such mean in as many as a group has is a multiple by chance. NaN where the mean itself is whole, as
    at the length limit. None where the batch is not configured, or the lengths are printed too coarsely to tell.
    """
    series, group = observations.run.series.get("response_length"), observations.number("num_generations")
    steps = observations.number("steps_per_generation") or observations.number("gradient_accumulation_steps")
    size = (observations.number("minibatch_size") or 0.0) * (steps or 0.0)
    if series is None or not group or group < 2 or size < 2 * group or size % group:
        return None
    prompts = size / group
    if series.resolution.absolute * prompts > WHOLE:
        return None
    off, of_prompts = (np.abs(values - np.round(values)) for values in (series.values, series.values * prompts))
    telling = (off > WHOLE) & _has_choice(observations, series)
    values = np.where(telling, (of_prompts <= WHOLE).astype(np.float64), np.nan)
    says = f"{series.raw} is a mean over {prompts:g} prompts rather than {size:g} completions"
    return condition(dataclasses.replace(series, resolution=EXACT), "lengths_by_prompt", values, says)


def _has_choice(observations: Observations, beside: Series) -> BoolArray:
    """Return whether a fifth of the first entropy is left at the records of a series; all where it is not logged."""
    entropy = observations.run.series.get("entropy")
    if entropy is None or not len(entropy):
        return np.ones(len(beside), dtype=bool)
    at = np.clip(np.searchsorted(entropy.axis.steps, beside.axis.steps), 0, len(entropy) - 1)
    return np.asarray(entropy.values[at] >= CHOICE * entropy.values[0])


def answers_share(observations: Observations) -> Fact | None:
    """Return the deviation of rewards within groups over that of all rewards of the batch: the largest third's median.

    The variance of a batch is that within its groups and that between them: a share s leaves 1 - s² to the prompts.
    It shrinks in sound runs as well while answers become alike, hence the largest. A reward of one part is that part,
    whose deviation trainers take over the whole batch. None where it has several.
    """
    within, whole = observations.run.series.get("reward_group_std"), _of_the_only_part(observations)
    if within is None or whole is None or len(within) != len(whole):
        return None
    shares = within.values / np.where(whole.values > 0, whole.values, math.nan)
    thirds = finite_parts(shares, 3)
    if min(len(part) for part in thirds) < LEAST:
        return None
    levels = [median(part) for part in thirds]
    says = f"{within.raw} / {whole.raw} by thirds of the run: {', '.join(f'{level:.3g}' for level in levels)}"
    return Fact(name="answers_share", value=max(levels), how="computed", source=within.source(), says=says)


def reward_spread_range(observations: Observations) -> Fact | None:
    """Return the largest over the smallest deviation of rewards by sixths of a run whose policy loses entropy.

    None where the policy keeps its entropy, or where no deviation over the whole batch is known.
    """
    spread, entropy = _of_the_batch(observations), observations.run.series.get("entropy")
    if spread is None or entropy is None:
        return None
    blocks, left = reward_blocks(spread), reward_blocks(entropy)
    if blocks is None or left is None or not min(blocks) > 0 or not left[0] > 0 or min(left) > CHANGED * left[0]:
        return None
    says = f"{spread.raw} by sixths: {', '.join(f'{b:.3g}' for b in blocks)}; {entropy.raw} falls to {min(left):.3g}"
    value = max(blocks) / min(blocks)
    return Fact(
        name="reward_spread_range", value=value, how="computed", unit="times", source=spread.source(), says=says
    )


def reward_moves_in_spreads(observations: Observations) -> Fact | None:
    """Return the range of the mean reward by sixths of a run, in deviations of the rewards of one batch."""
    spread, reward = _of_the_batch(observations), observations.run.series.get("reward_mean")
    blocks = reward_blocks(reward) if reward is not None else None
    usual = finite_median(spread.values) if spread is not None else 0.0
    if reward is None or spread is None or blocks is None or not usual > 0:
        return None
    says = f"{reward.raw} by sixths: {', '.join(f'{b:.3g}' for b in blocks)}; {spread.raw} is {usual:.3g}"
    value = (max(blocks) - min(blocks)) / usual
    return Fact(
        name="reward_moves_in_spreads",
        value=value,
        how="computed",
        unit="deviations",
        source=reward.source(),
        says=says,
    )


def _of_the_batch(observations: Observations) -> Series | None:
    """Return the deviation of rewards over the whole batch, in a run that compares rewards in groups."""
    if "frac_reward_zero_std" not in observations.run.series:
        return None
    part = _of_the_only_part(observations)
    whole = observations.run.series.get("reward_std")
    return part or (None if "reward_group_std" in observations.run.series else whole)


def _of_the_only_part(observations: Observations) -> Series | None:
    parts = [series for name, series in observations.run.series.items() if name.startswith(PART)]
    return parts[0] if len(parts) == 1 else None
