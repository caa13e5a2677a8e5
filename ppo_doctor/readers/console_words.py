"""Names and numbers in turn, mostly without a sign between them: "epoch 3 reward 12.5 kl 0.01"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_pairs import Layouts, bare, words_of

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: Two pairs are a sentence ("epoch 3 took 12.5"), if no sign is between them, and a log has few layouts.
FEWEST, MOST_LAYOUTS = 3, 32
_SIGNS = re.compile(r"[:=,;|\t]")


class Words:
    """Reads lines that are nothing but names and numbers; one is prose until a line with the same names follows."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        #: the names of a line → the first line that has them, None once there were two
        self._layouts: dict[tuple[str, ...], Line | None] = {}
        self._twice = Layouts()
        self._ended = False

    def take(self, line: Line) -> bool:
        """Read a line, or hold it back."""
        pairs = [] if self._ended else words_of(line.text)
        pairs = self._twice.fitted(bare(line.text), pairs) or pairs
        names = tuple(name for name, _ in pairs)
        if len(set(names)) < _fewest(line.text):
            return False
        if names not in self._layouts:
            if len(self._layouts) >= MOST_LAYOUTS:
                return False
            self._layouts[names] = line
            return True
        if (first := self._layouts[names]) is not None:
            held = words_of(first.text)
            self._twice.remember(held)
            self._hand_on(first, held)
            self._layouts[names] = None
        self._hand_on(line, pairs)
        return True

    def finish(self) -> None:
        """Give back what came once."""
        self._ended = True
        self._sink.given_back += filter(None, self._layouts.values())

    def _hand_on(self, line: Line, pairs: list[tuple[str, str]]) -> None:
        self._sink.loose(line.number, self._sink.pairs(line, pairs))


def _fewest(text: str) -> int:
    """Return how many names make a record of a line that recurs; a sentence may say what one "is"."""
    return 1 if " is " in text else FEWEST - bool(_SIGNS.search(text))
