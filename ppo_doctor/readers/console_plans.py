"""What a script says before its first record that it is going to do: "5 passes x 6 minibatches"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: setting → how a number of it is said
_SAID = {
    "ppo_epochs": r"(\d{1,3}) (?:(?:ppo|sgd|update|policy) )?(?:epochs?|passes|pass|sweeps?)\b",
    "num_minibatches": r"(\d{1,4}) (?:mini-?batch(?:es)?|chunks?|splits?|shards?)\b",
    "num_generations": r"\d{1,6} (?:prompts?|questions?|tasks?)[ \t]*[x×*][ \t]*(\d{1,4}) (?:samples?|completions?"
    r"|generations?|answers?|rollouts?|responses?)\b",
}
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _SAID.items()}
#: Passes alone may be those over all of the data.
_TOGETHER = ("ppo_epochs", "num_minibatches")
_LONGEST = 400


class Plans:
    """Reads the line of a banner that tells passes and minibatches, or the answers to each prompt."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def take(self, line: Line) -> bool:
        """Read a line before the first record; one that tells passes alone is none."""
        if self._sink.records or len(line.text) > _LONGEST or not any(map(str.isdigit, line.text)):
            return False
        found = {name: int(match[1]) for name, at in _PATTERNS.items() if (match := at.search(line.text))}
        if not all(name in found for name in _TOGETHER):
            found = {name: value for name, value in found.items() if name not in _TOGETHER}
        if not found or not all(found.values()):
            return False
        self._sink.config(line.number, found)
        return True

    def finish(self) -> None:
        """Nothing is held back."""
