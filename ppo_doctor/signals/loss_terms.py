"""The coefficients that a logged loss was put together with, read off the loss and its logged terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.arrays import beside
from ppo_doctor.signals.course import fact, series_of

if TYPE_CHECKING:
    from ppo_doctor.model import Fact, FloatArray, Series
    from ppo_doctor.signals.course import Observations

#: Terms that trainers add to the surrogate; the KL as it stands in the loss goes before the KL that it is made of.
TERMS, PENALTIES = ("value_loss", "entropy"), ("kl_term", "ref_kl")
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
    held = (beside(loss, series_of(observations, *names)) for names in (*((name,) for name in TERMS), PENALTIES))
    terms = [one for one in held if one is not None]
    if any(_of_other_samples(loss, one) for one in (policy, *terms)):
        return None
    rows = np.column_stack([loss.values - policy.values, *(one.values for one in terms)])
    rows = rows[np.isfinite(rows).all(axis=1)]
    return (loss, terms, rows) if terms and len(rows) >= LEAST else None


def _of_other_samples(loss: Series, term: Series) -> bool:
    """Tell whether a term is declared to be a mean over other samples than the loss: the last minibatch, or all."""
    return loss.aggregation is not None and term.aggregation is not None and loss.aggregation != term.aggregation


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
    """Return the coefficient of the KL to the reference in the loss, below 0 where it pays; None where it is not.

    Of a KL term that has its coefficient already only the sign is told, where it pays.
    """
    penalty = series_of(observations, *PENALTIES)
    found = None if penalty is None else _fact("penalty_in_loss", observations, penalty.name, 1)
    if penalty is None or found is None or not isinstance(found.value, float):
        return None
    told = found.value < 0 if penalty.name == "kl_term" else found.value != 0  # it may be in the rewards
    return found if told else None
