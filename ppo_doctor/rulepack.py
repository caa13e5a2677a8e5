"""Find, read, validate and compile rule packs; nothing here evaluates anything.

A pack is a folder with `pack.toml`, `<family>/<rule>.toml`, `causes/<id>.toml` and, where it changes other packs,
`overrides.toml`; the built-in one also holds the closed list of complaints. Evaluation reads its compiled form; prose
and cases are parsed from the TOML when somebody asks for them. Packs are put together in a fixed order: the built-in
one, those of installed packages by name, then `--rules` as given.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.compiled import Compiled, load, parse_toml, stamp_of
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.forms import fail, one_of, unique
from ppo_doctor.model import (
    PRIORS,
    Cause,
    Clause,
    Complaint,
    Fitted,
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
    #: fitted on the lab, where probabilities proved calibrated; None: none are given
    temperature: float | None = None
    #: cause → how its log odds add up beside other faults, fitted on the lab
    fitted: Mapping[str, Fitted] = field(default_factory=dict)
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

    @cached_property
    def openers(self) -> Mapping[str, tuple[Weight, ...]]:
        """Cause → its weights of findings that could bring it up, the most telling by its silence first."""
        return {cause.id: tuple(self._openers(cause)) for cause in self.causes}

    def _openers(self, cause: Cause) -> list[Weight]:
        known = [weight for weight in cause.weights if weight.fired > 0 and weight.finding in self.by_name]
        able = [weight for weight in known if self.by_name[weight.finding].opens in cause.complaints]
        return sorted(able, key=lambda weight: (weight.clear, -weight.fired))


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
        return _alone(folder, repr(stamp_of(folder)))
    return _merged([_built_in(folder), *folders.values()])


@lru_cache(maxsize=1)
def _alone(folder: Path, stamped: str) -> Pack:
    """Return the built-in pack as its files are now: who judges many runs in one process builds it once."""
    del stamped
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
    raw = Pack(rules=rules, causes=causes, complaints=packs[0].complaints, unjudged=())
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
        fitted={name: fitted for pack in packs for name, fitted in pack.fitted.items()},
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
    return Pack(
        rules=tuple(_rule(rule, folder) for rule in raw["rules"]),
        causes=tuple(_cause(cause, folder) for cause in raw["causes"]),
        complaints=tuple(Complaint(**complaint) for complaint in raw["complaints"]),
        unjudged=tuple(Unjudged(**unjudged) for unjudged in raw["unjudged"]),
        temperature=raw["meta"].get("temperature"),
        fitted={entry["id"]: _fitted(entry) for entry in raw["fitted"]},
    )


def _fitted(raw: Mapping[str, Any]) -> Fitted:
    weights = tuple(Weight(finding=name, fired=fired, clear=clear) for name, (fired, clear) in raw["weights"].items())
    return Fitted(cause=raw["id"], base=raw["base"], weights=weights)


def _rule(raw: Mapping[str, Any], folder: Path) -> Rule:
    clauses = tuple(Clause(**clause) for clause in raw["when"])
    params = tuple(Param(name=name, **param) for name, param in raw["params"].items())
    return Rule(
        **{
            **{name: value for name, value in raw.items() if name not in FACETS},
            "kind": {name: raw[name] for name in FACETS if name in raw},
            "severity": Severity(raw["severity"]),
            "when": clauses,
            "params": params,
            "needs": tuple(dict.fromkeys(clause.quantity for clause in clauses)),
            "algorithms": tuple(raw.get("algorithms", ())),
            "path": f"{folder}{os.sep}{raw['path']}",
        }
    )


def _cause(raw: Mapping[str, Any], folder: Path) -> Cause:
    return Cause(
        id=raw["id"],
        title=raw["title"],
        family=raw["family"],
        severity=Severity(raw["severity"]),
        prior=PRIORS[raw["prior"]],
        benign=raw["benign"],
        link=raw["link"],
        complaints=tuple(raw["complaints"]),
        weights=tuple(Weight(**weight) for weight in raw.get("weight", ())),
        twins=tuple(raw.get("twins", ())),
        says=raw["says"],
        remedies=tuple(Remedy(**remedy) for remedy in raw["remedy"]),
        measure=tuple(Measurement(**measure) for measure in raw.get("measure", ())),
        never_proven=raw.get("never_proven", False),
        rarer_twin=raw.get("rarer_twin", False),
        leads_to=tuple(raw.get("leads_to", ())),
        begins_with=tuple(raw.get("begins_with", ())),
        samples=raw.get("samples", ""),
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
        if rule.opens is not None:
            one_of(rule.path, "opens", rule.opens, sorted(complaints))
        for need in rule.needs:
            _check_quantity(rule, need)
    for cause in pack.causes:
        for complaint in cause.complaints:
            one_of(cause.path, "complaint", complaint, sorted(complaints))
        for twin in cause.twins:
            one_of(cause.path, "twin", twin, sorted(causes))
        for finding in (*cause.leads_to, *cause.begins_with):
            one_of(cause.path, "finding", finding, sorted(rules))
        for weight in cause.weights:
            one_of(cause.path, "finding", weight.finding, sorted(rules))
            _check_weight(cause.path, weight, rules[weight.finding])


def _check_quantity(rule: Rule, need: str) -> None:
    from ppo_doctor.derive.table import DERIVED
    from ppo_doctor.frameworks.settings import SETTINGS
    from ppo_doctor.metrics import METRICS

    kind, _, _ = need.partition(".")
    one_of(rule.path, "kind of quantity", kind, ("series", "fact", "config"))
    known = SETTINGS if kind == "config" else {**DERIVED, **METRICS}
    one_of(rule.path, "quantity", need, [f"{kind}.{name}" for name in known])


def _check_weight(path: str, weight: Weight, rule: Rule) -> None:
    bound = HARD if rule.proof else SOFT
    if max(abs(weight.fired), abs(weight.clear)) > bound:
        raise fail(path, f"weight of {weight.finding} is beyond ±{bound}; only a proof may weigh more")


def prose(path: str) -> Compiled:
    """Return everything a rule or cause file says, prose and cases included."""
    return parse_toml(Path(path))
