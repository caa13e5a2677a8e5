"""Settings in plain text: what argparse and dataclasses print, one setting per line, or a command with its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ppo_doctor.configs import MOST_LINES, Written
from ppo_doctor.configs.json_text import lines_in, read, read_literal
from ppo_doctor.configs.values import Scalar, value_of
from ppo_doctor.literals import python_literal

#: (key, value, line)
Setting = tuple[str, Scalar, int]

_CALL = re.compile(r"\b[A-Z]\w*\(\s*(?=[A-Za-z_]\w*\s*=)")
_ARGUMENT = re.compile(r"\s*(?P<key>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)\Z", re.DOTALL)
#: A string, which ends in its quote unless it goes on to the end, or a sign: possessive, for a search that gives back
#: takes the square of a text of quotes that are never closed.
_PART = re.compile(r"(?s)'(?:[^'\\]++|\\.)*+['\\]?|\"(?:[^\"\\]++|\\.)*+[\"\\]?|[()\[\]{},\n]")
_SIGN = re.compile(r"[()\[\]{},\n]")
#: `key: value`, `key = value`, `key ..... value` as Megatron prints it, `| key | value |` as tables do, `'key': value,`
#: of a dict that pprint writes
_LINE = re.compile(
    r"[\s|>*{'\"-]*(?P<key>[A-Za-z_][\w./-]*)['\"]?\s*(?:[:=]|\.{3,}|\|)\s*(?P<value>\"[^\"]*\"|'[^']*'|[^\s|,;#]+)\s*(?:[|,;]\s*)?(?:#.*)?\Z"
)
_OPTION = re.compile(
    r"(?<![\w-])--(?P<option>[A-Za-z][\w.-]*)(?:(?:=|\s+)(?P<given>\"[^\"]*\"|'[^']*'|(?!--)[^\s\\]+))?"
    r"|(?<!\S)\+{0,2}(?P<key>[A-Za-z_]\w*(?:\.\w+)*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s\\]*)"
)
_ASSIGNED = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_]\w*)=(?P<value>\"[^\"]*\"|'[^']*'|[^\s;#]*)\s*(?:#.*)?\Z")
_VARIABLE = re.compile(r"\$\{(?P<braced>\w+)(?::-(?P<otherwise>[^{}]*))?\}|\$(?P<plain>\w+)")
#: A line of a command that goes on: what stands alone on other lines are the shell's own variables.
_CONTINUED = re.compile(r"\\[ \t]*\n")
#: Printed objects and characters of a line that are looked at: what goes on is no configuration.
MOST_CALLS, LONGEST_LINE, LONGEST_COMMAND = 20, 4096, 1 << 16
#: Fewer settings than this are prose that happens to hold an equals sign.
FEWEST = 2


def read_text(text: str) -> Written:
    """Read settings in plain text by the one of three forms that finds most; raise ValueError without any."""
    forms = [list(form(text)) for form in ((_options,) if _CONTINUED.search(text) else _FORMS)]
    best = max(forms, key=len)
    if len(best) < FEWEST:
        raise ValueError("it holds no settings that we can make out")
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value, line in best[:MOST_LINES]:
        values[key], lines[key] = value, line
    kept = sum(1 for line in text.splitlines() if line.strip())
    return Written(values=values, lines=lines, other_lines=kept - len({line for _, _, line in best}))


def read_document(text: str) -> Written:
    """Read a JSON document, or a dict as Python prints it; the text may go on before and behind a printed dict."""
    begin, end = text.find("{"), text.rfind("}") + 1
    try:
        return read(text)
    except ValueError as error:
        try:
            written = read_literal(text[begin:end])
        except ValueError:
            raise error from None  # what JSON says of it tells the line
    return Written(values=written.values, lines=lines_in(text[begin:end], text.count("\n", 0, begin) + 1))


def read_any(text: str) -> Written:
    """Read a document where it is one, else settings in plain text; of a printed dict among them, whichever is more."""
    try:
        written = read_document(text)
    except (ValueError, RecursionError):
        return read_text(text)
    try:
        plain = read_text(text)
    except ValueError:
        return written
    return written if isinstance(written.values, dict) and len(written.lines) >= len(plain.lines) else plain


def _calls(text: str) -> Iterator[Setting]:
    """Yield the arguments of `Namespace(…)` and of dataclasses as they print themselves."""
    position = 0
    for _ in range(MOST_CALLS):
        match = _CALL.search(text, position)
        if match is None:
            return
        position = match.end()
        for argument, at, end in _arguments(text, position, text.count("\n", 0, position) + 1):
            position = end
            found = _ARGUMENT.match(argument)
            if found is not None:
                skipped = argument[: found.start("key")].count("\n")
                yield found["key"], _literal(found["value"].rstrip()), at + skipped


def _arguments(text: str, begin: int, line: int) -> Iterator[tuple[str, int, int]]:
    """Yield the text between the commas of a call, its line and its end, up to the parenthesis that closes the call."""
    depth, start, at = 0, begin, line
    for match in _parts(text, begin):
        part = match[0]
        line += part.count("\n")
        if part in "([{":
            depth += 1
        elif part in ")]}" and depth:
            depth -= 1
        elif part == ")" or (part == "," and not depth):
            yield text[start : match.start()], at, match.end()
            start, at = match.end(), line
            if part == ")":
                return


def _parts(text: str, begin: int) -> Iterator[re.Match[str]]:
    """Yield strings and signs; what follows a quote that is never closed holds signs alone."""
    for match in _PART.finditer(text, begin):
        if match[0][0] in "'\"" and (len(match[0]) == 1 or match[0][-1] != match[0][0]):
            yield from _SIGN.finditer(text, match.start() + 1)
            return
        yield match


def _literal(text: str) -> Scalar:
    try:
        value = python_literal(text)
    except ValueError:
        return value_of(text)
    return value if value is None or isinstance(value, str | int | float | bool) else text


def _lines(text: str) -> Iterator[Setting]:
    """Yield the settings that stand on a line each."""
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.match(line) if len(line) <= LONGEST_LINE else None
        if found is not None:
            value = found["value"] if "{" in found["value"] else found["value"].rstrip("}")
            yield found["key"], value_of(value), number


def _options(text: str) -> Iterator[Setting]:
    """Yield the options of a command, and Hydra's overrides, with the shell's own plain variables put in."""
    variables: dict[str, str] = {}
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole[:LONGEST_COMMAND]
        if line.lstrip().startswith("#"):
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            variables[assigned["name"]] = _expanded(assigned["value"], variables).strip("\"'")
            continue
        for match in _OPTION.finditer(line):
            key = match["key"] or match["option"].replace("-", "_")
            value = match["value"] if match["key"] else match["given"]
            yield key, True if value is None else value_of(_expanded(value, variables)), number


def _expanded(text: str, variables: dict[str, str]) -> str:
    def known(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        return variables.get(name, match["otherwise"] if match["otherwise"] is not None else match[0])[:1000]

    return _VARIABLE.sub(known, text[:LONGEST_LINE])


_FORMS: tuple[Callable[[str], Iterator[Setting]], ...] = (_calls, _options, _lines)
