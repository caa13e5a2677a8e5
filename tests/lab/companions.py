"""Weights that tell whether a cause is there whatever else is wrong: fitted on runs of one and of two faults.

    python -m tests.lab.companions PAIRS CORPUS [--out rules/companions.toml] [--jobs 2]

PAIRS is the folder of `tests.lab.double`, CORPUS that of `tests.lab.corpus`; of the latter the held-out side is left
out, and of the former the side that is judged once (`SEALED`). For each cause a logistic regression of "it is there" is
fitted on which findings fired and which were clear: those that its file weighs, none other, and each with the sign that
the file gives it. Reasons choose what speaks and for what; runs say how much. Numbers are whole decibans of the odds.

Printed are the shares of pairs whose causes are both among the first three, by weights that were fitted without the
pair: a fifth of the pairs is left out at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ppo_doctor.model import Cause, Fitted, Weight
from ppo_doctor.probabilities import HEALTHY

from .corpus import Case, cases
from .double_forest import Shown
from .double_runs import written
from .doubles import PAIRS, SEALED
from .faults import FAULTS
from .verdicts import built_in, judged

F64 = npt.NDArray[np.float64]
#: What a run of the corpus counts beside one of the pairs: those are shorter, and their tasks are fewer.
SHARE = 0.3
#: How far the fit may follow few runs: the inverse of the ridge penalty.
FREEDOM = 2.0
#: Pairs are left out by so many parts.
PARTS = 5
#: A weight of less than this many decibans says nothing.
LEAST_DB = 1
DB = 10 / math.log(10)
HEAD = """\
# How probable it is that a cause is there, whatever else is wrong with a run: decibans of the odds, a base and what
# each finding adds when it fired and when it was clear. Fitted on runs of one and of two faults by
# `python -m tests.lab.companions`; nothing here is set by hand. A finding is here only if the cause's file weighs it,
# and speaks for or against the cause as it does there.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One judged run: what is wrong with it, and what was found."""

    truth: frozenset[str]
    fired: frozenset[str]
    clear: frozenset[str]
    #: runs of one group are left out together
    group: str
    share: float = 1.0


def examples(pairs: Path, corpus: Path, jobs: int) -> list[Example]:
    """Return every run to fit by, judged by the built-in pack."""
    shown = written(pairs, [pair for pair in PAIRS if pair.split != SEALED and not pair.masked])
    others = [case for case in cases(corpus) if case.split != "held-out"]
    of_pairs = judged([_case(one) for one in shown], pairs, jobs=jobs)
    known = [(entry, _truth(one), _group(one), 1.0) for one, entry in zip(shown, of_pairs, strict=True)]
    known += [(entry, frozenset({entry.case.cause}), "", SHARE) for entry in judged(others, corpus, jobs=jobs)]
    return [
        Example(
            truth=truth - {HEALTHY},
            fired=frozenset(entry.whole.fired),
            clear=frozenset(entry.whole.clear),
            group=group,
            share=share,
        )
        for entry, truth, group, share in known
    ]


def _case(one: Shown) -> Case:
    """Return a run of a pair as a case, by which its verdict is kept."""
    name = " + ".join(sorted(one.faults))
    return Case(
        fault=name,
        cause=name,
        split="training",
        dialect=one.dialect,
        variant="",
        severity=2,
        seed=one.seed,
        log=one.log,
    )


def _truth(one: Shown) -> frozenset[str]:
    return frozenset(FAULTS[fault].cause for fault in one.faults)


def _group(one: Shown) -> str:
    return one.cell or f"{min(one.faults)} {one.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Examples as arrays: what fired and what was clear, each of shape [runs, findings]."""

    examples: Sequence[Example]
    column: Mapping[str, int]
    fired: npt.NDArray[np.int8]
    clear: npt.NDArray[np.int8]
    shares: F64


def tabled(found: Sequence[Example]) -> Table:
    """Return examples as arrays."""
    column = {rule.name: index for index, rule in enumerate(built_in().rules)}
    fired, clear = (np.zeros((len(found), len(column)), dtype=np.int8) for _ in range(2))
    for row, example in enumerate(found):
        fired[row, [column[name] for name in example.fired]] = 1
        clear[row, [column[name] for name in example.clear]] = 1
    shares = np.array([example.share for example in found])
    return Table(examples=found, column=column, fired=fired, clear=clear, shares=shares)


def fit_all(table: Table, kept: npt.NDArray[np.bool_] | None = None) -> dict[str, Fitted]:
    """Return cause → its fitted weights, of harmful causes that some run has, by the runs that are `kept`."""
    used = np.ones(len(table.examples), dtype=bool) if kept is None else kept
    seen = frozenset[str]().union(*(example.truth for example in table.examples))
    causes = [c for c in built_in().causes if c.id in seen and not c.benign and c.weights]
    return {cause.id: fit(cause, table, used) for cause in causes}


def fit(cause: Cause, table: Table, kept: npt.NDArray[np.bool_]) -> Fitted:
    """Fit one cause; see the module for how."""
    names = [weight.finding for weight in cause.weights]
    columns = [table.column[name] for name in names]
    rows = np.stack([table.fired[:, columns], table.clear[:, columns]], axis=2).reshape(len(table.examples), -1)
    kinds, of_kind = np.unique(rows[kept], axis=0, return_inverse=True)
    there, shares = np.array([cause.id in example.truth for example in table.examples])[kept], table.shares[kept]
    have, lack = (np.bincount(of_kind.ravel()[y], shares[y], len(kinds)).astype(np.float64) for y in (there, ~there))
    signs = [sign for weight in cause.weights for sign in _signs(weight)]
    base, sizes = _regression(kinds.astype(np.float64), (have, lack), signs)
    fired, clear = np.rint(sizes * DB).astype(int).reshape(-1, 2).T
    told = [(n, int(f), int(c)) for n, f, c in zip(names, fired, clear, strict=True) if max(abs(f), abs(c)) >= LEAST_DB]
    weights = tuple(Weight(finding=name, fired=for_it, clear=against) for name, for_it, against in told)
    return Fitted(cause=cause.id, base=round(base * DB), weights=weights)


def _signs(weight: Weight) -> tuple[int, int]:
    """Return the signs that a fired and a clear finding may weigh with: of one that speaks for a cause, + and -."""
    sign = 1 if (weight.fired or -weight.clear) > 0 else -1
    return sign, -sign


def _regression(rows: F64, counts: tuple[F64, F64], signs: Sequence[int]) -> tuple[float, F64]:
    """Return base and weights, in natural logarithms, of the logistic regression with a ridge penalty and fixed signs.

    `rows` has shape [kinds, weights]; `counts` say how many runs of each kind have the fault, and how many do not.
    """
    have, lack = counts

    def loss(theta: F64) -> tuple[float, F64]:
        odds = rows @ theta[1:] + theta[0]
        chance = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        cost = (have * np.logaddexp(0, -odds) + lack * np.logaddexp(0, odds)).sum()
        slope = (have + lack) * chance - have
        gradient = np.concatenate([[slope.sum()], rows.T @ slope])
        return FREEDOM * cost + theta[1:] @ theta[1:] / 2, FREEDOM * gradient + np.concatenate([[0.0], theta[1:]])

    bounds = [(None, None), *((0, None) if sign > 0 else (None, 0) for sign in signs)]
    start = np.concatenate([[-4.0], np.zeros(len(signs))])
    found = import_module("scipy.optimize").minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return float(found.x[0]), found.x[1:]


def odds(fitted: Fitted, example: Example) -> int:
    """Return the decibans of a cause's odds in a run."""
    fired = sum(weight.fired for weight in fitted.weights if weight.finding in example.fired)
    return fitted.base + fired + sum(weight.clear for weight in fitted.weights if weight.finding in example.clear)


def part_of(group: str) -> int:
    """Return the part of the runs that a group is left out with."""
    return int(hashlib.sha256(group.encode()).hexdigest(), 16) % PARTS


def left_out(found: Sequence[Example]) -> list[dict[str, Fitted]]:
    """Return for each part the weights that were fitted without it."""
    parts = np.array([part_of(example.group) if example.group else -1 for example in found])
    table = tabled(found)
    return [fit_all(table, parts != part) for part in range(PARTS)]


def told_by_odds(found: Sequence[Example], without: Sequence[Mapping[str, Fitted]]) -> list[bool]:
    """Return for each run of two faults whether both are the three most probable by weights fitted without its pair."""
    return [
        example.truth <= set(_most_probable(without[part_of(example.group)], example))
        for example in found
        if len(example.truth) > 1
    ]


def _most_probable(fitted: Mapping[str, Fitted], example: Example) -> list[str]:
    return sorted(fitted, key=lambda name: -odds(fitted[name], example))[:3]


def text(fitted: Mapping[str, Fitted]) -> str:
    """Return the file of a pack that holds fitted weights."""
    return HEAD + "".join(_table(entry) for _, entry in sorted(fitted.items()))


def _table(entry: Fitted) -> str:
    weights = "".join(f"{w.finding} = [{w.fired}, {w.clear}]\n" for w in entry.weights)
    return f'\n[[cause]]\nid = "{entry.cause}"\nbase = {entry.base}\n[cause.weights]\n{weights}'


def main() -> None:
    """Fit, say how well that tells pairs which it has not seen, and write the file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pairs", type=Path)
    options.add_argument("corpus", type=Path)
    options.add_argument("--out", type=Path, default=Path("rules/companions.toml"))
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    found = examples(given.pairs, given.corpus, given.jobs)
    told = told_by_odds(found, left_out(found))
    sys.stdout.write(f"both among the three most probable: {sum(told)} of {len(told)} runs of two faults\n")
    fitted = fit_all(tabled(found))
    given.out.write_text(text(fitted), encoding="utf-8")
    sys.stdout.write(f"{len(fitted)} causes, {sum(len(entry.weights) for entry in fitted.values())} findings\n")


if __name__ == "__main__":
    main()
