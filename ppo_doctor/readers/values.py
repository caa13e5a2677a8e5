"""Conversion of written values to numbers or texts, of nested records to flat ones, and of texts to settings."""

from __future__ import annotations

import json
import re
from collections import Counter
from math import inf, isinf, log, nan
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.trainers.phrases import CLOCKS, PLANNED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.readers.notes import Ledger

#: Spellings of a missing value, which is an absent key and never NaN. Notebooks of transformers print "No Log".
_ABSENT = frozenset({"", "null", "none", "n/a", "na", "<na>", "-", "--", "\N{EM DASH}", "no log"})
#: Words that are numbers and that float() does not read: booleans, and NaN and infinity of old Windows and of YAML.
_WORDS = {"true": 1.0, "false": 0.0, "1.#inf": inf, "-1.#inf": -inf, ".inf": inf, "+.inf": inf, "-.inf": -inf}
_WORDS |= {"∞": inf, "+∞": inf, "-∞": -inf}
_WORDS |= dict.fromkeys(("1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind", ".nan"), nan)
_WRAPPED = (
    r"(?:(?:np|numpy|torch|jnp|jax)\.)?(?:float|int|uint|bool|tensor|Tensor|array|Array|DeviceArray)\w*"
    r"\((?:\[([^][(),]+)\]|([^(),]+))[),].*\Z"
)
#: unit → its factor, its name, and what the number becomes: shares become fractions, information becomes nats
_UNITS: Mapping[str, tuple[float, str, str]] = {
    "%": (1e-2, "percent", "a fraction"),
    "‰": (1e-3, "per mille", "a fraction"),
    **dict.fromkeys(("bit", "bits"), (log(2), "bits", "nats")),
    **dict.fromkeys(("mn", "mnat", "mnats", "millinat", "millinats"), (1e-3, "thousandths of a nat", "nats")),
    **dict.fromkeys(("µnat", "µnats", "μnat", "μnats"), (1e-6, "millionths of a nat", "nats")),
    **dict.fromkeys(("mbit", "mbits", "millibit", "millibits"), (log(2) / 1e3, "thousandths of a bit", "nats")),
    **dict.fromkeys("kK", (1e3, "thousands", "ones")),
    "M": (1e6, "millions", "ones"),
    "B": (1e9, "billions", "ones"),
}
#: The units as a pattern: signs, words perhaps after a blank, and letters directly after the number.
_WORDY = "|".join(unit for unit in _UNITS if len(unit) > 1)
_LETTERS = "".join(unit for unit in _UNITS if len(unit) == 1 and unit.isalpha())
#: A word between a blank and another number is a name: "crit 0.06 bits 2.32".
SCALED = rf"[%‰]|(?:(?<! )|(?!\w+[ \t:=]{{1,3}}[-+.]?\d))(?:{_WORDY})\b|(?<! )[{_LETTERS}]\b"
_MEASURED = r"([-+]?(?:\d++(?:,\d{3})*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?) ?([%‰\w]{0,9})\Z"
_OF_TOTAL = r"(\d+) ?/ ?(\d+)\Z"
#: Names whose list of two numbers holds the minimum and the maximum.
_RANGE = lazy_pattern(r"(?<![a-z])(?:range|span|min_?max|bounds|extremes|interval)(?![a-z])", re.IGNORECASE)
#: Keys of objects that only wrap the metrics of a record (verl's file logger, ROLL).
_WRAPPERS = frozenset({"data", "metrics"})
#: Objects nested deeper are not read.
DEEPEST = 16
#: Longest text kept, in characters.
LONGEST_TEXT = 200


def parse(text: str) -> float | str | None:
    """Return the number that a text spells, None for a missing value, and the text itself for anything else."""
    bare = text.strip(" \t\r\n'\"")
    try:
        value = float(bare)  # NaN and infinity in any case, with or without a sign
    except ValueError:
        lower = bare.lower()
        return None if lower in _ABSENT else _WORDS.get(lower, text)
    return text if "_" in bare else value  # float() reads 1_000, but no log has such numbers


class Values:
    """Converts raw values to floats and texts, and notes each conversion that is not exact or not obvious."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes

    def of_text(self, key: str, text: str, line: int) -> float | str | None:
        """Return the value of a text: percentages as fractions, "12/400" as 12, `np.float64(3)` as 3."""
        value = parse(text)
        if isinstance(value, str):
            return self._dressed(key, value.strip(" \t\r\n'\""), line)
        if value is not None and isinf(value) and any(map(str.isdigit, text)):
            self.overflow(key, line)
        return value

    def of_scalar(self, key: str, value: object, line: int) -> float | str | None:
        """Return a float, a text, or None for null and for a list (which is noted once per key)."""
        if value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            return self._of_int(key, value, line)
        if isinstance(value, str):
            return self.of_text(key, value, line)
        self._notes.tell_once("they hold lists", key, f"{key} holds lists, which are not read", line)
        return None

    def of_digits(self, digits: str, line: int) -> int | float:
        """Return the integer that digits spell, as a float if it is too long for 64 bits."""
        return int(digits) if len(digits) < 19 else self.of_long_number(digits, line)

    def of_long_number(self, digits: str, line: int) -> float:
        """Return the float that digits spell; infinity, with a note, if no float is that large."""
        value = float(digits)
        if isinf(value):
            self.overflow(digits[:12] + "…", line)
        return value

    def flat(self, record: Mapping[str, Any], line: int) -> tuple[dict[str, float], dict[str, str]]:
        """Return the numbers and the texts of a record, nested keys joined by a slash."""
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        kinds = set(map(type, record.values()))
        if list in kinds and any(value.__class__ is list and _RANGE.search(key) for key, value in record.items()):
            record = dict(each for item in record.items() for each in _bounds(*item))
        for key, raw in self._leaves(record, line) if dict in kinds else record.items():
            if isinstance(raw, float) and key not in numbers and key not in texts:  # most cells of most logs
                numbers[key] = raw
                continue
            if raw is None:
                continue
            value = raw if isinstance(raw, float) else self.of_scalar(key, raw, line)
            if key in numbers or key in texts:
                self.note_twice([key, key], line)
                numbers.pop(key, None)
                texts.pop(key, None)
            if isinstance(value, str):
                texts[key] = value[:LONGEST_TEXT]
            elif value is not None:
                numbers[key] = value
                if isinstance(raw, str):
                    numbers |= planned_of({key: raw})
        return numbers, texts

    def note_twice(self, keys: list[str], line: int) -> None:
        """Note the keys that occur more than once."""
        for key in (key for key, count in Counter(keys).items() if count > 1):
            text = f"{key} stands twice in a record; the later one wins"
            self._notes.tell_once("they stand twice in a record", key, text, line)

    def _leaves(self, record: Mapping[str, Any], line: int) -> list[tuple[str, object]]:
        leaves: list[tuple[str, object]] = []
        stack: list[tuple[str, Mapping[str, Any], int]] = [("", record, 0)]
        while stack:
            prefix, node, depth = stack.pop()
            for key, value in node.items():
                if not isinstance(value, dict):
                    leaves.append((prefix + str(key), value))
                elif depth == DEEPEST:
                    why = f"objects nested deeper than {DEEPEST} are not read"
                    self._notes.tell_once("nested too deeply", prefix[:80], why, line)
                else:
                    stack.append((prefix if not depth and key in _WRAPPERS else f"{prefix}{key}/", value, depth + 1))
        return leaves

    def _of_int(self, key: str, value: int, line: int) -> float:
        try:
            return float(value)
        except OverflowError:
            self.overflow(key, line)
            return inf if value > 0 else -inf

    def overflow(self, key: str, line: int) -> None:
        """Note that a number was too large for a float."""
        self._notes.tell_once(
            "too large for a float", key, f"{key} holds a number too large for a float; read as infinite", line
        )

    def _dressed(self, key: str, text: str, line: int) -> float | str | None:
        if text.isalpha() or len(text) > LONGEST_TEXT:  # no number, and costly to search
            return text
        match = re.match(_MEASURED, text)
        if match and (match[2] in _UNITS or ("," in match[1] and not match[2])):
            return self._measured(key, match[1].replace(",", ""), match[2], line)
        if match := re.match(_OF_TOTAL, text):
            note = f"{key} is written as “{text}”; read as {match[1]}"
            self._notes.tell_once("written with a total", key, note, line)
            return float(match[1])
        if match := re.match(_WRAPPED, text):
            inner = match[1] or match[2]
            return text if isinstance(value := parse(inner), str) else value
        return text

    def _measured(self, key: str, digits: str, unit: str, line: int) -> float:
        """Return the number that digits and a unit spell; note the unit."""
        if not unit:
            return float(digits)
        factor, name, target = _UNITS[unit]
        self._notes.tell_once(f"written in {name}", key, f"{key} is written in {name}; read as {target}", line)
        return float(digits) * factor if factor > 1 or target == "nats" else float(digits) / round(1 / factor)


def planned_of(cells: Mapping[str, str]) -> dict[str, float]:
    """Return the total of each value written as "12/400", by its key and "planned"; clocks are left out."""
    matches = {key: re.match(_OF_TOTAL, cell) for key, cell in cells.items() if "/" in cell}
    return {f"{key} {PLANNED}": float(m[2]) for key, m in matches.items() if m and _letters(key) not in CLOCKS}


def _letters(key: str) -> str:
    return "".join(filter(str.isalpha, key)).lower()


def _bounds(key: str, value: object) -> list[tuple[str, object]]:
    """Return minimum and maximum of a range under names of their own; any other item unchanged."""
    if isinstance(value, list) and len(value) == 2 and _RANGE.search(key):
        return [(f"{key} min", value[0]), (f"{key} max", value[1])]
    return [(key, value)]


def config_values(node: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return the settings of a nested object, keys joined by dots and lists as text."""
    settings: dict[str, ConfigValue] = {}
    stack: list[tuple[str, Mapping[str, Any], int]] = [("", node, 0)]
    while stack:
        prefix, mapping, depth = stack.pop()
        for key, value in mapping.items():
            if isinstance(value, dict) and depth < DEEPEST:
                stack.append((f"{prefix}{key}.", value, depth + 1))
            elif value is None or isinstance(value, (str, int, float)):
                settings[f"{prefix}{key}"] = value
            else:
                settings[f"{prefix}{key}"] = str(value)[:LONGEST_TEXT]
    return settings


_SETTING_ROW = lazy_pattern(r"\s*\|(?P<key>[^|]+)\|(?P<value>.*)\|\s*\Z")
_SETTING_LINE = lazy_pattern(r"(?P<indent>[ \t]*)(?P<key>[\w./-]+):(?:[ \t]+(?P<value>.*))?\Z")
_SETTING_WORDS: dict[str, ConfigValue] = {"true": True, "false": False, "none": None, "null": None}
#: The rest of a longer text is not read.
_LONGEST_SETTINGS = 1 << 20
#: Fewest settings of a configuration that is neither a table nor JSON.
_FEWEST_SETTINGS = 3


def settings_in(text: str) -> dict[str, ConfigValue]:
    """Return the settings of a text in JSON, YAML or a Markdown table, nested keys joined by dots; else nothing."""
    bare = text[:_LONGEST_SETTINGS].strip().removeprefix("<pre>").removesuffix("</pre>").strip("`\n ")
    bare = bare.removeprefix("json\n")
    if bare.startswith("{"):
        return _from_json(bare)
    lines = bare.split("\n") if bare.startswith("|") else text[:_LONGEST_SETTINGS].split("\n")
    return _from_table(lines) if bare.startswith("|") else _from_lines(lines)


def value_of(text: str) -> ConfigValue:
    """Return the value of a setting that was written as text: a number, a boolean, None, or the text."""
    bare = text.strip()
    if bare.lower() in _SETTING_WORDS:
        return _SETTING_WORDS[bare.lower()]
    for convert in (int, float):
        try:
            return convert(bare) if len(bare) < 40 and "_" not in bare else bare
        except ValueError:
            continue
    return bare


def _from_json(text: str) -> dict[str, ConfigValue]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return config_values(document) if isinstance(document, dict) else {}


def _from_table(lines: list[str]) -> dict[str, ConfigValue]:
    """Return the settings of a Markdown table of two columns, below its header and rule."""
    rows = [match for line in lines if (match := _SETTING_ROW.match(line))]
    cells = [(row["key"].strip(), row["value"]) for row in rows[1:]]
    return {key: value_of(value) for key, value in cells if key.strip("-: ")}


def _from_lines(lines: list[str]) -> dict[str, ConfigValue]:
    """Return the settings of indented lines, in which a key without a value opens a level."""
    settings: dict[str, ConfigValue] = {}
    levels: list[tuple[int, str]] = []
    for line in filter(str.strip, lines):
        entry = _SETTING_LINE.match(line)
        if entry is None:
            continue
        depth = len(entry["indent"].expandtabs(2))
        levels = [level for level in levels if level[0] < depth]
        if entry["value"]:
            settings[".".join([name for _, name in levels] + [entry["key"]])] = value_of(entry["value"])
        else:
            levels.append((depth, entry["key"]))
    return settings if len(settings) >= _FEWEST_SETTINGS else {}
