"""What the numbers of a column say of which metric it may be: limits by definition, usual sizes, and its course."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

Course = Literal["any", "smooth", "schedule", "count", "both signs", "around one"]

#: Fewer numbers say nothing of a column; of those that there are at most this share may be beyond a limit.
LEAST, DAMAGED = 4, 0.02
#: Nats for a usual size, and against each power of ten beyond it, up to so many of them.
USUAL, DECADE, MOST_DECADES = 0.7, 0.6, 4.0
#: The same for each power of ten below it.
SMALL = 0.2
#: Nats for numbers that are never negative, where the metric's cannot be.
WITHIN = 0.4
#: Nats for the course that a metric takes, and against one that it does not.
FITTING, ODD = 1.0, 1.5
#: Whole numbers of two and more kinds, where a metric is a mean over samples: against it.
WHOLE = 2.5
#: A rate that is set rises at most so often while it falls: in a warm-up, at a restart.
FEW_RISES = 5


@frozen(kw_only=False)
class Shape:
    """What a metric's numbers are like: limits, between which sizes most lie, and the course that they take.

    `expected` is how common the metric is in logs of PPO, in nats below that of the commonest: it weighs between the
    readings of one name, and not for a name that says it.
    """

    expected: float
    low: float
    high: float
    usual: tuple[float, float]
    course: Course = "any"


_ANY = math.inf
SHAPES: Mapping[str, Shape] = {
    "episode_return": Shape(0.0, -_ANY, _ANY, (0.05, 1e4)),
    "reward_mean": Shape(-0.2, -_ANY, _ANY, (1e-3, 1e4)),
    "eval_return": Shape(-1.0, -_ANY, _ANY, (0.05, 1e4)),
    "episode_length": Shape(-0.7, 0.0, _ANY, (3.0, 1e4)),
    "response_length": Shape(-0.7, 0.0, _ANY, (3.0, 1e5)),
    "success_rate": Shape(-1.0, 0.0, 100.0, (0.01, 100.0)),
    "policy_loss": Shape(0.0, -_ANY, _ANY, (1e-5, 3.0), "both signs"),
    "value_loss": Shape(0.0, 0.0, _ANY, (1e-3, 1e5)),
    "loss": Shape(-0.4, -_ANY, _ANY, (1e-3, 1e5)),
    "entropy": Shape(-0.1, -200.0, 200.0, (0.02, 30.0), "smooth"),
    "entropy_loss": Shape(-0.7, -200.0, 200.0, (1e-4, 10.0), "smooth"),
    "approx_kl": Shape(-0.1, -1.0, 1e4, (1e-5, 2.0)),
    "probe_kl": Shape(-1.2, -1.0, 1e4, (1e-5, 2.0)),
    "ref_kl": Shape(-0.4, -1.0, 1e4, (1e-5, 10.0)),
    "clip_fraction": Shape(-0.3, 0.0, 100.0, (5e-3, 60.0)),
    "clip_range": Shape(-1.0, 0.0, 10.0, (0.05, 0.5), "schedule"),
    "ratio_mean": Shape(-0.8, -1.0, 1e4, (0.7, 1.4), "around one"),
    "ratio_max": Shape(-1.0, 0.9, _ANY, (1.0, 10.0)),
    "ratio_min": Shape(-1.0, 0.0, 1.1, (0.1, 1.0)),
    "ratio_std": Shape(-1.2, 0.0, _ANY, (1e-3, 1.0)),
    "ratio_abs_dev": Shape(-1.0, 0.0, _ANY, (1e-4, 0.5)),
    "explained_variance": Shape(-0.6, -_ANY, 1.0, (0.01, 1.0)),
    "learning_rate": Shape(-0.2, 0.0, 1.0, (1e-7, 2e-2), "schedule"),
    "critic_learning_rate": Shape(-1.0, 0.0, 1.0, (1e-7, 2e-2), "schedule"),
    "entropy_coef": Shape(-1.0, -1.0, 10.0, (1e-4, 0.5), "schedule"),
    "kl_coef": Shape(-1.0, 0.0, 1e3, (1e-4, 5.0), "schedule"),
    "grad_norm": Shape(-0.5, 0.0, _ANY, (0.01, 1e3)),
    "actor_grad_norm": Shape(-1.0, 0.0, _ANY, (0.01, 100.0)),
    "critic_grad_norm": Shape(-1.0, 0.0, _ANY, (0.01, 1e3)),
    "update_norm": Shape(-1.2, 0.0, _ANY, (1e-5, 10.0)),
    "optimizer_steps": Shape(-1.0, 0.0, 1e6, (1.0, 5e3), "count"),
    "epochs_executed": Shape(-1.0, 0.0, 200.0, (1.0, 40.0), "count"),
    "advantages_mean": Shape(-1.0, -_ANY, _ANY, (1e-9, 10.0)),
    "advantages_std": Shape(-1.0, 0.0, _ANY, (0.05, 100.0)),
    "values_mean": Shape(-0.8, -_ANY, _ANY, (0.01, 1e4), "smooth"),
    "returns_mean": Shape(-0.8, -_ANY, _ANY, (0.01, 1e4)),
    "returns_std": Shape(-1.2, 0.0, _ANY, (0.01, 1e4)),
    "reward_std": Shape(-1.0, 0.0, _ANY, (0.01, 1e4)),
    "frac_reward_zero_std": Shape(-1.0, 0.0, 1.0, (0.01, 1.0)),
    "action_std": Shape(-0.8, 0.0, 100.0, (0.02, 5.0), "smooth"),
}
#: Metrics whose numbers are no means over samples, so that they may all be whole.
_MAY_BE_WHOLE = frozenset(
    {"episode_return", "eval_return", "reward_mean", "episode_length", "response_length", "success_rate"}
    | {"clip_fraction", "learning_rate"}
)


def support(metric: str, values: FloatArray) -> float | None:
    """Return how well numbers fit a metric in nats; None where they cannot be it.

    The numbers are taken to be in the metric's own unit already. A metric without a shape is none that is asked for.
    """
    shape = SHAPES.get(metric)
    if shape is None:
        return None
    known = values[np.isfinite(values)]
    if len(known) < LEAST:
        return 0.0
    beyond = (known < shape.low - 1e-6) | (known > shape.high + 1e-3)
    if beyond.mean() > DAMAGED or (shape.course != "count" and counts_up(known)):
        return None
    size = float(np.median(np.abs(known)))
    total = WITHIN if shape.low == 0.0 and known.any() else 0.0
    if known.any():
        total += _by_size(size, shape.usual) + _by_course(shape.course, known)
    if shape.course != "count" and metric not in _MAY_BE_WHOLE and _whole(known) and known.any():
        total -= WHOLE
    return total


def _by_size(size: float, usual: tuple[float, float]) -> float:
    if usual[0] <= size <= usual[1]:
        return USUAL
    if size < usual[0]:  # in a run that stands still much is next to nothing, and 0 says nothing of what it is
        return -SMALL * min(math.log10(usual[0] / size), MOST_DECADES / 2) if size else 0.0
    return -DECADE * min(math.log10(size / usual[1]), MOST_DECADES)


def _by_course(course: Course, known: FloatArray) -> float:
    """Return what the order of the numbers says for a metric of this course."""
    if course == "schedule":
        return FITTING if _scheduled(known) else -ODD
    if course == "count":
        return FITTING if _whole(known) and not counts_up(known) else -2 * ODD
    if course == "around one":
        never_below = bool((known >= 1.0).all() and (known > 1.0).any())  # a mean distance, to which 1 was added
        return -FITTING if never_below else FITTING if abs(float(np.median(known)) - 1.0) < 0.25 else -ODD
    if course == "both signs":
        positive = float((known > 0).mean())
        return FITTING if 0.02 < positive < 0.98 else 0.0 if positive <= 0.02 else -ODD / 2
    if course == "smooth" and known.min() != known.max():
        return FITTING * (1.0 - 2.0 * _rough(known))
    return 0.0


def _rough(known: FloatArray) -> float:
    """Return von Neumann's ratio of successive differences: 0 for a smooth course, 1 for noise (and beyond)."""
    return min(float(np.square(np.diff(known)).mean() / (2.0 * known.var())), 1.0)


def _whole(known: FloatArray) -> bool:
    return bool((known % 1 == 0).all())


def counts_up(known: FloatArray) -> bool:
    """Tell whether a column counts what is done: whole numbers, each above the one before but for a restart."""
    change = np.diff(known)
    return _whole(known) and bool((change > 0).mean() > 0.9)


def _scheduled(known: FloatArray) -> bool:
    """Tell whether numbers are set and not measured: they stand still, fall in one go, or take few values."""
    change = np.diff(known)
    falls, rises = bool((change <= 0).all()), int((change > 0).sum())
    return falls or len(np.unique(known)) <= max(2, len(known) // 4) or (rises < FEW_RISES and rises < len(known) // 10)
