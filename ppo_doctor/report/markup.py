"""Escape text for Markdown, XML and GitHub's workflow commands."""

from __future__ import annotations

import re
from html import escape
from os import fspath
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from ppo_doctor.report.escape import plain, prose

if TYPE_CHECKING:
    from collections.abc import Callable

#: Everything that starts inline markup, HTML, a table cell or mathematics.
_ACTIVE = re.compile(r"[\\`*_\[\]<>|~#$!&]")
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
    return "".join((escaped or _escaped)(part) + (_NOTHING if _breaks(part) else "") for part in parts)


def _breaks(part: str) -> bool:
    return part.lower() in ("@", "#", ":", "www", "gh")


def _escaped(text: str) -> str:
    return _ACTIVE.sub(_one, text)


def _one(match: re.Match[str]) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match.group(), "\\" + match.group())


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
    return prose(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """Return text as a property of a workflow command, which also ends at a comma or a colon."""
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def slashes(path: str) -> str:
    """Return a path with forward slashes when it is a Windows path, as machines elsewhere expect it."""
    windows = re.match(r"[A-Za-z]:[\\/]|\\\\", path) or ("\\" in path and "/" not in path)
    return PureWindowsPath(path).as_posix() if windows else fspath(path).removeprefix("./")
