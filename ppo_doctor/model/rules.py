"""Rules, causes and findings, and the weights of findings for a cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.patterns import lazy_pattern
from ppo_doctor.model.run import CodePlace, SourceRef
from ppo_doctor.model.words import PROOF_DB, RULED_OUT_DB, WORDS, ConfigValue, Operator, Severity, Status

#: Comparison in a condition of a rule → its sign.
OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {"equals": "==", "below": "<", "at_most": "<=", "above": ">", "at_least": ">="}
)
#: What a condition compares with its bound: each record, or one number taken from all records.
TAKEN = ("each", "median", "min", "max", "first", "last")
#: Records that a condition is about: all, those from some record to the end, or the first half.
WINDOWS = ("all", "tail", "early")
#: Prefix of a quantity that is a setting, whose name a metric may have as well.
SETTING = "config."


@frozen
class Param:
    """A threshold of a rule: its value, its unit, and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@frozen
class Clause:
    """One condition of a rule: a metric, statistic or setting compared with a bound."""

    #: name of a metric or statistic; a setting has the prefix `SETTING`
    quantity: str
    #: one of `OPERATORS`
    test: str
    bound: float
    #: one of `TAKEN`
    take: str = "each"
    #: smallest fraction of the records in the window for which the comparison holds
    share: float = 1.0
    #: one of `WINDOWS`
    window: str = "all"
    #: smallest fraction of the run that a tail covers
    least: float = 0.0
    #: smallest number of records of a tail, or of all records if there are fewer
    least_records: float = 1
    bound_source: str = ""
    #: field → the parameter of the rule that its number comes from, which a policy can replace
    params: Mapping[str, str] = field(default_factory=dict)


@frozen
class Rule:
    """A symptom to look for; its prose and cases stay in its TOML file."""

    code: str
    name: str
    title: str
    pass_title: str
    link: str
    severity: Severity
    when: tuple[Clause, ...]
    #: the quantities of all conditions
    needs: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    #: question of the coverage (`words.QUESTIONS`) that this rule answers
    answers: str | None = None
    answers_when: str = "any"
    #: "identity", "counter" or "tensor" if firing is a proof; "measured" for a bound that no sound run crosses
    proof: str | None = None
    #: smallest number of finite records; 0 if the conditions need none
    min_points: int = 5
    #: the same for records computed from tensors, of dumps or in a running script; None: `min_points`
    min_points_tensor: int | None = None
    #: does not apply to runs with one optimizer step per batch
    not_when_single_update: bool = False
    #: facet of a run → the value that this rule is for (`kinds.FACETS`)
    kind: Mapping[str, str] = field(default_factory=dict)
    #: what to do first if the rule fires and no cause is certain
    next_step: str = ""
    path: str = ""

    def __hash__(self) -> int:
        """Return the hash of the name, because hashing all clauses takes longer than evaluating them."""
        return hash(self.name)

    @property
    def proves(self) -> bool:
        """Tell whether firing proves something by identity, counter or tensor."""
        return self.proof is not None and self.proof != "measured"


@frozen
class Evidence:
    """A number, the bound that it is compared with, and where both come from."""

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
    """The answer of one rule for one run, with its evidence."""

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
    #: whether firing proves something (`Rule.proves`)
    proves: bool = False
    #: the line of the training script that it is about; only a finding that fired has one
    place: CodePlace | None = None

    def __post_init__(self) -> None:
        if self.status == "fired" and not self.evidence:
            raise ValueError(f"{self.rule} fired without evidence")
        if self.status in ("skipped", "errored") and not self.reason:
            raise ValueError(f"{self.rule} is {self.status} without a reason")


@frozen
class Weight:
    """How much a finding speaks for or against a cause, in decibans compared with a healthy run."""

    finding: str
    fired: int = 0
    clear: int = 0
    source: str = ""


#: Form of `to` in a remedy.
TARGET = lazy_pattern(r"(?P<how>=|>=|<=|\*|/) (?P<value>\S+)")


@frozen
class Remedy:
    """One thing to do about a cause, optionally with the setting to change, or with a framework and its key.

    `to` is `= V`, `>= V` or `<= V` (V may be `default`, the framework's default), or the present value `* F` or `/ F`.
    """

    do: str
    framework: str | None = None
    #: the kind of samples that it is for; None: any
    samples: str | None = None
    key: str | None = None
    #: the setting's name in ppo-doctor
    setting: str | None = None
    #: the value to set; see above
    to: str = ""
    #: in one run: the present value, and the value to set
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
    """A fault or harmless explanation: the link that it breaks, its prior, the weights of findings, and remedies."""

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
    #: what not to do, although it seems natural
    avoid: str = ""
    #: checks that prove the cause by firing
    proof: tuple[str, ...] = ()
    #: causes that follow from this one
    root_of: tuple[str, ...] = ()
    #: checks of which one has to fire before the cause is considered; empty: none has to
    needs: tuple[str, ...] = ()
    #: facet of a run → the value that it is for (`kinds.FACETS`)
    kind: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@frozen
class Link:
    """The checks that show the state of a link of the signal chain, the most reliable first; see `rules/chain.toml`."""

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
    """What a user would complain about; causes compete to explain it."""

    id: str
    title: str


#: Share of sound runs assumed for a check that was evaluated in none of them, and the smallest share of any check.
UNKNOWN_RATE, LEAST_RATE = 0.02, 0.005
#: Number of runs that the assumed share counts as.
PSEUDO_RUNS = 10


def sound_share(fired: int, evaluated: int) -> float:
    """Return the estimated share of sound runs in which a check fires; it is above 0 even if none of them fired."""
    return max(LEAST_RATE, (fired + UNKNOWN_RATE * PSEUDO_RUNS) / (evaluated + PSEUDO_RUNS))


def weights_of(raw: Mapping[str, Any], rates: Mapping[str, float]) -> tuple[Weight, ...]:
    """Return the weights of a cause: the words of its file compared with the shares of sound runs.

    A check that is clear speaks against a cause only if the cause usually makes it fire.
    """
    weights = {weight["finding"]: Weight(**weight) for weight in raw.get("weight", ())}
    words = {**raw, "usual": (*raw.get("requires", ()), *raw.get("usual", ()))}  # what is required is usual
    for word, often in WORDS.items():
        for name in words.get(word, ()):
            sound = rates.get(name, UNKNOWN_RATE)
            fired, clear = _decibans(often / sound), _decibans((1 - often) / (1 - sound))
            weights[name] = Weight(finding=name, fired=fired, clear=clear if word == "usual" else 0, source=word)
    for word, fired in (("proof", PROOF_DB), ("excludes", RULED_OUT_DB)):
        for name in raw.get(word, ()):
            weights[name] = replace(weights.get(name, Weight(finding=name)), fired=fired, source=word)
    for name in raw.get("requires", ()):
        weights[name] = replace(weights.get(name, Weight(finding=name)), clear=RULED_OUT_DB)
    return tuple(weights.values())


def _decibans(odds: float) -> int:
    return round(10 * math.log10(odds))
