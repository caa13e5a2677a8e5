"""What a story holds; text from logs and rules stands here as it was found, and is made safe where it is printed."""

from __future__ import annotations

from ppo_doctor.model.diagnosis import Cost, Outcome
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.words import Break, Confidence, Severity, Verdict


@frozen
class Course:
    """A metric from its first number to its last, with the key as logged."""

    word: str
    key: str
    first: float
    last: float


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
    """Where it shows: a file, and a line of it where it is of text."""

    path: str
    line: int | None = None


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
class Why:
    """A cause that explains a problem, and how sure that is."""

    cause: str
    title: str
    confidence: Confidence


@frozen
class Told:
    """A problem by what shows it, with the causes that explain it."""

    rank: int
    #: what is shown, as a sentence about this run
    title: str
    severity: Severity
    #: how it breaks its link
    state: Break = "wrong"
    since: int | None = None
    place: Place | None = None
    #: the numbers that show it, the weightiest first
    seen: tuple[str, ...] = ()
    #: what it costs, where the log counts it
    cost: Cost | None = None
    #: what explains it, the likeliest first; those that this log cannot tell from the first follow it
    why: tuple[Why, ...] = ()
    #: the first remedy, then the next resort
    do: tuple[Action, ...] = ()
    check: Check | None = None
    #: the remedy that tempts and makes it worse
    avoid: str = ""

    @property
    def cause(self) -> str:
        """Return the cause that leads, or nothing where none is known."""
        return self.why[0].cause if self.why else ""

    @property
    def sure(self) -> bool:
        """Tell whether the leading cause is more than suspected."""
        return bool(self.why) and self.why[0].confidence != "suspected"


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
    #: what became of the reward
    outcome: Outcome
    #: why it was judged so, where no problem says it; one sentence
    because: str
    entropy: Course | None
    checks: Checks
    #: what the run died of, as the last lines of its console tell
    died: str = ""
    #: where numbers stop being finite
    broken: Broken | None = None
    table: Table | None = None
    problems: tuple[Told, ...] = ()
    #: harmless explanations, and what else was seen, the gravest first
    remarks: tuple[Remark, ...] = ()
    #: what to do first, where no problem says it
    do: Action | None = None
    open: tuple[Open, ...] = ()
    #: too few records leave questions open, whatever they hold
    short: bool = False
    #: the gravest notes on reading
    reading: tuple[str, ...] = ()
