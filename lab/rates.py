"""How often sound runs answer each check with yes: `python -m lab.rates` counts it and writes rules/rates.toml.

Beside the sums that the pack weighs words against, lab/rates.json keeps the counts of each trainer, so that
`python -m lab.board --leave-out` can judge every trainer by what the others showed.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from . import field
from .corpus import unpacked
from .environments import ROOT
from .foreign import REAL, SHARED, real_logs
from .labels import Label, labelled, labels
from .met import met_runs
from .score import judge

RATES, COUNTS = ROOT.parent / "rules" / "rates.toml", ROOT / "rates.json"
#: Published runs, as one more trainer.
PUBLISHED = "published"
#: The trainer that is ours has no say.
OURS = "numpy_lab"
HEAD = """\
# How often sound runs answer a check with yes: [yes, answered] of third-party trainers and of logs that an expert calls
# sound, then the same of published runs that learned, at most five of a repository. Counted by `python -m lab.rates`.
[rates]
"""
Counts = Mapping[str, Mapping[str, tuple[int, int]]]


def _answers(pair: tuple[Label, Path]) -> tuple[str, dict[str, bool]]:
    report = judge(*pair, "--all")
    told = {check["name"]: check["answer"] for check in report.get("checks", ())}
    return pair[0].trainer, {name: answer == "yes" for name, answer in told.items() if answer in ("yes", "no")}


def counted() -> Counts:
    """Return check → trainer → (yes, answered), of the bare logs of sound runs, with settings what takes settings.

    Other people's logs count as one more trainer, as they lie: their runs are longer than a lab's, and of tasks that
    nobody chose for being short. So do the trainers that were met once: three sound runs of each are too few alone.
    """
    asked = [(each, unpacked(name)) for name in labelled() if name != OURS for each in labels(name)]
    asked += met_runs()
    others = [pair for pair in real_logs() if pair[0].accept <= {"HEALTHY", "ABSTAIN"} and pair[0].sound]
    if not others:
        raise SystemExit(f"{REAL} are missing: {SHARED} has none")
    bare, config = (_counted([p for p in asked if p[0].column == column] + others) for column in ("bare", "config"))
    published = field.rates(field.judged())
    names = {*config, *published}
    told = {name: dict(bare.get(name) or config.get(name, {})) for name in names}
    return {name: counts | ({PUBLISHED: published[name]} if name in published else {}) for name, counts in told.items()}


def _counted(asked: list[tuple[Label, Path]]) -> Counts:
    sound = [(label, folder) for label, folder in asked if label.sound]
    counts: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    with ProcessPoolExecutor(mp_context=get_context("fork")) as pool:
        for trainer, answers in pool.map(_answers, sound, chunksize=4):
            for name, yes in answers.items():
                before = counts[name].get(trainer, (0, 0))
                counts[name][trainer] = (before[0] + yes, before[1] + 1)
    return counts


def as_toml(counts: Counts, without: str = "") -> str:
    """Return rules/rates.toml, as counted on all trainers but one."""
    lines = []
    for name in sorted(counts):
        pairs = [pair for trainer, pair in counts[name].items() if trainer not in (without, PUBLISHED)]
        yes, of = counts[name].get(PUBLISHED, (0, 0))
        lines.append(f'"{name}" = [{sum(y for y, _ in pairs)}, {sum(o for _, o in pairs)}, {yes}, {of}]')
    return HEAD + "\n".join(lines) + "\n"


@contextmanager
def rules_without(trainers: list[str]) -> Iterator[dict[str, Path]]:
    """Yield, for each trainer, a copy of the rules that has not seen its sound runs."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8")) if trainers else {}
    with tempfile.TemporaryDirectory() as folder:
        made = {}
        for trainer in trainers:
            made[trainer] = Path(shutil.copytree(RATES.parent, Path(folder) / trainer / "rules"))
            (made[trainer] / RATES.name).write_text(as_toml(counts, trainer), encoding="utf-8")
        yield made


def main() -> None:
    """Count and write."""
    counts = counted()
    COUNTS.write_text(json.dumps(counts, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    RATES.write_text(as_toml(counts), encoding="utf-8")
    sys.stdout.write(f"{len(counts)} checks answered by sound runs\n")


if __name__ == "__main__":
    main()
