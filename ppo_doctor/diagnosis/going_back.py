"""The checkpoint to which a run that fell or broke can go back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.arrays import median
from ppo_doctor.model.evidence import MUCH
from ppo_doctor.model.words import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ppo_doctor.model.diagnosis import Checkpoint, Outcome, Problem
    from ppo_doctor.model.run import Run, Series

FELL = ("lost", "fell")


def checkpoint_before(run: Run, problems: Iterable[Problem], outcome: Outcome) -> Checkpoint | None:
    """Return the last checkpoint before the onset of what ended a run's success at which the reward was still good.

    The onset is that of non-finite numbers, or of the first problem of an unhealthy run after the best reward, or of
    the fall itself. The reward is good while at most a quarter of its height above the lower end of the run is lost;
    if it never is at a checkpoint, the one with the highest reward counts. None for a run that never learned, and where
    steps cannot be compared.
    """
    onset = _onset(problems, outcome, run)
    if onset is None:
        return None
    from ppo_doctor.runs.beside import checkpoints

    reward = run.outcome(OUTCOMES["reward"])
    before = [_with_reward(each, reward, outcome) for each in checkpoints(run) if each.step <= onset]
    if not before or any(each.reward is None for each in before):
        return before[-1] if before else None
    least = _least(outcome)
    good = [each for each in before if each.reward is not None and each.reward >= least]
    chosen = good[-1] if good else max(before, key=lambda each: each.reward or 0.0)
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


def _with_reward(checkpoint: Checkpoint, reward: Series | None, outcome: Outcome) -> Checkpoint:
    """Return a checkpoint with the median of the rewards of as many records up to it as the last level is made of."""
    if reward is None or outcome.best is None or outcome.best_step is None:
        return checkpoint
    values = reward.values[(reward.axis.steps <= checkpoint.step) & np.isfinite(reward.values)]
    return replace(checkpoint, reward=median(values[-max(outcome.late, 1) :])) if len(values) else checkpoint


def _least(outcome: Outcome) -> float:
    best, low = outcome.best or 0.0, min(outcome.start or 0.0, outcome.end or 0.0)
    return best - MUCH * (best - low)
