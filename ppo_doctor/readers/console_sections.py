"""Lines of a console that say of which method the records below them are, or the one in the line itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.model import SourceRef
from ppo_doctor.readers.methods import may_name, method_of
from ppo_doctor.table import METHOD_KEYS, SECTION, EmbeddedConfig

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: Characters of a line that are looked at, and changes from one method to another that are told.
_LOOKED_AT, _MOST = 160, 100_000
_NAME = r"[A-Za-z][A-Za-z0-9+ _-]{1,24}?"
#: "======== DQN ========", "## SAC, seed 3"
_RULED = re.compile(r"\s*(?:[-=_*~+>#]{2,}|#)\s*([^|:=]{2,60}?)\s*:?\s*[-=_*~+<#]*\s*\Z")
#: "DQN", "[DQN]", "Training DQN ..."
_ALONE = re.compile(
    rf"\s*\[?(?:(?:training|running|starting)\s+)?({_NAME})\]?\s*:?\s*(?:\.\.\.|…)?\s*\Z", re.IGNORECASE
)
#: "[DQN] step 100 …", "DQN | step 100 …"
_FIRST = re.compile(rf"\s*(?:\[({_NAME})\]|({_NAME})\s*[|:])\s")
#: "step 100 | algo DQN | …", "algorithm=SAC"
_SAID = re.compile(
    rf"(?:\A|[\s|,;(\[{{'\"])(?:{'|'.join(METHOD_KEYS)})['\"]?\s*[=:\s]\s*['\"]?([A-Za-z][A-Za-z0-9+_-]{{1,24}})"
)


class Sections:
    """Notes where the method changes; each line is left to the dialects behind."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._last: str | None = None

    def take(self, line: Line) -> bool:
        """Look at a line."""
        method = section_of(line.text[:_LOOKED_AT])
        if method is not None and method != self._last and len(self._sink.sections) < _MOST:
            self._last = method
            source = SourceRef(path=self._sink.path, line=line.number)
            self._sink.sections.append(EmbeddedConfig(values={SECTION: method}, source=source))
        return False

    def finish(self) -> None:
        """Hand on nothing: the sink does."""


def section_of(text: str) -> str | None:
    """Return the method that a line says its records, or those below it, are of; None for any other line."""
    if not may_name(text):
        return None
    for pattern in (_SAID, _RULED, _ALONE, _FIRST):
        if found := pattern.search(text) if pattern is _SAID else pattern.match(text):
            return method_of(next(filter(None, found.groups())))
    return None
