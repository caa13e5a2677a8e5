"""Dicts and arrays as Python prints them, on one line or several: records, histories and configurations.

transformers, TRL, ms-swift, slime, ROLL and OpenRLHF print their records as dicts.
"""

from __future__ import annotations

import re
import warnings
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson

from ppo_doctor.model.literals import python_literal
from ppo_doctor.readers.console_base import Dialect, Line
from ppo_doctor.readers.console_several import ITEM
from ppo_doctor.readers.jsonl import CONFIG_KEYS
from ppo_doctor.trainers.names import COUNTERS, LONGEST, metric_of, setting_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Sink

_TOKEN = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[{}\[\]()]|,")
_OPENING = re.compile(r"""\{ ?(?:['"]|\Z)""")
#: A paste that lost its first character.
_NO_BRACE = re.compile(r"""\s*'[^']+': [^{]*\}\s*\Z""")
#: Texts in a dict that are not Python literals: arrays, NumPy scalars, nan, and the words of JSON.
_WORDS = re.compile(
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
    r"|\b(?:(?:np|numpy|torch|jnp|jax)\.)?(?:Array|DeviceArray|array|tensor|Tensor)\(([^()]*)\)"
    r"|(?:np|numpy|torch|jnp)\.\w+\(([^()]*)\)|[-+]?\b(?:nan|NaN|inf|Infinity)\b|\b(?:true|false|null)\b"
)
#: The only number of an array, perhaps in brackets, and its type and device.
_ONE = re.compile(r"\s*\[?\s*([-+]?(?:[\d.][\d.eE+-]*|nan|inf))\s*\]?\s*(?:,\s*[A-Za-z].*)?", re.DOTALL)
_JSON_WORDS = {"true": "True", "false": "False", "null": "None"}
#: "step 3: {…}" of slime, "✨ Global step 3: {…}" of OpenRLHF
_COUNTER = re.compile(r"((?:[Gg]lobal[ _])?[Ss]tep|[Ii]ter(?:ation)?|[Rr]ollout|[Ee]pisode)\s*[:#]?\s*(\d+)\s*:?\s*\Z")
_BEFORE = re.compile(r"(?:.*[\]:>|)]|\s*)\s*\[?\s*\Z|.*\d\s*:?\s*\Z", re.DOTALL)
_AFTER = re.compile(r"\s*\]?\s*(?:\d+%\|.*)?\Z|\s*\|?\s*\d+/\d+ \[.*|\s*,\s*\Z", re.DOTALL)
#: The bar that transformers moves to a step before it prints the record of that step; other bars have a description.
_STEPS_BAR = re.compile(r"\s*\d{1,3}%\|[^|]*\| *(\d{1,12})/(\d{1,12}) \[")
#: Between two dicts of a list.
_NEXT = re.compile(r"\s*,\s*(?=\{)")
_MOST_LINES, _FEWEST_LINES = 1_000, 10
#: Shorter lists are no history: betas, sizes of layers.
_HISTORY = 3
#: Fewer settings than this are no configuration.
_CONFIG_SIZE = 4


class _Bars:
    """Adds the step of the progress bar above to records of transformers, which have an epoch and no step.

    If output was buffered, several records follow one position of the bar. Then none of them gets a step.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        #: position and length of the bar, and length of the run's bar
        self._at = self._of = self._of_run = ""
        #: the position of the bar above the last record, and the keys of that record
        self._last: tuple[str, frozenset[object]] = "", frozenset()
        self._first: tuple[int, dict[Any, Any]] | None = None
        #: whether the bar moves between records, None until two records are known
        self._moves: bool | None = None

    def look(self, text: str) -> None:
        """Remember the position of the run's bar, if this is one."""
        bar = _STEPS_BAR.match(text)
        if bar is not None and self._of_run in ("", bar[2]):
            self._at, self._of = bar[1], bar[2]

    def hand_on(self, number: int, record: dict[Any, Any]) -> None:
        """Hand on a record; the first waits for the second, which shows whether the bar moves between them."""
        if not self._at or "epoch" not in record or "step" in record or "global_step" in record or self._moves is False:
            self._sink.mapping(number, record)
            return
        names = frozenset(record) - {"epoch"}
        again = self._at == self._last[0] and not names.isdisjoint(self._last[1])
        if self._last[0]:
            self._moves = not again if self._moves is None else self._moves
            self.finish()
        self._of_run = self._of
        if not self._last[0]:
            self._first = number, record
        elif self._moves and not again:
            self._sink.mapping(number, {"step": int(self._at), **record})
        else:
            self._sink.mapping(number, record)
        self._last = self._at, names

    def finish(self) -> None:
        """Hand on the first record if it still waits."""
        if self._first is not None:
            number, record = self._first
            self._sink.mapping(number, {"step": int(self._last[0]), **record} if self._moves else record)
            self._first = None


class Dicts(Dialect):
    """Reads dicts on one line or split over several; nothing but literals is evaluated."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._open: list[Line] = []
        self._depth = 0
        #: lines to wait for the end of a dict; halved whenever one does not end
        self._patience = _MOST_LINES
        self._bars = _Bars(sink)

    def take(self, line: Line) -> bool:
        """Read a line that holds a dict, opens one, or continues the open one."""
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
        """Use the complete values of a dict that is not closed."""
        if self._open:
            self._torn()
        self._bars.finish()

    def _is_code(self, line: Line) -> bool:
        """Tell whether the open brace is code, as in a traceback: alone on its line, with no key on the next."""
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
        """Use the complete values of a dict that is not closed, and give back the lines that are not part of it."""
        lines, self._open = self._open, []
        first = lines[0]
        start = first.text.index("{")
        # A terminal may have broken the dict into all these lines; else only the first belongs to it.
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
        """Read a dict on one line, and those that follow it in the same list."""
        before, dicts = text[:start], [text[start:end]]
        while before.rstrip().endswith("[") and (gap := _NEXT.match(text, end)):
            start, end = gap.end(), closing(text, gap.end())
            if not end:  # the line is cut off in here
                end = len(text)
                break
            dicts.append(text[start:end])
        if not _AFTER.match(text, end):
            return False
        used = [self._parse(each, before, line) for each in dicts]
        return any(used)

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
    # A terminal breaks lines within words and pprint after commas: joining without a blank is right for both.
    return "".join(line.text for line in lines)


def _line_at(lines: list[Line], offset: int) -> int:
    """Return the index of the line that holds the character at an offset of the joined text."""
    ends = accumulate(len(line.text) for line in lines)
    return next((i for i, end in enumerate(ends) if offset < end), len(lines) - 1)


def _starts_dict(text: str) -> bool:
    return text.startswith(("{'", '{"'))


def _depth(text: str) -> int:
    """Return the number of brackets that a line opens less those that it closes."""
    words = [match[0] for match in _TOKEN.finditer(text)]
    return sum(word in "{[(" for word in words) - sum(word in "}])" for word in words)


def closing(text: str, start: int) -> int:
    """Return the offset after the brace that closes the one at `start`, or 0 if there is none."""
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
    """Return the dict that a text holds as Python or JSON, with nan and inf; None for any other text."""
    if '"' not in text and "\\" not in text:
        try:
            # Ten times as fast as the literal parser, with the same result for the dicts of transformers.
            quick = orjson.loads(text.replace("'", '"'))
        except orjson.JSONDecodeError:
            quick = None
        if isinstance(quick, dict) and len(quick) == text.count("':"):
            return quick
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of the compiler, for junk
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
    """Tell whether a dict is a configuration: it holds objects or mostly words, while a record holds numbers.

    A nested dict with more metrics than settings is a record, as RLlib prints it.
    """
    if len(record) <= 2 and any(key in ("data", "metrics") for key in record):
        return False
    if any(isinstance(value, dict) for value in record.values()):
        return not _nests_metrics(record)
    numbers = sum(_is_number(value) for value in record.values())
    return 2 * numbers < len(record)


def _columns(record: dict[Any, Any]) -> dict[str, list[Any]]:
    """Return the lists of a dict that is a history: most values are lists of numbers of one length. Else nothing."""
    lists = {key: value for key, value in record.items() if isinstance(value, list) and len(value) >= _HISTORY}
    numbers = all(_is_number(each) for value in lists.values() for each in value)
    whole = len(lists) > 1 and 2 * len(lists) > len(record) and len({len(value) for value in lists.values()}) == 1
    return lists if whole and numbers else {}


def _nests_metrics(record: dict[Any, Any]) -> bool:
    """Tell whether a nested dict has more numbers named only like a metric than numbers named only like a setting."""
    metrics = settings = 0
    stack: list[tuple[str, dict[Any, Any]]] = [("", record)]
    while stack:
        above, node = stack.pop()
        for key, value in node.items():
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


#: The first line of a list that continues below, a further line of it, and the most lines of one.
_LIST_OPENS = re.compile(rf"[^\[\]]*[:=]\s{{0,8}}(?:[\w.]{{1,20}}\()?\[++\s*+{ITEM}[\s,'\d.eE+\-naif]*+\Z")
_LIST_GOES_ON = re.compile(r"[\[\s,'\d.eE+\-naif]++(?:\][^\[]{0,80})?\Z")
_MOST_LIST_LINES = 256


class Lists(Dialect):
    """Joins the lines of a printed tensor or array and gives them back as one line."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._open: list[Line] = []
        #: the last line that was given back; lines up to it are not read again
        self._refused = 0

    def take(self, line: Line) -> bool:
        """Read a line that opens a list or continues the open one."""
        if not self._open:
            if "[" not in line.text or line.number <= self._refused or not _LIST_OPENS.match(line.text):
                return False
            self._open = [line]
            return True
        self._open.append(line)
        if not _LIST_GOES_ON.match(line.text) or len(self._open) > _MOST_LIST_LINES:
            self.finish()
        elif "]" in line.text:
            first, text = self._open[0], " ".join(each.text.strip() for each in self._open)
            self.sink.given_back.append(Line(first.text[: first.indent] + text, first.number, line.torn))
            self._open = []
        return True

    def finish(self) -> None:
        """Give back the lines of a list that is not closed."""
        if self._open:
            self._refused = self._open[-1].number
            self.sink.given_back += self._open
            self._open = []
