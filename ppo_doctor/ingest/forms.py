"""What a column of words that nobody knows may be, by its numbers alone: nats of weight for each metric.

A form is weak evidence: what columns show beside each other (`relations`) is strong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.ingest.shapes import counts_up
from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import FloatArray

#: Records from which on a column has a form.
LEAST = 16
#: Entropy of a normal distribution with a deviation of 1, in nats.
_UNIT_GAUSSIAN = 0.5 * math.log(2 * math.pi * math.e)
#: More of the same number than this and there is no course.
_SAME = 1e-12


@frozen
class Form:
    """The numbers of a column in the records that hold them, and what is asked of them again and again."""

    known: FloatArray
    size: float
    start: float
    end: float
    #: von Neumann's ratio: 0 for a smooth course, 1 for noise; 1 where nothing moves
    rough: float
    #: standard deviation over size
    spread: float
    negative: float

    @property
    def still(self) -> bool:
        """Tell whether one number stands in every record."""
        return bool(self.known.min() == self.known.max())

    @property
    def zero(self) -> bool:
        """Tell whether it is 0 in every record, but for what float64 leaves of a sum."""
        return bool((np.abs(self.known) < _SAME).all())


def form_of(values: FloatArray) -> Form | None:
    """Return the form of a column's numbers, None where they are too few or only count."""
    known = values[np.isfinite(values)]
    if len(known) < LEAST or counts_up(known):
        return None
    part, deviation = max(3, len(known) // 10), float(known.std())
    size = float(np.median(np.abs(known)))
    moves = deviation > 1e-9 * size
    rough = float(np.square(np.diff(known)).mean() / (2.0 * known.var())) if moves else 1.0
    return Form(
        known=known,
        size=size,
        start=float(np.median(known[:part])),
        end=float(np.median(known[-part:])),
        rough=min(rough, 1.0),
        spread=deviation / size if size else math.inf,
        negative=float((known < 0).mean()),
    )


def _earned(form: Form) -> float | None:
    if form.still:
        return None if form.zero else 0.0
    drift = abs(form.end - form.start) > 2.0 * float(np.abs(np.diff(form.known)).mean())
    # nothing else of a policy is so large, or negative throughout and not small
    large = form.size > 15.0 or (form.negative > 0.9 and form.size > 1.0)
    rises = drift and form.end > form.start
    return 0.3 + 0.5 * drift + 0.3 * rises + 1.2 * large + (0.3 if form.size > 0.1 else -0.3)


def _entropy(form: Form) -> float | None:
    start = float(np.median(form.known[:3]))
    fresh = _is_fresh(start)
    if form.known.max() > 60 or form.known.min() < -60 or form.size < 0.01 or (form.still and not fresh):
        return None
    smooth = 1.3 if form.rough < 0.06 else 0.9 if form.rough < 0.12 else 0.3 if form.rough < 0.3 else -1.2
    total = max(smooth, 0.7) if form.spread < 0.02 else smooth
    total += (
        0.6 if form.end <= form.start + 0.02 * abs(form.start) else -0.2 if form.end < 2 * abs(form.start) else -0.6
    )
    total += 0.6 * (0.2 < start < 12.0) + 0.5 * fresh - 0.6 * (form.negative > 0)
    return total - 2.0 * (form.size > 15.0)


def _is_fresh(start: float) -> bool:
    """Tell whether an entropy is that of a policy before training: of n even actions, or of round deviations."""
    even = any(abs(start / math.log(n) - 1) < 0.015 or abs(start / math.log2(n) - 1) < 0.005 for n in range(2, 33))
    each = [(start / n - _UNIT_GAUSSIAN, 0.0006 / n) for n in range(1, 9)]
    return even or any(abs(log * 10 - round(log * 10)) < 10 * room and -3 < log < 1 for log, room in each)


def _divergence(form: Form) -> float | None:
    if form.known.min() < -0.1 or form.known.max() > 200 or form.negative > 0.75:
        return None
    if form.still:
        return 0.4 if form.zero else None
    small = 1e-10 < form.size < 0.08
    tail = float(form.known.min()) > -1.5 * float(form.known.max())  # samples of it may be below 0, its mean is not
    often = float((form.known == 0).mean()) > 0.2
    return (
        (1.0 if small else -0.6 if form.size < 1 else -1.5)
        + 0.4 * (form.negative < 0.1)
        + 0.3 * tail
        - 0.5 * (form.negative > 0.15)
        - 1.0 * (often or _leaves_zero(form))
    )


def _leaves_zero(form: Form) -> bool:
    """Tell whether a column is 0 in its first record alone, as what is measured from where training began."""
    return bool(form.known[0] == 0 and (form.known[1:6] > 0).all())


def _to_reference(form: Form) -> float | None:
    if form.still or form.known.min() < -1e-3 or form.known.max() > 200:
        return None
    top = float(form.known.max())
    begins = float(form.known[0]) < 0.1 * top
    grown = form.end > 3.0 * max(form.start, 0.05 * top) or form.end > 0.5 * top
    exactly = _leaves_zero(form)
    return 0.8 * begins + 0.6 * grown + 2.0 * exactly - 1.2 * (not exactly and form.rough > 0.5)


def _clipped(form: Form) -> float | None:
    if form.known.min() < 0 or form.known.max() > 100:
        return None
    if form.still:
        return 0.4 if form.zero else None
    low = form.known.max() <= 1.0
    lowest = bool((form.known == 0).any())
    often = float((form.known == 0).mean()) > 0.2
    total = (0.6 if low else 0.1) + 0.5 * lowest + 0.4 * often + 0.2 * (form.rough > 0.15)
    narrow = not lowest and form.spread < 0.5 and form.size < 0.7
    return total - 1.0 * (not low and not form.known.max() > 3) - 0.5 * narrow - 0.8 * _counts_few(form)


def _explained(form: Form) -> float | None:
    if form.known.max() > 1.0 + 1e-6 or form.still:
        return None
    most = float(np.quantile(form.known, 0.95))
    below = bool(form.known.min() < 0.35)
    rises = form.end > form.start
    return (
        (0.5 if most > 0.2 else -0.8)
        + 0.5 * rises
        + 0.4 * below
        + 0.6 * bool(0 < form.negative < 0.6)
        - (1.2 if float((form.known == 0).mean()) > 0.05 else 0.4)
    )


def _error(form: Form) -> float | None:
    if form.known.min() < 0 or form.still or form.size < 1e-6:
        return None
    wide = float(form.known.max()) > 3.0 * max(float(form.known.min()), 1e-12)
    rises = form.rough < 0.2 and form.end > form.start
    return 0.3 + 0.4 * wide + 0.4 * (form.size > 0.5) - 0.6 * rises


def _surrogate(form: Form) -> float | None:
    if form.zero:
        return 0.3
    if form.still or form.size > 2.0:
        return None
    both = 0.02 < 1 - form.negative < 0.98
    return 1.2 * both + 0.5 * (form.negative > 0.5) + (0.5 if form.size < 0.15 else -0.5) + 0.1


def _gradient(form: Form) -> float | None:
    if form.zero:
        return 0.2
    if form.still or form.known.min() < 0:
        return None
    return (
        (1.0 if 0.02 < form.size < 30.0 else -0.5)
        + 0.4 * (form.spread < 0.8)
        + 0.4 * bool(form.known.min() > 0)
        + ((0.4 if form.rough > 0.15 else -0.3) - 1.2 * (form.spread < 0.02))
    )


def _rate(form: Form) -> float | None:
    if form.known.min() < 0 or form.known.max() > 0.1 or form.zero:
        return None
    change = np.diff(form.known)
    changes = np.abs(change) > 1e-9 * form.size
    falls = bool((change[changes] < 0).all()) and bool((np.abs(np.diff(change)) < 0.1 * form.size).all())
    constant = not changes.any()
    if not (constant or (falls and changes.mean() > 0.8)):
        return None
    return 2.6 if form.size < 0.012 else 0.8


def _executed(form: Form) -> float | None:
    whole = bool((form.known % 1 == 0).all()) and form.known.min() >= 1 and form.known.max() <= 20_000
    return 0.6 if whole else None


def _deviation(form: Form) -> float | None:
    if form.known.min() < 0 or form.known.max() > 100:
        return None
    return 0.2 if form.still else 0.2 + 0.3 * (form.size < 0.3)


def _spread(form: Form) -> float | None:
    return None if form.known.min() < 0 or form.zero else 0.4


def _without_spread(form: Form) -> float | None:
    if form.known.min() < 0 or form.known.max() > 1 or form.still:
        return None
    return (1.8 if _counts_few(form) else -0.5) + 0.4 * (form.known[0] <= 0.1 and form.end > form.start)


def _counts_few(form: Form) -> bool:
    """Tell whether shares are of at most 128: of groups, where those of samples are finer."""
    some = np.unique(form.known[form.known > 0])[:64]
    grid = [n for n in range(2, 129) if some[0] * n > 0.9] if len(some) else []
    return any(np.allclose(some * n, np.round(some * n), atol=0.02) for n in grid)


FORMS: Mapping[str, Callable[[Form], float | None]] = {
    "episode_return": _earned,
    "entropy": _entropy,
    "approx_kl": _divergence,
    "ref_kl": _to_reference,
    "clip_fraction": _clipped,
    "explained_variance": _explained,
    "value_loss": _error,
    "policy_loss": _surrogate,
    "grad_norm": _gradient,
    "learning_rate": _rate,
    "optimizer_steps": _executed,
    "ratio_abs_dev": _deviation,
    "reward_std": _spread,
    "frac_reward_zero_std": _without_spread,
}
