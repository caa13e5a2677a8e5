"""Find, read, validate and compile rule packs; nothing here evaluates anything.

A pack is a folder with `pack.toml`, `<family>/<rule>.toml`, `causes/<id>.toml` and, where it has them, `chain.toml`,
what checks say of the signal chain, and `overrides.toml`, what it changes in other packs; the built-in one also holds
the closed list of complaints. Evaluation reads its compiled form; prose and cases are parsed from the TOML when asked
for. Packs are put together in a fixed order: the built-in one, those of installed packages by name, then `--rules` as
given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.compiled import Compiled, load, parse_toml
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.forms import fail, one_of, unique
from ppo_doctor.model import (
    PRIORS,
    WORDS,
    Cause,
    Clause,
    Complaint,
    Link,
    Measurement,
    PackInForce,
    Param,
    Remedy,
    Rule,
    Severity,
    Unjudged,
    Weight,
)
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.kinds import FACETS
from ppo_doctor.weighing import sound_share, weights_of

if TYPE_CHECKING:
    from ppo_doctor.compiled import Parsed
    from ppo_doctor.overrides import Changes

__all__ = ["PRIORS", "Pack", "build", "build_further", "builtin_rules", "check_references", "load_pack", "prose"]

#: A single finding weighs at most this much; only an identity, a counter or a tensor may weigh more.
SOFT, HARD = 20, 60


@dataclass(frozen=True, kw_only=True)  # without slots: what follows from a pack is worked out once, and kept beside it
class Pack:
    """Everything that rules and causes say, ready for evaluation."""

    rules: tuple[Rule, ...]
    causes: tuple[Cause, ...]
    complaints: tuple[Complaint, ...]
    unjudged: tuple[Unjudged, ...]
    #: link → what checks say of it; a pack's own entries come after those of the packs before it
    chain: Mapping[str, Link] = field(default_factory=dict)
    #: check → share of sound runs that answer it with yes
    rates: Mapping[str, float] = field(default_factory=dict)
    #: check → how many sound runs of the lab's trainers answer yes, of how many, then the same of published runs
    sound: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: packs beyond the built-in one, in the order in which they were added
    further: tuple[PackInForce, ...] = ()

    def rule(self, name: str) -> Rule | None:
        """Return a rule by name or code."""
        return next((rule for rule in self.rules if name in (rule.name, rule.code)), None)

    def cause(self, name: str) -> Cause | None:
        """Return a cause by id."""
        return next((cause for cause in self.causes if cause.id == name), None)

    @cached_property
    def by_name(self) -> Mapping[str, Rule]:
        """The rules by name."""
        return {rule.name: rule for rule in self.rules}


def builtin_rules() -> Path:
    """Return the folder of the rules that belong to this copy of ppo-doctor, installed or checked out.

    Raises:
        DoctorError: neither place holds a pack.
    """
    package = Path(__file__).resolve().parent
    # The marker matters: without it an installed copy would adopt any stranger's site-packages/rules.
    for folder in (package / "_rules", package.parent / "rules"):
        if (folder / "pack.toml").is_file():
            return folder
    raise DoctorError(
        "the built-in rules are missing", hint="reinstall ppo-doctor, or pass --rules DIR", code=ExitCode.BUG
    )


@frozen
class _Part:
    """One pack as it was read: where, who brought it, and its compiled form."""

    folder: Path
    origin: str
    compiled: Compiled

    @property
    def name(self) -> str:
        return str(self.compiled["meta"]["name"])


def load_pack(extra: Iterable[Path] = (), *, installed: bool = True) -> Pack:
    """Return the built-in pack with those of installed packages and of further folders added to it.

    Raises:
        DoctorError: a pack is missing or invalid, or two contradict each other; the message names the file.
    """
    further = [*(_installed() if installed else ()), *(_part(folder.resolve(), "--rules") for folder in extra)]
    folders: dict[Path, _Part] = {}
    for part in further:  # one that is installed and named besides is one pack
        folders.setdefault(part.folder, part)
    folder = builtin_rules()
    if not folders:
        return _alone(folder)
    return _merged([_built_in(folder), *folders.values()])


@cache
def _alone(folder: Path) -> Pack:
    """Return the built-in pack as it was when first asked for: a process judges all its runs by the same rules."""
    return _pack(_built_in(folder))


def _built_in(folder: Path) -> _Part:
    return _Part(folder=folder, origin="built in", compiled=load("rules", folder, build))


def build(parsed: Parsed) -> Compiled:
    """Validate the files of the built-in pack; see `packfiles`, which is loaded where nothing is cached."""
    from ppo_doctor import packfiles

    return packfiles.build(parsed)


def build_further(parsed: Parsed) -> Compiled:
    """Validate the files of a pack that adds to the built-in one."""
    from ppo_doctor import packfiles

    return packfiles.build_further(parsed)


def _installed() -> Iterator[_Part]:
    from ppo_doctor.installed import installed_packs

    for found in installed_packs():
        yield _part(found.folder.resolve(), f"installed with {found.package}")


def _part(folder: Path, origin: str) -> _Part:
    if not (folder / "pack.toml").is_file():
        raise DoctorError(f"{folder}: no rule pack", hint="a rule pack is a folder with pack.toml", code=ExitCode.USAGE)
    with _located(folder, origin):
        return _Part(folder=folder, origin=origin, compiled=load("rules", folder, build_further))


@contextmanager
def _located(folder: Path, origin: str) -> Iterator[None]:
    """Put the folder before the file that an error names; of an installed pack tell who brought it."""
    try:
        yield
    except DoctorError as error:
        whole = error.message if error.message.startswith(str(folder)) else f"{folder}/{error.message}"
        hint = "; ".join(filter(None, (error.hint, origin if origin != "--rules" else "")))
        raise DoctorError(whole, hint=hint, code=error.code) from error


def _merged(parts: list[_Part]) -> Pack:
    from ppo_doctor.overrides import applied, changes

    unique((part.name, str(part.folder / "pack.toml")) for part in parts)
    packs = [_read(part) for part in parts]
    rules = tuple(rule for pack in packs for rule in pack.rules)
    causes = tuple(cause for pack in packs for cause in pack.causes)
    links = _links([part.compiled["chain"] for part in parts])
    raw = Pack(rules=rules, causes=causes, complaints=packs[0].complaints, unjudged=(), chain=links)
    check_references(raw)  # the built-in pack alone is held to this by its tests, not at every start
    asked = [changes(str(part.folder), part.compiled, PRIORS) for part in parts]
    _check_own(packs, asked)
    known = {rule.name: rule for rule in rules}
    rules, causes = applied(rules, causes, asked)
    for entry in (entry for change in asked for entry in change.weights):
        _check_weight(entry.path, entry.weight, known[entry.weight.finding])
    return Pack(
        rules=rules,
        causes=causes,
        complaints=packs[0].complaints,
        chain=links,
        rates=packs[0].rates,
        sound=packs[0].sound,
        unjudged=tuple(unjudged for pack in packs for unjudged in pack.unjudged),
        further=tuple(map(_in_force, parts[1:], packs[1:], asked[1:])),
    )


def _check_own(packs: Iterable[Pack], asked: Iterable[Changes]) -> None:
    """Refuse a cause that weighs a rule which its own pack retires; weights of other packs lapse."""
    for pack, change in zip(packs, asked, strict=True):
        gone = dict(change.retired)
        for cause in pack.causes:
            for weight in cause.weights:
                if weight.finding in gone:
                    raise fail(cause.path, f"weighs '{weight.finding}', which {gone[weight.finding]} retires")


def _in_force(part: _Part, pack: Pack, change: Changes) -> PackInForce:
    return PackInForce(
        name=part.name,
        origin=part.origin,
        path=str(part.folder),
        rules=tuple(rule.name for rule in pack.rules),
        causes=tuple(cause.id for cause in pack.causes),
        overrides=len(change),
        retired=tuple(name for name, _ in change.retired),
    )


def _read(part: _Part) -> Pack:
    with _located(part.folder, part.origin):
        return _pack(part)


def _pack(part: _Part) -> Pack:
    raw, folder = part.compiled, part.folder
    sound = {name: tuple(counts) for name, counts in raw["rates"].items()}
    rates = {name: sound_share(sum(counts[::2]), sum(counts[1::2])) for name, counts in sound.items()}
    return Pack(
        rules=tuple(_rule(rule, folder) for rule in raw["rules"]),
        causes=tuple(_cause(cause, folder, rates) for cause in raw["causes"]),
        complaints=tuple(Complaint(id=c["id"], title=c["title"]) for c in raw["complaints"]),
        unjudged=tuple(Unjudged(**unjudged) for unjudged in raw["unjudged"]),
        chain=_links([raw["chain"]]),
        rates=rates,
        sound=sound,
    )


def _links(chains: Sequence[Mapping[str, Any]]) -> dict[str, Link]:
    """Return what packs say of each link, in their order."""
    held: dict[str, dict[str, tuple[str, ...]]] = {}
    for chain in chains:
        for name, parts in chain.items():
            link = held.setdefault(name, {})
            for part, told in parts.items():
                link[part] = (*link.get(part, ()), *told)
    return {name: Link(name=name, **parts) for name, parts in held.items()}


def _rule(raw: Mapping[str, Any], folder: Path) -> Rule:
    clauses = tuple(Clause(**clause) for clause in raw["when"])
    params = tuple(Param(name=name, **param) for name, param in raw["params"].items())
    return Rule(
        **{
            **{name: value for name, value in raw.items() if name not in FACETS},
            "kind": _kind(raw),
            "severity": Severity(raw["severity"]),
            "when": clauses,
            "params": params,
            "needs": tuple(dict.fromkeys(clause.quantity for clause in clauses)),
            "algorithms": tuple(raw.get("algorithms", ())),
            "path": f"{folder}{os.sep}{raw['path']}",
        }
    )


def _kind(raw: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the facets of a run that a rule or a cause is for."""
    return {name: raw[name] for name in FACETS if name in raw}


def _cause(raw: Mapping[str, Any], folder: Path, rates: Mapping[str, float]) -> Cause:
    return Cause(
        id=raw["id"],
        title=raw["title"],
        family=raw["family"],
        severity=Severity(raw["severity"]),
        prior=PRIORS[raw["prior"]],
        benign=raw["benign"],
        link=raw["link"],
        complaints=tuple(raw["complaints"]),
        weights=weights_of(raw, rates),
        proof=tuple(raw.get("proof", ())),
        root_of=tuple(raw.get("root_of", ())),
        avoid=raw.get("not", ""),
        needs=(*raw["needs"], *raw.get("proof", ())) if raw.get("needs") else (),
        twins=tuple(raw.get("twins", ())),
        says=raw["says"],
        remedies=tuple(Remedy(**remedy) for remedy in raw["remedy"]),
        measure=tuple(Measurement(**measure) for measure in raw.get("measure", ())),
        never_proven=raw.get("never_proven", False),
        kind=_kind(raw),
        path=f"{folder}{os.sep}{raw['path']}",
    )


def check_references(pack: Pack) -> None:
    """Hold every name in a pack to something that exists once, and weights to their bounds.

    Raises:
        DoctorError: a name is taken twice, a weight, twin, complaint or quantity refers to nothing, or a soft finding
            weighs too much.
    """
    for names in ([(r.name, r.path) for r in pack.rules], [(r.code, r.path) for r in pack.rules]):
        unique(names)
    unique((cause.id, cause.path) for cause in pack.causes)
    rules = {rule.name: rule for rule in pack.rules}
    complaints = {complaint.id for complaint in pack.complaints}
    causes = {cause.id for cause in pack.causes}
    for rule in pack.rules:
        for need in rule.needs:
            _check_quantity(rule, need)
    for link in pack.chain.values():
        for finding in (*link.dead, *link.wrong, *link.weak, *link.alive, *link.alive_unless, *link.excused_by):
            one_of(f"chain.toml: {link.name}", "check", finding, sorted(rules))
    for cause in pack.causes:
        for complaint in cause.complaints:
            one_of(cause.path, "complaint", complaint, sorted(complaints))
        for other in (*cause.twins, *cause.root_of):
            one_of(cause.path, "cause", other, sorted(causes))
        for finding in (*cause.proof, *cause.needs):
            one_of(cause.path, "check", finding, sorted(rules))
        for setting in (remedy.setting for remedy in cause.remedies if remedy.setting is not None):
            one_of(cause.path, "setting", setting, list(_quantities("config")))
        for weight in cause.weights:
            one_of(cause.path, "finding", weight.finding, sorted(rules))
            if not _in_words(weight):
                _check_weight(cause.path, weight, rules[weight.finding])


def _in_words(weight: Weight) -> bool:
    """Tell whether a weight was made of a word: no bound is set by hand there."""
    return weight.source in (*WORDS, "proof", "requires", "excludes")


def _check_quantity(rule: Rule, need: str) -> None:
    kind, _, name = need.partition(".")
    one_of(rule.path, "kind of quantity", kind, ("series", "fact", "config"))
    if name not in _quantities(kind):
        one_of(rule.path, "quantity", need, [f"{kind}.{known}" for known in _quantities(kind)])


@cache
def _quantities(kind: str) -> dict[str, None]:
    """Return the names of all quantities of a kind, in their order."""
    from ppo_doctor.derive.table import DERIVED
    from ppo_doctor.frameworks.settings import SETTINGS
    from ppo_doctor.metrics import METRICS

    return dict.fromkeys(SETTINGS if kind == "config" else [*DERIVED, *METRICS])


def _check_weight(path: str, weight: Weight, rule: Rule) -> None:
    bound = HARD if rule.proof else SOFT
    if max(abs(weight.fired), abs(weight.clear)) > bound:
        raise fail(path, f"weight of {weight.finding} is beyond ±{bound}; only a proof may weigh more")


def prose(path: str) -> Compiled:
    """Return everything a rule or cause file says, prose and cases included."""
    return parse_toml(Path(path))
