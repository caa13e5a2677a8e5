"""YAML by a safe loader that takes foreign tags for what they wrap, with the line of every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ppo_doctor.configs import MOST_LINES, Written

if TYPE_CHECKING:
    import yaml

#: Mappings nested deeper than this hold no setting that anybody reads.
_DEEPEST = 8
#: YAML 1.1 takes `1e-6` for a word, since it has no point; everybody who writes it means a number (as YAML 1.2 does).
_EXPONENT = re.compile(r"[-+]?(?:\d+|\d*\.\d+|\d+\.)[eE][-+]?\d+\Z")


def read(text: str) -> Written:
    """Read a YAML document; raise ValueError where it is none."""
    import yaml

    class Tolerant(yaml.SafeLoader):
        pass

    Tolerant.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    Tolerant.add_multi_constructor("", lambda loader, _tag, node: _untagged(loader, node))
    loader = Tolerant(text)
    try:
        node = loader.get_single_node()
        values: Any = _pairs(loader.construct_document(node)) if node is not None else None
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from error
    finally:
        loader.dispose()
    return Written(values=values, lines=_lines(node))


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
    from ppo_doctor.configs.values import value_of

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
