"""The kind of a run: four facets, each with a value or unknown, and the evidence for and against the value.

A rule or a cause names the values of facets to which it applies (`samples = "completions"`); `SampleKind.excludes`
returns whether the run is known to be of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.run import SourceRef

#: Facet → its two values → a phrase for a run with that value.
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
    """A piece of evidence for a value of a facet; a stronger one outweighs any number of weaker ones.

    The strength is 1 for names that may have another meaning, 2 for a recognised trainer, and 3 for an environment, a
    switch, or a value that only one kind of run can have.
    """

    value: str
    says: str
    strength: int = 1
    source: SourceRef | None = None


@frozen
class Facet:
    """A facet of a run; its value is None if there is no evidence or the strongest pieces contradict each other."""

    name: str
    witnesses: tuple[Witness, ...] = ()
    #: the value of the strongest evidence; stored because each rule needs it several times
    value: str | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        values = {witness.value for witness in self.witnesses if witness.strength == self.strength}
        object.__setattr__(self, "value", values.pop() if len(values) == 1 else None)

    @property
    def strength(self) -> int:
        """Return the strength of the strongest evidence, 0 if there is none."""
        return max((witness.strength for witness in self.witnesses), default=0)

    @property
    def supporting(self) -> tuple[Witness, ...]:
        """Return the evidence for the value, the strongest first."""
        own = [witness for witness in self.witnesses if witness.value == self.value]
        return tuple(sorted(own, key=lambda witness: -witness.strength))

    @property
    def contradicting(self) -> tuple[Witness, ...]:
        """Return the evidence against the value; all evidence if the value is None."""
        return tuple(witness for witness in self.witnesses if witness.value != self.value)

    @property
    def says(self) -> str:
        """Return the evidence for and against the value in words."""
        own, other = ("; ".join(w.says for w in witnesses) for witnesses in (self.supporting, self.contradicting))
        return "; against it: ".join(part for part in (own, other) if part)


@frozen
class SampleKind:
    """The four facets of a run: samples, actions, critic and rollout engine."""

    samples: Facet
    actions: Facet
    critic: Facet
    rollout_engine: Facet
    #: the value of each facet; stored because each rule needs it
    known: tuple[str | None, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple([self.facet(name).value for name in FACETS]))

    def excludes(self, wanted: Mapping[str, str]) -> str | None:
        """Return why something for runs of kind `wanted` (facet → value) does not apply to this run, or None."""
        for name, value in wanted.items():
            known = self.facet(name).value
            if known not in (None, value):
                return f"not for {FACETS[name][known or value]}"
        return None

    def facet(self, name: str) -> Facet:
        """Return the facet of this name."""
        facet: Facet = getattr(self, name)
        return facet
