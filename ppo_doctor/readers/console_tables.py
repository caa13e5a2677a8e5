"""Tables with a header: with pipes (Unsloth's notebooks, Markdown), drawn as grids, or aligned by blanks."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from ppo_doctor.readers.console_base import NUMBER, Dialect

if TYPE_CHECKING:
    from ppo_doctor.readers.console_base import Line, Sink

#: A rule below a header: of Markdown, or of psql, which draws it without an edge.
_DASHES = r"(?::?-{2,}:?|:-:)"
_RULE = re.compile(rf"(?:\|? ?{_DASHES} *(?:\| *{_DASHES} *)+\|?|-{{2,}}(?:\+-{{2,}})+)\Z")
#: A rule of a grid; two columns are a box.
_GRID = re.compile(r"[+|][-=]{3,}(?:\+[-=]{3,}){2,}[+|]\Z")
_NUMBER = re.compile(NUMBER)
#: A name in one word, perhaps with a sign before it, and its unit: "±Bel", "H[bit]", "clip‰", "rho^".
_NAME = re.compile(r"[±<>~#$∇Δ‖]?[^\W\d][][\w./%‰()^*'<>°±‖+-]{0,99}")
#: The header of a grid's column: words with one blank between them.
_TITLE = re.compile(r"\S++(?: \S++){0,9}")
_CELL = re.compile(r"[^\s|]+")
#: Two numbers of a table whose columns are too narrow for them ("-1.43170275175661.57"), as many decimals in each.
_GLUED = re.compile(r"([-+]?\d+\.)(\d+\.)(\d{1,6})")
#: The size of something, where bars stand between columns too.
_SIZE = re.compile(r"(?<![^\s|])\|([^\W\d_]{1,4})\|(?![^\s|])")
#: Counts in brackets behind the last column, which has no name.
_COUNTS = re.compile(r"\[[\d.,\s]*\]\s*\Z")
#: The number that a frame gives the first rows of its own.
_INDEX = re.compile(r"\s*\d+\s")
#: Columns of a table without rules: fewer words above numbers are prose.
_FEWEST_COLUMNS = 3
#: The last word of a header that names no more columns (ElegantRL).
_AND_SO_ON = ("etc", "etc.", "...")
#: A rule between names and numbers.
_BETWEEN = re.compile(r"[\s=-]*[=-]{3}[\s=-]*")
#: Longer lines are no row.
_LONGEST = 1 << 12


class Pipes(Dialect):
    """Reads one record per row, once a header and a rule of dashes have been seen."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._above: list[str] = []
        self._names: list[str] = []

    def take(self, line: Line) -> bool:
        """Read a header, a rule or a row."""
        text = line.text.strip()
        if _RULE.match(text):
            self._names = self._above if len(self._above) == len(_cells(text.replace("+", "|"))) else []
            return bool(self._names)
        if "|" not in text:
            self._names, self._above = [], []
            return False
        cells = _cells(text)
        self._above = cells
        if not self._names:
            return False
        if len(cells) != len(self._names) and not (line.torn and len(cells) < len(self._names)):
            detail = f"{len(cells)} instead of {len(self._names)}"
            self.sink.notes.skip("its number of cells is not that of the header", line.number, detail=detail)
            return True
        self.sink.cells(line.number, self.sink.pairs(line, list(zip(self._names, cells, strict=False))))
        return True


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().removeprefix("|").removesuffix("|").split("|")]


def _below(rule: str, text: str) -> list[str]:
    """Return the cells of a row that has a bar below each corner of a rule; none where letters are wider than signs."""
    corners = [at for at, sign in enumerate(rule) if sign in "+|"]
    if len(rule) != len(text) or any(text[at] != "|" for at in corners):
        return []
    return [text[start + 1 : end].strip() for start, end in pairwise(corners)]


class Grids(Dialect):
    """Reads one record per row of a grid; grids of other columns below each other are one that was too wide."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._names: list[str] = []
        self._cells: dict[str, str] = {}
        self._first = 0
        #: the last rule: a bar that does not stand below one of its corners is a part of a name ("|advantage|")
        self._rule = ""
        #: whether the line before was a rule, and whether the open grid has a row
        self._ruled = self._has_row = False

    def take(self, line: Line) -> bool:
        """Read a rule, a header or a row; any other line ends the grids."""
        text = line.text.strip()
        if _GRID.match(text):
            self._names = [] if self._ruled else self._names
            self._ruled, self._rule = True, text
            return True
        ruled, self._ruled = self._ruled, False
        if not (text.startswith("|") and text.endswith("|") and (ruled or self._names)):
            self.finish()
            return False
        cells = _below(self._rule, text) or _cells(text)
        if self._names and any(map(_NUMBER.fullmatch, cells)):
            self._add(line, cells)
        elif ruled and all(map(_TITLE.fullmatch, cells)) and not any(map(_NUMBER.fullmatch, cells)):
            self._names, self._has_row = cells, False
        else:
            self.finish()
            return False
        return True

    def finish(self) -> None:
        """Hand on the row that is open."""
        if self._cells:
            self.sink.loose(self._first, self._cells)
        self._names, self._cells = [], {}

    def _add(self, line: Line, cells: list[str]) -> None:
        """Add a row to the record of the grids above it, or begin one."""
        if len(cells) != len(self._names):
            detail = f"{len(cells)} instead of {len(self._names)}"
            self.sink.notes.skip("its number of cells is not that of the header", line.number, detail=detail)
            return
        if self._cells and (self._has_row or not self._cells.keys().isdisjoint(self._names[1:])):
            self.sink.loose(self._first, self._cells)
            self._cells = {}
        self._first = self._first if self._cells else line.number
        self._cells |= self.sink.pairs(line, list(zip(self._names, cells, strict=True)))
        self._has_row = True


#: Where a cell between commas or semicolons is empty, and what stands for one that is.
_EMPTY, _ABSENT = re.compile(r"([,;])(?=[,;]|\Z)"), ("-", "--", ".", "n/a")
#: Cells between commas or semicolons, without a blank, as many as make a table.
_SEPARATED = re.compile(r"\s*[^\s,;]++(?:[,;][^\s,;]*+){3,}\s*")


class Rows(Dialect):
    """Reads rows of numbers below a line of as many names, which may come once; two rows make a table."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._names: list[str] = []
        #: numbers in a row of the table, of which the last may have no name
        self._width = 0
        #: the line before where it may hold names, and the first row while it is the only one
        self._above = ""
        self._held: tuple[int, dict[str, str]] | None = None

    def take(self, line: Line) -> bool:
        """Read a row; a line of names is remembered."""
        if _BETWEEN.fullmatch(line.text):
            return False
        above, self._above = self._above, ""
        # NumPy's savetxt and gnuplot take a line of names behind this sign
        text = line.text.replace("#", " ", 1) if line.text.lstrip().startswith("# ") else line.text
        if len(text) <= _LONGEST and _SEPARATED.fullmatch(text):  # a CSV file, pasted among words
            text = _EMPTY.sub(rf"\1{_ABSENT[0]}", text.strip()).replace(",", "\t").replace(";", "\t")
        cells = _numbers(text) if len(text) <= _LONGEST else []
        if len(cells) < _FEWEST_COLUMNS:
            return False
        if not all(cell in _ABSENT or _NUMBER.fullmatch(cell.removesuffix("%")) for cell in cells):
            self._above = text if all(map(_NAME.fullmatch, cells)) and len(set(cells)) == len(cells) else ""
            return False
        # Of names as many as those of the table, which may be a message, those of the table count.
        names = _numbers(above)
        open_end = bool(names) and names[-1].lower() in _AND_SO_ON and len(names) < len(cells)
        names = names[:-1] if open_end else names
        if not open_end and len(cells) == len(names) + 1 and above[:1].isspace() and _INDEX.match(line.text):
            names = ["", *names]  # a frame that pandas prints numbers its rows, without a name
        known = open_end or len(names) == len(cells)
        if known and len(cells) != self._width and (open_end or not names[0] or _aligned(above, text)):
            self._names, self._width = names, len(cells)
            self._held = (line.number, self._pairs(line, names, cells))
            return True
        if len(cells) != self._width:
            return False
        if self._held:
            self.sink.loose(*self._held)
            self._held = None
        self.sink.loose(line.number, self._pairs(line, self._names, cells))
        return True

    def _pairs(self, line: Line, names: list[str], cells: list[str]) -> dict[str, str]:
        held = [
            (f"{name} %" if cell[-1] == "%" and "%" not in name else name, cell.removesuffix("%"))
            for name, cell in zip(names, cells, strict=False)
            if name and cell not in _ABSENT
        ]
        return self.sink.pairs(line, held)


def _numbers(text: str) -> list[str]:
    """Return the cells of a line; two numbers without a blank between them are two."""
    cells = []
    for cell in _SIZE.sub(r" ‖\1‖ ", _COUNTS.sub("", text)).replace("|", " ").split():
        glued = _GLUED.fullmatch(cell)
        size = len(glued[3]) if glued else 0
        cells += (
            [glued[1] + glued[2][:size], glued[2][size:] + glued[3]] if glued and size < len(glued[2]) - 1 else [cell]
        )
    return cells


def _aligned(names: str, numbers: str) -> bool:
    """Tell whether each number stands below its name, or tabs or bars set both; one that is wider moves the rest."""
    if names.strip().count("\t") == numbers.strip().count("\t") > 0:
        return True
    groups = [[len(part.split()) for part in text.split("|")] for text in (names, numbers)]
    if len(groups[0]) > 1 and groups[0] == groups[1]:
        return True  # as many between each two bars
    above, below = ([found.span() for found in _CELL.finditer(text.expandtabs())] for text in (names, numbers))
    moved, end = 0, 0
    for name, number in zip(above, below, strict=True):
        if number[1] - number[0] >= name[1] - end > 0:  # it fills its column, or more
            moved = number[1] - name[1]
        if name[0] + moved > number[1] or number[0] > name[1] + moved:
            return False
        end = name[1]
    return True
