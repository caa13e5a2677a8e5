"""Relations of rewards, values, returns and advantages: what they are by what they add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.tensors.held import Dump, Told, meanings_of, one_each
from ppo_doctor.tensors.recompute import centred_in

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

#: The correlation at which one array is made of others: half precision leaves 1e-3 of a spread, 1e-6 of a correlation.
SAME = 1 - 1e-4


def rewards(dump: Dump) -> Told:
    """Of rewards by name, the one for each row is that of the whole beside one for each sample."""
    held = dump.named("rewards")
    samples = [name for name in held if dump.per_sample(name)]
    if dump.shape[1] > 1 and len(samples) == 1 < len(held) and dump.free("token_rewards"):
        yield samples[0], "token_rewards"


def critic(dump: Dump) -> Told:
    """Returns less values are the advantages, whatever scale and offset these were given."""
    advantages = dump.named("advantages_raw", "advantages")
    near = [name for name in advantages if dump.per_sample(name) and dump.varied(name)]
    names = [name for name in dump.roles if _may_be(dump, name, "values", "old_values", "returns", "rewards")]
    if not near:
        yield from _advantages(dump)
        return
    pairs = {pair: found for pair, found in _made_of(dump, names, near[0]).items() if _named_so(dump, *pair)}
    best = max(pairs, key=lambda pair: (_known(dump, *pair), pairs[pair]), default=None)
    if best is None:
        return
    yield from ((name, None) for name in dump.named("returns"))
    yield best[0], "returns"
    taken = dump.roles[best[1]] == "old_values" or set(dump.named("values")) - {best[1]}
    yield best[1], "old_values" if taken else "values"


def _named_so(dump: Dump, one: str, other: str) -> bool:
    """Tell whether names allow that one array is the returns and the other the values, and one of them says so.

    Advantages of the wrong sign would else make returns of values. What several arrays are called is no name of any.
    """
    said = [(dump.roles[one], ("returns",)), (dump.roles[other], ("values", "old_values"))]
    free = [role is None or len(dump.named(role)) > 1 for role, _ in said]
    right = [role in wanted for role, wanted in said]
    words = meanings_of(other)
    in_part = bool(meanings_of(one) & _OF_RETURNS) or (bool(words & _OF_VALUES) and not words & _OF_RETURNS)
    return (any(right) or in_part) and all(map(or_, free, right))


#: Words of returns, which critics aim at, and of values.
_OF_RETURNS, _OF_VALUES = frozenset({"return", "target"}), frozenset({"value", "baseline", "critic"})


def _known(dump: Dump, one: str, other: str) -> int:
    return (dump.roles[one] == "returns") + (dump.roles[other] in ("values", "old_values"))


def _made_of(dump: Dump, names: Sequence[str], target: str) -> dict[tuple[str, str], float]:
    """Return the pairs of arrays whose difference is a target but for scale and offset, with the correlation.

    Pairs of which either alone has nearly as much of the target are none.
    """
    columns = np.stack([dump.array(name)[dump.mask] for name in (target, *names)])
    columns -= columns.mean(axis=1)[:, None]
    columns /= max(float(np.abs(columns).max()), 1e-300)
    products = columns @ columns.T
    squares = products.diagonal()
    spreads = np.sqrt(squares[0] * np.maximum(squares[:, None] + squares - 2 * products, 0))
    found = np.divide(products[:, :1] - products[0], spreads, out=np.zeros_like(spreads), where=spreads > 0)
    alone = np.divide(products[0], np.sqrt(squares[0] * squares), out=np.zeros(len(squares)), where=squares > 0)
    gained = 1 - found < _PART * (1 - np.maximum(alone[:, None], -alone))
    kept = np.argwhere((found >= SAME) & gained)
    return {(names[one - 1], names[other - 1]): float(found[one, other]) for one, other in kept if one and other}


def _advantages(dump: Dump) -> Told:
    returns, values = dump.one("returns"), dump.one("values", "old_values")
    if returns is None or values is None or not dump.free("advantages"):
        return
    wanted = (returns - values)[dump.mask]
    for name in dump.open():
        if _may_be(dump, name) and _correlation(dump.array(name)[dump.mask], wanted) >= SAME:
            yield name, "advantages"
            return


def _may_be(dump: Dump, name: str, *roles: str) -> bool:
    """Tell whether an array has varied numbers for samples, and no other role than some."""
    return dump.roles[name] in (None, *roles) and dump.per_sample(name) and dump.varied(name)


#: What a second array must leave of the share that the first does not explain.
_PART = 0.05


def _correlation(one: Floats, other: Floats) -> float:
    one, other = one - one.mean(), other - other.mean()
    size = math.sqrt(float(np.dot(one, one))) * math.sqrt(float(np.dot(other, other)))
    return float(np.dot(one, other)) / size if size > 0 else 0.0


def step_rewards(dump: Dump) -> Told:
    """A reward is what generalised advantage estimation leaves of A and V: A + V - r = γλ A' + γ V' (Schulman 2015)."""
    returns, values = dump.one("returns"), dump.one("old_values", "values")
    if returns is None or values is None or dump.shape[1] < 2 or dump.named("token_rewards"):
        return
    keep = dump.mask
    after = np.concatenate([keep[:, 1:], np.zeros((dump.head, 1), bool)], axis=1)
    next_ = [np.where(after, np.roll(array, -1, axis=1), 0.0)[keep] for array in (returns - values, values)]
    left = {
        name: _left_over(returns[keep] - dump.array(name)[keep], next_)
        for name in dump.roles
        if _may_be(dump, name, "rewards") and name not in dump.named("returns", "values", "old_values")
    }
    best = min(left, key=left.__getitem__, default=None)
    without = _left_over(returns[keep], next_)
    if best is not None and left[best] < _PART * without and left[best] < 1 - SAME:
        yield best, "token_rewards"


def _left_over(wanted: Floats, parts: Sequence[Floats]) -> float:
    """Return the share of a column that no sum of others explains."""
    columns = np.stack(parts, axis=1)
    if not (np.isfinite(columns).all() and np.isfinite(wanted).all()):
        return math.inf
    factors = np.linalg.lstsq(columns, wanted, rcond=None)[0]
    size = float(np.dot(wanted, wanted))
    rest = wanted - columns @ factors
    return float(np.dot(rest, rest)) / size if size > 0 else math.inf


def row_rewards(dump: Dump) -> Told:
    """The rewards of a row's steps add up to its own, but for a penalty."""
    steps = dump.one("token_rewards")
    names = [name for name in dump.open() if dump.array(name).shape == (dump.head,)]
    if steps is not None and dump.free("rewards") and dump.shape[1] > 1:
        sums = np.where(dump.mask, steps, 0.0).sum(axis=1)
        near = [name for name in names if _correlation(dump.array(name), sums) > _SUMMED]
        yield from ((name, "rewards") for name in near[:1])


def group_rewards(dump: Dump) -> Told:
    """Where rows are compared with their group, advantages are rewards less their mean, over one number or another."""
    rows, group = one_each(dump), next(iter(dump.named("group")), None)
    if rows is None or group is None or dump.array(group).shape != rows.shape or not dump.free("rewards"):
        return
    for name in dump.open():
        if dump.array(name).shape == rows.shape and centred_in(rows, dump.array(name), dump.array(group)):
            yield name, "rewards"
            return


#: The correlation of a row's reward with the sum of its steps' rewards, which may hold a penalty on the KL as well.
_SUMMED = 0.95
