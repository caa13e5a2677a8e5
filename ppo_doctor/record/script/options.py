"""What to observe of a training script, and where to write it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

#: The variable that holds the options as JSON, and the one that names the folder of notes to the launcher.
OPTIONS, NOTES = "PPO_DOCTOR_RUN", "PPO_DOCTOR_RUN_NOTES"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of one observation.

    Args:
        out: path of the JSONL file.
        script: path of the script.
        folder: folder whose files count as the user's own code.
        updates, seconds: let go after this many updates, or this many seconds.
        every: observe one of this many updates; 0 for updates 1, 2, 8, 32 …
        memory: most bytes kept for copies of values.
        live: write one line per observed update to stderr.
        stop: end the script when `updates` or `seconds` is reached.
    """

    out: str
    script: str
    folder: str
    updates: int | None = None
    seconds: float | None = None
    every: int = 0
    memory: int = 256 << 20
    live: bool = False
    stop: bool = False

    def to_json(self) -> str:
        """Return the options as text for an environment variable."""
        return json.dumps(asdict(self))


def options_from_json(text: str) -> WatchOptions:
    """Return the options that `to_json` wrote.

    Raises:
        ValueError: the text is not JSON.
        TypeError: a field is missing or unknown.
    """
    return WatchOptions(**json.loads(text))
