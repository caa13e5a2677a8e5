"""What columns of words that nobody knows may be, by their numbers alone: each for itself, and beside each other.

Each judgement is in nats of weight for a metric. A form is weak evidence; what columns show together is strong: the
share of clipped samples rises and falls with the KL, the mean deviation of a ratio with its root, an explained variance
against the critic's error, and a mean lies between its minimum and its maximum.
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
#: Rank correlation from which on two columns go together, and against each other.
TOGETHER, AGAINST = 0.5, -0.35
#: The same of what they change by from record to record, which no common course explains.
AT_ONCE = 0.4
#: What a known relation of two columns weighs for both.
RELATED = 1.2
#: Slopes of a logarithm over another that say "the root of".
ROOT = (0.38, 0.62)
#: Entropy of a normal distribution with a deviation of 1, in nats.
_UNIT_GAUSSIAN = 0.5 * math.log(2 * math.pi * math.e)
#: The mean deviation over the root of a KL, which is 1.13 for normal log-ratios, in nats.
FACTOR = (0.4, 2.5)
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


def related(columns: Mapping[str, FloatArray]) -> dict[tuple[str, str], float]:
    """Return (column, metric) → what other columns say for it, by relations of which both sides show in this log."""
    found: dict[tuple[str, str], float] = {}

    def say(key: str, metric: str, weight: float = RELATED) -> None:
        found[key, metric] = max(found.get((key, metric), 0.0), weight)

    ranks = {key: _ranks(values) for key, values in columns.items()}
    of_others = {key for key in columns if any(extends(key, other) for other in columns)}
    for one, values in columns.items():
        for other, beside in columns.items():
            if extends(other, one):
                _by_name_beside(one, values, other, beside, say)
            if one == other or one in of_others or other in of_others:
                continue
            rank = _correlation(ranks[one], ranks[other])
            apart = TOGETHER > rank > AGAINST
            at_once = 0.0 if apart else _correlation(np.diff(ranks[one]), np.diff(ranks[other]))
            if at_once > AT_ONCE and _is_small(values) and _is_share(beside):
                say(one, "approx_kl")
                say(other, "clip_fraction")
            if rank > 0.8 and at_once > 0.7 and _is_small(values) and _is_root(beside, values):
                say(one, "approx_kl", 1.5 * RELATED)
                say(other, "ratio_abs_dev", 1.5 * RELATED)
            if rank < AGAINST and at_once < -AT_ONCE / 2 and _is_explained(values) and _is_error(beside):
                say(one, "explained_variance", 0.8)
                say(other, "value_loss", 0.8)
            # a loss holds it, times a coefficient
            held = at_once > AT_ONCE and (_is_signed(beside) or _is_part(beside, values))
            if rank > TOGETHER and held and _is_distance(values):
                say(one, "ref_kl", 0.6)
                say(other, "policy_loss", 2.0 * RELATED)
    for key, metric in list(found):  # what moves with a distance from the start need not be the KL of an update
        if metric == "policy_loss":
            found.pop((key, "approx_kl"), None)
            found.pop((key, "clip_fraction"), None)
        if metric == "ref_kl":
            found.pop((key, "clip_fraction"), None)
    return found


def _by_name_beside(
    key: str, values: FloatArray, longer: str, beside: FloatArray, say: Callable[[str, str, float], None]
) -> None:
    """Say what a column is whose name another one goes on: a mean with its bounds or its spread, a norm as clipped."""
    both = np.isfinite(values) & np.isfinite(beside)
    one, other = values[both], beside[both]
    if len(one) < LEAST or (one % 1 == 0).all():
        return
    if longer.endswith((" min", " max", " std", " median")):
        say(key, "episode_return", 2.0)
        return
    if (other < 0).any():
        return
    below = bool((one > 0).all() and (other <= one * 1.01 + 1e-6).all() and (other < one).any())
    steady = other.std() < 0.4 * one.std() and other.std() <= 0.15 * other.mean()
    kept = steady or float(np.isclose(one, other, rtol=0.02).mean()) > 0.05
    if below and kept and not longer.lower().endswith(("std", "sd", "dev")):  # a norm, and what clipping leaves of it
        say(key, "grad_norm", 1.4)
    else:
        say(key, "episode_return", 2.0)
        say(longer, "reward_std", 1.8)


def extends(longer: str, key: str) -> bool:
    """Tell whether a name is another one and more words."""
    return len(longer) > len(key) > 1 and longer.startswith(key) and not longer[len(key)].isalnum()


def _ranks(values: FloatArray) -> FloatArray:
    """Return mean ranks of the finite numbers, NaN elsewhere."""
    out = np.full(len(values), np.nan)
    known = np.isfinite(values)
    if known.any():
        _, place, count = np.unique(values[known], return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        out[known] = (last - (count - 1) / 2.0)[place]
    return out


def _correlation(one: FloatArray, other: FloatArray) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    a, b = one[both], other[both]
    if len(a) < LEAST or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))


def _finite(values: FloatArray) -> FloatArray:
    return values[np.isfinite(values)]


def _is_small(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(
        len(known) >= LEAST and (known < 0).mean() < 0.03 and 0 < np.median(np.abs(known)) < 0.3 and not _stands(known)
    )


def _is_share(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(
        len(known) >= LEAST
        and known.min() >= 0
        and (known.max() <= 1 or (3 < known.max() <= 100 and (known == 0).any()))
        and known.min() < 0.3 * np.median(known) + 1e-9
        and not _stands(known)
    )


def _is_explained(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and 0.2 < known.max() <= 1.0 and np.ptp(known) > 0.2 and (known == 0).mean() < 0.1)


def _is_distance(values: FloatArray) -> bool:
    """Tell whether a column is like a KL to where training began: never negative, and growing from little."""
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() >= 0 and 0.3 * known.max() > known[0] and known[-1] > 2 * known[0])


def _is_part(part: FloatArray, whole: FloatArray) -> bool:
    """Tell whether one column is nearly a number below 1 times the other, which is 0 in the first record alone."""
    both = (whole > 0) & np.isfinite(part)
    if both.sum() < LEAST or whole[0] != 0:
        return False
    low, middle, high = np.quantile(part[both] / whole[both], [0.1, 0.5, 0.9])
    return bool(0 < middle < 1 and high - low < 0.3 * middle)


def _is_signed(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() < 0 < known.max())


def _is_error(values: FloatArray) -> bool:
    known = _finite(values)
    return bool(len(known) >= LEAST and known.min() >= 0 and not _stands(known))


def _stands(known: FloatArray) -> bool:
    return bool(known.min() == known.max())


def _is_root(root: FloatArray, values: FloatArray) -> bool:
    """Tell whether one column is as the root of another: a small KL is half the variance of a ratio's logarithm."""
    both = (values > 0) & (root > 0)
    if both.sum() < LEAST:
        return False
    x, y = np.log(values[both]), np.log(root[both])
    if x.std() < 0.1 or not FACTOR[0] < float(np.exp(np.median(y - x / 2))) < FACTOR[1]:
        return False
    slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
    return ROOT[0] < slope < ROOT[1]
