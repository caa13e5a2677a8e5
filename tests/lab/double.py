"""Runs with two faults: are both causes among the first three?

    python -m tests.lab.double write DIR [--split training held-out] [--jobs 2]
    python -m tests.lab.double judge DIR [--split training held-out] [--misses] [--forest] [--left-out CORPUS]
                                         [--page docs/pairs.md]
    python -m tests.lab.double refused          # the pairs that do not go together, with the reason

Each fault is trained by itself too, at the same seed: what a log cannot show of one fault alone it cannot show of two.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ppo_doctor.model import Diagnosis, Fitted
from ppo_doctor.pipeline import Request, diagnose, read_run
from ppo_doctor.rulepack import Pack, load_pack

from . import companions
from .double_forest import Cells, identifiable, recognised_pairs
from .double_runs import alone, folder, jobs, make, written
from .doubles import DIALECTS, PAIRS, SEALED, SEEDS, Pair, Split, refusals
from .faults import FAULTS

#: Places at the top of a report that count.
TOP = 3
GOAL = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How a diagnosis stands to one injected fault: "top", "level" with one of the top three, "listed" or "absent"."""

    fault: str
    standing: str

    @property
    def named(self) -> bool:
        """Whether it is in the top three, or cannot be told from what is."""
        return self.standing in ("top", "level")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was said of one run of two faults, and of each fault alone."""

    pair: Pair
    dialect: str
    seed: int
    places: tuple[Place, Place]
    alone: tuple[bool, bool]
    words: str

    @property
    def cell(self) -> tuple[str, str]:
        """The pair and the dialect."""
        return self.pair.name, self.dialect

    @property
    def asked(self) -> tuple[Place, ...]:
        """The faults that this run has to show: of a masked pair only the one that hides the other."""
        return self.places[:1] if self.pair.masked else self.places

    @property
    def strict(self) -> bool:
        """Whether all of them are in the top three."""
        return all(place.standing == "top" for place in self.asked)

    @property
    def named(self) -> bool:
        """Whether all of them are in the top three, or level with what is."""
        return all(place.named for place in self.asked)

    @property
    def shown(self) -> bool:
        """Whether each fault alone is named in this dialect at this seed."""
        return all(self.alone[: len(self.asked)])


def place(diagnosis: Diagnosis, fault: str, dialect: str) -> Place:
    """Say where a fault's cause stands; causes that this dialect cannot tell from it are level with it."""
    spec = FAULTS[fault]
    top = diagnosis.causes[:TOP]
    if any(cause.id == spec.cause for cause in top):
        return Place(fault=fault, standing="top")
    alike = {spec.cause, *spec.twins(dialect)}
    if any(cause.id in alike or spec.cause in cause.level_with for cause in top):
        return Place(fault=fault, standing="level")
    return Place(fault=fault, standing="listed" if spec.cause in {c.id for c in diagnosis.causes} else "absent")


def diagnosed(root: Path, name: str, dialect: str, seed: int, pack: Pack) -> Diagnosis | None:
    """Judge one written run; None where there is none."""
    where = folder(root, name, dialect, seed)
    logs = [path for path in sorted(where.glob("*")) if path.name != "config.json"] if where.is_dir() else []
    return diagnose(read_run(str(logs[0]), Request(debug=True)), pack) if logs else None


def tell(root: Path, without: Sequence[Mapping[str, Fitted]], asked: tuple[Pair, str, int]) -> Told | None:
    """Judge one run of a pair, and the runs of its faults.

    `without` are odds that were fitted without a part of the pairs each: a pair is judged by those that do not know it.
    """
    pair, dialect, seed = asked
    pack = load_pack(installed=False)
    fresh = without and pair.split != SEALED
    used = replace(pack, fitted=without[companions.part_of(pair.name)]) if fresh else pack
    both = diagnosed(root, pair.name, dialect, seed, used)
    if both is None:
        return None
    singles = [diagnosed(root, alone(*fault), dialect, seed, pack) for fault in pair.faults]
    first, second = (place(both, fault, dialect) for fault, _ in pair.faults)
    told = [
        single is not None and place(single, fault, dialect).named
        for (fault, _), single in zip(pair.faults, singles, strict=True)
    ]
    return Told(
        pair=pair, dialect=dialect, seed=seed, places=(first, second), alone=(told[0], told[1]), words=_words(both)
    )


def _words(diagnosis: Diagnosis) -> str:
    ranked = ", ".join(f"{'*' if c.leader else ''}{c.id} {c.score_db} {c.confidence[:4]}" for c in diagnosis.causes[:5])
    folded = "; ".join(f"{c.id} → {c.folded_into}" for c in diagnosis.complaints if c.folded_into)
    settled = "; ".join(f"{c.id}: {c.leader}" for c in diagnosis.complaints if not c.folded_into)
    return f"{diagnosis.verdict}: {ranked} | {settled} | folded: {folded}"


def judge(root: Path, pairs: Sequence[Pair], workers: int, without: Sequence[Mapping[str, Fitted]] = ()) -> list[Told]:
    """Judge every written run of some pairs; see `tell` for `without`."""
    asked = [(pair, dialect, seed) for pair in pairs for dialect in DIALECTS for seed in SEEDS[pair.split]]
    with ProcessPoolExecutor(workers) as pool:
        return [told for told in pool.map(partial(tell, root, without), asked, chunksize=8) if told is not None]


def share(found: Sequence[Told], what: str) -> str:
    """Return how many have a property, as "7 of 9 (0.78)"."""
    count = sum(bool(getattr(told, what)) for told in found)
    return f"{count} of {len(found)} ({count / len(found):.2f})" if found else "0 of 0"


def summary(found: Sequence[Told], cells: Cells | None = None) -> list[str]:
    """Return lines per side of the split, and one for the masked pairs; `cells` are those that forests recognise."""
    lines = []
    for split in SEEDS:
        side = [told for told in found if told.pair.split == split and not told.pair.masked]
        parts = {"every run": side, "where each alone is named": [told for told in side if told.shown]}
        if cells is not None:
            parts["where a forest recognises both"] = [told for told in side if told.cell in cells]
        for what, runs in parts.items() if side else ():
            level = share(runs, "named")
            lines.append(f"{split}, {what}: both in the top {TOP} in {share(runs, 'strict')}, with level ones {level}")
    masked = [told for told in found if told.pair.masked]
    lines.append(f"masked (not counted above): the hiding cause is in the top {TOP} in {share(masked, 'named')}")
    return lines


def table(found: Sequence[Told], cells: Cells | None = None) -> Iterator[str]:
    """Yield a row per pair: runs, both, with level ones, and where each fault alone is named."""
    yield "| pair | side | runs | both in the top three | with level ones | each alone is named | forest |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for pair in PAIRS:
        runs = [told for told in found if told.pair == pair]
        if runs:
            side = "masked" if pair.masked else pair.split
            counts = " | ".join(str(sum(getattr(t, what) for t in runs)) for what in ("strict", "named", "shown"))
            recognised = "" if cells is None else sum(told.cell in cells for told in runs)
            yield f"| {pair.name} | {side} | {len(runs)} | {counts} | {recognised} |"


def page(found: Sequence[Told], cells: Cells) -> str:
    """Return the documentation page."""
    head = (Path(__file__).parent / "double.md").read_text(encoding="utf-8")
    figures = "\n".join(f"- {line}" for line in summary(found, cells))
    refused = sum(1 for _ in refusals())
    return f"{head.format(figures=figures, refused=refused)}\n" + "\n".join(table(found, cells)) + "\n"


def main() -> None:
    """Write the runs, judge them, or list what is refused."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("write", "judge", "refused"))
    options.add_argument("folder", type=Path, nargs="?")
    options.add_argument("--split", nargs="*", choices=tuple(SEEDS), default=list(SEEDS))
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--misses", action="store_true", help="a line for each run that is not right")
    options.add_argument("--forest", action="store_true", help="say in which runs forests recognise both faults")
    options.add_argument("--left-out", type=Path, metavar="CORPUS", help="judge each pair by odds fitted without it")
    options.add_argument("--page", type=Path, help="write the documentation page here")
    given = options.parse_args()
    if given.what == "refused":
        sys.stdout.writelines(f"{first} + {second}: {why}\n" for first, second, why in refusals())
        return
    if given.folder is None:
        options.error("a folder is needed")
    pairs = _chosen(given.split)
    if given.what == "write":
        with ProcessPoolExecutor(given.jobs) as pool:
            made = sum(pool.map(partial(make, given.folder), jobs(pairs), chunksize=4))
        sys.stdout.write(f"{made} logs are there\n")
        return
    corpus = given.left_out
    without = companions.left_out(companions.examples(given.folder, corpus, given.jobs)) if corpus else ()
    found = judge(given.folder, pairs, given.jobs, without)
    for told in found if given.misses else ():
        if not told.strict:
            sys.stdout.write(_line(told))
    asked = given.forest or given.page
    cells = identifiable(recognised_pairs(written(given.folder, PAIRS), given.jobs)) if asked else None
    sys.stdout.write("\n".join([*table(found, cells), "", *summary(found, cells)]) + "\n")
    if given.page and cells is not None:
        given.page.write_text(page(found, cells), encoding="utf-8")


def _chosen(splits: Sequence[Split]) -> list[Pair]:
    return [pair for pair in PAIRS if pair.split in splits]


def _line(told: Told) -> str:
    where = " ".join(
        f"{p.fault}={p.standing}{'' if known else '(hidden alone)'}"
        for p, known in zip(told.places, told.alone, strict=True)
    )
    return f"{'level' if told.named else 'MISS ':<6}{told.dialect:<10} {told.seed} {where}\n      {told.words}\n"


if __name__ == "__main__":
    main()
