"""What a gate ruled, line by line, for every report that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain, prose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ppo_doctor.ruling import Outcome, Ruling

#: Order and words of outcomes; what passed is not worth a line.
WORDS: Mapping[Outcome, str] = {
    "failed": "failed:",
    "open": "open:",
    "allowed": "allowed:",
    "known": "known:",
    "seldom": "seldom:",
}


def lines(ruling: Ruling) -> list[tuple[str, str]]:
    """Return (word, sentence) for everything that the gate held against its policy, the worst first."""
    told = [(WORDS[outcome], held.says) for outcome in WORDS for held in ruling.of(outcome)]
    told += [("fixed:", f"{name}, which led in the baseline, does not lead here") for name in ruling.fixed]
    if ruling.suppressed:
        told.append(("left out:", f"{len(ruling.suppressed)} by select or ignore: {', '.join(ruling.suppressed)}"))
    return told + [("note:", note) for note in ruling.notes]


def text(rulings: Mapping[str, Ruling]) -> str:
    """Return the gate's part of a report for a terminal."""
    return "".join(_block(name, ruling, many=len(rulings) > 1) for name, ruling in rulings.items())


def _block(name: str, ruling: Ruling, *, many: bool) -> str:
    head = f"Gate {ruling.word}" + (f"  {plain(name)}" if many else "")
    return "\n".join([head, *_aligned(lines(ruling)), ""])


def _aligned(told: Sequence[tuple[str, str]]) -> list[str]:
    return [f"   {word:<9} {prose(says)}" for word, says in told]
