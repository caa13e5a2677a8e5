"""Closed vocabularies: severities, links of the signal chain, states and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

#: A value of a configuration, as far as we read it.
ConfigValue = str | int | float | bool | None

How = Literal["observed", "configured", "default", "computed"]
Status = Literal["fired", "clear", "skipped", "errored"]
Operator = Literal["==", "!=", "<", "<=", ">", ">="]
Verdict = Literal["healthy", "warning", "unhealthy", "inconclusive"]
Confidence = Literal["established", "likely", "suspected"]
#: The surest first.
CONFIDENCES: tuple[Confidence, ...] = ("established", "likely", "suspected")
#: "lost": there is more than what was read: the file goes on, or cells of a metric hold no number. "dropped": single
#: values that cannot be.
NoteKind = Literal["said", "skipped", "lost", "dropped", "merged", "renamed", "info"]
#: What a note says happened to the run. "died_of_numbers": the exception that ended it is about non-finite numbers.
NoteEvent = Literal["died", "died_of_numbers", "resumed", "stopped_early", "steps_skipped", "several_runs"]
#: What is made of a native key: a metric by its framework's profile, one by the meaning of its name, a clock, a metric
#: that another key gave already, of time or machine, known and not used, text in every record, or nothing.
KeyUse = Literal["mapped", "guessed", "clock", "again", "machine", "not used", "text", "unknown"]
#: What a cause is to its problem: what breaks the link, why it does, what else may explain it, what stands beside it.
Role = Literal["mechanism", "root", "alternative", "context"]
#: How a problem breaks its link; "course" is a run that goes wrong by and by.
Break = Literal["dead", "weak", "wrong", "course", "configuration"]
LinkState = Literal["alive", "weak", "wrong", "dead", "unknown"]

#: The signal chain, in the order in which a reward becomes a ratio, then the side links.
CHAIN = ("rollout", "rewards", "returns", "advantages", "loss", "gradient", "step", "weights", "policy", "ratio")
SIDE_LINKS = ("critic", "reference", "numerics", "configuration")
LINKS = CHAIN + SIDE_LINKS

#: The three questions of the coverage floor.
QUESTIONS = ("movement", "signal", "numerics")
#: Question → what it asks, as the end of "the log does not show …".
ASKED: Mapping[str, str] = MappingProxyType(
    {
        "movement": "whether the policy moves",
        "signal": "whether there is a learning signal",
        "numerics": "whether the numbers are finite",
    }
)
#: How common a cause is → its score before any answer, in decibans against a sound run.
PRIORS: Mapping[str, int] = MappingProxyType({"common": -10, "occasional": -12, "rare": -14})
#: How often a run with a cause shows what its file lists under a word.
WORDS: Mapping[str, float] = MappingProxyType({"usual": 0.75, "sometimes": 0.3})
#: What an answer weighs that proves a cause, or rules it out, in decibans.
PROOF_DB, RULED_OUT_DB = 35, -60


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
        return _RANKS[self._value_]

    def at_least(self, other: Severity) -> bool:
        """Tell whether this severity is as bad as `other`, or worse."""
        return self.rank <= other.rank


_RANKS: Mapping[str, int] = MappingProxyType({severity.value: rank for rank, severity in enumerate(Severity)})

#: What became of a reward; "levelled_off" rose and then stood, "at_ceiling" has the most that can be earned.
OutcomeKind = Literal[
    "learned", "at_ceiling", "levelled_off", "flat", "lost", "fell", "never_earned", "not_logged", "too_short"
]

#: What the outcome of a run is told by: a word, and the metrics of which the first that is logged is meant.
OUTCOMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"reward": ("episode_return", "reward_mean", "eval_return"), "entropy": ("entropy",)}
)
