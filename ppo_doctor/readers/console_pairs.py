"""Loose `key=value` and `key: value` text, which nobody's logger in particular prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

WORD = r"[A-Za-z_][\w./%@()-]{0,99}"
#: Before an equals sign stands one word, or up to three where nothing stands before them; before a colon up to five.
_SEVERAL = rf"(?:(?<=[,;|] )|(?<=[,;|])|\A)({WORD}(?: {WORD}){{1,2}})"
_KEY = rf"(?:{_SEVERAL} ?= ?|({WORD})\s?= ?|({WORD}(?: {WORD}){{0,4}}) ?: ?)"
_PAIR = re.compile(rf"(?<![\w.]){_KEY}({NUMBER})(?:s|ms|GB|GiB)?(?=\s|[,;|)\]}}]|\Z)")
#: "Step 3 | …", "Iteration 3/10", "GRPO step 3/10": a counter at the start of a line
_COUNTER = re.compile(
    r"(?:(?:GRPO|PPO|RLOO|RL|Train) )?"
    r"((?:Global |Training |Learning )?(?:Step|Iter|Iteration|Epoch|Episode|Update|Round))"
    r"\s*[:#]?\s*(\d+(?:/\d+)?)\b\s*(?:[|:,\-]|\Z)",
    re.IGNORECASE,
)
#: Names and numbers in turn: as few words before a number as it takes, or "kl nan entropy 1.2" would be one name.
_ENTRY = re.compile(rf"({WORD}(?: {WORD}){{0,2}}?)[ \t]+({NUMBER})(?:[ \t]*[,;|][ \t]*|[ \t]+|\Z)")
#: Longer lines are no message, and costly to search.
LONGEST, _LONGEST_BAR = 1 << 14, 1 << 11
#: What loggers put before a message.
PREFIX = re.compile(
    r"(?:\s*(?:\[(?!\d+/\d+\])[^\]]*\]|\d{1,4}([-/.])\d\d?\1\d{1,4}[T ]\d\d:\d\d:\d\d[.,\d]*|\d\d:\d\d:\d\d[.,\d]*"
    r"|\b(?:DEBUG|INFO|WARNING|ERROR)\b:?|[IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\]|[-:|>]+(?=\s)))+\s*"
)
_TQDM = re.compile(r".*?\d%\|.*?\| *([\d.]+k?)/[\d.]+k? \[[^,\]]*,[^,\]]*(?:, |\])")
#: "Epoch:[1/1](20/3000)" of minimind
_MINIMIND = re.compile(r"Epoch: ?\[(\d+)/\d+\]\((\d+)/\d+\)")
#: "Loss(P/V/E): -0.01/0.07/0.31": several values under one key, which names them by words or their first letters
_PLAIN = r"[-+]?(?:\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?|nan|inf)"
_SLASHED = re.compile(
    rf"\b([Ll]oss(?:es)?) ?\(([A-Za-z]\w*(?:/[A-Za-z]\w*)+)\) ?[:=] ?({_PLAIN}(?:/{_PLAIN})+)(?=\s|[,;|]|\Z)"
)
_LOSSES = {
    "p": "policy loss",
    "pi": "policy loss",
    "a": "actor loss",
    "v": "value loss",
    "c": "critic loss",
    "e": "entropy",
}


class Pairs:
    """Reads lines that are mostly pairs; single pairs in a row are one record.

    An indented line goes on with the one above, in names and numbers without a sign between them as well.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._cells: dict[str, str] = {}
        self._first = self._last = self._indent = 0
        self._single = False
        self._bar: dict[str, str] = {}
        #: pairs that stood alone since the last record, and keys that did so before
        self._alone: dict[str, str] = {}
        self._again: set[str] = set()

    def take(self, line: Line) -> bool:
        """Read a line of pairs."""
        if len(line.text) > LONGEST:
            return False
        if bar := _TQDM.match(line.text[:_LONGEST_BAR]):
            return self._progress(line, line.text[bar.end() :])
        below = bool(self._cells) and line.number == self._last + 1
        pairs = pairs_of(line.text) or (words_of(line.text) if below and line.indent > self._indent else [])
        if not pairs:
            return False
        cells = self._sink.pairs(line, pairs)
        goes_on = below and not cells.keys() & self._cells.keys()
        single = len(pairs) == 1
        if not (goes_on and (line.indent > self._indent or (single and self._single))):
            self.finish()
            self._first, self._indent, self._single = line.number, line.indent, single
        self._cells |= cells
        self._last = line.number
        return True

    def finish(self) -> None:
        """Hand on the record that is open; a pair all alone is no record, but again and again a part of the next."""
        if len(self._cells) > 1:
            self._sink.loose(self._first, self._alone | self._cells)
            self._alone = {}
        elif self._again.issuperset(self._cells):
            self._alone |= self._cells
        self._again.update(self._cells if len(self._cells) == 1 else ())
        self._cells = {}

    def _progress(self, line: Line, postfix: str) -> bool:
        """Read the values behind a progress bar, which is drawn again and again with the same ones."""
        cells = dict(map(_pair, _PAIR.finditer(postfix)))
        if len(cells) > 1 and cells != self._bar:
            self.finish()
            self._bar = cells
            self._sink.loose(line.number, cells)
        return len(cells) > 1


def pairs_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a line, none where they are less than half of it."""
    if "=" not in text and ":" not in text and "|" not in text and not _COUNTER.match(text.strip()):
        return []
    body = _SLASHED.sub(_apart, _MINIMIND.sub(r"Epoch: \1, Step: \2", text))
    prefix = PREFIX.match(body)
    body = body[prefix.end() if prefix else 0 :].strip()
    counter = _COUNTER.match(body)
    pairs = [(counter[1], counter[2])] if counter else []
    covered = counter.end() if counter else 0
    for match in _PAIR.finditer(body[covered:].lstrip()):
        pairs.append(_pair(match))
        covered += match.end() - match.start()
    if len(pairs) == 1:
        return pairs if covered >= 0.9 * len(body) else []
    return pairs if 2 * covered >= len(body.replace(" ", "")) else []


def _apart(match: re.Match[str]) -> str:
    """Return losses that share one key as pairs of their own; unchanged where names and numbers are not as many."""
    names, values = match[2].split("/"), match[3].split("/")
    if len(names) != len(values):
        return match[0]
    return ", ".join(f"{_LOSSES.get(n.lower(), f'{n} loss')}: {v}" for n, v in zip(names, values, strict=True))


def _pair(match: re.Match[str]) -> tuple[str, str]:
    return match[1] or match[2] or match[3], match[4].strip("[ ]")


def words_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs of a line that holds nothing else, else none."""
    prefix = PREFIX.match(text[:LONGEST])
    at = prefix.end() if prefix else len(text) - len(text.lstrip())
    pairs = []
    while at < len(text) <= LONGEST and (found := _ENTRY.match(text, at)):
        pairs.append((found[1], found[2].strip("[ ]")))
        at = found.end()
    return pairs if at == len(text) else []
