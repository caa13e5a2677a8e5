"""What a pack changes in others: weights and priors of their causes, and rules that it retires.

A retired rule is as if it had never been written: it does not run, and the weights that other packs gave it lapse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ppo_doctor.forms import fail, fields, one_of, tables, text, whole
from ppo_doctor.model import Weight

if TYPE_CHECKING:
    from ppo_doctor.model import Cause, Rule

FILE = "overrides.toml"
_CAUSE = ("id", "prior", "source")
_Asked = TypeVar("_Asked", "_NewWeight", "_NewPrior")


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewWeight:
    cause: str
    weight: Weight
    path: str

    @property
    def place(self) -> tuple[str, ...]:
        return self.cause, self.weight.finding

    @property
    def value(self) -> tuple[int, ...]:
        return self.weight.fired, self.weight.clear


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewPrior:
    cause: str
    prior: int
    path: str

    @property
    def place(self) -> tuple[str, ...]:
        return (self.cause,)

    @property
    def value(self) -> tuple[int, ...]:
        return (self.prior,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Everything that one pack changes in others; paths are those of its own files."""

    weights: tuple[_NewWeight, ...] = ()
    priors: tuple[_NewPrior, ...] = ()
    #: (rule, path of the file that retires it)
    retired: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.weights) + len(self.priors)


#: The whole of a pack's rules and causes.
Catalogue: TypeAlias = "tuple[tuple[Rule, ...], tuple[Cause, ...]]"


def compiled_overrides(path: str, raw: Mapping[str, Any], priors: Iterable[str]) -> dict[str, Any]:
    """Return the checked content of an `overrides.toml`; names of causes and findings are checked where they meet.

    Raises:
        DoctorError: an unknown or missing field, or a value of the wrong kind.
    """
    fields(path, raw, (), ("weight", "cause"))
    known = tuple(priors)
    return {
        "weight": [_weight(path, entry) for entry in tables(path, raw, "weight")],
        "cause": [_prior(path, entry, known) for entry in tables(path, raw, "cause")],
    }


def _weight(path: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    fields(path, raw, ("cause", "finding", "source"), ("fired", "clear"))
    if not {"fired", "clear"} & set(raw):
        raise fail(path, f"weight of {raw['finding']} for {raw['cause']}: neither fired nor clear")
    words = {name: text(path, raw, name) for name in ("cause", "finding", "source")}
    return words | {name: whole(path, raw, name) for name in ("fired", "clear")}


def _prior(path: str, raw: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    fields(path, raw, _CAUSE)
    one_of(path, "prior", raw["prior"], known)
    return {name: text(path, raw, name) for name in _CAUSE}


def changes(folder: str, compiled: Mapping[str, Any], priors: Mapping[str, int]) -> Changes:
    """Return what a compiled pack changes; `folder` is where its files are."""
    path = f"{folder}/{FILE}"
    asked = compiled.get("overrides") or {"weight": [], "cause": []}
    return Changes(
        weights=tuple(
            _NewWeight(
                cause=w["cause"],
                weight=Weight(finding=w["finding"], fired=w["fired"], clear=w["clear"], source=w["source"]),
                path=path,
            )
            for w in asked["weight"]
        ),
        priors=tuple(_NewPrior(cause=c["id"], prior=priors[c["prior"]], path=path) for c in asked["cause"]),
        retired=tuple((name, f"{folder}/pack.toml") for name in compiled.get("meta", {}).get("retire", ())),
    )


def applied(rules: Sequence[Rule], causes: Sequence[Cause], packs: Sequence[Changes]) -> Catalogue:
    """Return the rules and causes of all packs with the changes of each.

    Raises:
        DoctorError: a name that does not exist, two packs that ask for different things, or a pack that weighs a rule
            which it retires itself.
    """
    names = [rule.name for rule in rules]
    gone = {name for pack in packs for name in _retired(pack, names)}
    ids = {cause.id for cause in causes}
    weights = list(_agreed([entry for pack in packs for entry in pack.weights], ids))
    priors = list(_agreed([entry for pack in packs for entry in pack.priors], ids))
    for entry in weights:
        one_of(entry.path, "finding", entry.weight.finding, names)
    kept = tuple(rule for rule in rules if rule.name not in gone)
    return kept, tuple(_changed(cause, weights, priors, gone) for cause in causes)


def _retired(pack: Changes, names: Sequence[str]) -> Iterator[str]:
    own = {entry.weight.finding for entry in pack.weights}
    for name, path in pack.retired:
        one_of(path, "retired rule", name, names)
        if name in own:
            raise fail(path, f"'{name}' is retired here and weighed in {FILE}", "take out one of the two")
        yield name


def _agreed(asked: Sequence[_Asked], causes: Iterable[str]) -> Iterable[_Asked]:
    """Return overrides by what they change, each once; two that differ contradict each other."""
    held: dict[tuple[str, ...], _Asked] = {}
    for entry in asked:
        one_of(entry.path, "cause", entry.cause, causes)
        first = held.setdefault(entry.place, entry)
        if first.value != entry.value:
            what = " for ".join(reversed(entry.place))
            raise fail(entry.path, f"{what}: {first.path} asks for something else", "keep one of the two")
    return held.values()


def _changed(cause: Cause, weights: Sequence[_NewWeight], priors: Sequence[_NewPrior], gone: set[str]) -> Cause:
    ours = {entry.weight.finding: entry.weight for entry in weights if entry.cause == cause.id}
    merged = {weight.finding: weight for weight in cause.weights} | ours
    prior = next((entry.prior for entry in priors if entry.cause == cause.id), cause.prior)
    if not ours and prior == cause.prior and not gone & set(merged):
        return cause
    kept = tuple(weight for finding, weight in merged.items() if finding not in gone)
    return replace(cause, prior=prior, weights=kept)
