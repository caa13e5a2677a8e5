"""What each part of the judgement is worth: `python -m lab.ablation` judges the bare logs without one at a time.

A part is taken out of a copy of the rules' files; the code stays as it is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .board import OURS, asked
from .foreign import FOREIGN
from .labels import Label, labelled
from .rates import RATES
from .score import Grade, graded

RULES = RATES.parent
HEAD = """\
| without | singled out: first | narrowed down: first | silent | wrong | alarms | foreign runs: first |
|---|---|---|---|---|---|---|
"""


def _without_keys(*keys: str) -> Callable[[Path], None]:
    """Return what strikes keys, with their values over one or more lines, from the files of all causes."""
    names = "|".join(keys)
    entry = re.compile(rf"^(?:{names}) = (?:\[[^\]]*\]|[^\[\n]*)\n", re.MULTILINE)
    return lambda rules: _rewritten(rules.glob("causes/*.toml"), lambda text: entry.sub("", text))


def _rewritten(files: Iterator[Path], change: Callable[[str], str]) -> None:
    for path in files:
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def _chain(change: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda rules: _rewritten(rules.glob("chain.toml"), change)


def _fed_by_all(text: str) -> str:
    """Let every link live on something else, so that a dead one entails nothing."""
    text = re.sub(r"^(?:fed_by|kills) = \[[^\]]*\]\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^(\[\w+\])\n", '\\1\nfed_by = ["always"]\n', text, flags=re.MULTILINE)


def _one_rate(rules: Path) -> None:
    _rewritten(rules.glob(RATES.name), lambda text: re.sub(r"\[\d+(?:, \d+)+\]", "[50, 1000]", text))


def _one_prior(rules: Path) -> None:
    _rewritten(
        rules.glob("causes/*.toml"), lambda text: re.sub(r'^prior = "\w+"', 'prior = "common"', text, flags=re.M)
    )


PARTS: Mapping[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "entailments along the chain": _chain(_fed_by_all),
    "the chain": _chain(lambda _: ""),
    "proofs": _without_keys("proof"),
    "excludes": _without_keys("excludes"),
    "requires": _without_keys("requires"),
    "needs": _without_keys("needs"),
    "sometimes": _without_keys("sometimes"),
    "roots": _without_keys("root_of"),
    "counts of sound runs (0.05 for each check)": _one_rate,
    "classes of prior (all common)": _one_prior,
    "kinds of runs, declared twins": _without_keys("samples", "actions", "critic", "rollout_engine", "twins"),
}


@contextmanager
def _rules(change: Callable[[Path], None]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(shutil.copytree(RULES, Path(folder) / "rules"))
        change(rules)
        yield rules


def row(name: str, questions: Sequence[tuple[Label, Path]], jobs: int | None = None) -> str:
    """Return a row of the table: the figures of the bare logs without a part."""
    with _rules(PARTS[name]) as rules:
        grades = graded(questions, jobs, dict.fromkeys({label.trainer for label, _ in questions}, rules))
    found = [(label, grade) for (label, _), grade in zip(questions, grades, strict=True)]
    ours = [pair for pair in found if pair[0].trainer != FOREIGN]
    faulty = [grade for label, grade in ours if label.group in ("yes", "partly")]
    foreign = [pair for pair in found if pair[0].trainer == FOREIGN]
    cells = [
        name,
        _first(ours, "yes"),
        _first(ours, "partly"),
        f"{sum(grade.silent for grade in faulty)} of {len(faulty)}",
        str(sum(grade.wrong for grade in faulty)),
        str(sum(grade.alarm for label, grade in ours if label.sound)),
        f"{_first(foreign, 'yes')} / {_first(foreign, 'partly')}",
    ]
    return f"| {' | '.join(cells)} |\n"


def _first(found: Sequence[tuple[Label, Grade]], group: str) -> str:
    asked_of = [grade.first for label, grade in found if label.group == group]
    return f"{sum(asked_of) / len(asked_of):.2f}" if asked_of else "–"


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--without", action="append", choices=list(PARTS), default=[])
    options.add_argument("--trainer", action="append", default=[])
    options.add_argument("--jobs", type=int)
    given = options.parse_args()
    trainers = given.trainer or [*(name for name in labelled() if name != OURS), FOREIGN]
    questions = [pair for pair in asked(trainers) if pair[0].column == "bare"]
    sys.stdout.write(HEAD)
    for name in given.without or PARTS:
        sys.stdout.write(row(name, questions, given.jobs))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
