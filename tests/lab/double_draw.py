"""Draw pairs of faults at random: of two families, of faults that the chosen sides have, not refused, on no side yet.

python -m tests.lab.double_draw SEED COUNT [SPLIT]
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Sequence
from itertools import combinations
from typing import cast

from ppo_doctor.probabilities import HEALTHY
from ppo_doctor.rulepack import load_pack

from .doubles import PAIRS, SEEDS, Pair, Split, refusal, sound_setup
from .faults import FAULTS

#: Sides whose pairs were chosen by hand: their faults can be drawn, each at the severity that it has there.
CHOSEN: tuple[Split, ...] = ("training", "held-out", "unseen")


#: Pairs that were drawn and mended by before a drawn side was kept: what was looked at once is not drawn again.
LOOKED_AT: tuple[tuple[str, str], ...] = (
    ("action-std-pathology", "lr-too-small"),
    ("critic-not-learning", "dropout-or-train-mode"),
    ("critic-worse-than-mean", "weights-not-synced"),
    ("dropout-or-train-mode", "entropy-explosion"),
    ("dropout-or-train-mode", "group-std-zero-partial"),
    ("entropy-explosion", "metric-logging-bug"),
    ("entropy-explosion", "temperature-mismatch"),
    ("epochs-not-executed", "grad-norm-spike"),
    ("grad-norm-spike", "temperature-mismatch"),
    ("group-std-zero-partial", "late-collapse"),
    ("kl-penalty-too-strong", "old-policy-aliased"),
    ("length-collapse", "nan-inf"),
    ("length-collapse", "over-reuse"),
    ("lr-zero", "nan-inf"),
    ("over-reuse", "temperature-mismatch"),
    ("reward-scale-off", "temperature-mismatch"),
)


#: Sides that were drawn from the faults of the chosen ones; those after them hold any fault.
NARROW: tuple[Split, ...] = ("confirmation", "drawn", "fresh", "redrawn", "last")
#: The severity of faults that no chosen side has.
SEVERITY = 2


def pool(split: Split, benign: Collection[str]) -> dict[str, int]:
    """Return the faults that a side is drawn from with their severities: harmful ones, of later sides all there are."""
    chosen = {fault: severity for p in PAIRS if p.split in CHOSEN and not p.masked for fault, severity in p.faults}
    if split in NARROW:
        return chosen
    return {name: SEVERITY for name, spec in FAULTS.items() if spec.cause not in benign} | chosen


def allowed(split: Split, taken: Sequence[Pair]) -> list[Pair]:
    """Return every pair that a side may hold: of two families, not refused in all dialects, and on no other side."""
    causes = load_pack(installed=False).causes
    families = {cause.id: cause.family for cause in causes}
    used = {frozenset((pair.first, pair.second)) for pair in taken} | {frozenset(pair) for pair in LOOKED_AT}
    severities = pool(split, {HEALTHY, *(cause.id for cause in causes if cause.benign)})
    setups = [sound_setup(dialect) for dialect in ("sb3", "trl-grpo", "trl-ppo")]
    pairs = [
        Pair(first=a, second=b, severities=(severities[a], severities[b]), split=split)
        for a, b in combinations(sorted(severities), 2)
        if families[FAULTS[a].cause] != families[FAULTS[b].cause] and frozenset((a, b)) not in used
    ]
    return [pair for pair in pairs if any(refusal(setup, pair) == "" for setup in setups)]


def draw(seed: int, count: int, split: Split) -> list[Pair]:
    """Return so many of them, the same for each seed; what a side before it has is not drawn again."""
    sides = tuple(SEEDS)
    before = sides[: sides.index(split)]
    pairs = allowed(split, [pair for pair in PAIRS if pair.split in before])
    random.Random(seed).shuffle(pairs)
    return pairs[:count]


def main(arguments: Sequence[str]) -> None:
    """Print a draw as the lines of a side."""
    seed, count = map(int, arguments[:2])
    split = cast("Split", arguments[2] if len(arguments) > 2 else "fresh")
    for pair in draw(seed, count, split):
        (first, level), (second, other) = pair.faults
        sys.stdout.write(f'    ("{first}", {level}, "{second}", {other}),\n')


if __name__ == "__main__":
    main(sys.argv[1:])
