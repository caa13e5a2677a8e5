"""Load the rules and causes: the built-in ones, and those of a user's own folders (`--rules DIR`).

A folder of rules holds `<family>/<rule>.toml`, `causes/<id>.toml` and, where checks show something of the signal chain,
`chain.toml`; the built-in one also holds the closed list of complaints. Evaluation reads a reduced form (`packfiles`);
prose and cases are parsed from the TOML when asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.checks.rule_files import sound_share, weights_of
from ppo_doctor.model.diagnosis import PackInForce, Unjudged
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.kinds import FACETS
from ppo_doctor.model.rules import Cause, Clause, Complaint, Link, Measurement, Param, Remedy, Rule, Weight
from ppo_doctor.model.toml_files import Compiled, load, parse_folder, parse_toml, toml_files
from ppo_doctor.model.toml_schema import fail, one_of, unique
from ppo_doctor.model.words import PRIORS, WORDS, Severity

if TYPE_CHECKING:
    from ppo_doctor.model.toml_files import Parsed

__all__ = ["PRIORS", "Pack", "build", "builtin_rules", "check_references", "load_pack", "prose"]

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
    #: folders of rules beyond the built-in ones, in the order in which they were added
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
        DoctorError: neither place holds them.
    """
    package = Path(__file__).resolve().parent.parent
    # The marker matters: without it an installed copy would adopt any stranger's site-packages/rules.
    for folder in (package / "_rules", package.parent / "rules"):
        if (folder / "complaints.toml").is_file():
            return folder
    raise DoctorError("the built-in rules are missing", hint="reinstall ppo-doctor", code=ExitCode.BUG)


def load_pack(extra: Iterable[Path] = ()) -> Pack:
    """Return the built-in rules and causes with those of further folders added to them.

    Raises:
        DoctorError: a folder holds no rules, a file in one is invalid, or a name is taken (exit code 2).
    """
    built_in = _alone(builtin_rules())
    folders = dict.fromkeys(folder.resolve() for folder in extra)
    return _merged([built_in, *map(_further, folders)]) if folders else built_in


@cache
def _alone(folder: Path) -> Pack:
    """Return the built-in pack as it was when first asked for: a process judges all its runs by the same rules."""
    return _pack(folder, load("rules", folder, build))


def build(parsed: Parsed) -> Compiled:
    """Validate the files of the built-in pack; see `packfiles`, which is loaded where nothing is cached."""
    from ppo_doctor.checks import rule_files as packfiles

    return packfiles.build(parsed)


def _further(folder: Path) -> Pack:
    from ppo_doctor.checks.rule_files import build_further

    if not toml_files(folder):
        hint = "name a folder that holds <family>/<rule>.toml or causes/<id>.toml"
        raise DoctorError(f"{folder}: no rules in it", hint=hint, code=ExitCode.USAGE)
    with _located(folder):
        pack = _pack(folder, parse_folder(folder, build_further))
    rules, causes = tuple(rule.name for rule in pack.rules), tuple(cause.id for cause in pack.causes)
    return replace(pack, further=(PackInForce(name=folder.name, path=str(folder), rules=rules, causes=causes),))


@contextmanager
def _located(folder: Path) -> Iterator[None]:
    """Put the folder before the file that an error names."""
    try:
        yield
    except DoctorError as error:
        whole = error.message if error.message.startswith(str(folder)) else f"{folder}/{error.message}"
        raise DoctorError(whole, hint=error.hint, code=error.code) from error


def _merged(packs: Sequence[Pack]) -> Pack:
    """Return several packs as one, the first of which is the built-in one."""
    merged = replace(
        packs[0],
        rules=tuple(rule for pack in packs for rule in pack.rules),
        causes=tuple(cause for pack in packs for cause in pack.causes),
        unjudged=tuple(unjudged for pack in packs for unjudged in pack.unjudged),
        chain=_joined([pack.chain for pack in packs]),
        further=tuple(further for pack in packs for further in pack.further),
    )
    check_references(merged)  # tests check the built-in pack, so that a start with it alone need not
    return merged


def _pack(folder: Path, raw: Compiled) -> Pack:
    sound = {name: tuple(counts) for name, counts in raw["rates"].items()}
    rates = {name: sound_share(sum(counts[::2]), sum(counts[1::2])) for name, counts in sound.items()}
    return Pack(
        rules=tuple(_rule(rule, folder) for rule in raw["rules"]),
        causes=tuple(_cause(cause, folder, rates) for cause in raw["causes"]),
        complaints=tuple(Complaint(id=c["id"], title=c["title"]) for c in raw["complaints"]),
        unjudged=tuple(Unjudged(**unjudged) for unjudged in raw["unjudged"]),
        chain={name: _link(name, parts) for name, parts in raw["chain"].items()},
        rates=rates,
        sound=sound,
    )


def _link(name: str, parts: Mapping[str, Iterable[str]]) -> Link:
    return Link(name=name, **{part: tuple(names) for part, names in parts.items()})


def _joined(chains: Sequence[Mapping[str, Link]]) -> dict[str, Link]:
    """Return what several packs say of each link, in their order."""
    parts = [part for part in Link.__dataclass_fields__ if part != "name"]
    held = {name: [chain[name] for chain in chains if name in chain] for chain in chains for name in chain}
    return {
        name: _link(name, {part: [check for link in links for check in getattr(link, part)] for part in parts})
        for name, links in held.items()
    }


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
    from ppo_doctor.checks import run_view  # noqa: F401 - it loads the statistics
    from ppo_doctor.checks.statistics import STATISTICS
    from ppo_doctor.model.metrics import METRICS
    from ppo_doctor.trainers.settings import SETTINGS

    return dict.fromkeys(SETTINGS if kind == "config" else [*STATISTICS, *METRICS])


def _check_weight(path: str, weight: Weight, rule: Rule) -> None:
    bound = HARD if rule.proof else SOFT
    if max(abs(weight.fired), abs(weight.clear)) > bound:
        raise fail(path, f"weight of {weight.finding} is beyond ±{bound}; only a proof may weigh more")


def prose(path: str) -> Compiled:
    """Return everything a rule or cause file says, prose and cases included."""
    return parse_toml(Path(path))
