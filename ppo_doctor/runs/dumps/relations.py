"""Infer the roles of arrays of a dump from relations: repeated rows, groups, and sums of other arrays.

Each rule yields (name, role); `contents` applies them in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.runs.dumps.recompute import LEAST_ROWS, centred_by, centred_in, correlation
from ppo_doctor.trainers.names import parse, role_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ppo_doctor.readers.tensors.tensor import Archive, Tensor

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

#: Pairs of name and role that a rule assigns; None clears a role.
Assignments = Iterator[tuple[str, str | None]]
#: Largest number of elements of an array that are read, in whole rows from its beginning.
MOST = 1 << 16
#: Largest width of an array of prompts and completions in widths of samples; wider arrays are observations.
WIDEST = 64
#: Largest number of arrays of a dump whose values are read; usual dumps have tens.
MOST_ARRAYS = 100


class Dump:
    """The arrays of a dump, read on demand, and their roles as far as they are known."""

    def __init__(self, archive: Archive, roles: dict[str, str | None], base: Tensor, given: frozenset[str]) -> None:
        self.roles = roles
        self.given = given
        self.rows = base.shape[0]
        self.shape = (self.rows, base.size // self.rows)
        self.head = min(self.rows, max(1, MOST // self.shape[1]))
        self._tensors = archive.tensors
        self._numbers = archive.scalars
        self._read: dict[str, Floats] = {}

    def take(self, assignments: Iterable[tuple[str, str | None]]) -> None:
        """Assign the roles that a rule yields, except to names whose role the user gave."""
        for name, role in assignments:
            if name not in self.given:
                self.roles[name] = role

    def open(self) -> list[str]:
        """Return the names without a role."""
        return [name for name, role in self.roles.items() if role is None]

    def named(self, *roles: str) -> list[str]:
        """Return the names that have one of the roles."""
        return [name for name, role in self.roles.items() if role in roles]

    def free(self, role: str) -> bool:
        """Return whether nothing has this role yet."""
        return role not in self.roles.values()

    def is_array(self, name: str) -> bool:
        """Return whether a name is that of an array, not of a scalar."""
        return name in self._tensors

    def array(self, name: str) -> Floats:
        """Return the first rows of an array as float64, or a scalar; empty if it has no number per sample or row."""
        if name not in self._read:
            self._read[name] = self._load(name)
        return self._read[name]

    def _load(self, name: str) -> Floats:
        tensor = self._tensors.get(name)
        if tensor is None:
            number = self._numbers.get(name)
            whole = isinstance(number, int) and not isinstance(number, bool)
            return np.array(float(number)) if whole else np.empty(0)  # type: ignore[arg-type]
        try:
            return self._head(tensor)
        except DoctorError:  # the array may not be needed
            return np.empty(0)

    def _head(self, tensor: Tensor) -> Floats:
        if not tensor.size or tensor.dtype.startswith("complex"):
            return np.empty(0)
        if not tensor.shape or tensor.shape[0] != self.rows:
            return np.array(float(next(tensor.chunks(1))[0])) if tensor.size == 1 else np.empty(0)
        width = tensor.size // self.rows
        if width > WIDEST * self.shape[1]:
            return np.empty(0)
        values = tensor.head(self.head).reshape(self.head, width)
        return values[:, 0] if width == 1 and self.shape[1] > 1 else values

    def per_sample(self, name: str) -> bool:
        """Return whether an array has a number for each sample (a token, or a step of an episode)."""
        return self.array(name).shape == (self.head, self.shape[1])

    def per_row(self, name: str) -> bool:
        """Return whether an array has a number for each row, or one for all rows."""
        return self.array(name).shape in ((self.head,), ()) or (self.shape[1] == 1 and self.per_sample(name))

    def integers(self, name: str) -> bool:
        """Return whether an array has an integer type, or a scalar is an integer."""
        return self._tensors[name].dtype.startswith(("int", "uint")) if name in self._tensors else self.whole(name)

    def whole(self, name: str) -> bool:
        """Return whether an array consists of integers."""
        values = self.array(name)
        return bool(values.size) and bool(np.isfinite(values).all()) and bool((values == np.floor(values)).all())

    def binary(self, name: str) -> bool:
        """Return whether an array consists of 0 and 1."""
        values = self.array(name)
        return bool(values.size) and bool(((values == 0) | (values == 1)).all())

    def varied(self, name: str) -> bool:
        """Return whether an array is finite and not constant over the samples that count."""
        values = self.array(name)[self.mask]
        return bool(np.isfinite(values).all()) and float(np.ptp(values)) > 0

    @property
    def mask(self) -> Bools:
        """Return which samples count: those in the mask, else those with an advantage other than 0, else all."""
        marks = self.one("mask", "advantages_raw", "advantages")
        kept = np.empty(0, bool) if marks is None else np.asarray(marks != 0)
        return kept if kept.any() else np.ones((self.head, self.shape[1]), bool)

    def one(self, *roles: str) -> Floats | None:
        """Return the first array with one of the roles, in their order, that has a number for each sample."""
        return next((self.array(n) for role in roles for n in self.named(role) if self.per_sample(n)), None)


def one_each(dump: Dump) -> Floats | None:
    """Return the advantage of each row, None if a row has several."""
    name = next(iter(dump.named("advantages", "advantages_raw")), None)
    if name is None or not dump.array(name).size:
        return None
    values = dump.array(name)
    if values.ndim != 2:
        return values if values.ndim else None
    keep = dump.mask if values.shape == dump.mask.shape else np.ones(values.shape, bool)
    first: Floats = values[np.arange(len(values)), keep.argmax(axis=1)]
    return first if np.allclose(np.where(keep, values, first[:, None]), first[:, None], atol=1e-6) else None


def meanings_of(name: str) -> frozenset[str]:
    """Return the meanings of all words of a name, including its groups."""
    parsed = parse(name)
    return parsed.concepts | parsed.groups


def cells(dump: Dump) -> Assignments:
    """Yield epochs, which repeat the same samples one after the other, and minibatches, which restart in each epoch."""
    rows = [name for name in (*dump.open(), *dump.named("update", "step")) if _numbers_rows(dump, name)]
    if not [name for name in dump.named("epoch") if dump.array(name).ndim]:
        repeating = [name for name in rows if _repeats(dump, dump.array(name))]
        if len(repeating) != 1:
            return
        yield from ((name, "update" if dump.free("update") else None) for name in dump.named("epoch"))
        yield repeating[0], "epoch"
    epochs = next(dump.array(name) for name in dump.named("epoch") if dump.array(name).ndim)
    inner = sorted((n for n in rows if _nested(epochs, dump.array(n))), key=lambda n: len(np.unique(dump.array(n))))
    if inner and not _may_group(dump, inner) and not [n for n in dump.named("minibatch") if dump.array(n).ndim]:
        yield from ((name, None) for name in dump.named("minibatch"))
        yield inner[0], "minibatch"


def _may_group(dump: Dump, inner: Sequence[str]) -> bool:
    """Return whether the only candidate for minibatches may be the group of each row instead."""
    rows = one_each(dump)
    return len(inner) == 1 and dump.free("group") and rows is not None and centred_by(rows, dump.array(inner[0]))


def _numbers_rows(dump: Dump, name: str) -> bool:
    return dump.array(name).shape == (dump.head,) and dump.whole(name)


def _repeats(dump: Dump, ids: Floats) -> bool:
    """Return whether numbers never fall, and the rows of each number are the same samples in another order."""
    _, counts = np.unique(ids, return_counts=True)
    if (np.diff(ids) < 0).any() or len(counts) < 2 or counts.min() < LEAST_ROWS:
        return False
    return any(_same_rows(dump, name, ids) for name in dump.named(*_FIXED))


def _same_rows(dump: Dump, name: str, epochs: Floats) -> bool:
    """Return whether an array has the same rows in every epoch, in any order, and most of them differ."""
    values = dump.array(name)
    counts = np.unique(epochs, return_counts=True)[1]
    if values.shape[:1] != epochs.shape or len(set(counts.tolist())) > 1:
        return False
    kept = np.where(dump.mask, values, 0.0) if dump.per_sample(name) else values.reshape(len(epochs), -1)
    keys = kept @ np.arange(1.0, kept.shape[1] + 1)
    parts = np.sort(keys[np.argsort(epochs, kind="stable")].reshape(len(counts), -1), axis=1)
    return len(np.unique(parts[0])) > counts[0] // 2 and np.allclose(parts, parts[0])


#: Roles whose values do not change between the epochs of an update.
_FIXED = ("tokens", "advantages", "returns", "rewards", "old_log_prob", "rollout_log_prob")


def _nested(epochs: Floats, other: Floats) -> bool:
    """Return whether numbers grow within each epoch and restart with the next, with several rows for each number."""
    if other.shape != epochs.shape or len(np.unique(other)) < 2:
        return False
    ahead = (np.diff(epochs) > 0) | (np.diff(other) >= 0)
    cells, counts = np.unique(np.stack([epochs, other]), axis=1, return_counts=True)
    return bool(ahead.all()) and cells.shape[1] == len(np.unique(epochs)) * len(np.unique(other)) and counts.min() > 1


def log_probs(dump: Dump) -> Assignments:
    """Yield the new log-probs, which change from epoch to epoch, and then the old ones and the sampler's, which do not.

    Names that say whose log-probs they are keep their roles.
    """
    names = [name for name in dump.roles if "logprob" in meanings_of(name) and dump.per_sample(name)]
    if any("reference" in meanings_of(name) and dump.roles[name] is None for name in names):
        return
    vague = [name for name in names if dump.roles[name] is None or not meanings_of(name) & _SIDES]
    moved = [name for name in names if _moves(dump, name)]
    if len(moved) != 1 or len(names) == 1 or not (moved[0] in vague or dump.roles[moved[0]] == "log_prob"):
        return
    yield from ((name, None) for name in dump.named("log_prob") if name in vague and name not in moved)
    if moved[0] in vague:
        yield moved[0], "log_prob"
    still = sorted(set(dump.open()) & set(names), key=lambda name: (_apart(dump, name, moved[0], 0.1), len(name)))
    by_name = {name: role_of(name, loosely=True) for name in still}
    for name in sorted(still, key=lambda name: by_name[name] not in _STILL):
        free = [role for role in _STILL if dump.free(role) and by_name[name] in (role, *_AMBIGUOUS)]
        if free and _apart(dump, name, moved[0]) < _NEAR:
            yield name, free[0]


#: Log-probs of the trainer and of the sampler before the update; roles by name that do not distinguish them.
_STILL = ("old_log_prob", "rollout_log_prob")
_AMBIGUOUS = (None, "log_prob", "action_log_prob", "policy_log_prob")
#: Meanings that say whose log-probs they are.
_SIDES = frozenset({"new", "next", "old", "before", "after", "engine", "rollout", "behaviour", "sampled", "reference"})
#: Largest difference of log-probs within one update, in deviations.
_NEAR = 0.2


def _moves(dump: Dump, name: str) -> bool:
    """Return whether the values of an array for the same samples change from epoch to epoch."""
    epochs = next((dump.array(each) for each in dump.named("epoch")), np.empty(0))
    return epochs.shape == (dump.head,) and len(np.unique(epochs)) > 1 and not _same_rows(dump, name, epochs)


def _apart(dump: Dump, one: str, other: str, share: float = 1.0) -> float:
    """Return the mean distance of two arrays in a share of the first rows, in deviations of the second."""
    rows = slice(math.ceil(share * dump.head))
    first, second, keep = dump.array(one)[rows], dump.array(other)[rows], dump.mask[rows]
    keep &= np.isfinite(first) & np.isfinite(second)
    spread = float(second[keep].std()) if keep.any() else 0.0
    return float(np.abs(first - second)[keep].mean()) / spread if spread > 0 else math.inf


def groups(dump: Dump) -> Assignments:
    """Yield groups: numbers of rows within which the advantages of rows are centred."""
    rows, epochs = one_each(dump), next((dump.array(name) for name in dump.named("epoch")), np.empty(0))
    if rows is None or not dump.free("group"):
        return
    for name in dump.open():
        ids = dump.array(name)
        may_be_minibatch = dump.free("minibatch") and _nested(epochs, ids)
        if ids.shape == rows.shape and dump.whole(name) and not may_be_minibatch and centred_by(rows, ids):
            yield name, "group"


#: Correlation from which on an array is computed from others; half precision reduces it by about 1e-6.
SAME = 1 - 1e-4


def rewards(dump: Dump) -> Assignments:
    """Yield rewards of samples: of several rewards by name, the only one with a number for each sample."""
    names = dump.named("rewards")
    samples = [name for name in names if dump.per_sample(name)]
    if dump.shape[1] > 1 and len(samples) == 1 < len(names) and dump.free("token_rewards"):
        yield samples[0], "token_rewards"


def critic(dump: Dump) -> Assignments:
    """Yield returns and values whose difference is the advantages up to scale and offset, or else advantages."""
    advantages = dump.named("advantages_raw", "advantages")
    near = [name for name in advantages if dump.per_sample(name) and dump.varied(name)]
    names = [name for name in dump.roles if _may_be(dump, name, "values", "old_values", "returns", "rewards")]
    if not near:
        yield from _advantages(dump)
        return
    pairs = {pair: match for pair, match in _made_of(dump, names, near[0]).items() if _names_allow(dump, *pair)}
    best = max(pairs, key=lambda pair: (_known(dump, *pair), pairs[pair]), default=None)
    if best is None:
        return
    yield from ((name, None) for name in dump.named("returns"))
    yield best[0], "returns"
    taken = dump.roles[best[1]] == "old_values" or set(dump.named("values")) - {best[1]}
    yield best[1], "old_values" if taken else "values"


def _names_allow(dump: Dump, one: str, other: str) -> bool:
    """Return whether names allow that one array is the returns and the other the values, and one of them says so.

    Otherwise advantages of the wrong sign would turn values into returns. A role that several arrays have by name does
    not count.
    """
    roles = [(dump.roles[one], ("returns",)), (dump.roles[other], ("values", "old_values"))]
    free = [role is None or len(dump.named(role)) > 1 for role, _ in roles]
    right = [role in wanted for role, wanted in roles]
    words = meanings_of(other)
    in_part = bool(meanings_of(one) & _RETURN_WORDS) or (bool(words & _VALUE_WORDS) and not words & _RETURN_WORDS)
    return (any(right) or in_part) and all(map(or_, free, right))


#: Meanings of names of returns and of values.
_RETURN_WORDS, _VALUE_WORDS = frozenset({"return", "target"}), frozenset({"value", "baseline", "critic"})


def _known(dump: Dump, one: str, other: str) -> int:
    """Return how many of a pair have their role already."""
    return (dump.roles[one] == "returns") + (dump.roles[other] in ("values", "old_values"))


def _made_of(dump: Dump, names: Sequence[str], target: str) -> dict[tuple[str, str], float]:
    """Return the pairs of arrays whose difference is the target up to scale and offset, with its correlation.

    Pairs are left out if one of the two alone correlates nearly as well.
    """
    columns = np.stack([dump.array(name)[dump.mask] for name in (target, *names)])
    columns -= columns.mean(axis=1)[:, None]
    columns /= max(float(np.abs(columns).max()), 1e-300)
    products = columns @ columns.T
    squares = products.diagonal()
    spreads = np.sqrt(squares[0] * np.maximum(squares[:, None] + squares - 2 * products, 0))
    match = np.divide(products[:, :1] - products[0], spreads, out=np.zeros_like(spreads), where=spreads > 0)
    alone = np.divide(products[0], np.sqrt(squares[0] * squares), out=np.zeros(len(squares)), where=squares > 0)
    gained = 1 - match < _PART * (1 - np.maximum(alone[:, None], -alone))
    kept = np.argwhere((match >= SAME) & gained)
    return {(names[one - 1], names[other - 1]): float(match[one, other]) for one, other in kept if one and other}


def _advantages(dump: Dump) -> Assignments:
    """Yield the array without a role that is returns minus values."""
    returns, values = dump.one("returns"), dump.one("values", "old_values")
    if returns is None or values is None or not dump.free("advantages"):
        return
    wanted = (returns - values)[dump.mask]
    for name in dump.open():
        if _may_be(dump, name) and correlation(dump.array(name)[dump.mask], wanted) >= SAME:
            yield name, "advantages"
            return


def _may_be(dump: Dump, name: str, *roles: str) -> bool:
    """Return whether an array has varied numbers for samples, and no role or one of these."""
    return dump.roles[name] in (None, *roles) and dump.per_sample(name) and dump.varied(name)


#: Largest share of the residual of one array that may remain with a second one.
_PART = 0.05


def step_rewards(dump: Dump) -> Assignments:
    """Yield rewards of steps r, by A + V - r = γλ A' + γ V' of generalised advantage estimation (Schulman 2015)."""
    returns, values = dump.one("returns"), dump.one("old_values", "values")
    if returns is None or values is None or dump.shape[1] < 2 or dump.named("token_rewards"):
        return
    keep = dump.mask
    after = np.concatenate([keep[:, 1:], np.zeros((dump.head, 1), bool)], axis=1)
    next_ = [np.where(after, np.roll(array, -1, axis=1), 0.0)[keep] for array in (returns - values, values)]
    residuals = {
        name: _residual(returns[keep] - dump.array(name)[keep], next_)
        for name in dump.roles
        if _may_be(dump, name, "rewards") and name not in dump.named("returns", "values", "old_values")
    }
    best = min(residuals, key=residuals.__getitem__, default=None)
    without = _residual(returns[keep], next_)
    if best is not None and residuals[best] < _PART * without and residuals[best] < 1 - SAME:
        yield best, "token_rewards"


def _residual(wanted: Floats, parts: Sequence[Floats]) -> float:
    """Return the share of a column that no linear combination of others explains."""
    columns = np.stack(parts, axis=1)
    if not (np.isfinite(columns).all() and np.isfinite(wanted).all()):
        return math.inf
    factors = np.linalg.lstsq(columns, wanted, rcond=None)[0]
    size = float(np.dot(wanted, wanted))
    rest = wanted - columns @ factors
    return float(np.dot(rest, rest)) / size if size > 0 else math.inf


def row_rewards(dump: Dump) -> Assignments:
    """Yield rewards of rows, which are the sums of the rewards of their steps, except for a penalty."""
    steps = dump.one("token_rewards")
    names = [name for name in dump.open() if dump.array(name).shape == (dump.head,)]
    if steps is not None and dump.free("rewards") and dump.shape[1] > 1:
        sums = np.where(dump.mask, steps, 0.0).sum(axis=1)
        near = [name for name in names if correlation(dump.array(name), sums) > _SUMMED]
        yield from ((name, "rewards") for name in near[:1])


def group_rewards(dump: Dump) -> Assignments:
    """Yield rewards of rows, whose advantages are a multiple of rewards minus the mean of their group."""
    rows, group = one_each(dump), next(iter(dump.named("group")), None)
    if rows is None or group is None or dump.array(group).shape != rows.shape or not dump.free("rewards"):
        return
    for name in dump.open():
        if dump.array(name).shape == rows.shape and centred_in(rows, dump.array(name), dump.array(group)):
            yield name, "rewards"
            return


#: Least correlation of a row's reward with the sum of its steps' rewards, which may include a KL penalty.
_SUMMED = 0.95
