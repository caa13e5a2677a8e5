"""Which keys of a log are read: a log that makes up new ones without end must cost no more than its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppo_doctor.readers.notes import Ledger

#: Keys of one log that are read. A log of each layer and expert of a large model has some thousands.
MOST_KEYS = 16_384
#: Characters of a key; a longer one is no name, and searching it costs.
LONGEST_KEY = 4_096
_QUOTED = 60


class Keys:
    """Admits the first keys of a source, and notes that others were left out."""

    def __init__(self, notes: Ledger) -> None:
        self._notes = notes
        self._known: set[str] = set()

    def admit(self, key: str, line: int | None = None) -> bool:
        """Tell whether a key is read."""
        if key in self._known:
            return True
        if len(key) > LONGEST_KEY:
            text = f"a key of {len(key):,} characters is no name, and not read: {key[:_QUOTED]}…"
            self._notes.tell("keys that are no names", text, line, kind="dropped")
            return False
        if len(self._known) >= MOST_KEYS:
            text = f"more than {MOST_KEYS:,} keys; further ones, from {key[:_QUOTED]} on, are not read"
            self._notes.tell_once("more keys than are read", "", text, line, kind="lost")
            return False
        self._known.add(key)
        return True
