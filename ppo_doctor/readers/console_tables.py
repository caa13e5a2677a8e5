"""Tables: Markdown and grids below a header, boxes of names and values, and columns aligned by blanks or tabs."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, WORD, Block, Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ppo_doctor.readers.console_base import Line, Sink

_NUMBER = re.compile(NUMBER)
#: A rule below a header: of Markdown, or of psql, which draws it without an edge.
_DASHES = r"(?::?-{2,}:?|:-:)"
_RULE = re.compile(rf"(?:\|? ?{_DASHES} *(?:\| *{_DASHES} *)+\|?|-{{2,}}(?:\+-{{2,}})+)\Z")


class Pipes(Dialect):
    """Reads one record per row below a header and a rule of dashes (Markdown, Unsloth's notebooks, psql)."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._above: list[str] = []
        self._names: list[str] = []

    def take(self, line: Line) -> bool:
        """Read a rule or a row; the header is only remembered, so that other dialects see it too."""
        text = line.text.strip()
        if _RULE.match(text):
            self._names = self._above if len(self._above) == len(_cells(text.replace("+", "|"))) else []
            return bool(self._names)
        if "|" not in text:
            self._names, self._above = [], []
            return False
        cells = self._above = _cells(text)
        if not self._names:
            return False
        if len(cells) != len(self._names) and not (line.torn and len(cells) < len(self._names)):
            _skip_row(self.sink, line, cells, self._names)
        else:
            self.sink.cells(line.number, self.sink.pairs(line, list(zip(self._names, cells, strict=False))))
        return True


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]


def _skip_row(sink: Sink, line: Line, cells: Sequence[str], names: Sequence[str]) -> None:
    detail = f"{len(cells)} instead of {len(names)}"
    sink.notes.skip("its number of cells is not that of the header", line.number, detail=detail)


#: A rule of a grid; two columns are a box.
_GRID_RULE = re.compile(r"[+|][-=]{3,}(?:\+[-=]{3,}){2,}[+|]\Z")
#: The header of a grid's column: words with one blank between them.
_GRID_TITLE = re.compile(r"\S++(?: \S++){0,9}")


class Grids(Block):
    """Reads one record per row of a grid; grids of other columns that follow each other add to the same record."""

    certain = False

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._names: list[str] = []
        #: the last rule; a bar that is not below one of its corners belongs to a name ("|advantage|")
        self._rule = ""
        #: whether the previous line was a rule, and whether the open grid has a row
        self._ruled = self._has_row = False

    def take(self, line: Line) -> bool:
        """Read a rule, a header or a row; any other line ends the grids."""
        text = line.text.strip()
        if _GRID_RULE.match(text):
            self._names = [] if self._ruled else self._names
            self._ruled, self._rule = True, text
            return True
        ruled, self._ruled = self._ruled, False
        if text.startswith("|") and text.endswith("|") and (ruled or self._names):
            cells = _cells_below(self._rule, text) or _cells(text)
            has_number = any(map(_NUMBER.fullmatch, cells))
            if self._names and has_number:
                self._add(line, cells)
                return True
            if ruled and not has_number and all(map(_GRID_TITLE.fullmatch, cells)):
                self._names, self._has_row = cells, False
                return True
        self.finish()
        self._names = []
        return False

    def _add(self, line: Line, cells: list[str]) -> None:
        """Add a row to the record of the grids above it, or start a record with it."""
        if len(cells) != len(self._names):
            _skip_row(self.sink, line, cells, self._names)
            return
        if not self.cells or self._has_row or not self.cells.keys().isdisjoint(self._names[1:]):
            self.begin(line)
        self.cells |= self.sink.pairs(line, list(zip(self._names, cells, strict=True)))
        self._has_row = True


def _cells_below(rule: str, text: str) -> list[str]:
    """Return the cells of a row that has a bar below each corner of a rule; none if wide letters shift the bars."""
    corners = [at for at, sign in enumerate(rule) if sign in "+|"]
    if len(rule) != len(text) or any(text[at] != "|" for at in corners):
        return []
    return [text[start + 1 : end].strip() for start, end in pairwise(corners)]


#: The top of a box with a title in it, and a row of one: the name of a group in its first line, then its pairs.
_PANEL_TITLE = re.compile(r"\+-{3,} .{1,80} -{3,}\+\Z")
_PANEL_ROW = re.compile(r"\|  ?(\S{0,40}) {2,}(\S.*?) *\|\Z")
_BORDER = re.compile(r"\s*[-=+]{5,}\s*\Z")


class Panels(Dialect):
    """Reads one record per box with a title, whose groups hold `key: value | key: value` over several lines (rich)."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._groups: list[tuple[str, list[str]]] = []
        #: line number of the open box's title, 0 while none is open
        self._first = 0

    def take(self, line: Line) -> bool:
        """Read a title or a row; any other line ends the box."""
        text = line.text.strip()
        if _PANEL_TITLE.match(text):
            self.finish()
            self._first = line.number
            return True
        row = _PANEL_ROW.match(text) if self._first else None
        if row is None or not (row[1] or self._groups):
            closed = bool(self._first) and _BORDER.match(text) is not None
            self.finish()
            return closed
        if row[1]:
            self._groups.append((row[1], []))
        self._groups[-1][1].append(row[2])
        return True

    def finish(self) -> None:
        """Hand on the open box."""
        cells = {
            f"{group}/{key.strip()}": value.strip()
            for group, lines in self._groups
            for key, colon, value in (pair.partition(":") for pair in " ".join(lines).split("|"))
            if colon
        }
        if cells:
            self.sink.cells(self._first, cells)
        self._groups, self._first = [], 0


class Boxes(Block):
    """Reads one record per box; a key below a section row such as `train/` gets the section in front.

    A row holds one pair (Stable-Baselines, OpenAI Baselines) or several (tabulate).
    """

    _section, _section_indent = "", 0
    #: whether boxes of this log end with a border; one without was cut off
    _bordered = False
    #: rows since the last border; a single one means that the box has a border below each row
    _rows = 0

    def take(self, line: Line) -> bool:
        """Read a row or a border; any other line ends the box."""
        if _BORDER.match(line.text):
            self._bordered = self._bordered or bool(self.cells)
            if self._rows != 1:
                self._close()
            self._rows = 0
            return self._bordered
        pairs = _row_pairs(line.text.strip().split("|"))
        if not pairs:
            self.finish()
            return False
        self._rows += 1
        for key, value in pairs:
            self._add(line, len(key) - len(key.lstrip(" ")), key.strip(), value.strip())
        return True

    def finish(self) -> None:
        """Hand on the rows of a box that is still open."""
        if self.cells and self._bordered and self._rows:
            self.sink.notes.tell("torn", "a table is cut off; its complete rows are used", self.first)
        self._close()

    def _add(self, line: Line, indent: int, key: str, value: str) -> None:
        if not value and key.endswith("/"):
            self._section, self._section_indent = key, indent
            self.first = self.first or line.number
            return
        if self._section and indent > self._section_indent:
            key = self._section + key
        else:
            self._section = ""
        if key in self.cells:
            self._close()
        self.first = self.first or line.number
        self.cells[key] = value

    def _close(self) -> None:
        super().finish()
        self._section = ""


def _row_pairs(parts: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of a row split at its bars; none for a torn row, or for several pairs that are not numbers."""
    if len(parts) < 4 or len(parts) % 2 or parts[0] or parts[-1]:
        return []
    pairs = [pair for pair in zip(parts[1:-1:2], parts[2:-1:2], strict=True) if any(map(str.strip, pair))]
    if len(parts) > 4 and not all(_NUMBER.fullmatch(value.strip()) for _, value in pairs):
        return []
    return pairs if all(key.strip() and not _NUMBER.fullmatch(key.strip()) for key, _ in pairs) else []


_STAMP = r"\s*(?:\d{4}-\d\d-\d\d [^|]*\|\s*)?(?:\[[^\]]*\]\s*(?:\|\s*)?)?"
_COLUMN_RULES = re.compile(_STAMP + r"-{5,}\s{1,4}-{5,}\s*\Z")
_RULED_ROW = re.compile(_STAMP + rf"(\S[^|]{{0,199}}?)\s{{2,}}({NUMBER})\s*\Z")
#: A row without rules: words with one blank between them, then several blanks or a tab.
_PLAIN_ROW = re.compile(rf"\s*({WORD}(?: {WORD}){{0,4}})(?:\t|[ \t]{{2,}})\s*({NUMBER})\s*\Z")
_FEWEST_ROWS, _MOST_TABLES = 3, 32


class Columns(Dialect):
    """Reads one record per table of two columns between rules of dashes (garage, rllab), perhaps after a timestamp.

    Without rules, consecutive rows are a table if another one with the same first name follows.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._pairs: list[tuple[str, str]] = []
        self._first = 0
        self._ruled = False
        #: first names of tables without rules → the first such table, None once there were two
        self._tables: dict[str, tuple[int, dict[str, str]] | None] = {}

    def take(self, line: Line) -> bool:
        """Read a rule or a row; any other line ends the table."""
        if _COLUMN_RULES.match(line.text):
            opens = not self._ruled
            self.finish()
            self._first, self._ruled = line.number, opens
            return True
        row = (_RULED_ROW if self._ruled else _PLAIN_ROW).match(line.text)
        if row is None:
            self.finish()
            return False
        if any(row[1] == name for name, _ in self._pairs) and not self._ruled:
            self.finish()
        self._first = self._first if self._pairs or self._ruled else line.number
        self._pairs += [] if line.torn else [(row[1], row[2])]
        return True

    def finish(self) -> None:
        """Hand on the open table; one without rules waits for a second one with the same first name."""
        cells, first, ruled = dict(self._pairs), self._first, self._ruled
        name = self._pairs[0][0] if self._pairs else ""
        rows, self._pairs, self._first, self._ruled = len(self._pairs), [], 0, False
        if cells and ruled:
            self.sink.cells(first, cells)
        elif rows >= _FEWEST_ROWS and name in self._tables:
            if (earlier := self._tables[name]) is not None:
                self.sink.loose(*earlier)
            self._tables[name] = None
            self.sink.loose(first, cells)
        elif rows >= _FEWEST_ROWS and len(self._tables) < _MOST_TABLES:
            self._tables[name] = first, cells


#: A name in one word, perhaps with a sign before it, and its unit: "±Bel", "H[bit]", "clip‰", "rho^".
_NAME = re.compile(r"[±<>~#$∇Δ‖]?[^\W\d][][\w./%‰()^*'<>°±‖+-]{0,99}")
_CELL = re.compile(r"[^\s|]+")
#: Two numbers of columns that are too narrow for them ("-1.43170275175661.57"), with as many decimals in each.
_GLUED = re.compile(r"([-+]?\d+\.)(\d+\.)(\d{1,6})")
#: A name such as |g|, where bars also separate columns.
_SIZE = re.compile(r"(?<![^\s|])\|([^\W\d_]{1,4})\|(?![^\s|])")
#: Counts in brackets after the last column, which have no name.
_COUNTS = re.compile(r"\[[\d.,\s]*\]\s*\Z")
#: The number that pandas prints in front of a row.
_INDEX = re.compile(r"\s*\d+\s")
#: Columns of a table without rules: fewer words above numbers are prose.
_FEWEST_COLUMNS = 3
#: The last word of a header that leaves out the remaining columns (ElegantRL).
_AND_SO_ON = ("etc", "etc.", "...")
#: A rule between names and numbers.
_BETWEEN = re.compile(r"[\s=-]*[=-]{3}[\s=-]*")
#: Longer lines are not read as rows.
_LONGEST = 1 << 12
#: An empty cell between commas or semicolons, and the texts that mean an empty cell.
_EMPTY, _ABSENT = re.compile(r"([,;])(?=[,;]|\Z)"), ("-", "--", ".", "n/a")
#: Cells between commas or semicolons, without a blank, as many as make a table.
_SEPARATED = re.compile(r"\s*[^\s,;]++(?:[,;][^\s,;]*+){3,}\s*")


class Rows(Dialect):
    """Reads rows of numbers below a line of as many names, which may appear once; two rows make a table."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._names: list[str] = []
        #: cells in a row of the table, of which the last may have no name
        self._width = 0
        #: the previous line if it may hold names, and the first row while it is the only one
        self._above = ""
        self._held: tuple[int, dict[str, str]] | None = None

    def take(self, line: Line) -> bool:
        """Read a row, or remember a line of names and leave it to other dialects."""
        if _BETWEEN.fullmatch(line.text):
            return False
        above, self._above = self._above, ""
        text = _as_row(line.text)
        cells = _row_cells(text) if len(text) <= _LONGEST else []
        if len(cells) < _FEWEST_COLUMNS:
            return False
        if not all(cell in _ABSENT or _NUMBER.fullmatch(cell.removesuffix("%")) for cell in cells):
            self._above = text if all(map(_NAME.fullmatch, cells)) and len(set(cells)) == len(cells) else ""
            return False
        if names := self._header(above, text, cells):
            self._names, self._width = names, len(cells)
            self._held = (line.number, self._pairs(line, cells))
            return True
        if len(cells) != self._width:
            return False
        if self._held:
            self.sink.loose(*self._held)
            self._held = None
        self.sink.loose(line.number, self._pairs(line, cells))
        return True

    def _header(self, above: str, row: str, cells: list[str]) -> list[str]:
        """Return the names above the first row of a table, nothing if there are none or the open table is as wide."""
        names = _row_cells(above)
        open_end = bool(names) and names[-1].lower() in _AND_SO_ON and len(names) < len(cells)
        names = names[:-1] if open_end else names
        if not open_end and len(cells) == len(names) + 1 and above[:1].isspace() and _INDEX.match(row):
            names = ["", *names]  # pandas prints the index of a frame without a name
        if len(cells) == self._width or not (open_end or len(names) == len(cells)):
            return []
        return names if open_end or not names[0] or _aligned(above, row) else []

    def _pairs(self, line: Line, cells: list[str]) -> dict[str, str]:
        named = [
            (f"{name} %" if cell[-1] == "%" and "%" not in name else name, cell.removesuffix("%"))
            for name, cell in zip(self._names, cells, strict=False)
            if name and cell not in _ABSENT
        ]
        return self.sink.pairs(line, named)


def _as_row(text: str) -> str:
    """Return a line with blanks between its cells: without the sharp of savetxt, with tabs for the commas of CSV."""
    text = text.replace("#", " ", 1) if text.lstrip().startswith("# ") else text
    if len(text) <= _LONGEST and _SEPARATED.fullmatch(text):
        text = _EMPTY.sub(rf"\1{_ABSENT[0]}", text.strip()).replace(",", "\t").replace(";", "\t")
    return text


def _row_cells(text: str) -> list[str]:
    """Return the cells of a line; two numbers that run into each other are two cells."""
    cells = []
    for cell in _SIZE.sub(r" ‖\1‖ ", _COUNTS.sub("", text)).replace("|", " ").split():
        glued = _GLUED.fullmatch(cell)
        size = len(glued[3]) if glued else 0
        if glued and size < len(glued[2]) - 1:
            cells += [glued[1] + glued[2][:size], glued[2][size:] + glued[3]]
        else:
            cells.append(cell)
    return cells


def _aligned(names: str, numbers: str) -> bool:
    """Tell whether each number is below its name, or tabs or bars separate both; a wide number shifts the rest."""
    if names.strip().count("\t") == numbers.strip().count("\t") > 0:
        return True
    groups = [[len(part.split()) for part in text.split("|")] for text in (names, numbers)]
    if len(groups[0]) > 1 and groups[0] == groups[1]:
        return True  # as many cells between each two bars
    above, below = ([match.span() for match in _CELL.finditer(text.expandtabs())] for text in (names, numbers))
    moved, end = 0, 0
    for name, number in zip(above, below, strict=True):
        if number[1] - number[0] >= name[1] - end > 0:  # it fills its column, or more
            moved = number[1] - name[1]
        if name[0] + moved > number[1] or number[0] > name[1] + moved:
            return False
        end = name[1]
    return True
