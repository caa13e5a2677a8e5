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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ppo_doctor.model import Cause, Fitted, Weight
from ppo_doctor.pipeline import Request, read_run
from ppo_doctor.probabilities import HEALTHY
from ppo_doctor.rulepack import Pack

from .corpus import Case, cases
from .double import written
from .double_forest import Shown
from .doubles import PAIRS, SEALED
from .faults import FAULTS
from .verdicts import built_in, judged, mapped, verdict

F64 = npt.NDArray[np.float64]
#: What a run of the corpus counts beside one of the pairs: those are shorter, and their tasks are fewer.
SHARE = 0.3
#: How far the fit may follow few runs: the inverse of the ridge penalty.
FREEDOM = 2.0
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
    known = judged(others, corpus, jobs=jobs)
    return [
        *mapped(partial(_of_pair, built_in()), shown, jobs),
        *(_of_corpus(entry.case, entry.whole.fired, entry.whole.clear) for entry in known),
    ]


def _of_pair(pack: Pack, one: Shown) -> Example:
    found = verdict(read_run(str(one.log), Request(debug=True)), pack)
    truth = frozenset(FAULTS[fault].cause for fault in one.faults) - {HEALTHY}
    group = one.cell or f"{min(one.faults)} {one.seed}"
    return Example(truth=truth, fired=frozenset(found.fired), clear=frozenset(found.clear), group=group)


def _of_corpus(case: Case, fired: Iterable[str], clear: Iterable[str]) -> Example:
    truth = frozenset({case.cause}) - {HEALTHY}
    return Example(truth=truth, fired=frozenset(fired), clear=frozenset(clear), group="", share=SHARE)


def fit_all(found: Sequence[Example], pack: Pack) -> dict[str, Fitted]:
    """Return cause → its fitted weights, of harmful causes that some run has."""
    seen = frozenset[str]().union(*(example.truth for example in found))
    return {c.id: fit(c, found) for c in pack.causes if c.id in seen and not c.benign and c.weights}


def fit(cause: Cause, found: Sequence[Example]) -> Fitted:
    """Fit one cause; see the module for how."""
    names = [weight.finding for weight in cause.weights]
    rows = np.array([_row(names, example) for example in found], dtype=np.int8)
    kinds, of_kind = np.unique(rows, axis=0, return_inverse=True)
    there = np.array([cause.id in example.truth for example in found])
    shares = np.array([example.share for example in found])
    have, lack = (np.bincount(of_kind.ravel()[y], shares[y], len(kinds)).astype(np.float64) for y in (there, ~there))
    signs = [sign for weight in cause.weights for sign in _signs(weight)]
    base, sizes = _regression(kinds.astype(np.float64), (have, lack), signs)
    fired, clear = np.rint(sizes * DB).astype(int).reshape(-1, 2).T
    told = [(n, int(f), int(c)) for n, f, c in zip(names, fired, clear, strict=True) if max(abs(f), abs(c)) >= LEAST_DB]
    weights = tuple(Weight(finding=name, fired=for_it, clear=against) for name, for_it, against in told)
    return Fitted(cause=cause.id, base=round(base * DB), weights=weights)


def _row(names: Sequence[str], example: Example) -> list[bool]:
    return [name in side for name in names for side in (example.fired, example.clear)]


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


def without_the_pair(found: Sequence[Example], pack: Pack, parts: int = 5) -> Iterator[tuple[Example, list[str]]]:
    """Yield each run of two faults with the causes in the order of their odds, fitted without runs of its pair."""
    part = [int(hashlib.sha256(example.group.encode()).hexdigest(), 16) % parts for example in found]
    for left_out in range(parts):
        kept = [e for e, number in zip(found, part, strict=True) if number != left_out or not e.group]
        fitted = fit_all(kept, pack)
        for example, number in zip(found, part, strict=True):
            if number == left_out and len(example.truth) > 1:
                yield example, sorted(fitted, key=lambda name: -odds(fitted[name], example))


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
    told = [truth.truth <= set(ranked[:3]) for truth, ranked in without_the_pair(found, built_in())]
    sys.stdout.write(f"both in the first three by odds alone: {sum(told)} of {len(told)} runs of two faults\n")
    fitted = fit_all(found, built_in())
    given.out.write_text(text(fitted), encoding="utf-8")
    sys.stdout.write(f"{len(fitted)} causes, {sum(len(entry.weights) for entry in fitted.values())} findings\n")


if __name__ == "__main__":
    main()
