"""Runs and series: the place, the estimator and the precision of each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import ConfigValue, How, KeyUse, NoteEvent, NoteKind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from ppo_doctor.model.rules import Evidence

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]


@frozen
class SourceRef:
    """Where a number came from: a file, its line (or record) counted from 1, and the key as written there."""

    path: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


#: What a line of a script does with what was observed → the words before its place; "" is any other part of it.
ROLES: Mapping[str, str] = {
    "": "also at",
    "called": "called from",
    "computed": "computed at",
    "set": "set at",
    "built": "built at",
    "sampled": "sampled at",
    "scored": "scored at",
    "chosen": "chosen at",
    "changed": "changed at",
    "used": "used at",
    "left": "left at",
}


@frozen
class CodePlace:
    """The line of a training script that a metric was observed at: its file, line from 1, function and text.

    `role` is one of `ROLES`; `also` are further lines of the script that are part of the matter.
    """

    file: str
    line: int
    function: str = ""
    text: str = ""
    role: str = ""
    also: tuple[CodePlace, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def says(self) -> str:
        """Return the place with its function and text: "train.py:205 in update: loss = surrogate.mean()"."""
        return f"{self}{f' in {self.function}' if self.function else ''}{f': {self.text}' if self.text else ''}"

    @property
    def does(self) -> str:
        """Return the place after the words of its role: "called from train.py:31 in update: self.sync()"."""
        return f"{ROLES[self.role]} {self.says}"


@frozen(eq=False)
class Axis:
    """The records of a series: steps as logged (nondecreasing) and where each stands in its file.

    All arrays have shape [records]. `update`, `epoch` and `minibatch` are None where the log does not tell. Records of
    several files have `files` and, for each record, `file`: an index into them; else all stand in `path`. `records` are
    their places in the log, None where each has a line of its own.
    """

    path: str
    steps: IntArray
    lines: IntArray
    update: IntArray | None = None
    epoch: IntArray | None = None
    minibatch: IntArray | None = None
    files: tuple[str, ...] = ()
    file: IntArray | None = None
    records: IntArray | None = None

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def places(self) -> IntArray:
        """Return what tells the records of one log apart; many may stand in one line."""
        return self.lines if self.records is None else self.records

    def path_of(self, index: int) -> str:
        """Return the file in which the record at `index` stands."""
        return self.path if self.file is None else self.files[int(self.file[index])]

    def take(self, rows: IntArray) -> Axis:
        """Return the axis of some of the records, in the order of `rows`."""
        return Axis(
            path=self.path,
            steps=self.steps[rows],
            lines=self.lines[rows],
            update=None if self.update is None else self.update[rows],
            epoch=None if self.epoch is None else self.epoch[rows],
            minibatch=None if self.minibatch is None else self.minibatch[rows],
            files=self.files,
            file=None if self.file is None else self.file[rows],
            records=None if self.records is None else self.records[rows],
        )


@frozen
class Resolution:
    """How far a printed number may be from the number that was measured.

    `rounding` is how far arithmetic alone leaves a number from the 0 or 1 that it is: within, it counts as that.
    """

    absolute: float = 0.0
    rounding: float = 0.0

    @property
    def exact(self) -> bool:
        """Tell whether numbers were written in full."""
        return self.absolute == 0.0

    @property
    def least(self) -> float:
        """Return the smallest number that is told from 0."""
        return max(self.absolute, self.rounding)

    def scaled(self, factor: float) -> Resolution:
        """Return the resolution of the same numbers times `factor`."""
        size = abs(factor)
        return Resolution(absolute=self.absolute * size, rounding=self.rounding * size)


EXACT = Resolution()
#: Two float32 numbers that are this part of their size apart, two units in the last place, count as equal.
SINGLE = 2.0**-22

#: The unit of a series that holds 1 where what it `says` is so, and else 0.
CONDITION = "true or false"


@frozen(eq=False)
class Series:
    """One metric over the run: canonical name, raw name, and what kind of estimate it is.

    `values` has shape [records] and the axis the same length; absent records are left out, NaN is kept. What was
    computed keeps the raw name of the metric that its numbers stand beside in the log, and `says` what they are.
    """

    name: str
    raw: str
    axis: Axis
    values: FloatArray
    unit: str = ""
    resolution: Resolution = EXACT
    estimator: str | None = None
    aggregation: str | None = None
    reference: str | None = None
    how: How = "observed"
    says: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def at(self, value: float = 0.0) -> BoolArray:
        """Tell at which records the number is `value`, up to what computing it can resolve."""
        slack = self.resolution.rounding + SINGLE * abs(value)
        found: BoolArray = self.values == value if not slack else abs(self.values - value) <= slack
        return found

    @property
    def settled(self) -> FloatArray:
        """Return the values, 0 wherever they are 0 up to what computing them can resolve."""
        return self.values * ~self.at(0) if self.resolution.rounding else self.values

    def shares_window(self, other: Series) -> bool:
        """Tell whether both are declared to be taken over the same samples; what is not declared is not known to be."""
        declared = self.aggregation is not None and self.aggregation == other.aggregation
        return declared and self.axis is other.axis

    def source(self, index: int = 0) -> SourceRef:
        """Return the place in the log of the record at `index`."""
        axis = self.axis
        if not len(axis.lines):
            return SourceRef(path=axis.path, key=self.raw)
        return SourceRef(path=axis.path_of(index), line=int(axis.lines[index]) or None, key=self.raw)


@frozen
class Fact:
    """One number or word about the whole run, and how we came to know it."""

    name: str
    value: ConfigValue
    how: How
    unit: str = ""
    source: SourceRef | None = None
    says: str = ""
    #: the step from which on it is so, of a number that has one
    since: int | None = None
    #: each thing that the number counts, where it counts what stands in several places
    counted: tuple[Evidence, ...] = ()
    #: whether it is a condition that does not hold; `says` describes the condition
    denied: bool = False

    @property
    def number(self) -> float | None:
        """Return the value as a number, None where it is a word or nothing."""
        return float(self.value) if isinstance(self.value, int | float) else None


@frozen
class Setting:
    """One value of the training configuration, with the key as written and where it stands."""

    key: str
    value: ConfigValue
    how: How
    source: SourceRef


@frozen
class Note:
    """Something that reading a source dropped, renamed, merged, could not read, or learned about the run."""

    text: str
    source: SourceRef | None = None
    count: int = 1
    kind: NoteKind = "info"
    #: what happened to the run, where the note is about that
    event: NoteEvent | None = None
    #: "stopped_early": how many updates, and the pass by which half of them stopped; "steps_skipped": how many steps
    numbers: tuple[int, ...] = ()
    #: the message in the log with which the run ended
    message: str = ""

    def __str__(self) -> str:
        return self.text if self.source is None else f"{self.source}: {self.text}"

    @property
    def about_the_run(self) -> bool:
        """Whether the note is about the run, whichever file it comes from, and not about reading one file."""
        return self.event is not None or self.kind == "said"

    @property
    def died(self) -> bool:
        """Whether the note gives the exception, or the signal, that ended the run."""
        return self.event in ("died", "died_of_numbers")


@frozen
class SourceSummary:
    """One input file: its container and how much of it was used; `again` if it holds the run of another file too."""

    path: str
    container: str
    records: int
    skipped: int = 0
    again: bool = False


@frozen(eq=False)
class Run:
    """Everything that was read about one training run."""

    id: str
    framework: str
    algorithm: str
    sources: tuple[SourceSummary, ...]
    series: Mapping[str, Series]
    facts: Mapping[str, Fact] = field(default_factory=dict)
    #: canonical setting name → the value as found
    config: Mapping[str, Setting] = field(default_factory=dict)
    #: native name that somebody most likely meant → the setting under the key that stands there
    misspelt: Mapping[str, Setting] = field(default_factory=dict)
    #: settings as written, with secrets redacted; what reports show
    config_raw: Mapping[str, ConfigValue] = field(default_factory=dict)
    #: the files that settings were read from, besides the log
    configs: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    #: every native key of the log → what is made of it
    keys: Mapping[str, KeyUse] = field(default_factory=dict)
    #: native key → canonical metric, where the other columns and the numbers say so
    inferred: Mapping[str, str] = field(default_factory=dict)
    #: columns of a log by nobody's trainer that mean nothing to us, in the order of the log
    not_understood: tuple[str, ...] = ()
    #: metric → the line of the training script that it was observed at
    places: Mapping[str, CodePlace] = field(default_factory=dict)

    @property
    def unknown_keys(self) -> tuple[str, ...]:
        """Return the native keys that mean nothing to us."""
        return tuple(key for key, use in self.keys.items() if use == "unknown")

    @property
    def steps(self) -> tuple[int, int] | None:
        """Return the first and last step of the run, or None without any record."""
        axes = [series.axis for series in self.series.values() if len(series)]
        if not axes:
            return None
        return min(int(a.steps[0]) for a in axes), max(int(a.steps[-1]) for a in axes)

    def outcome(self, names: Sequence[str]) -> Series | None:
        """Return the first of some metrics that is logged and varies, else the first that is logged.

        What a step earns may be 1 throughout where episodes differ by their lengths.
        """
        logged = [self.series[name] for name in names if name in self.series]
        varied = (each for each in logged if len(each) and each.values.min() != each.values.max())
        return next(varied, next(iter(logged), None))

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a pandas table of shape [steps, metrics]; a step's last value wins."""
        import pandas as pd  # half a second of import: only for those who ask for a frame

        columns = {
            name: pd.Series(s.values, index=pd.Index(s.axis.steps, name="step")) for name, s in self.series.items()
        }
        # Not groupby().last(), which would pass over a NaN that was logged last.
        return pd.DataFrame({name: column[~column.index.duplicated(keep="last")] for name, column in columns.items()})
