"""The result of a reader: columns of one key layout at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model.run import FloatArray, IntArray, SourceRef
    from ppo_doctor.model.words import ConfigValue

#: The one key of a configuration that only says where a code cell of a notebook begins.
CELL = "notebook cell"
#: Decimals of a 0 that is printed with a power of ten: what is not 0 would show.
SCIENTIFIC = 300
#: Columns whose values name a run when a log holds several.
RUN_KEYS = ("run", "run_id", "run_name", "seed", "exp_name", "experiment", "trial", "trial_id")
#: Columns whose values name the method that a record is of, and the one key of a configuration that only says of which
#: method the records from its line on are.
METHOD_KEYS = ("algo", "algorithm", "method", "alg")
SECTION = "section of a method"
#: What a column is called that has no name.
NUMBERED = re.compile(r"column_(\d+)")


@frozen(eq=False)
class Table:
    """Records of one source that hold the same keys, as dense columns in native names.

    `records` (0-based place of each record in its source, strictly increasing) and `lines` (1-based line, or record
    number where a container has no lines) have shape [rows], and so has every column. A record whose keys differ goes
    into another table; tables of one source may interleave, `records` tells the order. NaN and infinity are values; a
    missing cell is an absent key, so never a NaN.
    """

    path: str
    records: IntArray
    lines: IntArray
    columns: Mapping[str, FloatArray]
    #: most decimals ever printed in a column, where the reader saw the text (a bound on its resolution)
    decimals: Mapping[str, int] = field(default_factory=dict)
    #: text cells by key: (record, text); all of those that name a run, of others as many as the reader keeps
    texts: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    #: how many text cells of a key stand beyond those in `texts`
    texts_left: Mapping[str, int] = field(default_factory=dict)
    #: keys of these records whose columns were not kept, because they can mean nothing to anyone
    others: frozenset[str] = frozenset()


@frozen
class EmbeddedConfig:
    """A training configuration that stood inside the log; nested keys joined by a dot."""

    values: Mapping[str, ConfigValue]
    source: SourceRef


def numbered_columns(keys: Iterable[str]) -> int:
    """Return how many columns a table without a header has, which are called by their numbers; 0 for any other."""
    found = [NUMBERED.fullmatch(key) for key in keys]
    return max((int(match[1]) for match in found if match), default=0) if all(found) else 0


#: A name that ends in a number: one of several environments, workers or agents that take turns.
_ONE_OF_SEVERAL = re.compile(r"(.*\w)[ _./-](\d{1,4})")


def of_several(tables: Iterable[Table]) -> list[Table]:
    """Return tables in which names that differ in their last number, of which no record has two, are one name."""
    held = list(tables)
    stems: dict[str, set[str]] = {}
    for key in frozenset().union(*(table.columns for table in held)):
        if found := _ONE_OF_SEVERAL.fullmatch(key):
            stems.setdefault(found[1], set()).add(key)
    names = {
        key: stem
        for stem, keys in stems.items()
        if len(keys) > 1 and not any(stem in t.columns or len(keys & t.columns.keys()) > 1 for t in held)
        for key in keys
    }
    return [renamed(table, names) if names else table for table in held]


def renamed(table: Table, names: Mapping[str, str]) -> Table:
    """Return a table with other names for some of its columns."""
    if names.keys().isdisjoint(table.columns):
        return table
    return replace(
        table,
        columns={names.get(key, key): values for key, values in table.columns.items()},
        decimals={names.get(key, key): places for key, places in table.decimals.items()},
        texts={names.get(key, key): cells for key, cells in table.texts.items()},
        texts_left={names.get(key, key): count for key, count in table.texts_left.items()},
        others=frozenset(names.get(key, key) for key in table.others),
    )
