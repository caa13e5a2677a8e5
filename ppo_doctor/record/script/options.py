"""What to observe of a training script, and where to write it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of one observation.

    Args:
        out: path of the JSONL file.
        script: path of the script.
        folder: folder whose files count as the user's own code.
        updates, seconds: let go after this many updates, or this many seconds.
        every: observe one of this many updates; 0 for updates 1, 2, 4, 8 …
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
