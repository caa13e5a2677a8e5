"""What a story holds; text from logs and rules stands here as it was found, and is made safe where it is printed."""

from __future__ import annotations

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import Confidence, Severity, Verdict


@frozen
class Course:
    """A metric from its first number to its last, with the key as logged."""

    word: str
    key: str
    first: float
    last: float
    #: where it was best, and how good, if much of that is lost at the end
    best: float | None = None
    best_at: int | None = None


@frozen
class Broken:
    """The metrics that were the first not to be finite, and what had grown most before, if anything had."""

    step: int
    keys: tuple[str, ...]
    value: float
    grew: Course | None = None


@frozen
class Moment:
    """A step at which the run is looked at, and what is telling about it."""

    name: str
    step: int


@frozen
class Row:
    """A metric at the moments of its table; None before it was first logged."""

    name: str
    key: str
    values: tuple[float | None, ...]
    #: the range in which sound runs keep it, as it is printed; empty where none is documented
    usual: str = ""
    #: what stands out in the row, in a word or two
    remark: str = ""


@frozen
class Table:
    """The metrics that matter at the moments that tell."""

    moments: tuple[Moment, ...]
    rows: tuple[Row, ...]


@frozen
class Place:
    """Where it shows: a file, and a line of it, or a record where it has no lines."""

    path: str
    line: int
    unit: str = "line"


@frozen
class Action:
    """One thing to do, with the key that it is about, the value that the user gave it, and the value to give it."""

    say: str
    key: str = ""
    now: str = ""
    to: str = ""


@frozen
class Check:
    """The one measurement that settles the question, and why it does."""

    log: str
    because: str


@frozen
class Told:
    """A problem by the cause that leads it."""

    rank: int
    cause: str
    title: str
    confidence: Confidence
    severity: Severity
    since: int | None = None
    place: Place | None = None
    #: what shows it in this run: the weightiest checks, by their titles
    seen: tuple[str, ...] = ()
    #: the first remedy, then the next resort
    do: tuple[Action, ...] = ()
    check: Check | None = None
    #: the remedy that tempts and makes it worse
    avoid: str = ""
    #: causes that this log cannot tell from this one
    level: tuple[str, ...] = ()
    #: links of the chain that are dead because of it
    follows: tuple[str, ...] = ()


@frozen
class Remark:
    """A harmless explanation with its meaning, or what was seen without a cause with its number."""

    title: str
    says: str = ""


@frozen
class Open:
    """A question that the log leaves open, and the metrics of which any would answer it."""

    question: str
    metrics: tuple[str, ...] = ()


@frozen
class Checks:
    """How many checks said what."""

    clear: int
    noted: int
    not_run: int
    #: most of those that did not run lack a metric
    unlogged: bool = False
    left_out: int = 0
    #: those that failed, each with its reason
    failed: tuple[tuple[str, str], ...] = ()


@frozen
class Story:
    """A diagnosis as it is told."""

    verdict: Verdict
    #: why, where no problem says it; one sentence
    because: str
    courses: tuple[Course, ...]
    checks: Checks
    #: where numbers stop being finite
    broken: Broken | None = None
    table: Table | None = None
    problems: tuple[Told, ...] = ()
    #: harmless explanations, and what else was seen, the gravest first
    remarks: tuple[Remark, ...] = ()
    open: tuple[Open, ...] = ()
    #: too few records leave questions open, whatever they hold
    short: bool = False
    #: the gravest notes on reading
    reading: tuple[str, ...] = ()
