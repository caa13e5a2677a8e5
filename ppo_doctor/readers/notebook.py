"""Jupyter notebooks and Kaggle's stream logs: printed output is console text, the progress of a Trainer a table.

A notebook usually has one line per line of output, so each record keeps its line of the file; a notebook on a single
line is parsed as a whole. Code is not read, because a cell may have changed since it ran.
"""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, NamedTuple

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers import console
from ppo_doctor.readers.table import CELL, EmbeddedConfig
from ppo_doctor.readers.values import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source

#: Bytes up to which a notebook on one line is parsed.
LARGEST = 1 << 28
_STREAM, _TABLE = "text", "text/html"
_KEY = re.compile(r'\s*"(text|text/html)": ?(\[|".*)')
_STRING = re.compile(r'\s*(".*"),?\s*')
_CODE = re.compile(r'\s*"cell_type": ?"code"')
#: Names of the first or second column of a table of training.
_COUNTER = re.compile(r"(?:global[ _])?step|iter(?:ation)?|epoch|episode|update", re.IGNORECASE)


class _Output(NamedTuple):
    """A piece of output: its line of the file (its number if the file is a single line), its kind and its text."""

    line: int
    kind: str
    text: str


def read(source: Source) -> Iterator[Item]:
    """Yield the records that the cells of a notebook printed; lines that are not read are counted in one note."""
    feed = console.Feed(source)
    sink = feed.sink
    tables = _Tables()
    cells: list[EmbeddedConfig] = []
    for output in _outputs(source):
        if output.kind == CELL:
            place = SourceRef(path=source.path, line=output.line)
            cells.append(EmbeddedConfig(values={CELL: len(cells) + 1}, source=place))
            tables.forget()
        elif output.kind == _TABLE:
            tables.line = output.line
            tables.feed(output.text)
            for line, row in tables.taken():
                sink.cells(line, row)
        else:
            for raw in output.text.split("\n"):
                feed.line(raw.encode("utf-8", "replace"), output.line)
        if sink.packer.full:
            yield from sink.packer.flush()
    yield from cells
    yield from feed.end()


def _outputs(source: Source) -> Iterator[_Output]:
    _, first = next(lines := source.numbered(), (1, b""))
    if b'"cell_type"' in first:
        yield from _of_document(first + b"".join(line for _, line in lines))
    else:
        yield from _of_lines(lines)


def _of_lines(rest: Iterator[tuple[int, bytes]]) -> Iterator[_Output]:
    """Yield the outputs of a notebook with one string per line, from its second line on; code has another key."""
    kind = ""
    for number, raw in rest:
        line = raw.decode("utf-8", "replace")
        if _CODE.match(line):
            yield _Output(number, CELL, "")
        elif not kind:
            opened = _KEY.match(line)
            if opened and opened[2] == "[":
                kind = opened[1]
            elif opened and (text := _text(opened[2])) is not None:
                yield _Output(number, opened[1], text)
        elif (text := _text(line)) is not None:
            yield _Output(number, kind, text.removesuffix("\n"))
        else:
            kind = ""


def _text(line: str) -> str | None:
    string = _STRING.fullmatch(line)
    try:
        return str(json.loads(string[1])) if string else None
    except ValueError:
        return None


def _of_document(data: bytes) -> Iterator[_Output]:
    try:
        document = json.loads(data[:LARGEST])
    except (ValueError, RecursionError):
        return
    cells = document.get("cells", []) if isinstance(document, dict) else []
    numbers = itertools.count(1)  # of cells and outputs, instead of lines
    for cell in cells if isinstance(cells, list) else []:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        if isinstance(outputs, list):
            yield _Output(next(numbers), CELL, "")
            for output in outputs:
                yield from _of_output(output, next(numbers))


def _of_output(output: object, number: int) -> Iterator[_Output]:
    if not isinstance(output, dict):
        return
    data = output.get("data")
    pieces = {_STREAM: output.get("text"), _TABLE: data.get(_TABLE) if isinstance(data, dict) else None}
    for kind, written in pieces.items():
        parts = written if isinstance(written, list) else [written]
        yield _Output(number, kind, "".join(part for part in parts if isinstance(part, str)))


class _Tables(HTMLParser):
    """Collects the rows of tables with a counter in one of the first two columns and mostly numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.line = 1
        self._names: list[str] = []
        self._cells: list[str] = []
        self._cell: list[str] | None = None
        self._rows: list[tuple[int, dict[str, str]]] = []
        #: rows of this cell, because a progress table is displayed again with more rows
        self._shown: set[tuple[tuple[str, str], ...]] = set()

    def forget(self) -> None:
        """Start another cell of the notebook."""
        self._shown.clear()

    def taken(self) -> list[tuple[int, dict[str, str]]]:
        """Return the complete rows, each once."""
        rows, self._rows = self._rows, []
        return rows

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        """Open a table, a row or a cell."""
        if tag == "table":
            self._names, self._cells, self._cell = [], [], None
        elif tag == "tr":
            self._cells = []
        elif tag in ("th", "td"):
            self._cell = []

    def handle_data(self, data: str) -> None:
        """Add text to the open cell."""
        if self._cell is not None:
            self._cell.append(data)

    def handle_endtag(self, tag: str) -> None:
        """Close a cell or a row: the first row names the columns."""
        if tag in ("th", "td") and self._cell is not None:
            self._cells.append(" ".join("".join(self._cell).split()))
            self._cell = None
        elif tag == "tr" and self._cells:
            self._row(self._cells)
            self._cells = []

    def _row(self, cells: list[str]) -> None:
        if not self._names:
            # Notebooks print blanks around slashes: "rewards / format / mean".
            self._names = [re.sub(r" ?/ ?", "/", cell) for cell in cells]
            return
        if not self._names[0] and len(cells) == len(self._names):  # the index of a frame
            names, cells = self._names[1:], cells[1:]
        else:
            names = self._names
        row = dict(zip(names, cells, strict=False))
        numbers = sum(isinstance(parse(cell), float) for cell in cells)
        written = tuple(row.items())
        of_training = any(map(_COUNTER.fullmatch, names[:2])) and numbers >= max(2, len(cells) // 2)
        if of_training and written not in self._shown:
            self._shown.add(written)
            self._rows.append((self.line, row))


#: Most characters that are kept of an unfinished line.
_LONGEST = 1 << 18


def read_streams(source: Source) -> Iterator[Item]:
    """Yield the records of the text in a stream log; the line of each is that of its piece."""
    feed = console.Feed(source)
    sink = feed.sink
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
    yield from feed.end()


def _pieces(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield stream and text of the pieces on one line of the file; a damaged line holds none."""
    bare = raw.strip(b" \t\r\0").lstrip(b"[,").rstrip(b"],")
    try:
        pieces = json.loads(b"[" + bare + b"]") if bare else []
    except (ValueError, RecursionError):
        return
    for piece in pieces:
        if isinstance(piece, dict) and isinstance(text := piece.get("data"), str):
            yield str(piece.get("stream_name")), text
