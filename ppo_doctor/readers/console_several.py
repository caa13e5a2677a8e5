"""Rewriting of a line so that each number has a name of its own.

| written | rewritten |
| --- | --- |
| `mean/max reward 20.1/35.0` | `mean reward 20.1, max reward 35.0` |
| `reward 3.1 ± 0.4` | `reward 3.1, reward std 0.4` |
| `grad 0.65 -> 0.48` | `grad 0.65, grad after 0.48` |
| `grad 0.65 (0.48 after clipping)` | `grad 0.65, grad after clipping 0.48` |
| `steps: 4 of 32` | `steps: 4, steps planned: 32` |
| `spread 2.2 bit` | `spread bit 2.2` |
| `Reward: mean=3.1, std=0.4` | `Reward mean=3.1, Reward std=0.4` |
| `reward -> 3.1` | `reward: 3.1` |
| `rR:μσmM 0.1 0.2 0.0 0.9` | `rR mean 0.1, rR std 0.2, rR min 0.0, rR max 0.9` |
| `[('kl', 0.1)]` | `[kl: 0.1]` |
| `rewards: tensor([1., 1., 4.])` | `rewards: 2.0, rewards std: 1.41…` |
"""

from __future__ import annotations

import re
from functools import lru_cache
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import MARKS
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?|[-+]?(?:nan|inf)\b"
_N = rf"(?:{_NUMBER})"
_WORD = rf"(?:[^\W\d]|[∇∂⟨‖_])[\w{MARKS}∇∂⟩‖]{{0,60}}"
_END = r"(?=[\s,;|)\]]|\.?\Z|\.\s)"
_SIGN = r"(?:[ \t]{0,40}+[:=][ \t]{0,40}+| )"
#: The suffix that turns the name of a mean into that of its standard deviation.
SPREAD = " std"
#: "mean/median reward 20.1/19.0", "Loss(P/V/E): -0.01/0.07/0.31": as many names as numbers.
_SLASHED = re.compile(
    rf"(?<![\w/.])((?:{_WORD}(?: |(?=\())){{0,2}})\(?({_WORD}(?:/{_WORD})++)\)?((?: {_WORD}){{0,3}})"
    rf"({_SIGN})({_N}(?: ?/ ?{_N})++){_END}"
)
#: "reward: -959.97 +/- 246.97"
_SPREAD = re.compile(rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) ?(?:\+/-|±|\+-) ?({_N}){_END}")
#: "steps done: 4 of 32"
_EXECUTED = re.compile(rf"(?<![\w./])({_WORD}(?: {_WORD}){{0,3}}) ?[:=] ?(\d++) of (\d++){_END}")
#: "spread: 2.2 bit": the unit goes into the name, because other logs print the same quantity in nats
_INFORMATION = re.compile(
    rf"(?<![\w./])({_WORD}(?: {_WORD}){{0,3}})({_SIGN})({_N}) ?((?:[mµμ]|milli)?bits?|(?:[mµμ]|milli)nats?){_END}"
    r"(?!(?:[ \t]*[:=][ \t]*|[ \t]+)[-+.]?\d)"  # a name: "crit 0.06 bits 2.32"
)
_ARROWS = r"(?:[-=]?>|→|⇒|↦)"
#: "grad 0.65→0.48": a number before and after an operation
_CHANGED = re.compile(rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) ?{_ARROWS} ?({_N})(?![\d.]|[eE]\d)")
#: "grad 0.65 (0.48 after clipping)"
_THEN = re.compile(
    rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) \(({_N}) ((?:after|before)(?: {_WORD}){{1,2}})\)"
)
#: Separators with a blank on each side, and a name between bars ("|g|").
_APART = re.compile(r"(?<=\S) +(?:::|//|[·‖∥•∙⋅]) +(?=\S)")
_SIZE = re.compile(r"(?<![^\s(])\|{1,2}([^|\s]{1,20})\|{1,2}(?=[ \t]*[:=]|[ \t]+(?:[-+.\d]|nan\b|inf\b))")
#: "Reward: mean=3.1, std=0.4"
_OF_GROUP = re.compile(rf"\b(mean|avg|std|min|max|median) ?= ?({_NUMBER})")
_GROUPED = re.compile(
    rf"(?<![\w./])({_WORD}): ?((?:(?:mean|avg|std|min|max|median) ?= ?(?:{_NUMBER})(?:, ?|(?=\s|[;|]|\Z)))+)"
)
#: "reward -> 3.1" names a number; "3.1 -> 2.9" does not
_ARROW = re.compile(rf"(?<=[A-Za-z_)%]) ?(?:->|=>|→) ?(?={_NUMBER})")
#: "rR:μσmM 0.00 0.05 0.00 0.77": a letter for each statistic; the bar of x̄ follows the x; "usmM" in ASCII
_LETTERED = re.compile(rf"(?<![\w.])({_WORD}):([μxσmM\u0304]{{2,5}}|usmM)((?: {{1,2}}{_N}){{2,4}}){_END}")
_STATISTICS = {"μ": "mean", "u": "mean", "x": "mean", "σ": "std", "s": "std", "m": "min", "M": "max"}
#: "statistics:[('average_value', 0.13), ('n_updates', 320)]"
_TUPLE = re.compile(rf"\('([\w./ ]{{1,100}})', ({_N})\)")
#: "rewards: tensor([0.25, 2.25], device='cuda:0')", "Score: ['1.5', '2.5']", "episodic_return=[22.]"
ITEM = rf"'?{_N}'?"
_LIST = re.compile(
    rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})(\s{{0,4}}[:=]\s{{0,8}})(?:[\w.]{{1,20}}\()?"
    rf"\[++\s*+({ITEM}(?:(?:[\s,;]++|\.\.+ ?){ITEM})*+),?\s*+\]++(?:(?:, ?\w+=[\w.':<>]+)*+\))?"
)
#: Names of two numbers that are a setting, not a measured range.
_OF_SETTINGS = re.compile(r"range|beta|shape|size|bound|limit|dim|layer|hidden|arch|interval", re.IGNORECASE)
#: Names of losses by their abbreviations.
_LOSSES = {
    "p": "policy loss",
    "pi": "policy loss",
    "a": "actor loss",
    "v": "value loss",
    "c": "critic loss",
    "e": "entropy",
}


def _with_group(match: re.Match[str]) -> str:
    """Return the statistics after a name, each with that name in front."""
    return _OF_GROUP.sub(lambda pair: f"{match[1]} {pair[1]}={pair[2]}", match[2])


def _apart(match: re.Match[str]) -> str:
    """Return numbers as pairs; unchanged if the names are not as many, or if all are counters ("3/10")."""
    before, joined, after, sign, values = match.groups()
    names, numbers = joined.split("/"), [number.strip() for number in values.split("/")]
    if len(names) != len(numbers) or all(number.isdigit() for number in numbers):
        return match[0]
    before = before.strip()
    if before.lower() in ("loss", "losses") and not after:
        names = [_LOSSES.get(name.lower(), f"{name} loss") for name in names]
    else:
        names = [f"{before} {name}{after}".strip() for name in names]
    return ", ".join(f"{name}{sign}{number}" for name, number in zip(names, numbers, strict=True))


def _by_letters(match: re.Match[str]) -> str:
    numbers, signs = match[3].split(), match[2].replace("\u0304", "")
    if len(numbers) != len(signs):
        return match[0]
    letters = zip(signs, numbers, strict=True)
    return ", ".join(f"{match[1]} {_STATISTICS[letter]} {number}" for letter, number in letters)


def _summary(match: re.Match[str]) -> str:
    """Return the only number of a list, the ends of a range, or mean and standard deviation of more numbers."""
    name, sign, items = match.groups()
    numbers = [float(item.strip("'")) for item in re.split(r"[\s,;]+|\.\.+ ?", items)]
    if len(numbers) == 2:
        low, high = numbers
        measured = low <= high and not _OF_SETTINGS.search(name)
        return f"{name}_min{sign}{low!r}, {name}_max{sign}{high!r}" if measured else match[0]
    if len(numbers) == 1:
        return f"{name}{sign}{numbers[0]!r}"
    return f"{name}{sign}{fmean(numbers)!r}, {name}{SPREAD}{sign}{_spread(numbers)!r}"


def _spread(numbers: Sequence[float]) -> float:
    try:
        return pstdev(numbers)
    except (AttributeError, OverflowError, ValueError):  # infinities have none
        return float("nan")


#: The rewritings in order: texts of which a line has to hold one, the pattern, and its replacement.
_REWRITINGS: tuple[tuple[tuple[str, ...], re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (("/",), _SLASHED, _apart),
    (("±", "+/-", "+-"), _SPREAD, rf"\1\2\3, \1{SPREAD}\2\4"),
    (("|",), _SIZE, r"‖\1‖"),
    ((" ",), _APART, " | "),
    ((">", "→"), _CHANGED, r"\1\2\3, \1 after\2\4"),
    ((">", "→"), _ARROW, ": "),
    (("(",), _THEN, r"\1\2\3, \1 \5\2\4"),
    ((" of ",), _EXECUTED, rf"\1: \2, \1 {PLANNED}: \3"),
    (("bit", "nat"), _INFORMATION, r"\1 \4\2\3"),
    (("=",), _GROUPED, _with_group),
    (("σ", ":usmM"), _LETTERED, _by_letters),
    (("('",), _TUPLE, r"\1: \2"),
    (("[",), _LIST, _summary),
)


@lru_cache(maxsize=1)  # several dialects read the same line
def spelled_out(text: str) -> str:
    """Return a line rewritten as in the table above."""
    for signs, pattern, replacement in _REWRITINGS:
        if any(sign in text for sign in signs):
            text = pattern.sub(replacement, text)
    return text
