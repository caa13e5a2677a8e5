"""The runs of a fleet as the page holds them: columns, with dictionaries for what repeats, as JSON within HTML."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from os.path import commonprefix
from typing import Any, TypeAlias

import orjson

from ppo_doctor.fleets.row import Row
from ppo_doctor.fleets.summary import Record, gravity, is_benign, reason_of
from ppo_doctor.report.escape import plain
from ppo_doctor.report.html_markup import Markup
from ppo_doctor.report.key_steps import MATTERS

#: Columns of the table that the page does not read, and those that it does.
NOT_READ = {"size", "tool_version", "again", "evaluation", "movement", "signal", "numerics", "seconds"}
COLUMNS = tuple(each.name for each in fields(Row) if each.name not in NOT_READ and not each.name.startswith("checks_"))
#: Columns that tell how bad a run is.
GRAVE = ("verdict", "causes", "cause", "findings", "wasted", "modified")
#: The most runs of a page, and the most bytes of their columns; parts are left out in this order until they fit.
MOST_RUNS, MOST_BYTES = 10_000, 8_500_000
LEFT_OUT = ("metrics", "settings", "headline")
#: The longest path, sentence, and value of a setting in characters.
PATH, SENTENCE, VALUE = 1000, 400, 120
#: The most findings of a run.
MOST_FINDINGS = 20
_MAIN = tuple(name for names in MATTERS for name in names)

Columns: TypeAlias = dict[str, Any]


class Dictionary:
    """Distinct values in the order in which they came, and the place of each."""

    def __init__(self) -> None:
        self._places: dict[Any, int] = {}

    def put(self, value: Any) -> int:  # noqa: ANN401 - any that can be a key
        """Return the place of a value, a new one if it was not there."""
        return self._places.setdefault(value, len(self._places))

    def values(self) -> list[Any]:
        """Return the values."""
        return list(self._places)


class Pairs:
    """Named values of runs: names once for all runs that have the same, and values once where these agree on them."""

    def __init__(self) -> None:
        self._names: Dictionary = Dictionary()
        self._rows: list[tuple[int, list[Any]]] = []

    def put(self, pairs: Mapping[str, Any]) -> None:
        """Add the values of a run."""
        self._rows.append((self._names.put(tuple(pairs)), list(pairs.values())))

    def columns(self) -> Columns:
        """Return names and shared values by shape, and of each run its shape and the values that vary within it."""
        by_shape: dict[int, list[list[Any]]] = {}
        for shape, values in self._rows:
            by_shape.setdefault(shape, []).append(values)
        shared = {shape: [_only(each) for each in zip(*rows, strict=True)] for shape, rows in by_shape.items()}
        return {
            "names": [list(names) for names in self._names.values()],
            "shared": [shared[shape] for shape in range(len(shared))],
            "rows": [
                [shape, *(value for value, one in zip(values, shared[shape], strict=True) if one is None)]
                for shape, values in self._rows
            ],
        }


def _only(values: Sequence[Any]) -> Any:  # noqa: ANN401 - of the type of the values
    """Return the value that all are, or None."""
    return values[0] if values.count(values[0]) == len(values) else None


def limit_of(rows: Iterable[Record], runs: int) -> tuple[float, ...] | None:
    """Return how bad a run must be to be on the page, or None if all of them have room; `rows` have `GRAVE`."""
    if runs <= MOST_RUNS:
        return None
    return heapq.nsmallest(MOST_RUNS, map(gravity, rows))[-1]


def columns_of(
    rows: Iterable[Record], link: Callable[[Record], str] = lambda _: "", limit: tuple[float, ...] | None = None
) -> Columns:
    """Return the columns of runs at least as bad as `limit`; `link` returns where the report of a run lies, or ""."""
    table = _Table()
    for row in rows:
        grave = gravity(row)
        if (limit is None or grave <= limit) and len(table.grave) < MOST_RUNS:
            table.add(row, grave, link(row))
    return table.columns()


class _Table:
    def __init__(self) -> None:
        self.grave: list[tuple[float, ...]] = []
        self._words = {name: Dictionary() for name in WORDS}
        self._about = {name: Dictionary() for name in ("findings", "causes", "setting_values")}
        self._columns: Columns = {
            name: [] for name in (*WORDS, *PLAIN, "run", "source", "report", "findings", "causes")
        }
        self._settings, self._metrics = Pairs(), Pairs()

    def add(self, row: Record, grave: tuple[float, ...], link: str) -> None:
        self.grave.append(grave)
        columns = self._columns
        for name, words in WORDS.items():
            columns[name].append(self._words[name].put(plain(words(row), SENTENCE)))
        for name, value in PLAIN.items():
            columns[name].append(value(row))
        columns["run"].append(plain(row["run"], PATH))
        columns["source"].append("" if row["source"] == row["run"] else plain(row["source"], PATH))
        columns["report"].append(link)
        columns["findings"].append(self._findings(row))
        columns["causes"].append([self._cause(each) for each in row["causes"]])
        values = self._about["setting_values"]
        pairs = {plain(name, VALUE): values.put(plain(value, VALUE)) for name, value in row["settings"]}
        self._settings.put(pairs)
        self._metrics.put(_metrics(row))

    def _findings(self, row: Record) -> list[int | None]:
        """Return the place of each finding, followed by the step since which it holds."""
        found: list[int | None] = []
        for each in row["findings"][:MOST_FINDINGS]:
            about = (plain(each["id"]), each["severity"], plain(each["title"], SENTENCE))
            found += [self._about["findings"].put(about), each["since_step"]]
        return found

    def _cause(self, cause: Mapping[str, Any]) -> int:
        return self._about["causes"].put((plain(cause["id"]), cause["confidence"], cause["severity"], cause["benign"]))

    def columns(self) -> Columns:
        order = sorted(range(len(self.grave)), key=self.grave.__getitem__)
        rank = [0] * len(order)
        for place, at in enumerate(order):
            rank[at] = place
        names = self._columns["run"]
        folders = [name.rpartition("/")[0] for name in names]
        unique = len(set(folders)) == len(folders) > 1
        shared = commonprefix(folders if unique else names) if len(names) > 1 else ""
        return {
            **self._columns,
            "words": {name: each.values() for name, each in self._words.items()},
            "about": {name: each.values() for name, each in self._about.items()},
            # how a run is named in short: without what all names begin with, and by its folder if that is its own
            "prefix": shared.rfind("/") + 1,
            "folders": unique,
            "rank": rank,
            "settings": self._settings.columns(),
            "metrics": self._metrics.columns(),
        }


def _metrics(row: Record) -> dict[str, Any]:
    """Return the main metrics, each at start and end."""
    start, end = dict(row["metrics_start"]), dict(row["metrics_end"])
    return {name: [_short(start[name]), _short(end[name])] for name in _MAIN if name in start and name in end}


def _short(value: float | None) -> float | None:
    """Return a number with four digits."""
    return None if value is None else float(f"{value:.4g}")


def _what(row: Record) -> str:
    """Return in a few words what a run has: the cause that leads, else the first finding, else why it failed."""
    if row["status"] == "failed":
        return reason_of(row)
    if row["cause"] and not is_benign(row):
        return str(row["cause"])
    return str(row["findings"][0]["title"]) if row["findings"] else ""


#: Columns of words, which a dictionary holds once, and other columns, by what they are of a row.
WORDS: Mapping[str, Callable[[Record], str]] = {
    "verdict": lambda row: row["verdict"] or row["status"],
    "metric": lambda row: row["outcome_metric"],
    "what": _what,
    "headline": lambda row: row["headline"] or row["error"],
    **{
        name: itemgetter(name)
        for name in ("outcome", "trainer", "algorithm", "model", "environment", "confidence", "cause")
    },
}
PLAIN: Mapping[str, Callable[[Record], Any]] = {
    "start": lambda row: _short(row["outcome_start"]),
    "best": lambda row: _short(row["outcome_best"]),
    "end": lambda row: _short(row["outcome_end"]),
    "since": lambda row: row["onset_step"],
    "updates": lambda row: _short(row["updates_per_batch"]),
    "records": lambda row: row["records"],
    "last": lambda row: row["last_step"],
    "wasted": lambda row: None if row["wasted"] is None else round(100 * row["wasted"]),
    "modified": lambda row: int(row["modified"]),
}


def embedded(columns: Columns) -> tuple[Markup, tuple[str, ...]]:
    """Return columns as an element that a page holds, and the parts that were left out because they did not fit."""
    kept = dict(columns)
    text, gone = orjson.dumps(kept), []
    for name in LEFT_OUT:
        if len(text) <= MOST_BYTES:
            break
        kept = _without(kept, name)
        gone.append(name)
        text = orjson.dumps(kept)
    # An element of a script ends at "</script" wherever that stands; in JSON "<" may be an escape.
    safe = text.decode().replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="data">{safe}</script>'), tuple(gone)


def _without(columns: Columns, name: str) -> Columns:
    """Return columns without one: each run has no values of it."""
    runs = len(columns["run"])
    if name == "headline":
        return {**columns, name: [0] * runs, "words": {**columns["words"], name: [""]}}
    empty = {"names": [[]], "shared": [[]], "rows": [[0]] * runs}
    about = {**columns["about"], "setting_values": []} if name == "settings" else columns["about"]
    return {**columns, name: empty, "about": about}


def counted(columns: Columns, name: str) -> list[tuple[str, int]]:
    """Return the words of a column with the numbers of their runs, the most frequent first."""
    words: list[str] = columns["words"][name]
    places: list[int] = columns[name]
    return [(words[at], runs) for at, runs in Counter(places).most_common() if words[at]]
