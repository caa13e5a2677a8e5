"""Read tables of text separated by commas, tabs or semicolons, with or without a header, resumed or damaged.

Two kinds of download are renamed: curves of TensorBoard, whose metric is in the name of the file, and charts of W&B,
which have a column per run and metric, with its smallest and largest value in two more.
"""

from __future__ import annotations

import csv
import re
import struct
from collections import Counter
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
import orjson

from ppo_doctor.model.run import SourceRef
from ppo_doctor.readers.jsonl import parse_lenient
from ppo_doctor.readers.pack import Packer, disguise
from ppo_doctor.readers.sniffing import cells_of, delimiter_of, leading_columns
from ppo_doctor.readers.table import EmbeddedConfig, renamed
from ppo_doctor.readers.values import LONGEST_TEXT, Values, config_values, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ppo_doctor.readers import Item
    from ppo_doctor.readers.source import Source
    from ppo_doctor.readers.table import Table

#: Rows after each flush whose text is read, to learn the decimals of each column.
_SAMPLE = 64
#: First rows, which show how many columns continue.
_HEAD = 60
#: Lines that a quoted cell may span; an odd quote must not swallow the rest of the file.
_LONGEST_CELL = 20
_NANS = (b"nan", b"NaN")
_INFINITIES = (b"Infinity", b"inf")


_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?\Z")


def read(source: Source) -> Iterator[Item]:
    """Yield the rows of a table of numbers; a blank cell is an absent key.

    A row with too many or too few cells is skipped with a note, because its cells cannot be assigned to columns.
    """
    reader = _Reader(source)
    for chunk in source.chunks():
        source.line += reader.take(chunk, source.line)
        yield from reader.ready()
    yield from reader.end()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes = source.notes
        self._values = Values(source.notes)
        self._packer = Packer(source.path, source.notes)
        lines = source.head().decode("utf-8", "replace").replace("\r", "\n").split("\n")
        self._delimiter = delimiter_of(lines) or ","
        rows = [line.rstrip("\r") for line in lines if line.strip() and not line.startswith("#")]
        #: number of the first columns if only they continue below the first row, or 0
        self._leading = leading_columns([cells_of(row, self._delimiter) for row in rows[:_HEAD]])
        self._names: tuple[str, ...] = ()
        self._further: tuple[str, ...] = ()
        self._configs: list[EmbeddedConfig] = []
        #: rows to be read by their text before the fast path may take over
        self._to_sample = _SAMPLE
        #: how lines are prepared for the JSON parser
        self._tidy: Callable[[bytes], bytes] = bytes
        #: lines of a row whose quoted cell is still open, and the number of the first
        self._open: list[bytes] = []
        self._open_at = 0

    def take(self, chunk: bytes, first: int) -> int:
        """Read some whole lines, of which the first is number `first`, and return how many they are."""
        rest, more, line = chunk, b"\n", first
        while more and (self._to_sample > 0 or self._open):
            row, more, rest = rest.partition(b"\n")
            self._by_text(row, line)
            line += 1
        if not more:
            return line - first
        taken = self._by_number(rest, line)
        if not taken:
            rows = rest.split(b"\n")
            taken = len(rows)
            for number, row in enumerate(rows, line):
                if not self._by_number(row, number):
                    self._by_text(row, number)
        return line + taken - first

    def ready(self) -> Iterator[Item]:
        """Yield new configurations, and the records if there are enough of them."""
        yield from self._configs
        self._configs = []
        if self._packer.full:
            self._to_sample = _SAMPLE
            yield from self._tables()

    def end(self) -> Iterator[Item]:
        """Yield the remaining records."""
        while self._open:
            self._give_up_quote()
        if not self._source.ended:
            self._notes.tell("end", "the last line has no end; it may be cut off")
        yield from self._configs
        yield from self._tables()

    def _tables(self) -> Iterator[Table]:
        runs = _exported_runs(self._names)
        for table in self._packer.flush():
            yield from _by_run(table, runs) if runs else (named_curve(table),)
        if len(runs) > 1:
            text = f"a W&B export of {len(runs)} runs, told apart by their number: {', '.join(runs)[:200]}"
            self._notes.tell_once("exports", "runs", text)

    def _by_number(self, chunk: bytes, line: int) -> int:
        """Read lines of plain numbers and blanks with the JSON parser, and return their number; 0 for other lines."""
        rows = None if self._open else self._parsed(chunk)
        if rows is None:
            return 0
        packer = self._packer
        layout = packer.layout(self._names)
        pack, buffer, ordinal = layout.pack, layout.buffer, packer.ordinal
        for number, row in enumerate(rows, line):
            try:
                buffer += pack(ordinal, number, *row)
                ordinal += 1
            except (struct.error, OverflowError):  # a blank, or a wrong number of cells
                packer.ordinal = ordinal
                self._uneven(row, number)
                ordinal = packer.ordinal
        packer.ordinal = ordinal
        return len(rows)

    def _parsed(self, chunk: bytes) -> list[list[float | None]] | None:
        """Return the cells of each line as the JSON parser reads them, or None if they may be no numbers."""
        # These characters could change the structure of the JSON.
        if b'"' in chunk or b"]" in chunk or b"}" in chunk:
            return None
        if self._delimiter != ",":
            if b"," in chunk:
                return None
            chunk = chunk.replace(self._delimiter.encode(), b",")
        # Blanks and NaN are replaced only after the parser refused them: searching costs a tenth of parsing.
        for attempt in (self._tidy, _tidy):
            try:
                rows: list[list[float | None]] = orjson.loads(b"[[" + attempt(chunk).replace(b"\n", b"],[") + b"]]")
            except orjson.JSONDecodeError:
                continue
            self._tidy = attempt
            self._packer.disguised |= attempt is _tidy
            return rows
        return None

    def _uneven(self, row: Sequence[float | None], line: int) -> None:
        while len(row) > len(self._names) and row[-1] is None:
            row = row[:-1]
        if not row:
            return  # a blank line
        if len(row) != len(self._names):
            self._wrong_width(len(row), line)
            return
        cells = zip(self._names, row, strict=True)
        self._packer.add(line, {name: value for name, value in cells if value is not None})

    def _wrong_width(self, width: int, line: int) -> None:
        detail = f"{width} instead of {len(self._names)}"
        self._notes.skip("its number of cells is not that of the header", line, detail=detail)

    def _by_text(self, row: bytes, line: int) -> None:
        """Read one line of any kind: with quotes, texts, a header, a comment, or numbers in any spelling."""
        if self._open or row.count(b'"') % 2:
            self._quoted(row, line)
            return
        if b"\r" in row.rstrip(b"\r") and b'"' not in row:  # a newline of old systems
            for part in filter(None, row.split(b"\r")):
                self._by_text(part, line)
            return
        cells = self._cells(row, line)
        if not any(cell and not cell.isspace() for cell in cells) and len(cells) < 2:
            return
        if row.startswith(b"#") and self._comment(row, line):
            return
        if not self._names or self._is_header(cells):
            self._header(cells, line)
        elif len(cells) == len(self._names):
            self._row(cells, line)
        elif self._leading and len(cells) > self._leading:
            self._settings(cells, line)
        else:
            self._wrong_width(len(cells), line)

    def _cells(self, row: bytes, line: int) -> list[str]:
        text = row.decode("utf-8", "replace").strip("\0").removesuffix("\r")
        try:
            cells = next(csv.reader([text], delimiter=self._delimiter), [])
        except csv.Error as error:
            self._notes.skip("not a row", line, detail=str(error))
            return []
        while len(cells) > len(self._names) > 0 and not cells[-1].strip():
            cells.pop()
        return cells

    def _quoted(self, row: bytes, line: int) -> None:
        """Join the lines of a quoted cell."""
        if not self._open:
            self._open_at = line
        self._open.append(row)
        joined = b"\n".join(self._open)
        if joined.count(b'"') % 2 == 0:
            self._open = []
            self._by_text(joined, self._open_at)
        elif len(self._open) > _LONGEST_CELL:
            self._give_up_quote()

    def _give_up_quote(self) -> None:
        """Skip the line with the odd quote, and read the lines after it one by one.

        A header is read without its quotes, because the rest of the file needs it.
        """
        (first, *behind), line = self._open, self._open_at
        self._open = []
        if self._names:
            self._notes.skip("a quote is never closed", line)
        else:
            self._notes.tell("quote", "a quote is never closed; it is read without", line)
            self._by_text(first.replace(b'"', b""), line)
        for number, row in enumerate(behind, line + 1):
            self._by_text(row, number)

    def _comment(self, row: bytes, line: int) -> bool:
        """Read a comment, and return whether it is one; that of a Monitor file of SB3 or baselines holds JSON."""
        if self._names and self._names[0].startswith("#"):
            return False
        try:
            config = parse_lenient(row.lstrip(b"# "), self._values, line)
        except (ValueError, RecursionError):
            config = None
        if isinstance(config, dict):
            source = SourceRef(path=self._source.path, line=line)
            self._configs.append(EmbeddedConfig(values=config_values(config), source=source))
            return True
        if self._names or len(self._cells(row, line)) < 2:
            self._notes.tell("comment", f"a comment: {row[:80].decode('utf-8', 'replace')}", line)
            return True
        return False  # "# step, loss": a header behind a hash

    def _is_header(self, cells: list[str]) -> bool:
        """Return whether a row in the middle of a file is a header, as a resumed run writes, and no row of texts."""
        if not cells or not all(isinstance(parse(cell), str) for cell in cells) or len(set(cells)) < len(cells):
            return False
        known = {cell.strip() for cell in cells}.intersection(self._names)
        return bool(known) or len(cells) != len(self._names) > 1 < len(cells)

    def _header(self, cells: list[str], line: int) -> None:
        names = tuple(cell.strip() or f"column_{i}" for i, cell in enumerate(cells, 1))
        numbers = sum(isinstance(parse(cell), float) for cell in cells)
        if not self._names and 2 * numbers > sum(bool(cell.strip()) for cell in cells):
            self._names = tuple(f"column_{i}" for i in range(1, len(cells) + 1))
            self._notes.tell("header", "there is no header; the columns are numbered", line)
            self._row(cells, line)
            return
        if self._names:
            changed = "is repeated" if names == self._names else "changes"
            self._notes.tell("header", f"the header {changed} here, as when a run is resumed", line)
        for name in (name for name, count in Counter(names).items() if count > 1):
            text = f"two columns are named {name}; the later one counts"
            self._notes.tell_once("they name two columns", name, text, line)
        self._further = names[self._leading :] if self._leading else ()
        self._names = names[: self._leading] if self._leading else names

    def _settings(self, cells: list[str], line: int) -> None:
        """Read the row that has cells beyond the columns that continue, which are settings."""
        self._row(cells[: self._leading], line)
        further = zip(self._further, cells[self._leading :], strict=False)
        values = {name: self._values.of_text(name, cell, line) for name, cell in further if cell.strip()}
        source = SourceRef(path=self._source.path, line=line)
        self._configs.append(EmbeddedConfig(values=config_values(values), source=source))

    def _row(self, cells: list[str], line: int) -> None:
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        written = dict(zip(self._names, cells, strict=False))
        for name, cell in written.items():
            value = self._values.of_text(name, self._with_point(name, cell, line), line)
            if isinstance(value, str):
                texts[name] = value[:LONGEST_TEXT]
            elif value is not None:
                numbers[name] = value
        self._packer.add(line, numbers, texts)
        self._packer.printed(numbers, written)
        self._to_sample -= 1

    def _with_point(self, name: str, cell: str, line: int) -> str:
        if self._delimiter == ";" and _DECIMAL_COMMA.match(cell):
            self._notes.tell_once("decimal commas", name, f"{name} is written with a decimal comma", line)
            return cell.replace(",", ".")
        return cell


def _tidy(text: bytes) -> bytes:
    """Return lines with numbers for NaN and infinity, and a null for every blank cell; an empty line stays empty."""
    text = disguise(text.replace(b"\r\n", b"\n").removesuffix(b"\r"), _NANS, _INFINITIES)
    text = text.replace(b",,", b",null,").replace(b",,", b",null,")
    text = b"\n" + text + b"\n"
    return text.replace(b",\n", b",null\n").replace(b"\n,", b"\nnull,")[1:-1]


#: The columns of a curve that was downloaded as CSV; the last is what the name of the file says.
_CURVE = frozenset({"Wall time", "Step", "Value"})
_VALUE = "Value"
#: "run-PPO_1-tag-train_approx_kl.csv": slashes of the tag are written as underscores.
_TAG = re.compile(r"(?:.*[-_])?tag-(.+)")
#: What a browser adds to a second download.
_AGAIN = re.compile(r" ?\(\d+\)$")
#: First words of tags that are the group and not the name.
_GROUPS = frozenset(
    {
        *("train", "training", "rollout", "eval", "evaluation", "test", "val", "time", "charts", "losses", "loss"),
        *("policy", "environment", "env", "perf", "completions", "objective", "actor", "critic", "info", "ray"),
        *("reward", "rewards", "global", "learner", "update", "stats", "metrics"),
    }
)
_LEAST, _GREATEST, _BETWEEN = "__MIN", "__MAX", " - "
#: The column that tells the runs of an export apart.
_RUN = "run"
#: What W&B calls the axis elsewhere.
_AXES = {"Step": "_step"}


def _exported_runs(columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each run of a W&B chart: column → metric, for its own and for shared columns; empty for others."""
    present = set(columns)
    metrics = [name for name in columns if {name + _LEAST, name + _GREATEST} <= present and _BETWEEN in name]
    ranges = {name + suffix for name in metrics for suffix in (_LEAST, _GREATEST)}
    common = {name: _AXES.get(name, name) for name in columns if name not in ranges and name not in metrics}
    runs: dict[str, dict[str, str]] = {}
    for name in metrics:
        run, _, metric = name.rpartition(_BETWEEN)
        runs.setdefault(run, dict(common))[name] = metric
    return runs


def _by_run(table: Table, runs: Mapping[str, Mapping[str, str]]) -> Iterator[Table]:
    """Yield a table for each run with the trainer's names; the runs are numbered if there are several."""
    count = len(runs)
    for place, (run, names) in enumerate(runs.items()):
        kept = {column: name for column, name in names.items() if column in table.columns}
        if not any(column == f"{run}{_BETWEEN}{name}" for column, name in kept.items()):
            continue
        columns = {name: table.columns[column] for column, name in kept.items()}
        if count > 1:
            columns[_RUN] = np.full(len(table.records), place + 1.0)
        yield replace(
            table,
            records=table.records * count + place,
            columns=columns,
            decimals={kept[key]: places for key, places in table.decimals.items() if key in kept},
            texts={
                kept[key]: tuple((record * count + place, text) for record, text in cells)
                for key, cells in table.texts.items()
                if key in kept
            },
            texts_left={kept[key]: left for key, left in table.texts_left.items() if key in kept},
        )


def tag_of(path: str) -> str:
    """Return the name of the curve in a file: its tag, with a slash after its group, or the name of the file."""
    stem = _AGAIN.sub("", PurePath(path.replace("\\", "/")).name.partition(".csv")[0].partition(".json")[0])
    found = _TAG.fullmatch(stem)
    group, mark, name = (found[1] if found else stem).partition("_")
    return f"{group}/{name}" if found and mark and name and group.lower() in _GROUPS else group + mark + name


def named_curve(table: Table) -> Table:
    """Return the table of a downloaded curve with its values under the name of the curve, any other as it is."""
    if not table.columns.keys() <= _CURVE or _VALUE not in table.columns:
        return table
    return renamed(table, {_VALUE: tag_of(table.path)})
