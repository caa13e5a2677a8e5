"""The diagnosis: ranked causes with their scores, the chain, coverage and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.rules import Finding, Measurement, Remedy
from ppo_doctor.model.run import SourceRef, SourceSummary
from ppo_doctor.model.words import (
    Break,
    Confidence,
    ConfigValue,
    How,
    LinkState,
    OutcomeKind,
    Role,
    Severity,
    Status,
    Verdict,
)


@frozen
class LedgerEntry:
    """One line of a cause's account: a finding and its weight."""

    finding: str
    status: Status
    db: int
    link: str
    says: str
    title: str = ""


@frozen
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
    problem: str
    role: Role = "alternative"
    says: str = ""
    probability: float | None = None
    level_with: tuple[str, ...] = ()
    onset_step: int | None = None
    ledger: tuple[LedgerEntry, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    would_change_my_mind: tuple[Measurement, ...] = ()
    #: the remedy that tempts and makes it worse
    avoid: str = ""
    leader: bool = False


@frozen
class ChainLink:
    """One link of the signal chain and what we know of it."""

    link: str
    state: LinkState
    #: one sentence, with its number and its place
    witness: str | None = None
    #: first and last step of what the witness speaks of
    steps: tuple[int, int] | None = None
    #: the dead link that leaves nothing for this one
    entailed_by: str | None = None


@frozen
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
    #: question that stays open → metrics of which any would answer it
    would_answer: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: rules that failed to run, with reasons, if they answer a question, open a complaint or weigh for a cause
    failed: Mapping[str, str] = field(default_factory=dict)
    #: how many rules are in no other count, because only an observation by `ppo-doctor run` could answer them
    left_to_run: int = 0


@frozen
class UpdatesPerBatch:
    """K, the optimizer steps per rollout batch: configured, observed, and the one we go by."""

    configured: float | None = None
    observed: float | None = None
    effective: float | None = None
    origin: str = "unknown"
    how: How | None = None
    #: the setting that tells K where it is unknown, as `--set` takes it
    ask: str = ""


@frozen
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
    #: each of the notes that gives what ended the run, with the message of the log
    died: tuple[tuple[str, str], ...] = ()
    #: the note that the file of the run holds several, where it does
    several_runs: tuple[str, ...] = ()
    #: "completions" or "episodes", None where nothing tells
    samples: str | None = None
    #: how many native keys were mapped, guessed by their names, or mean nothing to us
    keys: Mapping[str, int] = field(default_factory=dict)
    #: native key → canonical metric, where the other columns and the numbers say so
    inferred: Mapping[str, str] = field(default_factory=dict)
    #: columns of a log by nobody's trainer that mean nothing to us, in the order of the log
    not_understood: tuple[str, ...] = ()
    #: how many updates `ppo-doctor run` observed, 0 of a log
    observed: int = 0


@frozen
class Outcome:
    """What became of a reward: levels as medians of its first and last records and of its best stretch."""

    what: OutcomeKind
    #: canonical name, and name as logged
    metric: str = ""
    key: str = ""
    start: float | None = None
    best: float | None = None
    end: float | None = None
    #: the step at which a record shows the best level, and whether that lies above start and end by more than chance
    best_step: int | None = None
    peaks: bool = False
    #: how many records are its first and its last
    early: int = 0
    late: int = 0
    #: the level of its very first records, where it rose from there before it stood or fell
    first: float | None = None
    #: a reward whose second half lies above its first by less than a rise that counts: flat, or learned by all records
    leans: bool = False
    #: the step from which it is so: lost, or no longer rising
    since_step: int | None = None
    #: the level below which a reward that was lost stays from then on
    kept_below: float | None = None
    #: where the level from then on begins in the log
    source: SourceRef | None = None
    records: int = 0
    #: what became of the evaluation, where there is one beside the training reward
    evaluation: Outcome | None = None
    #: whether it reached what the user asked for, if that was told
    reached: bool | None = None
    target: float | None = None

    @property
    def sound(self) -> bool:
        """Tell whether the reward rose and stayed, or is at its known ceiling."""
        return self.what in ("learned", "levelled_off", "at_ceiling")

    @property
    def clear(self) -> bool:
        """Tell whether it is sound by so much that nothing which stands still can have been in the way."""
        return self.sound and not self.leans


@frozen
class Cost:
    """What a crossed guard-rail costs: the share of something that was spent for nothing."""

    what: str
    share: float


@frozen
class Checkpoint:
    """A checkpoint beside the log to which a run that fell or broke can go back; known by its name, never opened."""

    path: str
    step: int
    #: bytes, of a folder those of its own files, and seconds since 1970 of its last change
    size: int | None = None
    modified: float | None = None
    #: level of the reward there
    reward: float | None = None
    #: False if a later one precedes the onset as well, but with a reward that had fallen already
    last: bool = True


@frozen
class Problem:
    """What findings of one link show together, since when, and the causes that compete to explain it.

    Its title is that of the finding that says most; no cause need be known.
    """

    id: str
    title: str
    link: str
    state: Break
    severity: Severity
    #: what a user would complain of; causes of one complaint compete
    complaint: str = ""
    leader: str = ""
    causes: tuple[str, ...] = ()
    #: checks that its leading causes account for
    openers: tuple[str, ...] = ()
    #: the findings that it is shown by, the one that gives the title first
    findings: tuple[str, ...] = ()
    verdict: Verdict = "healthy"
    since_step: int | None = None
    proven: bool = False
    #: links that are dead because of it
    follows: tuple[str, ...] = ()
    #: what to do first while no cause is sure: that of the finding that says most
    next_step: str = ""

    @property
    def name(self) -> str:
        """Return the finding that says most, or the link where the outcome alone shows it; `id` counts in a report."""
        return self.findings[0] if self.findings else self.link


@frozen
class Unjudged:
    """A cause that this input does not speak about, and what it would take."""

    id: str
    because: str
    #: True where a fuller log of the same kind could show it, False where no log of this kind ever can
    a_fuller_log_could: bool = False


@frozen
class PackInForce:
    """A user's folder of rules (`--rules`): its name, its path, and what it adds."""

    name: str
    path: str
    rules: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rules of {self.name} (--rules): adds {', '.join((*self.rules, *self.causes)) or 'nothing'}"


@frozen
class Diagnosis:
    """The one contract: JSON is its serialisation, every report a view of it."""

    tool_version: str
    run: RunSummary
    verdict: Verdict
    verdict_because: str
    #: what happened to the run, in one sentence
    headline: str
    causes: tuple[RankedCause, ...]
    findings: tuple[Finding, ...]
    chain: tuple[ChainLink, ...]
    coverage: Coverage
    #: whether the verdict is inconclusive because questions of the coverage are open, and for nothing else
    left_open: bool = False
    outcome: Outcome = Outcome(what="not_logged")
    problems: tuple[Problem, ...] = ()
    #: what to do first, of a run that is not healthy
    first_step: str = ""
    #: check → what it costs that the guard-rail is crossed, where that can be computed
    costs: Mapping[str, Cost] = field(default_factory=dict)
    #: of a run that fell or broke, where checkpoints lie beside the log
    checkpoint: Checkpoint | None = None
    not_ruled_out: tuple[Unjudged, ...] = ()
    suppressed: tuple[str, ...] = ()
    packs: tuple[PackInForce, ...] = ()
