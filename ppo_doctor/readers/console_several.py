"""Split several numbers under one name into pairs: "mean/max reward 20.1/35.0", "reward 3.1 ± 0.4"."""

from __future__ import annotations

import re
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import MARKS, Dialect
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.readers.console_base import Line, Sink

_NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?|[-+]?(?:nan|inf)\b"
_N = rf"(?:{_NUMBER})"
_WORD = rf"(?:[^\W\d]|[∇∂⟨‖_])[\w{MARKS}∇∂⟩‖]{{0,60}}"
_END = r"(?=[\s,;|)\]]|\.?\Z|\.\s)"
_SIGN = r"(?:[ \t]{0,40}+[:=][ \t]{0,40}+| )"
#: What follows the name of a mean in that of its standard deviation.
SPREAD = " std"
#: "mean/median reward 20.1/19.0", "Loss(P/V/E): -0.01/0.07/0.31": names and numbers with as many slashes.
_SLASHED = re.compile(
    rf"(?<![\w/.])((?:{_WORD}(?: |(?=\())){{0,2}})\(?({_WORD}(?:/{_WORD})++)\)?((?: {_WORD}){{0,3}})"
    rf"({_SIGN})({_N}(?: ?/ ?{_N})++){_END}"
)
#: "reward: -959.97 +/- 246.97"
_SPREAD = re.compile(rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) ?(?:\+/-|±|\+-) ?({_N}){_END}")
#: "steps done: 4 of 32"
_EXECUTED = re.compile(rf"(?<![\w./])({_WORD}(?: {_WORD}){{0,3}}) ?[:=] ?(\d++) of (\d++){_END}")
#: "spread: 2.2 bit": a unit that its name has to say, for the numbers are others than in the unit that all else has
_INFORMATION = re.compile(
    rf"(?<![\w./])({_WORD}(?: {_WORD}){{0,3}})({_SIGN})({_N}) ?((?:[mµμ]|milli)?bits?|(?:[mµμ]|milli)nats?){_END}"
    r"(?!(?:[ \t]*[:=][ \t]*|[ \t]+)[-+.]?\d)"  # a name: "crit 0.06 bits 2.32"
)
#: "wob 1.903b step 3.265mb": bits, where thousandths of them stand beside
_SHORT, _BITS, _MILLIBITS = (re.compile(rf"(\d\.\d++) ?({unit})(?=[\s,;|)]|\Z)") for unit in ("m?b", "b", "mb"))
_ARROWS = r"(?:[-=]?>|→|⇒|↦)"
#: "grad 0.65→0.48", "0.65 -> 0.48": a number before something was done to it, and after
_CHANGED = re.compile(rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) ?{_ARROWS} ?({_N})(?![\d.]|[eE]\d)")
AFTER = "after"
#: "grad 0.65 (0.48 after clipping)"
_THEN = re.compile(
    rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})({_SIGN})({_N}) \(({_N}) ((?:after|before)(?: {_WORD}){{1,2}})\)"
)
#: What people set between two things that they print, with a blank on each side, and the size of something ("|g|").
_APART = re.compile(r"(?<=\S) +(?:::|//|[·‖∥•∙⋅]) +(?=\S)")
_SIZE = re.compile(r"(?<![^\s(])\|{1,2}([^|\s]{1,20})\|{1,2}(?=[ \t]*[:=]|[ \t]+(?:[-+.\d]|nan\b|inf\b))")
#: "rR:μσmM 0.00 0.05 0.00 0.77": each letter stands for the statistic of one number; a bar over the x stands behind it
#: "Reward: mean=3.1, std=0.4"
_OF_GROUP = re.compile(rf"\b(mean|avg|std|min|max|median) ?= ?({_NUMBER})")
_GROUPED = re.compile(
    rf"(?<![\w./])({_WORD}): ?((?:(?:mean|avg|std|min|max|median) ?= ?(?:{_NUMBER})(?:, ?|(?=\s|[;|]|\Z)))+)"
)
#: "reward -> 3.1" names a number; "3.1 -> 2.9" does not
_ARROW = re.compile(rf"(?<=[A-Za-z_)%]) ?(?:->|=>|→) ?(?={_NUMBER})")
#: where a terminal had no Greek they are u and s
_LETTERED = re.compile(rf"(?<![\w.])({_WORD}):([μxσmM\u0304]{{2,5}}|usmM)((?: {{1,2}}{_N}){{2,4}}){_END}")
_STATISTICS = {"μ": "mean", "u": "mean", "x": "mean", "σ": "std", "s": "std", "m": "min", "M": "max"}
#: "statistics:[('average_value', 0.13), ('n_updates', 320)]"
_TUPLE = re.compile(rf"\('([\w./ ]{{1,100}})', ({_N})\)")
#: "rewards: tensor([0.25, 2.25], device='cuda:0')", "Score: ['1.5', '2.5']", "episodic_return=[22.]"
_ITEM = rf"'?{_N}'?"
_LIST = re.compile(
    rf"(?<![\w.])({_WORD}(?: {_WORD}){{0,4}})(\s{{0,4}}[:=]\s{{0,8}})(?:[\w.]{{1,20}}\()?"
    rf"\[++\s*+({_ITEM}(?:(?:[\s,;]++|\.\.+ ?){_ITEM})*+),?\s*+\]++(?:(?:, ?\w+=[\w.':<>]+)*+\))?"
)
#: Names of two numbers that are set, not measured.
_OF_SETTINGS = re.compile(r"range|beta|shape|size|bound|limit|dim|layer|hidden|arch|interval", re.IGNORECASE)
#: What the losses of one list are called by their first letters.
_LOSSES = {
    "p": "policy loss",
    "pi": "policy loss",
    "a": "actor loss",
    "v": "value loss",
    "c": "critic loss",
    "e": "entropy",
}


def spelled_out(text: str) -> str:
    """Return a line with a pair for each number that shares its name with others."""
    if "/" in text:
        text = _SLASHED.sub(_apart, text)
    if "±" in text or "+/-" in text or "+-" in text:
        text = _SPREAD.sub(rf"\1\2\3, \1{SPREAD}\2\4", text)
    text = _APART.sub(" | ", _SIZE.sub(r"‖\1‖", text) if "|" in text else text)
    if ">" in text or "→" in text:
        text = _ARROW.sub(": ", _CHANGED.sub(_before_and_after, text))
    if "(" in text:
        text = _THEN.sub(r"\1\2\3, \1 \5\2\4", text)
    if " of " in text:
        text = _EXECUTED.sub(rf"\1: \2, \1 {PLANNED}: \3", text)
    if "mb" in text and _BITS.search(text) and _MILLIBITS.search(text):
        text = _SHORT.sub(lambda unit: f"{unit[1]} {'mbit' if unit[2] == 'mb' else 'bit'}", text)
    if "bit" in text or "nat" in text:
        text = _INFORMATION.sub(r"\1 \4\2\3", text)
    if "=" in text and ":" in text:
        text = _GROUPED.sub(_with_group, text)
    if "σ" in text or ":usmM" in text:
        text = _LETTERED.sub(_by_letters, text)
    if "('" in text:
        text = _TUPLE.sub(r"\1: \2", text)
    return _LIST.sub(_summary, text) if "[" in text else text


def _before_and_after(match: re.Match[str]) -> str:
    name, sign, before, after = match.groups()
    return f"{name}{sign}{before}, {name} {AFTER}{sign}{after}"


def _with_group(match: re.Match[str]) -> str:
    """Return statistics behind one name, each with that name."""
    return _OF_GROUP.sub(lambda found: f"{match[1]} {found[1]}={found[2]}", match[2])


def _apart(match: re.Match[str]) -> str:
    """Return numbers as pairs; unchanged where names are not as many, or two counters are a progress ("3/10")."""
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
    """Return the one number of a list, the ends of a range, or mean and standard deviation of more numbers."""
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
    except (AttributeError, OverflowError, ValueError):  # of infinities there is none
        return float("nan")


#: A list that goes on in the next lines, these lines, and how many they may be.
_OPENS = re.compile(rf"[^\[\]]*[:=]\s{{0,8}}(?:[\w.]{{1,20}}\()?\[++\s*+{_ITEM}[\s,'\d.eE+\-naif]*+\Z")
_GOES_ON = re.compile(r"[\[\s,'\d.eE+\-naif]++(?:\][^\[]{0,80})?\Z")
_MOST_LINES = 256


class Lists(Dialect):
    """Joins the lines of one printed tensor or array, and gives them back as one line."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._open: list[Line] = []
        #: lines up to this one were no list
        self._refused = 0

    def take(self, line: Line) -> bool:
        """Read a line that opens a list, or goes on with an open one."""
        if not self._open:
            if "[" not in line.text or line.number <= self._refused or not _OPENS.match(line.text):
                return False
            self._open = [line]
            return True
        self._open.append(line)
        if not _GOES_ON.match(line.text) or len(self._open) > _MOST_LINES:
            self.finish()
        elif "]" in line.text:
            self._close()
        return True

    def finish(self) -> None:
        """Give back the lines of a list that is never closed."""
        if self._open:
            self._refused = self._open[-1].number
            self.sink.given_back += self._open
            self._open = []

    def _close(self) -> None:
        first, text = self._open[0], " ".join(line.text.strip() for line in self._open)
        self.sink.given_back.append(type(first)(first.text[: first.indent] + text, first.number, self._open[-1].torn))
        self._open = []
