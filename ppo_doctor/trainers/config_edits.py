"""Change one value or key in the text of a configuration, and nothing else; every change is read again and compared."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.trainers.config_formats import SCRIPTS, UnreadableError, line_of, parse, value_of

if TYPE_CHECKING:
    from ppo_doctor.model.words import ConfigValue

KeyPath = tuple[str, ...]

#: Largest number of values that are compared, of places that are tried for a change, and of an expression's characters.
MOST_LEAVES, MOST_TRIES, LONGEST_SHOWN = 200_000, 12, 60
#: Lines in which a value may stand, from the line of its key on: in programs, in other texts, and in shell commands.
REACH_PROGRAM, REACH, REACH_COMMAND = 12, 3, 1
_LITERAL = r"\"[^\"\n]*\"|'[^'\n]*'|[^\s,;:=(){}\[\]|\"'#\\]+"
_TOKEN = lazy_pattern(_LITERAL)
_NAME = lazy_pattern(r"[A-Za-z_]\w*(?:\.\w+)*")
_COMMENT = lazy_pattern(r"(?:^|\s)(?:#|//|;)")
_ARGUMENTS = lazy_pattern(r"\$[@*]|\$\{[@*]")
#: Word of a value that is off → of one that is on.
_SWITCHED = {"no": "yes", "off": "on", "0": "1", "n": "y"}
_WORDS_OF_SWITCHES = frozenset({*_SWITCHED, *_SWITCHED.values()})
#: Suffixes of files in which a word has to stand in quotes.
_QUOTING = (".json", ".toml", *SCRIPTS)
_YAML = (".yaml", ".yml")
_COMMANDS = (".sh", ".bash")


class NotEditableError(ValueError):
    """A change that cannot be made in the text; the message is the reason, `line` the line of the setting if known."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


@frozen
class Edited:
    """A changed text, and the line that was changed or added."""

    text: str
    line: int


@frozen
class _Reading:
    """What a text contains: each value by its path, and the lines of keys."""

    leaves: Mapping[KeyPath, object]
    lines: Mapping[str, int]

    def path_of(self, key: str, line: int | None) -> KeyPath:
        paths = [path for path in self.leaves if ".".join(path) in (key, f"{key}.value")]
        if len(paths) != 1:
            raise NotEditableError(f"{key} is written there in a form that cannot be changed in place", line)
        return paths[0]


def replace_value(suffix: str, text: str, key: str, value: ConfigValue) -> Edited:
    """Return a text in which the value of a key is another one.

    Raises:
        NotEditableError: the value is no literal, or is used for several settings, or the key occurs several times.
    """
    before = _read(suffix, text)
    line = line_of(before.lines, key)
    path = before.path_of(key, line)
    if line is None:
        raise NotEditableError(f"the line of {key} is not known")
    old = before.leaves[path]
    shared: list[str] = []
    for start, end in _spans(suffix, text, key, line, old):
        changed = text[:start] + written(value, text[start:end], suffix) + text[end:]
        after = _read_after(suffix, changed)
        if after is None or not _same(after.leaves.get(path), value):
            continue
        others = {other for other in _different(before, after) if other != path}
        at = text.count("\n", 0, start) + 1
        if others and not _derived(suffix, others, before, at):
            shared = sorted(".".join(other) for other in others)
            continue
        if repeated := _repeated(suffix, text, key, (start, end), value, before):
            lines = ", ".join(map(str, sorted((*repeated, at))))
            raise NotEditableError(f"{key} is given several times, in lines {lines}", line)
        return Edited(text=changed, line=at)
    if shared:
        raise NotEditableError(f"the value there is also that of {', '.join(shared[:3])}", line)
    raise NotEditableError(_not_literal(suffix, text, key, line, before.lines), line)


def rename_key(suffix: str, text: str, key: str, name: str) -> Edited:
    """Return a text in which the last part of a key is that of another name.

    Raises:
        NotEditableError: the key is used elsewhere in the text, or is the name of a variable or an option of a program.
    """
    before = _read(suffix, text)
    line = line_of(before.lines, key)
    if line is None:
        raise NotEditableError(f"the line of {key} is not known")
    tail, meant = key.rpartition(".")[2], name.rpartition(".")[2]
    word = re.compile(rf"(?<!\w){_spelled(tail)}(?!\w)")
    elsewhere = [text.count("\n", 0, match.start()) + 1 for match in word.finditer(text)]
    used = elsewhere if suffix in (*SCRIPTS, *_COMMANDS) else re.findall(rf"\$\{{[^}}\n]*{_spelled(tail)}", text)
    if len(used) > (suffix in (*SCRIPTS, *_COMMANDS)):
        raise NotEditableError(f"{tail} is used elsewhere in the file", line)
    if suffix in SCRIPTS and not _is_argument(text, tail):
        raise NotEditableError(f"{tail} is the program's own name, which other files may use", line)
    renamed = {_renamed(path, tail, meant) if _ends(path, key) else path: v for path, v in before.leaves.items()}
    for match in islice(word.finditer(text, *_window(text, line, 1)), MOST_TRIES):
        new = meant.replace("_", "-") if "-" in match[0] else meant
        changed = text[: match.start()] + new + text[match.end() :]
        after = _read_after(suffix, changed)
        if after is not None and _equal(after.leaves, renamed):
            return Edited(text=changed, line=line)
    raise NotEditableError(f"{key} is written there in a form that cannot be changed in place", line)


def add_setting(suffix: str, text: str, key: str, value: ConfigValue, beside: Sequence[str]) -> Edited:
    """Return a text with a further setting in a line of its own, in the form of the line of a setting beside it.

    Raises:
        NotEditableError: none of the settings beside it has a line of its own.
    """
    before = _read(suffix, text)
    lines = {other: line for other in beside if (line := before.lines.get(other)) is not None}
    for other, line in sorted(lines.items(), key=lambda item: -item[1]):
        start, end = _window(text, line, 1)
        form = _form(suffix, other.rpartition(".")[2], text[start:end])
        if form is None:
            continue
        lead, tail, separator, after = form
        if isinstance(value, bool) and "--" in lead:
            continue  # whether it is a switch or takes a value is not known
        name = key.rpartition(".")[2]
        dashed = "--" in lead and ("-" in tail or ("_" not in tail and re.search(r"--\w+-\w", text) is not None))
        added = lead + (name.replace("_", "-") if dashed else name) + separator + written(value, "", suffix) + after
        changed = text[:end] + added + text[end:]
        after_ = _read_after(suffix, changed)
        read = after_.leaves if after_ is not None else {}
        new = [path for path in read if path not in before.leaves]
        path_ = new[0] if len(new) == 1 else ()
        if ".".join(path_) == key and _same(read[path_], value) and _equal(read, {**before.leaves, path_: read[path_]}):
            return Edited(text=changed, line=line + 1)
    raise NotEditableError(f"it does not have {key}, and there is no safe place to add it")


def passes_arguments(suffix: str, text: str) -> int | None:
    """Return the line in which a shell script passes its own arguments on, which may overrule what it sets."""
    match = _ARGUMENTS.search(text) if suffix in _COMMANDS else None
    return text.count("\n", 0, match.start()) + 1 if match else None


def written(value: ConfigValue, old: str, suffix: str) -> str:
    """Return a value as the format of a file has it, with the quotes and the style of the old one."""
    quote = old[0] if old[:1] and old[0] in "\"'" else ""
    bare = old.strip("\"'")
    if isinstance(value, bool):
        return quote + _switch(value, bare, suffix) + quote
    if isinstance(value, int | float):
        return quote + _number(value, bare, suffix) + quote
    if value is None:
        return "None" if suffix in SCRIPTS else "null"
    if quote:
        return quote + value + quote
    return json.dumps(value) if suffix in _QUOTING or not re.fullmatch(r"[\w./-]+", value) else value


def _switch(value: bool, old: str, suffix: str) -> str:
    words = next((pair for pair in _SWITCHED.items() if old.lower() in pair), ("false", "true"))
    word = words[value]
    capital = suffix in SCRIPTS or old[:1].isupper() or (not old and suffix not in (*_YAML, ".json", ".toml"))
    return word.capitalize() if capital else word


def _number(value: float, old: str, suffix: str) -> str:
    fractional = re.fullmatch(r"[-+]?[\d_]*(\.\d*)?([eE][-+]?\d+)?", old) is not None and bool(set(old) & set(".eE"))
    if isinstance(value, int):
        return f"{value}.0" if fractional else str(value)
    if value.is_integer() and not fractional and abs(value) < 1e15 and old:
        return str(int(value))
    text = re.sub(r"e([-+])0(?=\d)", r"e\1", repr(value))
    # YAML 1.1 reads 1e-6 as a word
    return text.replace("e", ".0e") if suffix in _YAML and "e" in text and "." not in text else text


def _read_after(suffix: str, text: str) -> _Reading | None:
    """Return what a changed text contains, None if it cannot be read."""
    try:
        return _read(suffix, text)
    except NotEditableError:
        return None


def _read(suffix: str, text: str) -> _Reading:
    try:
        read = parse(suffix, text)
    except UnreadableError as error:
        raise NotEditableError(f"the file cannot be read: {error}", error.line) from error
    leaves = dict(islice(_leaves(read.values, ()), MOST_LEAVES + 1))
    if len(leaves) > MOST_LEAVES:
        raise NotEditableError(f"it has more than {MOST_LEAVES:,} values")
    return _Reading(leaves=leaves, lines=read.lines)


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:  # noqa: ANN401 - whatever a file holds
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif isinstance(value, list | tuple) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, f"[{place}]"))
    else:
        yield path, value


def _different(before: _Reading, after: _Reading) -> list[KeyPath]:
    missing = object()
    return [
        path
        for path in {**before.leaves, **after.leaves}
        if repr(before.leaves.get(path, missing)) != repr(after.leaves.get(path, missing))
    ]


def _equal(one: Mapping[KeyPath, object], other: Mapping[KeyPath, object]) -> bool:
    return {path: repr(value) for path, value in one.items()} == {path: repr(value) for path, value in other.items()}


def _same(found: object, value: ConfigValue) -> bool:
    """Return whether a value that was read is the wanted one; a number may stand in quotes."""
    read = value_of(found) if isinstance(found, str) and not isinstance(value, str) else found
    return read == value and isinstance(read, str) == isinstance(value, str)


def _derived(suffix: str, others: set[KeyPath], before: _Reading, line: int) -> bool:
    """Return whether all other settings that changed are computed elsewhere in a program from the changed one."""
    return suffix in SCRIPTS and all(before.lines.get(".".join(other)) not in (None, line) for other in others)


def _spans(suffix: str, text: str, key: str, line: int, old: object) -> list[tuple[int, int]]:
    """Return the places of literals with a value near the line of a key, those right after the key first."""
    reach = REACH_PROGRAM if suffix in SCRIPTS else REACH_COMMAND if suffix in _COMMANDS else REACH
    start, end = _window(text, line, reach)
    named = re.compile(rf"(?<!\w){_spelled(key.rpartition('.')[2])}[\"']?\s*[:=]?\s*\Z")
    equal = [match.span() for match in _TOKEN.finditer(text, start, end) if _is(match[0], old)]
    near = [span for span in equal if named.search(text, max(start, span[0] - len(key) - 8), span[0])]
    return [*near, *(span for span in equal if span not in near[:MOST_TRIES])][:MOST_TRIES]


def _is(literal: str, old: object) -> bool:
    if "$" in literal:
        return False
    if isinstance(old, bool) and literal.lower() in _WORDS_OF_SWITCHES:
        return True  # reading the changed text tells whether it was this one
    if isinstance(old, str):  # a quoted number is a text in some formats
        return literal.strip("\"'") == old
    value = None if literal == "~" else value_of(literal)
    return value == old and isinstance(value, bool) == isinstance(old, bool)


def _window(text: str, line: int, count: int) -> tuple[int, int]:
    """Return the first and last offset of some lines, from `line` on."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if not start:
            return len(text), len(text)
    end = start
    for _ in range(count):
        end = text.find("\n", end) + 1
        if not end:
            return start, len(text)
    return start, end


def _spelled(tail: str) -> str:
    """Return a pattern of a name whose words may be joined by hyphens."""
    return "[-_]".join(re.escape(word) for word in re.split(r"[-_]", tail))


def _repeated(
    suffix: str, text: str, key: str, span: tuple[int, int], value: ConfigValue, before: _Reading
) -> list[int]:
    """Return the lines of other places than `span` that give the same key without effect, because a later one wins."""
    if suffix in SCRIPTS:
        return []  # what a program gives several values was not read
    given = re.compile(rf"(?<!\w){_spelled(key.rpartition('.')[2])}[\"']?(?:\s*[:=]\s*|[ \t]+)(?P<value>{_LITERAL})")
    found: list[int] = []
    for match in islice(given.finditer(text), MOST_TRIES):
        start, end = match.span("value")
        begin = text.rfind("\n", 0, match.start()) + 1
        if start == span[0] or _COMMENT.search(text[begin : match.start()]):
            continue
        after = _read_after(suffix, text[:start] + written(value, text[start:end], suffix) + text[end:])
        if after is not None and not _different(before, after):
            found.append(text.count("\n", 0, start) + 1)
    return found


def _not_literal(suffix: str, text: str, key: str, line: int, lines: Mapping[str, int]) -> str:
    """Return why a value cannot be replaced: what stands there, and where the names in it are set."""
    whole = text[slice(*_window(text, line, 1))]
    until = "," if suffix in SCRIPTS else r"\s" if suffix in _COMMANDS else "#"
    tail = _spelled(key.rpartition(".")[2])
    match = re.search(rf"{tail}[\"']?(?:\s*:[^=\n]*=|\s*[:=]|[ \t])[ \t]*(?P<there>[^\n{until}]*)", whole)
    there = (match["there"] if match else whole).strip().rstrip("\\,")
    if not there or there.startswith("--"):
        return "it has no value there"
    shown = there[:LONGEST_SHOWN] + "…" * (len(there) > LONGEST_SHOWN)
    places = [f"{name} is set in line {at}" for name in _NAME.findall(there) if (at := _set_in(text, name, lines))]
    return f"the value there is no literal: {shown}" + "".join(f"; {place}" for place in places[:2])


def _set_in(text: str, name: str, lines: Mapping[str, int]) -> int | None:
    if name in lines:
        return lines[name]
    match = re.search(rf"(?m)^[ \t]*(?:export[ \t]+)?{re.escape(name)}[ \t]*(?::[^=\n]*)?=", text)
    return text.count("\n", 0, match.start()) + 1 if match else None


def _ends(path: KeyPath, key: str) -> bool:
    return ".".join(path) == key


def _renamed(path: KeyPath, tail: str, meant: str) -> KeyPath:
    return (*path[:-1], path[-1].removesuffix(tail) + meant)


def _is_argument(text: str, name: str) -> bool:
    """Return whether a name is that of a keyword of a call, which is not the program's own."""
    nodes = ast.walk(ast.parse(text))
    return any(keyword.arg == name for node in nodes if isinstance(node, ast.Call) for keyword in node.keywords)


def _form(suffix: str, tail: str, line: str) -> tuple[str, str, str, str] | None:
    """Return what stands before a key, the key, what separates it from its value, and what follows the value.

    The line has to contain this setting only, and a further line has to be possible after it.
    """
    match = re.fullmatch(
        rf"(?P<lead>[ \t]*(?:--|\+{{0,2}})[\"']?(?:\w+\.)*)(?P<tail>{_spelled(tail)})"
        rf"(?P<separator>[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+))(?:{_LITERAL})"
        r"(?P<after>[ \t]*,?[ \t]*\\?)[ \t]*(?:#[^\n]*)?(?P<end>\r?\n)",
        line,
    )
    needed = "\\" if suffix in _COMMANDS else "," if suffix in (".json", *SCRIPTS) else ""
    if match is None or match["after"].strip() != needed:
        return None
    return match["lead"], match["tail"], match["separator"], match["after"].rstrip(" \t") + match["end"]
