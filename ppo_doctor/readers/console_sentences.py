"""Sentences that repeat in every iteration with other numbers; each number is a column.

A number is named after the words before it in its clause, or after those that follow if it starts the clause ("0.4% of
the samples"). In brackets, the quantity before the bracket comes first: "return -3.2 (worst -9.1)" holds `return` and
`return min`. "3 of 40 steps" holds `steps` and `steps planned`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import MARKS, Dialect
from ppo_doctor.readers.console_pairs import PLACE, PREFIX
from ppo_doctor.readers.console_several import spelled_out
from ppo_doctor.trainers.phrases import PLANNED

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: Most characters and numbers of a sentence, most templates of a log, and lines after which the templates are fixed.
LONGEST, MOST_NUMBERS, MOST_TEMPLATES, LOOKED_AT = 1 << 10, 24, 256, 2_048
#: Records that are kept until it is decided whether they count.
HELD = 512
#: Fewest occurrences of a template, absolute and as a share of those of the most frequent template.
OFTEN, SHARE = 4, 0.05
#: Fewest columns with varying numbers in a training log.
FEWEST = 3
#: Most words of a name: those nearest to its number.
MOST_WORDS = 4

#: "-3.2 on average over 16 games": after such words, a number is a sample count named after the words that follow.
_AVERAGE = frozenset({"average", "averaged", "avg", "mean", "total"})
_FILLER_WORDS = (
    "a about above again all also an and approximately are around as at be been being below but by current currently"
    " did do does equals far for from got had has have having here how i in into is it its just least more most my no"
    " not now of off on only or our out over quite right roughly s so some still than that the their them then there"
    " these they this to under until up used using very was we went were what where which while with you your"
)
_FILLER = frozenset(_FILLER_WORDS.split())
_STATISTICS = {
    **dict.fromkeys(("worst", "lowest", "least", "min", "minimum", "smallest"), "min"),
    **dict.fromkeys(("best", "highest", "max", "maximum", "largest", "peak"), "max"),
    **dict.fromkeys(("std", "stdev", "spread", "deviation", "sd"), "std"),
    **dict.fromkeys(("median", "mean"), ""),
}
_NUMBER = re.compile(
    r"(?<![\w.])(?:[-+]?(?:\d++(?:,\d{3})*+(?:\.\d++)?|\.\d++)(?:[eE][-+]?\d++)?|[-+]?(?:nan|inf)\b)"
    r"(?=(?:[%‰]|[^\W\d_]{1,6}\b)?(?:[^\w]|\Z))",
    re.IGNORECASE,
)
_OPENING = re.compile(r"\s*\[([A-Za-z_]+ *[#:=]?) *(\d+)(?:/\d+)?\]")
#: "d007 | …": a counter that is written together with what it counts
_COUNTED = re.compile(r"\s*([^\W\d_]{1,5})(\d{1,9})(?=\s*[|:,;])")
_UNIT = re.compile(
    r" ?(%|percent\b|nats?\b|bits?\b|[mu]?s(?:ec(?:ond)?s?)?\b|min(?:ute)?s?\b|hours?\b"
    r"|(?:[cmk]m|deg|kg|k?wh?|px|rpm|hz|km/?h)\b)",
    re.IGNORECASE,
)
_TIMES = re.compile(r"[smuh].*", re.IGNORECASE)
_OF = re.compile(r" ?(?:(?:out )?of|/) ?", re.IGNORECASE)
_BREAK = re.compile(r"[,;:|()\[\]{}!?]|\.(?=\s|\Z)| [-–—] ")
_WORD = re.compile(rf"(?:[^\W\d_]|[∇∂‖])[\w{MARKS}/∇∂‖]*\^?")
#: Letters directly after a number, which are its unit and no part of the next name: "-0.053m crt 1.53".
_GLUED = re.compile(r"[^\W\d_]{1,4}(?=[\s,;|)\]])")
#: The start of a sentence about an evaluation, whose numbers are not those of training.
_EVALUATES = re.compile(
    r"\W*(?:eval(?:uation|uated)?|test|probe|validation|greedy|deterministic|pr(?:ue|ü)fung|prueba|prova|essai)\b(?=\W)",
    re.IGNORECASE,
)
#: The first word after a number, which is a unit if it recurs after the next number.
_FIRST = re.compile(r" ?(?:[A-Za-z€$£]{1,12}(?=[ ,]))?")


class Sentences(Dialect):
    """Reads sentences that recur, those of one iteration as one record; other lines are given back."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._kept: list[tuple[Line, str]] = []
        self._templates: Counter[str] = Counter()
        self._names: dict[str, list[str]] = {}
        self._settled = self._open = self._refused = self._joined = False
        #: the first line and the number of lines of each template
        self._lines: dict[str, tuple[Line, int]] = {}
        self._records: list[tuple[int, dict[str, str]]] = []
        #: the open record, its first line and its templates
        self._cells: dict[str, str] = {}
        self._first = 0
        self._holds: set[str] = set()

    def take(self, line: Line) -> bool:
        """Read a sentence with numbers, or keep it until it is known which templates recur."""
        text = line.text
        if len(text) > LONGEST or line.torn or not any(map(str.isdigit, text)):
            return False
        template = template_of(text)
        if template not in self._templates and (self._settled or len(self._templates) >= MOST_TEMPLATES):
            return False
        if self._settled:
            self._read(line, template)
            return True
        self._templates[template] += 1
        self._kept.append((line, template))
        if len(self._kept) >= LOOKED_AT:
            self._settle()
        return True

    def finish(self) -> None:
        """Hand on the records that are left."""
        if not self._settled:
            self._settle()
        self._close()
        self._hand_on()

    def _hand_on(self) -> None:
        """Hand on the records if other dialects found few, or join them to loose records that alternate with them.

        Otherwise the sentences are counted as not read.
        """
        if not self._open:
            alone = 2 * self.sink.records <= len(self._records) and self._moving() >= FEWEST
            self._joined = not alone and self.sink.alternates([first for first, _ in self._records])
            self._open, self._refused = alone or self._joined, not (alone or self._joined)
            if self._joined:
                self.sink.before_settling = self._join
        if self._refused:
            for line, count in self._lines.values():
                self.sink.unread.add(line.text, line.number, count)
            self._lines, self._records, self._templates = {}, [], Counter()
        elif self._joined:
            self._join()
        else:
            for first, cells in self._records:
                self.sink.loose(first, cells)
            self._records = []

    def _join(self) -> None:
        """Join the records to the loose records of the same iterations."""
        self._records = [(first, cells) for first, cells in self._records if not self.sink.join(first, cells)]

    def _moving(self) -> int:
        """Return the number of columns with varying numbers, which is low in text that is no training log."""
        seen: dict[str, set[str]] = {}
        for _, cells in self._records:
            for key, cell in cells.items():
                values = seen.setdefault(key, set())
                if len(values) < 2:
                    values.add(cell)
        return sum(len(values) > 1 for values in seen.values())

    def _settle(self) -> None:
        """Fix the templates that recur and read the lines kept of them; the others are given back."""
        enough = max(OFTEN, int(SHARE * max(self._templates.values(), default=0)))
        self._templates = Counter({template: n for template, n in self._templates.items() if n >= enough})
        self._settled = True
        for line, template in self._kept:
            if template in self._templates:
                self._read(line, template)
            else:
                self.sink.given_back.append(line)
        self._kept = []

    def _read(self, line: Line, template: str) -> None:
        body = body_of(line.text)
        if template not in self._names:  # the names are the same in every line of a template
            evaluated = "eval " if _EVALUATES.match(body) else ""
            self._names[template] = [name and evaluated + name for name in names_of(body)]
        cells = dict(paired(self._names[template], body))
        if template in self._holds or any(self._cells.get(key, cell) != cell for key, cell in cells.items()):
            self._close()
        self._first = self._first if self._cells else line.number
        self._holds.add(template)
        first, count = self._lines.get(template, (line, 0))
        self._lines[template] = first, count + 1
        self._cells |= cells

    def _close(self) -> None:
        if len(self._cells) > 1:
            self._records.append((self._first, self._cells))
        if self._open or len(self._records) >= HELD:
            self._hand_on()
        self._cells, self._holds = {}, set()


def template_of(text: str) -> str:
    """Return a line with `#` for each number and single blanks: equal for one sentence in two iterations."""
    return " ".join(_NUMBER.sub("#", body_of(text)).split())


def paired(names: list[str], body: str) -> list[tuple[str, str]]:
    """Return the numbers of a body with their names; those without a name are left out."""
    numbers = _NUMBER.findall(body)[:MOST_NUMBERS]
    return [(name, number.replace(",", "")) for name, number in zip(names, numbers, strict=False) if name]


def names_of(body: str) -> list[str]:
    """Return the name of each number of a body, an empty one for a number without a name or with a repeated one."""
    numbers = list(_NUMBER.finditer(body))[:MOST_NUMBERS]
    names: list[str] = []
    depth, at, quantity, planned_of, unit = 0, 0, "", "", ""
    for i, number in enumerate(numbers):
        before = body[at : number.start()]
        end = numbers[i + 1].start() if i + 1 < len(numbers) else len(body)
        after = body[number.end() : end]
        depth = max(0, depth + before.count("(") - before.count(")"))
        of = counted = _OF.fullmatch(after) is not None
        if not i and before.strip() == "#":
            name, counted = "step", True  # "#004 J -9.38": the words after it name the next number
        elif planned_of:
            name, planned_of = f"{planned_of} {PLANNED}", ""
        elif of:
            behind = body[numbers[i + 1].end() :] if i + 1 < len(numbers) else ""
            candidates = _words(_BREAK.split(behind, maxsplit=1)[0], first=True), _before(before)
            planned_of = name = next(filter(None, candidates[::-1] if "/" in after else candidates), "")
        else:
            name = _name(before, after.removeprefix(unit) if unit.strip() else after, quantity, inside=depth > 0)
            aside = not _before(before) and _BREAK.search(before) is None
            counted = _counts_samples(before) or (bool(quantity) and aside)
        names.append("" if name in names else name)
        statistic = bool(quantity) and name.startswith(f"{quantity} ")
        quantity = quantity if depth or counted or statistic else name
        at = number.end() + (len(glued[0]) if (glued := _GLUED.match(after)) else 0)
        unit = first[0] if (first := _FIRST.match(after)) else ""
    return names


def body_of(text: str) -> str:
    """Return a line without what a logger adds, with a name for each number; "[iter 3]" becomes a counter."""
    opening = _OPENING.match(text) or _COUNTED.match(text)
    if opening:
        return f"{opening[1]} {opening[2]}, {spelled_out(text[opening.end() :])}"
    prefix = PREFIX.match(text)
    return spelled_out(PLACE.sub("", text[prefix.end() if prefix else 0 :]))


def _name(before: str, after: str, quantity: str, *, inside: bool) -> str:
    """Return the name of a number between two texts.

    `quantity` comes first in it if the number is `inside` a bracket, or if its only words name a statistic.
    """
    unit = _UNIT.match(after)
    rest = after[unit.end() :] if unit else after
    words = "" if _counts_samples(before) else _before(before)
    words = words or _words(_BREAK.split(rest)[0], first=True) or _alone(before)
    if quantity and words and (inside or words.lower() in _STATISTICS):
        statistic = _STATISTICS.get(words.lower())
        words = f"{quantity} {words if statistic is None else statistic}".strip()
    if unit is None:
        return words
    return f"{words} {'seconds' if _TIMES.fullmatch(unit[1]) else unit[1].lower()}".strip()


def _alone(text: str) -> str:
    """Return the word before a number if it is the only one of its clause, even a filler: "out 2.4%" between bars."""
    words = _WORD.findall(_BREAK.split(text)[-1])
    return words[0] if len(words) == 1 else ""


def _counts_samples(text: str) -> bool:
    """Tell whether the number after a text is the sample count of the number before it."""
    words = _before(text).lower().split()
    return bool(words) and _AVERAGE.issuperset(words) and text[:1] == " "


def _before(text: str) -> str:
    """Return the words of the clause before a number."""
    return _words(_BREAK.split(text.rstrip(" :=~≈"))[-1], first=False)


def _words(clause: str, *, first: bool) -> str:
    """Return the first or the last words of a clause that are no fillers."""
    spoken = clause.replace("'s", "").replace("\N{RIGHT SINGLE QUOTATION MARK}s", "")
    words = [word for word in _WORD.findall(spoken) if word.lower() not in _FILLER]
    return " ".join(words[:MOST_WORDS] if first else words[-MOST_WORDS:])
