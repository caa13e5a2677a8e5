"""The coefficients that a logged loss was put together with, read off the loss and its logged terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside
from ppo_doctor.signals.course import fact, series_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray, Series
    from ppo_doctor.signals.course import Observations

#: Terms that trainers add to the surrogate.
TERMS = ("value_loss", "entropy", "ref_kl")
#: Records that have to agree, and how closely: what is left over, as a share of what the terms move.
LEAST, EXACT = 10, 1e-3
#: A coefficient is known if its error is below this share of it, or of the least that a trainer sets.
KNOWN, SMALLEST = 0.02, 0.01
#: A coefficient below this is none.
NOTHING = 1e-5


def _terms(observations: Observations) -> tuple[Series, list[Series], FloatArray] | None:
    """Return the loss, the terms that vary beside it, and the finite rows of what they add, then of each of them."""
    loss = series_of(observations, "loss")
    policy = beside(loss, series_of(observations, "policy_loss"))
    if loss is None or policy is None:
        return None
    terms = [one for name in TERMS if (one := beside(loss, series_of(observations, name))) is not None]
    rows = np.column_stack([loss.values - policy.values, *(one.values for one in terms)])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return (loss, terms, rows) if terms and len(rows) >= LEAST else None


def _coefficient(observations: Observations, name: str) -> tuple[Series, float] | None:
    """Return the coefficient of a term: loss - policy_loss = sum of coefficient x term, in every record.

    None where the records do not agree on it: means over other minibatches, a loss of another form, a schedule.
    """
    found = _terms(observations)
    if found is None:
        return None
    loss, held, rows = found
    added, terms = rows[:, 0], rows[:, 1:]
    names = [one.name for one in held]
    scale = np.abs(terms).max(axis=0)
    if name not in names or not scale.all() or not np.ptp(added):
        return None
    solved, _, rank, _ = np.linalg.lstsq(terms / scale, added, rcond=None)
    left = float(np.sqrt(np.mean((added - terms / scale @ solved) ** 2)))
    if rank < len(names) or left > EXACT * float(np.std(added)):
        return None
    at = names.index(name)
    spread = float(np.sqrt(np.linalg.inv((terms / scale).T @ (terms / scale))[at, at]))
    value, error = solved[at] / scale[at], left * spread / scale[at]
    return (loss, float(value)) if error <= KNOWN * max(abs(value), SMALLEST) else None


def _fact(name: str, observations: Observations, term: str, sign: int) -> Fact | None:
    found = _coefficient(observations, term)
    if found is None:
        return None
    loss, value = found
    value = float(f"{sign * value:.4g}") if abs(value) > NOTHING else 0.0
    return fact(name, value, loss, f"{loss.raw} holds {value:.3g} x {term} in every record")


def value_loss_in_loss(observations: Observations) -> Fact | None:
    """Return the coefficient of the value loss in the loss."""
    return _fact("value_loss_in_loss", observations, "value_loss", 1)


def bonus_in_loss(observations: Observations) -> Fact | None:
    """Return the coefficient of the entropy bonus in the loss: above 0 where entropy pays."""
    return _fact("bonus_in_loss", observations, "entropy", -1)


def penalty_in_loss(observations: Observations) -> Fact | None:
    """Return the coefficient of the KL to the reference in the loss, below 0 where it pays; None where it is not."""
    found = _fact("penalty_in_loss", observations, "ref_kl", 1)
    return found if found is not None and found.value else None  # it may be in the rewards
