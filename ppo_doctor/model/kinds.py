"""The kind of a run: four facets, each a word or unknown, with the evidence for and against it.

A rule or a cause names a facet and the value that it is for (`samples = "completions"`); `SampleKind.excludes` tells
whether the run is known to be of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import SourceRef

#: Facet → its two values, with what a run of each is in words.
FACETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "samples": {"completions": "completions", "episodes": "steps of episodes"},
        "actions": {"discrete": "discrete actions", "continuous": "continuous actions"},
        "critic": {"yes": "a run with a critic", "no": "a run without a critic"},
        "rollout_engine": {"yes": "a run with a rollout engine", "no": "a run without a rollout engine"},
    }
)


@frozen
class Witness:
    """One thing in a run that speaks for a value of a facet; a stronger one outweighs any number of others.

    A name may mean something else to somebody (1), a trainer is recognised by the names that it writes (2), and an
    environment, a switch, or a value that only one kind can have, decides (3).
    """

    value: str
    says: str
    strength: int = 1
    source: SourceRef | None = None


@frozen
class Facet:
    """One facet of a run: its value, None where no witness speaks or the strongest contradict each other."""

    name: str
    witnesses: tuple[Witness, ...] = ()
    #: what the strongest witnesses say, if they agree; each rule asks for it several times
    value: str | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        said = {witness.value for witness in self.witnesses if witness.strength == self.strength}
        object.__setattr__(self, "value", said.pop() if len(said) == 1 else None)

    @property
    def strength(self) -> int:
        """Return how strong the strongest witness is; 0 without any."""
        return max((witness.strength for witness in self.witnesses), default=0)

    @property
    def speaking(self) -> tuple[Witness, ...]:
        """Return the witnesses for the value, the strongest first."""
        own = [witness for witness in self.witnesses if witness.value == self.value]
        return tuple(sorted(own, key=lambda witness: -witness.strength))

    @property
    def contradicting(self) -> tuple[Witness, ...]:
        """Return the witnesses against the value; all of them where they contradict each other."""
        return tuple(witness for witness in self.witnesses if witness.value != self.value)

    @property
    def says(self) -> str:
        """Return, in words, what speaks for the value and what against it."""
        own, other = ("; ".join(w.says for w in found) for found in (self.speaking, self.contradicting))
        return "; against it: ".join(part for part in (own, other) if part)


@frozen
class SampleKind:
    """What the samples of a run are, which actions they hold, and what made and judged them."""

    samples: Facet
    actions: Facet
    critic: Facet
    rollout_engine: Facet
    #: the value of each facet; each rule asks for it
    known: tuple[str | None, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple([self.facet(name).value for name in FACETS]))

    def excludes(self, wanted: Mapping[str, str]) -> str | None:
        """Return why something that is for `wanted` (facet → value) is not for this run; None where it may be."""
        for name, value in wanted.items():
            known = self.facet(name).value
            if known not in (None, value):
                return f"not for {FACETS[name][known or value]}"
        return None

    def facet(self, name: str) -> Facet:
        """Return one of the four by its name."""
        found: Facet = getattr(self, name)
        return found
