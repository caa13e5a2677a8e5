"""Settings that trainers write into event files as text: a markdown table, JSON, or indented `key:  value` lines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.values import config_values

if TYPE_CHECKING:
    from ppo_doctor.model import ConfigValue

_ROW = re.compile(r"\s*\|(?P<key>[^|]+)\|(?P<value>.*)\|\s*\Z")
_ENTRY = re.compile(r"(?P<indent>[ \t]*)(?P<key>[\w./-]+):(?:[ \t]+(?P<value>.*))?\Z")
_WORDS: dict[str, ConfigValue] = {"true": True, "false": False, "none": None, "null": None}
#: A longer text is no configuration.
_LONGEST = 1 << 20
#: Settings that a text needs to be taken for a configuration, when it is no table and no JSON.
_FEWEST = 3


def settings_in(text: str) -> dict[str, ConfigValue]:
    """Return the settings that a text holds, nested keys joined by a dot; empty for any other text."""
    bare = text[:_LONGEST].strip().removeprefix("<pre>").removesuffix("</pre>").strip("`\n ")
    bare = bare.removeprefix("json\n")
    if bare.startswith("{"):
        return _from_json(bare)
    lines = bare.split("\n") if bare.startswith("|") else text[:_LONGEST].split("\n")
    return _from_table(lines) if bare.startswith("|") else _from_lines(lines)


def value_of(text: str) -> ConfigValue:
    """Return what a setting that was written as text means: a number, a truth value, nothing, or the text."""
    bare = text.strip()
    if bare.lower() in _WORDS:
        return _WORDS[bare.lower()]
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
    """Read a markdown table of two columns, of which the first row is a header and the second a rule."""
    rows = [match for line in lines if (match := _ROW.match(line))]
    cells = [(row["key"].strip(), row["value"]) for row in rows[1:]]
    return {key: value_of(value) for key, value in cells if key.strip("-: ")}


def _from_lines(lines: list[str]) -> dict[str, ConfigValue]:
    """Read indented lines; a key without a value opens a level."""
    settings: dict[str, ConfigValue] = {}
    levels: list[tuple[int, str]] = []
    for line in filter(str.strip, lines):
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        depth = len(entry["indent"].expandtabs(2))
        levels = [level for level in levels if level[0] < depth]
        if entry["value"]:
            settings[".".join([name for _, name in levels] + [entry["key"]])] = value_of(entry["value"])
        else:
            levels.append((depth, entry["key"]))
    return settings if len(settings) >= _FEWEST else {}
