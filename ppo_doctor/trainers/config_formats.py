"""Read the text of JSON, TOML and YAML configurations, and values and references in them, without running anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.literals import python_literal
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.toml_files import loads

if TYPE_CHECKING:
    import yaml

Scalar = str | int | float | bool | None
#: Suffixes of programs, in which settings are literals.
SCRIPTS = (".py",)
#: Keys whose lines are kept.
MOST_LINES = 20_000
_WORDS: Mapping[str, Scalar] = {"true": True, "false": False, "none": None, "null": None}
_REFERENCE = lazy_pattern(r"\$\{(?:oc\.select:)?(?P<key>[A-Za-z_][\w.]*)(?:,(?P<otherwise>[^{}]*))?\}\Z")
#: References to references are followed this far.
_FARTHEST = 5


@frozen
class Written:
    """Settings, nested as in the file.

    `lines` maps dotted keys to lines (from 1), `other_lines` counts the lines of a text that contain no setting, and
    `imports` lists what a program imports.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    other_lines: int = 0
    imports: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """A text that is not in its format; `line` is where (from 1), None if unknown."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(" ".join(why.split()))
        self.line = line


@lru_cache(maxsize=2)  # an edit reads the text before and after it several times
def parse(suffix: str, text: str) -> Written:
    """Read the text of a configuration by the suffix of its file.

    Raises:
        UnreadableError: the text is not in that format, or contains no table of settings.
    """
    from ppo_doctor.trainers import config_python  # 4 ms, and few runs have a file of text or Python

    read: Callable[[str], Written]
    match suffix.lower():
        case ".toml":
            read = read_toml
        case ".yaml" | ".yml":
            read = read_yaml
        case ".json":
            read = config_python.read_document
        case ".py":
            read = config_python.read
        case _:
            read = config_python.read_any
    try:
        written = read(text)
    except RecursionError as error:
        raise UnreadableError("it is nested too deeply") from error
    except UnreadableError:
        raise
    except ValueError as error:
        named = re.search(r"at line (\d+)", str(error))  # in the messages of tomllib
        line = getattr(error, "lineno", None) or (int(named[1]) if named else None)
        raise UnreadableError(str(error), line) from error
    if not isinstance(written.values, dict):
        raise UnreadableError("it is no table of settings")
    return written


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of a dotted key, or of the nearest key above it that has one."""
    while key not in lines:
        key, dot, _ = key.rpartition(".")
        if not dot:
            return None
    return lines[key]


def value_of(text: str) -> Scalar:
    """Return a number, boolean, None or the text itself, without its quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return parse_value(text)


def parse_value(text: str) -> Scalar:
    """Return a number, boolean, None or the text itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def followed(flat: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return settings with OmegaConf's references (`${a.b}`, `${oc.select:a.b,default}`) replaced by the values.

    A reference to a key that the file does not contain stays as it is.
    """
    return {key: _followed(value, flat) for key, value in flat.items()}


def _followed(value: Scalar, flat: Mapping[str, Scalar]) -> Scalar:
    for _ in range(_FARTHEST):
        match = _REFERENCE.match(value) if isinstance(value, str) else None
        if match is None or (match["key"] not in flat and match["otherwise"] is None):
            return value
        value = flat[match["key"]] if match["key"] in flat else value_of(match["otherwise"])
    return value


_SIGN = lazy_pattern(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[{}\[\](),:]|\n')


def read_json(text: str) -> Written:
    """Read a JSON document; raise ValueError if it is none."""
    return Written(values=json.loads(text), lines=lines_in(text))


def read_literal(text: str) -> Written:
    """Read a dict as Python's pprint writes it; raise ValueError if it is none, or contains more than literals."""
    values: Any = python_literal(text)
    return Written(values=values, lines=lines_in(text))


def lines_in(text: str, first: int = 1) -> dict[str, int]:
    """Return the line of each key of a JSON object or dict by its dotted path; keys inside lists have none."""
    return dict(islice(_keys_of_objects(text, first), MOST_LINES))


def _keys_of_objects(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Yield (path, line) for every string before a colon, in an object that is in no list."""
    path: list[str | None] = []
    string: tuple[str, int] | None = None
    pending: str | None = None
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign == "\n":
            line += 1
        elif sign[0] in "\"'":
            string = (sign[1:-1], line)
            line += sign.count("\n")
        elif sign == ":" and string is not None and None not in path[1:]:
            pending = string[0]
            yield ".".join([*(part for part in path[1:] if part), pending]), string[1]
        elif sign in "{[(":
            path.append(pending if sign == "{" else None)  # what is inside a list has no path
            string = pending = None
        elif sign in "}])" and path:
            path.pop()
            string = pending = None
        elif sign == ",":
            string = pending = None


_TABLE = lazy_pattern(r"\s*\[(?P<name>[^\[\]]+)\]\s*(?:#.*)?\Z")
_LIST = lazy_pattern(r"\s*\[\[")
_KEY = lazy_pattern(r"\s*(?P<key>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_QUOTES = ('"""', "'''")


def read_toml(text: str) -> Written:
    """Read a TOML document; raise ValueError if it is none."""
    return Written(values=loads(text), lines=dict(islice(_keys_of_toml(text), MOST_LINES)))


def _keys_of_toml(text: str) -> Iterator[tuple[str, int]]:
    table: str | None = ""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is not None:
            inside = None if inside in line else inside
            continue
        if _LIST.match(line):
            table = None
        elif heading := _TABLE.match(line):
            table = _path(heading["name"])
        elif table is not None and (key := _KEY.match(line)):
            yield f"{table}.{_path(key['key'])}".lstrip("."), number
        inside = next((quotes for quotes in _QUOTES if line.count(quotes) % 2), None)


def _path(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


#: Mappings nested deeper than this contain no setting that anything reads.
_DEEPEST = 8
#: Limits on the nodes of a YAML document, as written and with aliases and merges unfolded.
MOST_NODES, MOST_UNFOLDED = 20_000, 100_000
#: What PyYAML raises for a value that does not fit its tag, such as `!!bool "x"` or a 13th month.
_OF_CONSTRUCTORS = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError)
#: An override of Hydra, as `.hydra/overrides.yaml` lists them.
_OVERRIDE = lazy_pattern(r"\+{0,2}[A-Za-z_][\w.@/]*=")
#: YAML 1.1 reads `1e-6` as a word because it has no point; in YAML 1.2 it is a number.
_EXPONENT = lazy_pattern(r"[-+]?(?:\d+|\d*\.\d+|\d+\.)[eE][-+]?\d+\Z")


def read_yaml(text: str) -> Written:
    """Read a YAML document, with unknown tags ignored; raise ValueError if it is none, or unfolds to too many nodes."""
    import yaml

    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
            _check_unfolded(node)
            values: Any = _pairs(loader.construct_document(node)) if node is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else None
        raise UnreadableError(error.problem or str(error), line) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableError(f"a character that no YAML holds: {chr(error.character)!r}", line) from error
    return Written(values=values, lines=dict(islice(_keys_of_yaml(node, "", 0), MOST_LINES)))


def _loader() -> type[yaml.SafeLoader]:
    """Return a loader that raises nothing but YAMLError: PyYAML also lets errors of int(), datetime and dict through.

    It composes at most MOST_NODES nodes, each of which takes PyYAML about 0.1 ms.
    """
    import yaml

    class Tolerant(yaml.SafeLoader):
        composed = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            self.composed += 1
            if self.composed > MOST_NODES:
                why = f"more than {MOST_NODES:,} keys and values: this is no configuration"
                raise yaml.composer.ComposerError(None, None, why, self.get_mark())
            return super().compose_node(parent, index)

        def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
            try:
                return super().construct_object(node, deep)
            except _OF_CONSTRUCTORS as error:
                why = f"a value that is no {node.tag.rpartition(':')[2]}"
                raise yaml.constructor.ConstructorError(None, None, why, node.start_mark) from error

    Tolerant.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    Tolerant.add_multi_constructor("", lambda loader, _tag, node: _untagged(loader, node))
    return Tolerant


def _check_unfolded(root: yaml.Node | None) -> None:
    """Refuse a document that has more than MOST_UNFOLDED nodes with its aliases and merges; count without unfolding."""
    import yaml

    sizes: dict[int, int] = {}

    def size(node: yaml.Node | None) -> int:
        if node is None or isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = MOST_UNFOLDED  # found again below itself, it unfolds endlessly
            pairs = isinstance(node, yaml.MappingNode)
            below = [part for pair in node.value for part in pair] if pairs else node.value
            sizes[id(node)] = 1 + sum(map(size, below))
            if sizes[id(node)] > MOST_UNFOLDED:
                why = f"its aliases stand for more than {MOST_UNFOLDED:,} settings"
                raise yaml.composer.ComposerError(None, None, why, node.start_mark)
        return sizes[id(node)]

    size(root)


def _untagged(loader: yaml.SafeLoader, node: yaml.Node) -> object:
    from yaml import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)  # type: ignore[arg-type]


def _pairs(raw: object) -> object:
    """Return `[[[key, value], …]]`, which is how rl-zoo writes an OrderedDict, or a list of `key=value`, as a dict."""
    if isinstance(raw, list) and raw and all(isinstance(entry, str) and _OVERRIDE.match(entry) for entry in raw):
        overrides = (entry.lstrip("+").partition("=") for entry in raw)
        return {key: value_of(value) for key, _, value in overrides}
    if isinstance(raw, list) and len(raw) == 1 and isinstance(raw[0], list) and raw[0]:
        entries = raw[0]
        if all(isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries):
            return {key: value_of(value) if isinstance(value, str) else value for key, value in entries}
    return raw


def _keys_of_yaml(node: yaml.Node | None, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    """Yield (path, line) for every key of mappings, and of a document that is a list of one list of pairs."""
    from yaml import MappingNode, ScalarNode, SequenceNode

    if isinstance(node, MappingNode) and depth < _DEEPEST:
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            yield path, key.start_mark.line + 1
            yield from _keys_of_yaml(value, f"{path}.", depth + 1)
    elif isinstance(node, SequenceNode) and not prefix:
        for entry in node.value:
            if isinstance(entry, ScalarNode) and _OVERRIDE.match(entry.value):
                yield entry.value.lstrip("+").partition("=")[0], entry.start_mark.line + 1
        for entries in node.value[:1]:
            for entry in entries.value if isinstance(entries, SequenceNode) else ():
                if isinstance(entry, SequenceNode) and len(entry.value) == 2:
                    yield str(entry.value[0].value), entry.start_mark.line + 1
