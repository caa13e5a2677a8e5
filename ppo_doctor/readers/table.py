"""The results of readers: tables of records with the same keys, and configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern

if TYPE_CHECKING:
    from ppo_doctor.model.run import CodePlace, FloatArray, IntArray, SourceRef
    from ppo_doctor.model.words import ConfigValue

#: The only key of a configuration that marks the beginning of a code cell in a notebook.
CELL = "notebook cell"
#: Decimals of a 0 that is printed with an exponent, where any other number would be visible.
SCIENTIFIC = 300
#: Columns whose values name a run when a log holds several.
RUN_KEYS = ("run", "run_id", "run_name", "seed", "exp_name", "experiment", "trial", "trial_id")
#: Columns whose values name the method of a record, and the only key of a configuration that names the method of the
#: records that follow.
METHOD_KEYS = ("algo", "algorithm", "method", "alg")
SECTION = "section of a method"
#: The name of a column in a table without a header.
NUMBERED = lazy_pattern(r"column_(\d+)")


@frozen(eq=False)
class Table:
    """Records of one source with the same keys, as dense columns under the names of the trainer.

    `records` (0-based position of each record in its source, strictly increasing), `lines` (1-based line, or the record
    number in a container without lines) and every column have shape [rows]. A record with other keys is in another
    table; the records of several tables may interleave. NaN and infinity are values; a missing cell is never a NaN.
    """

    path: str
    records: IntArray
    lines: IntArray
    columns: Mapping[str, FloatArray]
    #: number of decimals of each column that was printed in a fixed notation, which bounds its resolution
    decimals: Mapping[str, int] = field(default_factory=dict)
    #: text cells by key as (record, text): all that name a run, and a bounded number of others
    texts: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    #: number of text cells of a key that are not in `texts`
    texts_left: Mapping[str, int] = field(default_factory=dict)
    #: keys of these records whose columns were dropped, because nothing uses them
    others: frozenset[str] = frozenset()


@frozen
class EmbeddedConfig:
    """A training configuration inside a log, with nested keys joined by a dot."""

    values: Mapping[str, ConfigValue]
    source: SourceRef


@frozen
class ScriptPlaces:
    """The lines of a training script at which metrics were observed, by metric."""

    places: Mapping[str, CodePlace]


def numbered_columns(keys: Iterable[str]) -> int:
    """Return the number of columns of a table without a header, whose columns are numbered; 0 for any other table."""
    matches = [NUMBERED.fullmatch(key) for key in keys]
    return max((int(match[1]) for match in matches if match), default=0) if all(matches) else 0


#: A name that ends in a number, as of one of several environments, workers or agents that take turns.
_ONE_OF_SEVERAL = lazy_pattern(r"(.*\w)[ _./-](\d{1,4})")


def of_several(tables: Iterable[Table]) -> list[Table]:
    """Return tables with one name for names that differ only in their last number, if no record has two of them."""
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
