"""Rules, causes and findings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import SourceRef
from ppo_doctor.model.words import ConfigValue, Operator, Severity, Status


@frozen
class Param:
    """A threshold of a rule: its value, its unit, and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@frozen
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
    #: fewest records of a tail (of all records, where there are fewer)
    least_records: float = 1
    bound_source: str = ""
    #: field → the rule's parameter that it was taken from, so that a policy can replace the number
    params: Mapping[str, str] = field(default_factory=dict)


@frozen
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
    #: question of the coverage floor that this rule answers
    answers: str | None = None
    answers_when: str = "any"
    #: "identity", "counter" or "tensor" when firing is a proof; "measured" for a bound that no sound run crosses
    proof: str | None = None
    #: fewest finite records (0 for rules over facts)
    min_points: int = 5
    #: the same where records are computed from tensors, each from all samples or weights; None: as above
    min_points_tensor: int | None = None
    #: condition under which the rule does not apply, with its wording
    not_when_single_update: bool = False
    #: facet of a run → the one value that this rule is for (`kinds.FACETS`)
    kind: Mapping[str, str] = field(default_factory=dict)
    #: a guess from settings alone, which a log replaces by what happened
    before_training: bool = False
    #: what to do first where it fires and no cause is sure
    next_step: str = ""
    path: str = ""

    def __hash__(self) -> int:
        """Return that of the name: a rule is a key once per run, and hashing its clauses takes longer than a test."""
        return hash(self.name)

    @property
    def proves(self) -> bool:
        """Tell whether firing proves something, rather than only speaking loudly."""
        return self.proof is not None and self.proof != "measured"


@frozen
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
    #: whether `statistic` describes a condition that does not hold
    denied: bool = False

    @property
    def claim(self) -> str:
        """The statistic in words; "not so: " precedes a condition that does not hold."""
        return f"not so: {self.statistic}" if self.denied else self.statistic


@frozen
class Finding:
    """The answer of one rule for one run."""

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
    #: False if the rule is for another kind of run or another number of updates per batch; `reason` says which
    applies: bool = True
    #: answering yes proves something, by definition or identity
    proves: bool = False

    def __post_init__(self) -> None:
        if self.status == "fired" and not self.evidence:
            raise ValueError(f"{self.rule} fired without evidence")
        if self.status in ("skipped", "errored") and not self.reason:
            raise ValueError(f"{self.rule} is {self.status} without a reason")


@frozen
class Weight:
    """What a finding says for or against a cause, in decibans against `healthy`."""

    finding: str
    fired: int = 0
    clear: int = 0
    source: str = ""


#: How a remedy says what to set.
TARGET = re.compile(r"(?P<how>=|>=|<=|\*|/) (?P<value>\S+)")


@frozen
class Remedy:
    """One thing to do about a cause; with the setting that it is about, or with a framework and its key.

    What to set is `= V`, `>= V` or `<= V` (V may be `default`, the framework's own), or `* F` or `/ F` of what is set.
    """

    do: str
    framework: str | None = None
    #: what the samples of a run have to be for it, where it is not for every run
    samples: str | None = None
    key: str | None = None
    #: our name of the setting
    setting: str | None = None
    #: how the value to set follows from the one that is set
    to: str = ""
    #: in one run: the value that is set, and the one to set
    now: ConfigValue = None
    then: ConfigValue = None


@frozen
class Measurement:
    """One thing to log that would settle the question, and why."""

    log: str
    because: str
    #: title of the check that it would answer; "" where the cause itself asks for it
    check_title: str = ""


@frozen
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
    #: the remedy that tempts and makes it worse
    avoid: str = ""
    #: answered yes, it is this by definition
    proof: tuple[str, ...] = ()
    #: mechanisms that are there because of it
    root_of: tuple[str, ...] = ()
    #: without one of these it is not spoken of
    needs: tuple[str, ...] = ()
    #: facet of a run → the one value that it is for (`kinds.FACETS`)
    kind: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@frozen
class Link:
    """What checks say of one link of the signal chain, the surest witness first; see `rules/chain.toml`."""

    name: str
    dead: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    alive_unless: tuple[str, ...] = ()
    excused_by: tuple[str, ...] = ()
    fed_by: tuple[str, ...] = ()
    kills: tuple[str, ...] = ()


@frozen
class Complaint:
    """What a user would complain of; causes compete to explain it."""

    id: str
    title: str
