"""Dicts as Python prints them: transformers 4 and 5, TRL, ms-swift, slime, ROLL, and configurations."""

from __future__ import annotations

import re
import warnings
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model.literals import python_literal
from ppo_doctor.readers.console_base import Dialect
from ppo_doctor.readers.jsonl import CONFIG_KEYS
from ppo_doctor.trainers.names import COUNTERS, LONGEST, metric_of, setting_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[{}\[\]()]|,")
_OPENING = re.compile(r"""\{ ?(?:['"]|\Z)""")
#: A paste that lost its first character.
_NO_BRACE = re.compile(r"""\s*'[^']+': [^{]*\}\s*\Z""")
#: Words that are no Python literals; quoted they are read as the numbers that they are.
_WORDS = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
    r"|\b(?:(?:np|numpy|torch|jnp|jax)\.)?(?:Array|DeviceArray|array|tensor|Tensor)\(([^()]*)\)"
    r"|(?:np|numpy|torch|jnp)\.\w+\(([^()]*)\)|[-+]?\b(?:nan|NaN|inf|Infinity)\b|\b(?:true|false|null)\b"
)
#: The one number of an array, perhaps in brackets, and what is said of its type and place behind it.
_ONE = re.compile(r"\s*\[?\s*([-+]?(?:[\d.][\d.eE+-]*|nan|inf))\s*\]?\s*(?:,\s*[A-Za-z].*)?", re.DOTALL)
_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
#: "step 3: {…}" of slime, "✨ Global step 3: {…}" of OpenRLHF
_COUNTER = re.compile(r"((?:[Gg]lobal[ _])?[Ss]tep|[Ii]ter(?:ation)?|[Rr]ollout|[Ee]pisode)\s*[:#]?\s*(\d+)\s*:?\s*\Z")
_BEFORE = re.compile(r"(?:.*[\]:>|)]|\s*)\s*\[?\s*\Z|.*\d\s*:?\s*\Z", re.DOTALL)
_AFTER = re.compile(r"\s*\]?\s*(?:\d+%\|.*)?\Z|\s*\|?\s*\d+/\d+ \[.*|\s*,\s*\Z", re.DOTALL)
#: The bar that transformers moves to the step of which it then prints the record; other bars are described.
_STEPS_BAR = re.compile(r"\s*\d{1,3}%\|[^|]*\| *(\d{1,12})/(\d{1,12}) \[")
#: Between two dicts of a list.
_NEXT = re.compile(r"\s*,\s*(?=\{)")
_MOST_LINES, _FEWEST_LINES = 1_000, 10
#: Shorter lists are no history: betas, sizes of layers.
_HISTORY = 3
#: Fewer settings than this are no configuration.
_CONFIG_SIZE = 4


class _Bars:
    """Gives records of transformers, which have an epoch and no step, the step of the bar above them.

    Where a buffer holds records back, several follow one position of the bar, and it says nothing of any.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        #: where the bar stands, of how many steps, and those of the run's bar
        self._at = self._of = self._of_run = ""
        #: the last position under which a record stood, and its names
        self._last: tuple[str, frozenset[object]] = "", frozenset()
        self._held: tuple[int, dict[Any, Any]] | None = None
        self._told: bool | None = None

    def look(self, text: str) -> None:
        """Take a position of the bar of the run."""
        bar = _STEPS_BAR.match(text)
        if bar is not None and self._of_run in ("", bar[2]):
            self._at, self._of = bar[1], bar[2]

    def hand_on(self, number: int, record: dict[Any, Any]) -> None:
        """Hand on a record; the first waits for the second, which shows whether the bar moves between them."""
        if not self._at or "epoch" not in record or "step" in record or "global_step" in record or self._told is False:
            self._sink.mapping(number, record)
            return
        names = frozenset(record) - {"epoch"}
        again = self._at == self._last[0] and not names.isdisjoint(self._last[1])
        if self._last[0]:
            self._told = not again if self._told is None else self._told
            self.finish()
        self._of_run = self._of
        if not self._last[0]:
            self._held = number, record
        elif self._told and not again:
            self._sink.mapping(number, {"step": int(self._at), **record})
        else:
            self._sink.mapping(number, record)
        self._last = self._at, names

    def finish(self) -> None:
        """Hand on the record that waits."""
        if self._held is not None:
            number, record = self._held
            self._sink.mapping(number, {"step": int(self._last[0]), **record} if self._told else record)
            self._held = None


class Dicts(Dialect):
    """Reads dicts, whole or split over lines; what does not read as a literal is never evaluated."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._open: list[Line] = []
        self._depth = 0
        #: lines to wait for the end of a dict; less with each that has none
        self._patience = _MOST_LINES
        self._bars = _Bars(sink)

    def take(self, line: Line) -> bool:
        """Read a line that holds a dict, opens one, or goes on with an open one."""
        if "%|" in line.text:
            self._bars.look(line.text)
        if self._open:
            if not (_starts_dict(line.text) or self._is_code(line)):
                return self._go_on(line)
            self._torn()
            # The lines given back come first.
            self.sink.given_back.append(line)
            return True
        text = line.text
        start = text.find("{")
        if start < 0:
            return bool(_NO_BRACE.match(text)) and self._parse("{" + text.strip(), "", line)
        while start >= 0 and not _OPENING.match(text, start):
            start = text.find("{", start + 1)
        before = text[:start]
        if start < 0 or not _BEFORE.match(before):
            return False
        if end := closing(text, start):
            return self._parse_all(text, start, end, line)
        if text[start:] == "{" and before.strip():
            return False  # code, or the JSON that transformers prints of a model
        self._open, self._depth = [line], _depth(text[start:])
        return True

    def finish(self) -> None:
        """Use what can be had of a dict that is never closed."""
        if self._open:
            self._torn()
        self._bars.finish()

    def _is_code(self, line: Line) -> bool:
        """Tell a brace alone on its line that opens no dict of words, as in the source lines of a traceback."""
        return len(self._open) == 1 and self._open[0].text.endswith("{") and line.text.lstrip()[:1] not in "'\""

    def _go_on(self, line: Line) -> bool:
        self._open.append(line)
        self._depth += _depth(line.text)
        if self._depth <= 0:
            text, first = _joined(self._open), self._open[0]
            start = text.index("{")
            end = closing(text, start)
            if end and self._parse(text[start:end], text[:start], first):
                self._open = []
                return True
        if self._depth <= 0 or len(self._open) > self._patience:
            self._patience = max(self._patience // 2, _FEWEST_LINES)
            self._torn()
        return True

    def _torn(self) -> None:
        """Use the complete values of a dict that is not closed, and give back the lines that are no part of it."""
        lines, self._open = self._open, []
        first = lines[0]
        start = first.text.index("{")
        # All lines together, for a dict that a terminal broke; else the first alone, what follows being something else.
        for used in (lines, lines[:1]):
            text = _joined(used)
            end = _last_comma(text, start)
            record = literal(text[start:end] + "}") if end else None
            if record and not _is_config(record):
                self.sink.notes.tell("torn", "a dict is cut off here; its complete values are used", first.number)
                self.sink.mapping(first.number, record)
                self.sink.given_back += lines[_line_at(lines, end) + 1 :]
                return
        if not first.text.endswith("{"):
            self.sink.notes.skip("a dict is cut off", first.number)
        self.sink.given_back += lines[1:]

    def _parse_all(self, text: str, start: int, end: int, line: Line) -> bool:
        """Read a dict of one line, and those that follow it in the same list."""
        before, found = text[:start], [text[start:end]]
        while before.rstrip().endswith("[") and (gap := _NEXT.match(text, end)):
            start, end = gap.end(), closing(text, gap.end())
            if not end:  # the line is cut off in here
                end = len(text)
                break
            found.append(text[start:end])
        if not _AFTER.match(text, end):
            return False
        read = [self._parse(each, before, line) for each in found]
        return any(read)

    def _parse(self, text: str, before: str, line: Line) -> bool:
        record = literal(text)
        if not record or not all(isinstance(key, str) for key in record):
            return False
        settings = {key: value for key, value in record.items() if key in CONFIG_KEYS and isinstance(value, dict)}
        if settings and not _is_config(rest := {key: record[key] for key in record if key not in settings}):
            for value in settings.values():
                self.sink.config(line.number, value)
            record = rest
        if columns := _columns(record):
            for row in zip(*columns.values(), strict=True):
                self.sink.mapping(line.number, dict(zip(columns, row, strict=True)))
            return True
        if not record or _is_config(record):
            if len(record) < _CONFIG_SIZE and not any(isinstance(value, dict) for value in record.values()):
                return bool(settings)
            self.sink.config(line.number, record)
            return True
        counter = _COUNTER.search(before)
        if counter and "step" not in record:
            record = {counter[1]: int(counter[2]), **record}
        self._bars.hand_on(line.number, record)
        return True


def _joined(lines: list[Line]) -> str:
    # A terminal breaks lines within words, pprint behind commas: without a blank both come out right.
    return "".join(line.text for line in lines)


def _line_at(lines: list[Line], offset: int) -> int:
    """Return which of the joined lines holds the character at an offset."""
    ends = accumulate(len(line.text) for line in lines)
    return next((i for i, end in enumerate(ends) if offset < end), len(lines) - 1)


def _starts_dict(text: str) -> bool:
    return text.startswith(("{'", '{"'))


def _depth(text: str) -> int:
    """Return how many more brackets a line opens than it closes."""
    words = [match[0] for match in _TOKEN.finditer(text)]
    return sum(word in "{[(" for word in words) - sum(word in "}])" for word in words)


def closing(text: str, start: int) -> int:
    """Return where the brace at `start` is closed, one behind it, or 0 where it is not."""
    depth = 0
    for match in _TOKEN.finditer(text, start):
        depth += match[0] in "{[("
        if match[0] in "}])":
            depth -= 1
            if depth <= 0:
                return match.end() if match[0] == "}" else 0
    return 0


def _last_comma(text: str, start: int) -> int:
    depth, last = 0, 0
    for match in _TOKEN.finditer(text, start):
        depth += (match[0] in "{[(") - (match[0] in "}])")
        if match[0] == "," and depth == 1:
            last = match.start()
    return last


def literal(text: str) -> dict[Any, Any] | None:
    """Return the dict that a text spells, in Python or in JSON, with nan and inf; None for anything else."""
    if '"' not in text and "\\" not in text:
        try:
            # Ten times as fast as the literal parser, and the same for what transformers prints.
            quick = orjson.loads(text.replace("'", '"'))
        except orjson.JSONDecodeError:
            quick = None
        if isinstance(quick, dict) and len(quick) == text.count("':"):
            return quick
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # the compiler's opinion of junk
        try:
            value = python_literal(_WORDS.sub(_as_literal, text))
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _as_literal(match: re.Match[str]) -> str:
    word = match[0]
    if word[0] in "'\"":
        return word
    wrapped = match[2] if match[1] is None else match[1]
    if wrapped is not None:
        one = _ONE.fullmatch(wrapped)
        number = one[1] if one else wrapped
        return number if re.fullmatch(r"[-+.\deE]+", number) else repr(number)
    return _JSON_WORDS.get(word, repr(word))


def _is_config(record: dict[Any, Any]) -> bool:
    """Tell a configuration from a record: it holds objects or mostly words, a record numbers.

    A result that nests its metrics, as RLlib's does, holds more names of metrics than of settings.
    """
    if len(record) <= 2 and any(key in ("data", "metrics") for key in record):
        return False
    if any(isinstance(value, dict) for value in record.values()):
        return not _nests_metrics(record)
    numbers = sum(_is_number(value) for value in record.values())
    return 2 * numbers < len(record)


def _columns(record: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return the lists of a dict that is a history: most of its values are lists of numbers, and of one length."""
    lists = {key: value for key, value in record.items() if isinstance(value, list) and len(value) >= _HISTORY}
    numbers = all(_is_number(each) for value in lists.values() for each in value)
    whole = len(lists) > 1 and 2 * len(lists) > len(record) and len({len(value) for value in lists.values()}) == 1
    return lists if whole and numbers else {}


def _nests_metrics(record: dict[Any, Any]) -> bool:
    """Tell whether more of the numbers in a nested dict have names of metrics alone than names of settings alone."""
    metrics = settings = 0
    stack: list[tuple[str, dict[Any, Any]]] = [("", record)]
    while stack:
        above, held = stack.pop()
        for key, value in held.items():
            if isinstance(value, dict):
                stack.append((f"{above}{key}/", value))
            elif _is_number(value):
                means = metric_of(f"{above}{key}"[-LONGEST:])
                metric, setting = means is not None and means not in COUNTERS, setting_of(str(key)) is not None
                metrics += metric and not setting
                settings += setting and not metric
    return metrics > settings


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return bool(re.match(r"\s*[-+]?(?:[\d.]|nan|inf)", value, re.IGNORECASE))
    return isinstance(value, (int, float)) and not isinstance(value, bool)
