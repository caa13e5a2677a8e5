"""`key=value` and `key: value` lines of no particular logger, and lines of alternating names and numbers."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, WORD, Dialect
from ppo_doctor.readers.console_several import SPREAD, spelled_out

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: A name has one word before an equals sign, up to three at the start of an item, up to seven before a colon.
_SEVERAL = rf"(?:(?<=[,;|] )|(?<=[,;|])|\A)({WORD}(?: {WORD}){{1,2}})"
_SIGN = r"[ \t]{0,40}+%s[ \t]{0,40}+"
#: "reward over last 100 episodes"
_LAST = r"(?: (?:last|past|over|previous) \d{1,6})?"
_KEY = rf"(?:{_SEVERAL}{_SIGN % '='}|({WORD}){_SIGN % '='}|({WORD}(?:{_LAST} \(?{WORD}){{0,6}}){_SIGN % ':'})"
#: "Eval metrics at step 600:", "Evaluation | "
_EVALUATION = re.compile(
    r"(?:Eval(?:uation)?|Validation)(?: (?:metrics|results?|stats|summary|scores?))?"
    r"(?: (?:at|after|@) (?:(?:global )?step|iteration|update|epoch|episode) (\d{1,12}))? ?[:|] ",
    re.IGNORECASE,
)
#: Units that are dropped.
UNIT = (
    r"(?:[mk]?s|secs?|seconds?|min(?:ute)?s?|hours?|nats?|[KMG]i?B|(?:it|steps?|frames?|tok(?:en)?s?|samples?)/s(?:ec)?"
    r"|s/it|fps|(?:time)?steps?|episodes?)"
)
#: Any unit directly after its number: "93.6cm", but not "3rd"; it is added to the name.
_GLUED = r"(?!(?:st|nd|rd|th|x)\b)[^\W\d_]{1,6}(?:/[^\W\d_]{1,4})?"
_PAIR = re.compile(rf"(?<![\w.]){_KEY}({NUMBER})(?: ?{UNIT}|({_GLUED}))?(?=\s|[,;|)\]}}]|[.:]?\Z|[.:]\s)")
#: "Step 3 | …", "Iteration 3/10", "GRPO step 3/10": a counter at the start of a line or after another
_COUNTER = re.compile(
    r"\s*(?:(?:GRPO|PPO|RLOO|RL|Train) )?"
    r"((?:Global |Training |Learning )?(?:Step|Iter|Iteration|Epoch|Episode|Update|Round))"
    r"\s*[:#]?\s*(\d+(?:/\d+)?)\b\s*(?:[|:,\-]|\Z)",
    re.IGNORECASE,
)
#: "[Step 020] …": a counter in brackets, as loggers also print levels and times; ranks and workers are no counters
_BRACKETED = re.compile(
    r"\s*\[(?!rank|gpu|worker|proc|node|pid|thread|device|env|actor|cuda|local)([^\W\d_]{1,12}) *[#:=]? *"
    r"(\d+(?:/\d+)?)\]\s*",
    re.IGNORECASE,
)
#: A name of up to three words, perhaps after words and a colon, and a number. A unit with a number after it is the next
#: name: "gn 0.26 steps 8".
_ENTRY = re.compile(
    rf"(?:{WORD}(?: {WORD}){{0,4}}?: )?({WORD}(?: {WORD}){{0,2}}?)(?:[ \t]*[:=][ \t]*|[ \t]+is[ \t]+|[ \t]+)({NUMBER})"
    rf"(?: ?{UNIT}(?![\w:=]|[ \t]+[-+.]?\d))?(?:[ \t]*(?:[,;|]|[-=]+>|-(?=\s))[ \t]*|[.:]?[ \t]+|[.:]?\Z)"
)
#: The text between two bars: words and a number, then perhaps a unit or a share; a number alone has no name.
_SEGMENT = re.compile(
    rf"(?:({WORD}(?: {WORD}){{0,3}}?)[ \t]*[:=]?[ \t]+)?({NUMBER})(?:/\d+)?"
    rf"(?: ?(?:{UNIT}|({_GLUED})|\([^()]{{1,20}}\)))?"
)
#: The end of an item: a bar, a tab, or a comma or semicolon before a blank.
_BARS = re.compile(r"\||\t|[,;](?=\s)")
#: Fewest segments of a line that hold a name and a number.
_FEWEST_SEGMENTS = 3
#: A number without a name at the start of a line, or in brackets, is a counter.
_COUNT = re.compile(r"(\d++)(?:\t|  |[ \t]*[|:,])[ \t]*")
_IN_BRACKETS = re.compile(r"\s*\[ *(\d{1,12})(?:/\d+)?\] ")
#: Longer lines are not searched.
LONGEST, _LONGEST_BAR = 1 << 14, 1 << 11
#: The time, the level and the marks that loggers print before a message.
PREFIX = re.compile(
    r"(?:\s*(?:\[(?!\d+/\d+\])[^\]]*\]|\d{1,4}([-/.])\d\d?\1\d{1,4}[T ]\d\d:\d\d:\d\d[.,\d]*|\d\d:\d\d:\d\d[.,\d]*"
    r"|<?\b(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR|CRITICAL)\b>?(?::(?:[\w.]{1,80}:)?)?|[-:|>=*#+]+(?=\s)"
    r"|[DIWE]\d{4} [\d:.]{8,15}\s+\d+ [\w.]{1,80}:\d+\]))+\s*"
)
#: "trainer.py:228" is a position in a file, not a pair.
PLACE = re.compile(r"(?<![\w./<>-])[\w./<>-]{1,120}\.(?:py|cc|cpp|cu|rs|jsonl?|log|txt|ya?ml|toml|sh|csv):\d+(?!\w)")
#: A progress bar of tqdm after a text, up to the values after the bar.
_TQDM = re.compile(r"(.*?)[ \d]{0,3}\d%\|[^|]*+\| *[\d.]+k?/[\d.]+k? \[[^,\]]*,[^,\]]*(?:, |\])")
_RULE = re.compile(r"\s*+[-=_*#~]{3,}+\s*+")
#: "Epoch:[1/1](20/3000)" of minimind
_MINIMIND = re.compile(r"Epoch: ?\[(\d+)/\d+\]\((\d+)/\d+\)")


#: One name with one word as its value.
_ALONE = re.compile(rf"({WORD}(?: {WORD}){{0,6}}?)[ \t]*[:=][ \t]*(\S{{0,40}})")
_VALUE = re.compile(rf"({NUMBER})(?: ?{UNIT})?")
#: Keys that are remembered at most.
_MOST_KNOWN = 10_000
#: Layouts that are remembered at most, and the longest text in the place of a number.
_MOST_LAYOUTS, _LONGEST_CELL = 8, 40


class Layouts:
    """The keys of lines that were records: a line with the same keys in order is one too, even if a value is a word."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], None] = {}

    def remember(self, pairs: list[tuple[str, str]]) -> None:
        """Remember the keys of a record of numbers, in place of the oldest if there are many."""
        keys = tuple(key for key, _ in pairs)
        if len(keys) < 2 or keys in self._known:
            return
        if len(self._known) == _MOST_LAYOUTS:
            self._known.pop(next(iter(self._known)))
        self._known[keys] = None

    def fitted(self, body: str, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the pairs of a line with words in the place of numbers; none for any other line.

        `pairs` are those that were parsed from it: a word may have become a part of the next name.
        """
        parsed = tuple(key for key, _ in pairs)
        if parsed in self._known or len(body) > LONGEST:
            return []
        for keys in self._known:
            if keys[-1] in body and all(key in body for key in keys) and not set(keys).issubset(parsed):
                cells = _between(body, keys)
                if cells:
                    return list(zip(keys, cells, strict=True))
        return []


def _between(body: str, keys: tuple[str, ...]) -> list[str]:
    """Return the text after each key if at least half of the texts are numbers and one is not; else nothing."""
    ends, at = [], 0
    for key in keys:
        match = re.compile(rf"(?<![\w./-]){re.escape(key)}(?![\w./-])").search(body, at)
        if match is None:
            return []
        ends.append(match.span())
        at = match.end()
    stops = [start for start, _ in ends[1:]] + [len(body)]
    cells = [body[end:stop].strip(" \t:=,;|") for (_, end), stop in zip(ends, stops, strict=True)]
    values = [_VALUE.fullmatch(cell) for cell in cells]
    numbers = sum(value is not None for value in values)
    odd = [cell for cell, value in zip(cells, values, strict=True) if value is None]
    # A number with more words after it is another layout: "step 3, eval loss 0.2" is no record of step and loss.
    other = any(not cell or len(cell) > _LONGEST_CELL or re.match(rf"{NUMBER}[\s,;|]", cell) for cell in odd)
    if body[: ends[0][0]].strip() or other or not odd or 2 * numbers < len(cells):
        return []
    return [value[1].strip("[ ]") if value else cell for cell, value in zip(cells, values, strict=True)]


class Pairs(Dialect):
    """Reads lines that are mostly pairs; an indented line continues the one above, and so does a pair below a pair."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._cells: dict[str, str] = {}
        self._first = self._last = self._indent = 0
        self._single = False
        self._bar: dict[str, str] = {}
        self._layouts, self._bars = Layouts(), Layouts()
        #: keys of the records so far
        self._known: set[str] = set()
        #: single pairs since the last record, the line of the first, and keys that were single before
        self._alone: dict[str, str] = {}
        self._alone_first = 0
        self._again: set[str] = set()
        #: whether single pairs are the records, because one recurred without a record in between
        self._only_alone = False

    def take(self, line: Line) -> bool:
        """Read a line of pairs."""
        if len(line.text) > LONGEST:
            return False
        if bar := _TQDM.match(line.text[:_LONGEST_BAR]):
            return self._progress(line, bar[1].rstrip(" :"), line.text[bar.end() :])
        below = bool(self._cells) and line.number == self._last + 1
        pairs = pairs_of(line.text) or (words_of(line.text) if below and line.indent > self._indent else [])
        if odd := self._layouts.fitted(bare(line.text), pairs) or (
            self._text(line.text) if below and not pairs else []
        ):
            pairs = odd
        else:
            self._layouts.remember(pairs)
        if not pairs:
            return self._goes_over(line)
        cells = self.sink.pairs(line, pairs)
        goes_on = below and not cells.keys() & self._cells.keys()
        single = _is_single(pairs)
        if not (goes_on and (line.indent > self._indent or (single and self._single))):
            self._close()
            self._first, self._indent, self._single = line.number, line.indent, single
        self._cells |= cells
        self._last = line.number
        return True

    def _text(self, text: str) -> list[tuple[str, str]]:
        """Return the pair of a line of a block whose value is a word, if its key is known from records."""
        match = _ALONE.fullmatch(bare(text)) if len(text) <= _LONGEST_BAR else None
        return [(match[1], match[2])] if match and match[1] in self._known else []

    def _goes_over(self, line: Line) -> bool:
        """Tell whether a line is a rule below a title, before the pairs of its block."""
        rule = self._single and bool(self._cells) and line.number == self._last + 1 and bool(_RULE.fullmatch(line.text))
        self._last += rule
        return rule

    def finish(self) -> None:
        """Hand on the open record, and single pairs if they are the records."""
        self._close()
        if self._only_alone:
            self._hand_on_alone()

    def _close(self) -> None:
        """Hand on the open record; a single pair becomes part of the next record, from its second occurrence on."""
        if len(self._cells) > 1:
            self.sink.loose(self._first, self._alone | self._cells)
            self._alone, self._only_alone = {}, False
        elif self._cells and self._again.issuperset(self._cells):
            if not self._alone.keys().isdisjoint(self._cells):
                self._hand_on_alone()
                self._only_alone = True
            self._alone_first = self._alone_first if self._alone else self._first
            self._alone |= self._cells
        self._known.update(self._cells if len(self._known) < _MOST_KNOWN else ())
        self._again.update(self._cells if len(self._cells) == 1 else ())
        self._cells = {}

    def _hand_on_alone(self) -> None:
        if self._alone:
            self.sink.loose(self._alone_first, self._alone)
        self._alone = {}

    def _progress(self, line: Line, text: str, postfix: str) -> bool:
        """Read the values before and after a progress bar; a bar that is redrawn with equal values counts once."""
        described = dict(map(_pair, _PAIR.finditer(spelled_out(text))))
        behind = spelled_out(postfix).strip("[ ]")
        pairs = list(map(_pair, _PAIR.finditer(behind)))
        if odd := self._bars.fitted(behind, pairs):
            pairs = odd
        else:
            self._bars.remember(pairs)
        cells = described | dict(pairs)
        if not described and len(cells) < 2:
            return False
        if cells != self._bar:
            self._close()
            self._bar = cells
            self.sink.loose(line.number, cells)
        return True


@lru_cache(maxsize=1)  # two dialects parse the same line
def bare(text: str) -> str:
    """Return a line without what a logger or a frame adds, and with a name for each number."""
    text = _BRACKETED.sub(r"\1 \2 | ", text, count=1) if text[:64].lstrip().startswith("[") else text
    prefix = PREFIX.match(text)
    text = text[prefix.end() if prefix else 0 :]
    return spelled_out(PLACE.sub("", text).strip(" \t-=*#"))


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a line, none if they are less than half of it."""
    body = bare(_MINIMIND.sub(r"Epoch: \1, Step: \2", text))
    if (evaluation := _EVALUATION.match(body)) is not None and (inner := pairs_of(body[evaluation.end() :])):
        step = [("step", evaluation[1])] if evaluation[1] else []
        return step + [(f"eval/{key}", value) for key, value in inner]
    pairs, covered = _counters(body)
    if not pairs and "=" not in body and ":" not in body:
        return []
    for match in _PAIR.finditer(body[covered:].lstrip()):
        pairs.append(_pair(match))
        covered += match.end() - match.start()
    if _is_single(pairs):
        return pairs if covered >= 0.9 * len(body) else []
    return pairs if 2 * covered >= len(body.replace(" ", "")) else []


def _counters(body: str) -> tuple[list[tuple[str, str]], int]:
    """Return the counters at the start of a line, the outermost first, and the offset of their end."""
    found, end = [], 0
    while counter := _COUNTER.match(body, end):
        found.append((counter[1], counter[2]))
        end = counter.end()
    return found, end


def _is_single(pairs: list[tuple[str, str]]) -> bool:
    """Tell whether pairs hold a single number, perhaps with its standard deviation."""
    return len(pairs) == 1 or (len(pairs) == 2 and pairs[1][0] == f"{pairs[0][0]}{SPREAD}")


def _pair(match: re.Match[str]) -> tuple[str, str]:
    return in_unit(match[1] or match[2] or match[3], match[5]), match[4].strip("[ ]")


def in_unit(name: str, unit: str | None) -> str:
    """Return a name with the unit that is directly after its number, if there is one."""
    return f"{name} {unit}" if unit else name


def words_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a line of alternating names and numbers; none for any other line."""
    if len(text) > LONGEST:
        return []
    bracket = _IN_BRACKETS.match(text)
    body = bare(text[bracket.end() :] if bracket else text)
    count = bracket or _COUNT.match(body)
    at = count.end() if count and not bracket else 0
    counted = [("step", count[1])] if count else []
    pairs = counted[:]
    while at < len(body) and (found := _ENTRY.match(body, at)):
        pairs.append((found[1], found[2].strip("[ ]")))
        at = found.end()
    if at < len(body):
        pairs = _segments(body)
        return [*counted, *pairs] if pairs and bracket else pairs
    return pairs


def _segments(body: str) -> list[tuple[str, str]]:
    """Return the pairs between the bars of a line of names and numbers; none for any other line."""
    found = [_SEGMENT.fullmatch(part.strip()) for part in _BARS.split(body)]
    pairs = [(in_unit(match[1], match[3]), match[2].strip("[ ]")) for match in found if match and match[1]]
    return pairs if all(found) and len(pairs) >= _FEWEST_SEGMENTS else []


#: Fewest names of a record: two without a sign between them are a sentence ("epoch 3 took 12.5"). Most layouts kept.
_FEWEST_NAMES, MOST_HELD = 3, 32
_SIGNS = re.compile(r"[:=,;|\t]")


class Words(Dialect):
    """Reads lines of names and numbers; a line is prose until another one with the same names follows."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        #: names → the first line that has them, None once there were two
        self._layouts: dict[tuple[str, ...], Line | None] = {}
        self._twice = Layouts()
        self._ended = False

    def take(self, line: Line) -> bool:
        """Read a line, or keep it until its names recur."""
        pairs = [] if self._ended else words_of(line.text)
        pairs = self._twice.fitted(bare(line.text), pairs) or pairs
        names = tuple(name for name, _ in pairs)
        if len(set(names)) < _fewest(line.text):
            return False
        if names not in self._layouts:
            if len(self._layouts) >= MOST_HELD:
                return False
            self._layouts[names] = line
            return True
        if (first := self._layouts[names]) is not None:
            earlier = words_of(first.text)
            self._twice.remember(earlier)
            self._hand_on(first, earlier)
            self._layouts[names] = None
        self._hand_on(line, pairs)
        return True

    def finish(self) -> None:
        """Give back the lines whose names did not recur."""
        self._ended = True
        self.sink.given_back += filter(None, self._layouts.values())

    def _hand_on(self, line: Line, pairs: list[tuple[str, str]]) -> None:
        self.sink.loose(line.number, self.sink.pairs(line, pairs))


def _fewest(text: str) -> int:
    """Return the fewest names of a line that recurs: one for "the reward is 3"."""
    return 1 if " is " in text else _FEWEST_NAMES - bool(_SIGNS.search(text))
