"""Escape untrusted text for each output format: terminal, Markdown, XML and GitHub's workflow commands."""

from __future__ import annotations

import re
from os import fspath
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING
from unicodedata import category

from ppo_doctor.model.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

#: The longest name or path, and the longest sentence, that a report prints in full.
LONGEST_NAME, LONGEST_TEXT = 300, 2000
#: The most combining marks on one character; more would cover the lines above and below.
MOST_MARKS = 3
#: Controls, format characters (bidi overrides, zero-width joiners, tags), lone surrogates, line separators.
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_MARKS = frozenset(("Mn", "Me"))
#: Letters, marks and fillers that are invisible although their category is a harmless one.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def plain(text: str, limit: int = LONGEST_NAME) -> str:
    """Return text on one line with every control or invisible character as a visible escape.

    Text longer than about `limit` characters is shortened as by `bounded`, so that reports need not cut it.
    """
    safe = text.isascii() and text.isprintable()
    return bounded(text if safe else _visible(text), limit)


def prose(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return `plain` text with line ends, tabs and runs of spaces as one space, for sentences that will be wrapped."""
    return plain(" ".join(text.split()), limit)


def bounded(text: str, limit: int) -> str:
    """Return text, or its head and tail with the number of characters left out if it is longer than `limit`."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    mark = f"…[{len(text) - head - tail} characters left out]…"
    return text if len(text) <= limit + len(mark) else f"{text[:head]}{mark}{text[-tail:]}"


def unsafe(character: str) -> bool:
    """Return whether a character moves the cursor, reorders its neighbours, or is invisible."""
    selects_variation = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return category(character) in _UNSAFE or character in _INVISIBLE or selects_variation


def _visible(text: str) -> str:
    """Return text with unsafe characters and excessive combining marks escaped."""
    # Each distinct character is looked up once, however long the text is; what ASCII prints is safe.
    characters = [character for character in set(text) if not " " <= character <= "~"]
    if combining := "".join(re.escape(character) for character in characters if category(character) in _MARKS):
        stacks = re.compile(f"([{combining}]{{{MOST_MARKS}}})([{combining}]+)")
        text = stacks.sub(lambda stack: stack[1] + "".join(map(_escape, stack[2])), text)
    escapes = {ord(character): _escape(character) for character in characters if unsafe(character)}
    return text.translate(escapes) if escapes else text


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


#: Characters that start inline markup, HTML, a table cell or mathematics in Markdown.
_ACTIVE = lazy_pattern(r"[\\`*_\[\]<>|~#$!&]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
#: Matches what GitHub turns into mentions, issue links and bare links, even after a backslash.
_AUTOLINK = lazy_pattern(r"@(?=\w)|#(?=\d)|(?<=[a-zA-Z]):(?=//)|\bwww(?=\.)|\bGH(?=-\d)", re.IGNORECASE)
#: Matches what opens a list or a heading at the start of a line.
_BLOCK = lazy_pattern(r"(?:[-+=]|\d+[.)])")
#: An invisible character that prevents a link.
_NOTHING = "&#8203;"


def md(text: str) -> str:
    """Return untrusted text for Markdown on one line, with all markup escaped."""
    return _inline(prose(text))


def md_html(text: str) -> str:
    """Return untrusted text for a line of HTML within Markdown, where a backslash does not escape."""
    from html import escape  # a fiftieth of a short diagnosis, and only Markdown needs it

    return _inline(prose(text), escape)


def _inline(text: str, escaped: Callable[[str], str] | None = None) -> str:
    parts = re.split(f"({_AUTOLINK.pattern})", text, flags=re.IGNORECASE)
    links = ("@", "#", ":", "www", "gh")
    return "".join((escaped or _escaped)(part) + (_NOTHING if part.lower() in links else "") for part in parts)


def _escaped(text: str) -> str:
    return _ACTIVE.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


def md_line(text: str) -> str:
    """Return untrusted text for the start of a line in Markdown, where it must not open a list or heading."""
    safe = md(text)
    match = _BLOCK.match(safe)
    if match is None:
        return safe
    marker = match.group()
    return f"{marker[:-1]}\\{marker[-1]}{safe[len(marker) :]}"


def md_code(text: str) -> str:
    """Return a name or path as a Markdown code span, which may contain backticks and be in a table cell."""
    safe = plain(text).replace("|", r"\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", safe)), default=0) + 1)
    pad = " " if safe[:1] in ("`", "") or safe[-1:] == "`" else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def xml(text: str) -> str:
    """Return text for the content of an XML element or an attribute, without characters that XML 1.0 forbids."""
    legal = prose(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        legal = legal.replace(character, entity)
    return re.sub("[\ufffe\uffff]", "\ufffd", legal)


def command_data(text: str) -> str:
    """Return text as the message of a GitHub workflow command."""
    return prose(text).replace("%", "%25")  # prose has no line ends


def command_property(text: str) -> str:
    """Return text as a property of a GitHub workflow command, in which commas and colons are escaped as well."""
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def slashes(path: str) -> str:
    """Return a path with forward slashes if it is a Windows path, and without a leading "./" otherwise."""
    windows = re.match(r"[A-Za-z]:[\\/]|\\\\", path) or ("\\" in path and "/" not in path)
    return PureWindowsPath(path).as_posix() if windows else fspath(path).removeprefix("./")
