"""Escape untrusted text for each output format: terminal, Markdown, XML and GitHub's workflow commands."""

from __future__ import annotations

import re
from html import escape
from os import fspath
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Callable

#: Longest name, path or sentence that a report prints in full.
LONGEST_NAME, LONGEST_TEXT = 300, 2000
#: More combining marks than this on one character would spill over the lines above and below.
MOST_MARKS = 3
#: Controls, format characters (bidi overrides, zero-width joiners, tags), lone surrogates, line separators.
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_MARKS = frozenset(("Mn", "Me"))
#: Letters, marks and fillers that print as nothing although their category sounds harmless.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def plain(text: str, limit: int = LONGEST_NAME) -> str:
    """Return text on one line with every control or invisible character as a visible escape, at most `limit` long.

    Shortened text says how many characters are gone; the rest of a report therefore never cuts anything.
    """
    safe = text.isascii() and text.isprintable()
    return bounded(text if safe else _visible(text), limit)


def prose(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return `plain` text with line ends, tabs and runs of spaces as one space, for sentences that will be wrapped."""
    return plain(" ".join(text.split()), limit)


def bounded(text: str, limit: int) -> str:
    """Return the text, or its head and tail around the number of characters left out when it is over `limit`."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    mark = f"…[{len(text) - head - tail} characters left out]…"
    return text if len(text) <= limit + len(mark) else f"{text[:head]}{mark}{text[-tail:]}"


def unsafe(character: str) -> bool:
    """Tell whether a character moves the cursor, reorders its neighbours, or prints as nothing."""
    selects_variation = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return category(character) in _UNSAFE or character in _INVISIBLE or selects_variation


def _visible(text: str) -> str:
    """Return text with escapes; each distinct character is looked up once, however long the text."""
    held = set(text)
    if combining := "".join(re.escape(character) for character in held if category(character) in _MARKS):
        stacks = re.compile(f"([{combining}]{{{MOST_MARKS}}})([{combining}]+)")
        text = stacks.sub(lambda stack: stack[1] + "".join(map(_escape, stack[2])), text)
    return text.translate({ord(character): _escape(character) for character in held if unsafe(character)})


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


#: Everything that starts inline markup, HTML, a table cell or mathematics.
_ACTIVE = re.compile(r"[\\`*_\[\]<>|~#$!&]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
#: Mentions, issue numbers and bare links, which GitHub makes of plain text even behind a backslash.
_AUTOLINK = re.compile(r"@(?=\w)|#(?=\d)|(?<=[a-zA-Z]):(?=//)|\bwww(?=\.)|\bGH(?=-\d)", re.IGNORECASE)
#: A list, a heading or a quotation, when it starts a line.
_BLOCK = re.compile(r"(?:[-+=]|\d+[.)])")
#: Breaks what would become a link, and shows as nothing.
_NOTHING = "&#8203;"


def md(text: str) -> str:
    """Return a sentence from outside that Markdown shows as it is, on one line."""
    return _inline(prose(text))


def md_html(text: str) -> str:
    """Return a sentence from outside for a line of HTML within Markdown, where a backslash escapes nothing."""
    return _inline(prose(text), escape)


def _inline(text: str, escaped: Callable[[str], str] | None = None) -> str:
    parts = re.split(f"({_AUTOLINK.pattern})", text, flags=re.IGNORECASE)
    links = ("@", "#", ":", "www", "gh")
    return "".join((escaped or _escaped)(part) + (_NOTHING if part.lower() in links else "") for part in parts)


def _escaped(text: str) -> str:
    return _ACTIVE.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), text)


def md_line(text: str) -> str:
    """Return a sentence from outside that may start a line: it opens no list and no heading."""
    safe = md(text)
    match = _BLOCK.match(safe)
    if match is None:
        return safe
    marker = match.group()
    return f"{marker[:-1]}\\{marker[-1]}{safe[len(marker) :]}"


def md_code(text: str) -> str:
    """Return a name or path as a code span, whatever back ticks it holds; good in table cells too."""
    safe = plain(text).replace("|", r"\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", safe)), default=0) + 1)
    pad = " " if safe[:1] in ("`", "") or safe[-1:] == "`" else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def xml(text: str) -> str:
    """Return text for an element's content or an attribute; what XML 1.0 forbids becomes a visible escape."""
    legal = prose(text)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        legal = legal.replace(character, entity)
    return re.sub("[\ufffe\uffff]", "\ufffd", legal)


def command_data(text: str) -> str:
    """Return text as the message of a workflow command."""
    return prose(text).replace("%", "%25")  # prose has neither line ends nor carriage returns


def command_property(text: str) -> str:
    """Return text as a property of a workflow command, which also ends at a comma or a colon."""
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def slashes(path: str) -> str:
    """Return a path with forward slashes when it is a Windows path, as machines elsewhere expect it."""
    windows = re.match(r"[A-Za-z]:[\\/]|\\\\", path) or ("\\" in path and "/" not in path)
    return PureWindowsPath(path).as_posix() if windows else fspath(path).removeprefix("./")
