"""Make text of a log, a path, a configuration or a folder of rules safe to print on a terminal."""

from __future__ import annotations

import re
from unicodedata import category

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
    return category(character) in _UNSAFE or character in _INVISIBLE or _selects_variation(character)


def _selects_variation(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


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
