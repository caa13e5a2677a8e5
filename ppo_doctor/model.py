"""The core types: what a run is, what a rule finds, and what a diagnosis says.

Everything here is frozen. Nothing here imports another module of ours, and numpy only for type checkers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]

#: A value of a configuration, as far as we read it.
ConfigValue = str | int | float | bool | None

How = Literal["observed", "configured", "default", "computed"]
Status = Literal["fired", "clear", "skipped", "errored"]
Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Verdict = Literal["healthy", "warning", "unhealthy", "inconclusive"]
Confidence = Literal["established", "likely", "suspected"]
NoteKind = Literal["skipped", "merged", "renamed", "info"]
LinkState = Literal["alive", "dead", "unknown"]

#: The signal chain, in the order in which a reward becomes a ratio, then the side links.
CHAIN = ("rewards", "advantages", "loss", "gradient", "update", "weights", "policy", "ratio")
SIDE_LINKS = ("critic", "reference", "rollout", "numerics", "config")
LINKS = CHAIN + SIDE_LINKS

#: The three questions of the coverage floor.
QUESTIONS = ("movement", "signal", "numerics")


class Severity(StrEnum):
    """How much of the run a cause costs; ordered by `rank`, worst first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Return 0 for the worst severity, counting up."""
        return list(Severity).index(self)

    def at_least(self, other: Severity) -> bool:
        """Tell whether this severity is as bad as `other`, or worse."""
        return self.rank <= other.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """Where a number came from: a file, its line (or record) counted from 1, and the key as written there."""

    path: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """The records of a series: steps as logged (nondecreasing) and where each stands in its file.

    All arrays have shape [records]. `update`, `epoch` and `minibatch` are None where the log does not tell.
    """

    path: str
    steps: IntArray
    lines: IntArray
    update: IntArray | None = None
    epoch: IntArray | None = None
    minibatch: IntArray | None = None

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How far a printed number may be from the number that was measured: `absolute + relative * |value|`."""

    absolute: float = 0.0
    relative: float = 0.0

    @property
    def exact(self) -> bool:
        """Tell whether numbers were written in full."""
        return self.absolute == 0.0 and self.relative == 0.0


EXACT = Resolution()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """One metric over the run: canonical name, raw name, and what kind of estimate it is.

    `values` has shape [records] and the axis the same length; absent records are left out, NaN is kept.
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

    def __len__(self) -> int:
        return len(self.values)

    def source(self, index: int = 0) -> SourceRef:
        """Return the place in the log of the record at `index`."""
        line = int(self.axis.lines[index]) if len(self.axis) else 0
        return SourceRef(path=self.axis.path, line=line or None, key=self.raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number or word about the whole run, and how we came to know it."""

    name: str
    value: ConfigValue
    how: How
    unit: str = ""
    source: SourceRef | None = None
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value of the training configuration, with the key as written and where it stands."""

    key: str
    value: ConfigValue
    how: How
    source: SourceRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that was dropped, renamed, merged or unreadable on the way in."""

    text: str
    source: SourceRef | None = None
    count: int = 1
    kind: NoteKind = "info"

    def __str__(self) -> str:
        return self.text if self.source is None else f"{self.source}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSummary:
    """One input file: its container and how much of it was used."""

    path: str
    container: str
    records: int
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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
    #: settings as written, with secrets redacted; what reports show
    config_raw: Mapping[str, ConfigValue] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    unknown_keys: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[int, int] | None:
        """Return the first and last step of the run, or None without any record."""
        axes = [series.axis for series in self.series.values() if len(series)]
        if not axes:
            return None
        return min(int(a.steps[0]) for a in axes), max(int(a.steps[-1]) for a in axes)

    def to_frame(self) -> pd.DataFrame:
        """Return the run as a pandas table of shape [steps, metrics]; a step's last value wins."""
        import pandas as pd  # half a second of import: only for those who ask for a frame

        columns = {
            name: pd.Series(s.values, index=pd.Index(s.axis.steps, name="step")).groupby(level="step").last()
            for name, s in self.series.items()
        }
        return pd.DataFrame(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """A threshold of a rule: its value, its unit, and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One predicate of a rule over one quantity; see `predicates` for the vocabulary."""

    quantity: str
    test: str
    bound: float
    statistic: str = "each"
    share: float = 1.0
    window: str = "all"
    #: least share of the run that a tail must cover
    least: float = 0.0
    bound_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A symptom to look for; the prose and the cases stay in its TOML file until somebody asks."""

    code: str
    name: str
    title: str
    pass_title: str
    link: str
    severity: Severity
    when: tuple[Clause, ...]
    needs: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    status: str = "stable"
    #: complaint that this rule opens when it fires, and whether it may do so alone
    opens: str | None = None
    opens_alone: bool = False
    #: question of the coverage floor that this rule answers
    answers: str | None = None
    answers_when: str = "any"
    #: "identity", "counter" or "tensor" when firing is a proof rather than a symptom
    proof: str | None = None
    #: fewest finite records (0 for rules over facts)
    min_points: int = 5
    #: condition under which the rule does not apply, with its wording
    not_when_single_update: bool = False
    algorithms: tuple[str, ...] = ()
    state_if_fired: LinkState = "unknown"
    state_if_clear: LinkState = "unknown"
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A number, the bound that it was held against, and where both come from."""

    metric: str
    raw: str
    statistic: str
    observed: float | None
    op: Operator
    bound: float
    unit: str = ""
    bound_source: str = ""
    steps: tuple[int, int] | None = None
    satisfied: int = 0
    of: int = 0
    source: SourceRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule has to say about one run."""

    rule: str
    code: str
    title: str
    link: str
    status: Status
    severity: Severity
    evidence: tuple[Evidence, ...] = ()
    onset_step: int | None = None
    reason: str | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.status == "fired" and not self.evidence:
            raise ValueError(f"{self.rule} fired without evidence")
        if self.status in ("skipped", "errored") and not self.reason:
            raise ValueError(f"{self.rule} is {self.status} without a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """What a finding says for or against a cause, in decibans against `healthy`."""

    finding: str
    fired: int = 0
    clear: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do about a cause; with a framework and key where they are known."""

    do: str
    framework: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One thing to log that would settle the question, and why."""

    log: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A disease: where the chain breaks, how common it is, and how findings weigh for it."""

    id: str
    title: str
    family: str
    severity: Severity
    prior: int
    benign: bool
    link: str
    complaints: tuple[str, ...]
    weights: tuple[Weight, ...]
    twins: tuple[str, ...] = ()
    says: str = ""
    remedies: tuple[Remedy, ...] = ()
    measure: tuple[Measurement, ...] = ()
    never_proven: bool = False
    #: True for the twin to name second when nothing separates them
    rarer_twin: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a user would complain of; causes compete to explain it."""

    id: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of a cause's account: a finding, its weight, and whether the weight counted."""

    finding: str
    status: Status
    db: int
    link: str
    says: str
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCause:
    """A cause in its place, with the account that put it there."""

    id: str
    rank: int
    title: str
    family: str
    severity: Severity
    benign: bool
    confidence: Confidence
    score_db: int
    prior_db: int
    complaint: str
    says: str = ""
    probability: float | None = None
    level_with: tuple[str, ...] = ()
    onset_step: int | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    would_change_my_mind: tuple[Measurement, ...] = ()
    leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """One link of the signal chain and what we know of it."""

    link: str
    state: LinkState
    evidence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was checked: the three questions of the floor, and every rule counted once."""

    movement: bool
    signal: bool
    numerics: bool
    evaluated: int
    clear: int
    fired: int
    skipped: int
    errored: int
    missing_metrics: tuple[str, ...] = ()
    #: question → why no rule could answer it
    unanswered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Tell whether all three questions were answered."""
        return self.movement and self.signal and self.numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatesPerBatch:
    """K, the optimizer steps per rollout batch: configured, observed, and the one we go by."""

    configured: float | None = None
    observed: float | None = None
    effective: float | None = None
    origin: str = "unknown"
    how: How | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The part of a run that every report shows."""

    id: str
    sources: tuple[SourceSummary, ...]
    framework: str
    algorithm: str
    steps: tuple[int, int] | None
    records: int
    updates_per_batch: UpdatesPerBatch
    config: Mapping[str, ConfigValue]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenComplaint:
    """A complaint that findings opened: by which, who leads ("healthy" and "unknown" included), whose consequence."""

    id: str
    title: str
    openers: tuple[str, ...]
    leader: str
    folded_into: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A cause that this kind of input can never show, and what it would take."""

    id: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The one contract: JSON is its serialisation, every report a view of it."""

    tool_version: str
    run: RunSummary
    verdict: Verdict
    verdict_because: str
    causes: tuple[RankedCause, ...]
    findings: tuple[Finding, ...]
    chain: tuple[ChainLink, ...]
    coverage: Coverage
    complaints: tuple[OpenComplaint, ...] = ()
    not_ruled_out: tuple[Unjudged, ...] = ()
    suppressed: tuple[str, ...] = ()
