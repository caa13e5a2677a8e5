"""The checkpoint to which a run that fell or broke can go back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.model.words import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model.diagnosis import Checkpoint, Outcome, Problem
    from ppo_doctor.model.run import Run, Series

FELL = ("lost", "fell")
#: The share of the reward's height, from the lower end of the run to its best, by which a later checkpoint may earn
#: less than an earlier one.
LESS = 0.1


def checkpoint_before(run: Run, problems: Iterable[Problem], outcome: Outcome) -> Checkpoint | None:
    """Return the last checkpoint before the onset of what ended a run's success at which the reward was still good.

    The onset is that of non-finite numbers, or of the first problem of an unhealthy run after the best reward, or of
    the fall itself. The reward is good if it is at most `LESS` of its height below the best of these checkpoints. None
    for a run that never learned, and where steps cannot be compared.
    """
    onset = _onset(problems, outcome, run)
    if onset is None:
        return None
    from ppo_doctor.runs.beside import checkpoints

    reward = run.outcome(OUTCOMES["reward"])
    before = [_with_reward(each, reward, outcome, onset) for each in checkpoints(run) if each.step <= onset]
    rewards = [each.reward for each in before if each.reward is not None]
    if not before or len(rewards) < len(before):
        return before[-1] if before else None
    least = max(rewards) - LESS * _height(outcome)
    chosen = [each for each in before if each.reward is not None and each.reward >= least][-1]
    return replace(chosen, last=chosen is before[-1])


def _onset(problems: Iterable[Problem], outcome: Outcome, run: Run) -> int | None:
    """Return the last step that is known to be sound, None if the run neither fell nor broke or that is unknown."""
    grave = [problem for problem in problems if problem.verdict == "unhealthy" and problem.since_step is not None]
    broke = [problem.since_step for problem in grave if problem.link == "numerics"]
    if broke:
        return _logged_before(min(step for step in broke if step is not None), run)
    if outcome.what not in FELL or outcome.best_step is None:
        return None
    later = [problem.since_step for problem in grave if (problem.since_step or 0) > outcome.best_step]
    later += [outcome.since_step] if outcome.since_step is not None else []
    steps = [step for step in later if step is not None]
    return _logged_before(min(steps), run) if steps else run.steps[1] if run.steps else None


def _logged_before(step: int, run: Run) -> int:
    """Return the last logged step before a step; what was written later may be broken already."""
    before = (series.axis.steps[series.axis.steps < step] for series in run.series.values())
    return max((int(steps[-1]) for steps in before if len(steps)), default=step - 1)


def _with_reward(checkpoint: Checkpoint, reward: Series | None, outcome: Outcome, onset: int) -> Checkpoint:
    """Return a checkpoint with the median of the rewards around it, of as many records as the last level is made of."""
    if reward is None or outcome.best is None or outcome.best_step is None:
        return checkpoint
    known = (reward.axis.steps <= onset) & np.isfinite(reward.values)
    steps, values = reward.axis.steps[known], reward.values[known]
    if not len(values) or steps[0] > checkpoint.step:
        return checkpoint
    size = max(outcome.late, 1)
    end = min(int(np.searchsorted(steps, checkpoint.step, side="right")) + size // 2, len(values))
    return replace(checkpoint, reward=median(values[max(end - size, 0) : end]))


def _height(outcome: Outcome) -> float:
    return (outcome.best or 0.0) - min(outcome.start or 0.0, outcome.end or 0.0)
