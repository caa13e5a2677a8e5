"""A safe YAML loader that reads the value below an unknown tag and keeps the line of every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ppo_doctor.trainers.config_formats import MOST_LINES, UnreadableError, Written

if TYPE_CHECKING:
    import yaml

#: Mappings nested deeper than this hold no setting that anybody reads.
_DEEPEST = 8
#: Nodes that are composed, and those that aliases and merges may make of them.
MOST_NODES, MOST_UNFOLDED = 20_000, 100_000
#: What the constructors of PyYAML raise for a value that its tag does not fit, such as `!!bool "x"` or a 13th month.
_OF_CONSTRUCTORS = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError)
#: YAML 1.1 takes `1e-6` for a word, since it has no point; everybody who writes it means a number (as YAML 1.2 does).
_EXPONENT = re.compile(r"[-+]?(?:\d+|\d*\.\d+|\d+\.)[eE][-+]?\d+\Z")


def read(text: str) -> Written:
    """Read a YAML document; raise ValueError where it is none, or unfolds to more than a configuration holds."""
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
    return Written(values=values, lines=_lines(node))


def _loader() -> type[yaml.SafeLoader]:
    """Return a loader whose one kind of failure is YAMLError: PyYAML lets through what int(), datetime and dict raise.

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
    """Refuse a document whose aliases and merges (`<<`) stand for more than MOST_UNFOLDED nodes, counted, not built."""
    import yaml

    sizes: dict[int, int] = {}

    def size(node: yaml.Node | None) -> int:
        if node is None or isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = MOST_UNFOLDED  # met again below itself: it unfolds without end
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
    """Return an OrderedDict that came as `[[[key, value], …]]`, as rl-zoo writes it, as a dict."""
    if isinstance(raw, list) and len(raw) == 1 and isinstance(raw[0], list) and raw[0]:
        entries = raw[0]
        if all(isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in entries):
            return {key: _number(value) for key, value in entries}
    return raw


def _number(value: object) -> object:
    from ppo_doctor.trainers.config_formats import value_of

    return value_of(value) if isinstance(value, str) else value


def _lines(node: yaml.Node | None) -> dict[str, int]:
    lines: dict[str, int] = {}
    for path, line in _keys(node, "", 0):
        if len(lines) >= MOST_LINES:
            break
        lines.setdefault(path, line)
    return lines


def _keys(node: yaml.Node | None, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    from yaml import MappingNode, SequenceNode

    if isinstance(node, MappingNode) and depth < _DEEPEST:
        for key, value in node.value:
            path = f"{prefix}{key.value}"
            yield path, key.start_mark.line + 1
            yield from _keys(value, f"{path}.", depth + 1)
    elif isinstance(node, SequenceNode) and not prefix:
        yield from _pair_keys(node)


def _pair_keys(node: yaml.Node) -> Iterator[tuple[str, int]]:
    """Yield the keys of a document that is a list of a list of pairs."""
    from yaml import SequenceNode

    for entries in node.value[:1]:
        for entry in entries.value if isinstance(entries, SequenceNode) else ():
            if isinstance(entry, SequenceNode) and len(entry.value) == 2:
                yield str(entry.value[0].value), entry.start_mark.line + 1
