"""A console as Kaggle saves it: a JSON list of what was written to a stream, with the time of each piece."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ppo_doctor.readers import console
from ppo_doctor.readers.console_base import Sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Characters of a line that is not ended yet.
_LONGEST = 1 << 18


def read(source: Source) -> Iterator[Item]:
    """Yield the records of the console text in the pieces; each has the line on which its piece stands."""
    sink = Sink(source)
    feed = console.Feed(sink)
    begun: dict[str, str] = {}
    for number, raw in source.numbered():
        for stream, text in _pieces(raw):
            *whole, rest = (begun.pop(stream, "") + text).split("\n")
            for line in whole:
                feed.line(line.encode("utf-8", "replace"), number)
            begun[stream] = rest[-_LONGEST:]
        if sink.packer.full:
            yield from sink.packer.flush()
    for rest in begun.values():
        feed.line(rest.encode("utf-8", "replace"), source.line, torn=not source.ended)
    feed.finish()
    yield from sink.finish()
    feed.tell(source.notes)
    yield from source.notes.notes()


def _pieces(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield stream and text of the pieces on one line of the file; a damaged one holds none."""
    bare = raw.strip(b" \t\r\0").lstrip(b"[,").rstrip(b"],")
    try:
        found = json.loads(b"[" + bare + b"]") if bare else []
    except (ValueError, RecursionError):
        return
    for piece in found:
        if isinstance(piece, dict) and isinstance(text := piece.get("data"), str):
            yield str(piece.get("stream_name")), text
