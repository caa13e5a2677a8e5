"""What readers hand on: columns of one key layout at a time, never one object per record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen

if TYPE_CHECKING:
    from ppo_doctor.model import ConfigValue, FloatArray, IntArray, SourceRef


#: The one key of a configuration that only says where a code cell of a notebook begins.
CELL = "notebook cell"


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
    #: text cells by key: (record, text); bounded by the reader
    texts: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    #: keys of these records whose columns were not kept, because they can mean nothing to anyone
    others: frozenset[str] = frozenset()


@frozen
class EmbeddedConfig:
    """A training configuration that stood inside the log; nested keys joined by a dot."""

    values: Mapping[str, ConfigValue]
    source: SourceRef
