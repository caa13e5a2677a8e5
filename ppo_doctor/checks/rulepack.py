"""Load the built-in rules and causes, and those of a user's own folders (`--rules DIR`).

A folder of rules holds `<family>/<rule>.toml`, `causes/<id>.toml` and, where checks show something of the signal chain,
`chain.toml`; the built-in one also holds the closed list of complaints. Evaluation reads a reduced form (`build`);
prose and cases are parsed from the TOML when asked for. A cause weighs each answer to a check by its words against how
often sound runs answer so (`weights_of`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_doctor.model.diagnosis import PackInForce, Unjudged
from ppo_doctor.model.errors import DoctorError, ExitCode
from ppo_doctor.model.kinds import FACETS
from ppo_doctor.model.rules import TARGET, Cause, Clause, Complaint, Link, Measurement, Param, Remedy, Rule, Weight
from ppo_doctor.model.toml_files import Compiled, load, parse_folder, parse_toml, toml_files
from ppo_doctor.model.toml_schema import Spec, fail, one_of, unique, validate
from ppo_doctor.model.words import LINKS, PRIORS, PROOF_DB, QUESTIONS, RULED_OUT_DB, WORDS, Severity

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


def _further(folder: Path) -> Pack:
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


#: Share of sound runs taken for a check that none of them answers, and the least for one that they do.
UNKNOWN_RATE, LEAST_RATE = 0.02, 0.005
#: Runs that the share of an unanswered check counts as.
PSEUDO_RUNS = 10
#: The word whose absence speaks against a cause; what is only sometimes there is missed by nobody.
SILENT_TELLS = "usual"


def sound_share(yes: int, of: int) -> float:
    """Return how often sound runs answer with yes; that none did among a few is no proof that none ever does."""
    return max(LEAST_RATE, (yes + UNKNOWN_RATE * PSEUDO_RUNS) / (of + PSEUDO_RUNS))


def weights_of(raw: Mapping[str, Any], rates: Mapping[str, float]) -> tuple[Weight, ...]:
    """Return what each answer weighs for a cause: the words of its file against how often sound runs answer so."""
    told = {weight["finding"]: Weight(**weight) for weight in raw.get("weight", ())}
    words = {**raw, "usual": (*raw.get("requires", ()), *raw.get("usual", ()))}  # what has to be is usual
    for word, often in WORDS.items():
        for name in words.get(word, ()):
            sound = rates.get(name, UNKNOWN_RATE)
            fired, clear = _decibans(often / sound), _decibans((1 - often) / (1 - sound))
            clear = clear if word == SILENT_TELLS else 0
            told[name] = Weight(finding=name, fired=fired, clear=clear, source=word)
    for word, sign in (("proof", PROOF_DB), ("excludes", RULED_OUT_DB)):
        for name in raw.get(word, ()):
            told[name] = replace(told.get(name, Weight(finding=name)), fired=sign, source=word)
    for name in raw.get("requires", ()):
        told[name] = replace(told.get(name, Weight(finding=name)), clear=RULED_OUT_DB, source="requires")
    return tuple(told.values())


def _decibans(odds: float) -> int:
    return round(10 * math.log10(odds))


TESTS = ("equals", "below", "at most", "above", "at least")
WINDOWS = ("all", "tail", "middle", "early")
STATISTICS = ("each", "median", "min", "max", "first", "last")
#: "measured" is a bound that no sound run of the lab crosses: it opens a complaint alone, and establishes nothing.
PROOFS = ("identity", "counter", "tensor", "measured")
#: What a rule's prose is under.
HEADINGS = ("what", "why", "look_alikes", "blind_spots", "next_steps", "references")
#: Fields of a clause that hold a number, or `@name` of a parameter.
_NUMBERS = ("bound", "share", "least", "least_records")
_NAMES: Spec = [str]
_FACETS: dict[str, Spec] = {f"{facet}?": tuple(values) for facet, values in FACETS.items()}
_CLAUSE: dict[str, Spec] = {
    "quantity": str,
    "is": TESTS,
    "bound": object,
    "bound_source?": str,
    "statistic?": STATISTICS,
    "window?": WINDOWS,
    **dict.fromkeys(("share?", "least?", "least_records?"), object),
}
#: The fields of a rule that evaluation takes as they are.
_PLAIN: dict[str, Spec] = {
    **dict.fromkeys(("code", "name", "title", "pass_title"), str),
    "link": tuple(LINKS),
    "severity": tuple(Severity),
    "status?": str,
    "answers?": tuple(QUESTIONS),
    "answers_when?": str,
    "proof?": PROOFS,
    "min_points?": int,
    "min_points_tensor?": int,
    "not_when_single_update?": bool,
    **_FACETS,
    "before_training?": bool,
}
_RULE: dict[str, Spec] = {
    **_PLAIN,
    "params?": {"*": {"value": float, "unit": str, "source": str}},
    "when": [_CLAUSE],
    "doc": {f"{heading}?": str if heading in ("what", "why") else [str] for heading in HEADINGS},
    "case": [dict],
}
_CAUSE: dict[str, Spec] = {
    **dict.fromkeys(("id", "title", "family", "says", "not?"), str),
    "severity": tuple(Severity),
    "prior": tuple(PRIORS),
    "benign": bool,
    "never_proven?": bool,
    "link": tuple(LINKS),
    **dict.fromkeys(("complaints", "twins?", "root_of?"), _NAMES),
    **dict.fromkeys(("proof?", "requires?", "excludes?", "needs?", "usual?", "sometimes?"), _NAMES),
    **_FACETS,
    "weight?": [{"finding": str, "source": str, "fired?": int, "clear?": int}],
    "remedy": [
        {
            "do": str,
            "samples?": tuple(FACETS["samples"]),
            **dict.fromkeys(("framework?", "key?", "setting?", "to?"), str),
        }
    ],
    "measure?": [{"log": str, "because": str}],
    "references?": object,
}
_LINK: dict[str, Spec] = {f"{part}?": [str] for part in Link.__dataclass_fields__ if part != "name"}
_CHAIN: Spec = {f"{link}?": _LINK | {"kills?": [tuple(LINKS)]} for link in LINKS}
#: File that holds neither rules nor causes → its form, and the table of it that is kept.
_OTHERS: dict[str, tuple[str, Spec, str | None]] = {
    "complaints.toml": ("complaints", {"complaint": [{"id": str, "title": str}]}, "complaint"),
    "unjudged.toml": ("unjudged", {"cause": [{"id": str, "because": str, "a_fuller_log_could?": bool}]}, "cause"),
    "rates.toml": ("rates", {"rates": {"*": [int]}}, "rates"),
    "chain.toml": ("chain", _CHAIN, None),
}
#: Names a folder of rules and is read no more.
OLD_MARKER = "pack.toml"
#: File that only the built-in rules may have, or that nobody may have any more → what is wrong and what to do.
_NOT_IN_A_FOLDER = {
    "complaints.toml": ("the list of complaints is closed", "causes name complaints of the built-in rules"),
    "overrides.toml": (
        "weights and priors of built-in causes can no longer be changed",
        "write a cause of your own with [[weight]] in causes/<id>.toml, or set [thresholds.RULE] in the policy, "
        "then delete this file",
    ),
    OLD_MARKER: (
        "built-in rules can no longer be retired",
        'leave a rule out with --ignore or with ignore = ["RULE"] in the policy, then delete this file',
    ),
}


def build_further(parsed: Parsed) -> Compiled:
    """Validate the files of a folder that adds to the built-in rules.

    Raises:
        DoctorError: as `build`; also for a file that no such folder may hold.
    """
    for path, (problem, hint) in _NOT_IN_A_FOLDER.items():
        if path in parsed and (path != OLD_MARKER or "retire" in parsed[path]):
            raise fail(path, problem, hint)
    return build({path: raw for path, raw in parsed.items() if path != OLD_MARKER})


def build(parsed: Parsed) -> Compiled:
    """Validate the files of a folder and return the part that evaluation needs.

    Raises:
        DoctorError: a file lacks a field, holds a value of another kind or a word outside the vocabulary, or repeats a
            name.
    """
    made: Compiled = {"rules": [], "causes": [], "complaints": [], "unjudged": [], "rates": {}, "chain": {}}
    for path, raw in parsed.items():
        if path in _OTHERS:
            name, spec, table = _OTHERS[path]
            validate(path, raw, spec)
            made[name] = raw if table is None else raw[table]
        elif path.startswith("causes/"):
            made["causes"].append(_form_of_cause(path, raw))
        else:
            made["rules"].append(_form_of_rule(path, raw))
    for key in ("name", "code"):
        unique((rule[key], rule["path"]) for rule in made["rules"])
    unique((cause["id"], cause["path"]) for cause in made["causes"])
    return made


def _form_of_rule(path: str, raw: Compiled) -> Compiled:
    validate(path, raw, _RULE)
    params = raw.get("params", {})
    kept = {name: raw[name] for name in (field.removesuffix("?") for field in _PLAIN) if name in raw}
    return kept | {
        "path": path,
        "next_step": next(iter(raw["doc"].get("next_steps", ())), ""),
        "params": params,
        "when": [_form_of_clause(path, clause, params) for clause in raw["when"]],
    }


def _form_of_clause(path: str, raw: Mapping[str, Any], params: Compiled) -> Compiled:
    """Return a clause with numbers in place of `@name`, and with the parameter that each was taken from."""
    named = {name: raw[name].removeprefix("@") for name in _NUMBERS if isinstance(raw.get(name), str)}
    for param in named.values():
        if param not in params:
            raise fail(path, f"no parameter '{param}'")
    given = {name: raw[name] for name in _NUMBERS if name in raw and name not in named}
    validate(path, given, {f"{name}?": float for name in _NUMBERS})
    numbers = given | {name: params[param]["value"] for name, param in named.items()}
    source = params[named["bound"]]["source"] if "bound" in named else raw.get("bound_source", "")
    return {
        "quantity": raw["quantity"],
        "test": raw["is"],
        "bound_source": source,
        **{name: raw[name] for name in ("statistic", "window") if name in raw},
        **{name: float(numbers[name]) for name in _NUMBERS if name in numbers},
        **({"params": named} if named else {}),
    }


def _form_of_cause(path: str, raw: Compiled) -> Compiled:
    validate(path, raw, _CAUSE)
    for entry in raw["remedy"]:
        if "to" in entry and not ("setting" in entry and TARGET.fullmatch(entry["to"])):
            raise fail(path, f"to = '{entry['to']}' is not '= V', '>= V', '<= V', '* F' or '/ F' of a setting")
    return raw | {"path": path}
