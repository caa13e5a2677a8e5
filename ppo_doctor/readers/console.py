"""Console text: pass each line to the first dialect that recognises it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import Dialect, Line, Sink
from ppo_doctor.readers.console_dicts import Dicts
from ppo_doctor.readers.console_messages import Evaluations, Exceptions, Messages, Plans, Sections
from ppo_doctor.readers.console_pairs import Pairs, Words
from ppo_doctor.readers.console_sentences import Sentences
from ppo_doctor.readers.console_several import Lists
from ppo_doctor.readers.console_tables import Grids, Pipes, Rows
from ppo_doctor.readers.console_trainers import (
    Boxes,
    Columns,
    DeepSpeedChat,
    NemoRl,
    Panels,
    RayResults,
    RslRl,
    SampleFactory,
    UnitySummaries,
    Verl,
    YamlResults,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
#: "(TaskRunner pid=1234) ", "(main_task pid=1, ip=10.0.0.1)"
_RAY = re.compile(r"\([^()]*\bpid=\d+[^()]*\) ?")
#: Lines of boxes drawn with Unicode, as rich does, read like those drawn with ASCII.
_DRAWING = str.maketrans(
    dict.fromkeys("│┃║", "|")
    | {"\N{MINUS SIGN}": "-"}
    | dict.fromkeys("─━═╌┄", "-")
    # punctuation of East Asian width, each with the blank that it holds
    | {"，": ", ", "、": ", ", "；": "; ", "：": ": ", "（": " (", "）": ") ", "＝": "=", "｜": "|", "％": "%"}
    | dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇┢┪╔╗╚╝╠╣╦╩╬╒╕╘╛╞╡╤╧╪", "+")
)
#: What rich draws before the lines of a value that it prints over several.
_GUIDES = re.compile(r"[ \t]*(?:│ {3})+(?=\S)(?!.*│\s*\Z)")
#: What mail and Markdown put before the lines of a quotation.
_QUOTED = re.compile(r"(?:> )++")
#: Longer lines hold no record of any dialect, and cost time.
_LONGEST = 1 << 18
#: Blanks beyond the width of any table: patterns that look at what stands around them go over them again and again.
_PADDING = re.compile(r"[ \t]{257,}")


def read(source: Source) -> Iterator[Item]:
    """Yield the records of console text in any known dialect; lines that hold none are counted in one note."""
    feed = Feed(source)
    for number, raw in source.numbered():
        feed.line(raw, number, torn=not source.ended)
        if feed.sink.packer.full:
            yield from feed.sink.packer.flush()
    yield from feed.end()


#: The order matters: a dict may be open over many lines, Ray's results hold dicts of their own, and loose pairs are
#: what no other dialect takes.
DIALECTS: tuple[Callable[[Sink], Dialect | Exceptions], ...] = (
    *(Sections, Plans, Exceptions, Messages, Evaluations),
    *(RayResults, YamlResults, Dicts, Lists, Panels, Grids, Pipes, Boxes),
    *(Verl, RslRl, NemoRl, DeepSpeedChat, SampleFactory, UnitySummaries, Columns),
    *(Rows, Pairs, Words, Sentences),
)


class Feed:
    """Hands the lines of a source to the dialects, and counts those that none of them reads."""

    def __init__(self, source: Source) -> None:
        self.sink = Sink(source)
        self._dialects = tuple(dialect(self.sink) for dialect in DIALECTS)

    def line(self, raw: bytes, number: int, *, torn: bool = False) -> None:
        """Take a line of the file; of blank ones, which may be millions, no dialect makes anything."""
        if not raw or raw.isspace():
            return
        _feed(_fragments(raw, number, torn=torn), self._dialects, self.sink)

    def end(self) -> Iterator[Item]:
        """Yield what is still open at the end of the file, and the notes with how many lines were not read."""
        for dialect in self._dialects:
            dialect.finish()
            _feed([], self._dialects, self.sink)
        yield from self.sink.finish()
        if self.sink.unread.lines:
            self.sink.notes.tell("ignored", f"lines that hold no metrics and were not read: {self.sink.unread}")


def _feed(fragments: list[Line], dialects: tuple[Dialect | Exceptions, ...], sink: Sink) -> None:
    """Offer the fragments of a line to each dialect in turn, and keep account of lines that none of them reads."""
    used = [_take(fragment, dialects) for fragment in fragments]
    if used and not any(used):
        sink.unread.add(fragments[-1].text, fragments[-1].number)
    while sink.given_back:  # each time at least one line less
        again, sink.given_back = sink.given_back, []
        line = again.pop(0)
        if not _take(line, dialects):
            sink.unread.add(line.text, line.number)
        sink.given_back += again


def _take(line: Line, dialects: tuple[Dialect | Exceptions, ...]) -> bool:
    return any(dialect.take(line) for dialect in dialects)


def _fragments(raw: bytes, number: int, *, torn: bool) -> list[Line]:
    """Return what a line holds between its carriage returns, cleaned; blank parts are left out."""
    text = raw[:_LONGEST].decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _PADDING.sub(" " * 256, text)
    if not text.isascii():
        text = _GUIDES.sub(lambda guides: " " * len(guides[0]), text).translate(_DRAWING)
    if text.startswith("> "):
        text = _QUOTED.sub("", text)
    parts = [part for part in (_RAY.sub("", part, count=1).rstrip() for part in text.split("\r")) if part]
    last = len(parts) - 1
    return [Line(part, number, torn and i == last) for i, part in enumerate(parts)]
