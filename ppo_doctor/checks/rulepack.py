"""Load the built-in rules and causes, and those of a user's own folders (`--rules DIR`).

A folder of rules holds `<link>/<rule>.toml`, `causes/<id>.toml` and, optionally, `chain.toml` (what checks show of the
signal chain); the built-in folder also holds the list of complaints, the counts of sound runs (`rates.toml`) and the
causes that no log shows (`unjudged.toml`). `build` validates the files and keeps what evaluation needs, which is cached
as JSON. Prose and cases are parsed again from the TOML file when they are needed (`file_of`).
"""

from __future__ import annotations

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
from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.rules import (
    OPERATORS,
    SETTING,
    TAKEN,
    TARGET,
    WINDOWS,
    Cause,
    Clause,
    Complaint,
    Link,
    Measurement,
    Param,
    Remedy,
    Rule,
    Weight,
    sound_share,
    weights_of,
)
from ppo_doctor.model.toml_files import Compiled, load, parse_folder, parse_toml, toml_files
from ppo_doctor.model.toml_schema import Spec, fail, one_of, unique, validate
from ppo_doctor.model.words import LINKS, PRIORS, QUESTIONS, WORDS, Severity

if TYPE_CHECKING:
    from ppo_doctor.model.toml_files import Parsed
    from ppo_doctor.model.words import Status

#: Largest weight, in decibans, of a finding, and of one with a proof (an identity, a counter or a tensor).
LARGEST_WEIGHT, LARGEST_OF_PROOF = 20, 60


@dataclass(frozen=True, kw_only=True)  # without slots, because `by_name` is a cached property
class Pack:
    """All rules and causes in force, ready for evaluation."""

    rules: tuple[Rule, ...]
    causes: tuple[Cause, ...]
    complaints: tuple[Complaint, ...]
    unjudged: tuple[Unjudged, ...]
    #: link → the checks that show its state; those of further folders come last
    chain: Mapping[str, Link] = field(default_factory=dict)
    #: check → share of sound runs in which it fires
    rates: Mapping[str, float] = field(default_factory=dict)
    #: check → (fired, evaluated) of sound runs from the lab's trainers, then the same of published runs
    sound: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: folders added to the built-in rules, in order
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
    """Return the folder of the built-in rules, in an installed copy or in a checkout.

    Raises:
        DoctorError: neither has one (exit code 4).
    """
    package = Path(__file__).resolve().parent.parent
    # Without this file, an installed copy would read the site-packages/rules of another package.
    for folder in (package / "_rules", package.parent / "rules"):
        if (folder / "complaints.toml").is_file():
            return folder
    raise DoctorError("the built-in rules are missing", hint="reinstall ppo-doctor", code=ExitCode.BUG)


def load_pack(extra: Iterable[Path] = ()) -> Pack:
    """Return the built-in rules and causes with those of further folders added to them.

    Raises:
        DoctorError: a folder has no rules, a file is invalid, or a name exists already (exit code 2).
    """
    built_in = _builtin_pack(builtin_rules())
    folders = dict.fromkeys(folder.resolve() for folder in extra)
    return _merged([built_in, *map(_further_pack, folders)]) if folders else built_in


@cache  # one process judges all its runs by the same rules, even if a file changes meanwhile
def _builtin_pack(folder: Path) -> Pack:
    return _pack(folder, load("rules", folder, build))


def _further_pack(folder: Path) -> Pack:
    if not toml_files(folder):
        hint = "name a folder that contains <link>/<rule>.toml or causes/<id>.toml"
        raise DoctorError(f"{folder}: no rules in it", hint=hint, code=ExitCode.USAGE)
    with _located(folder):
        pack = _pack(folder, parse_folder(folder, build_further))
    rules, causes = tuple(rule.name for rule in pack.rules), tuple(cause.id for cause in pack.causes)
    return replace(pack, further=(PackInForce(name=folder.name, path=str(folder), rules=rules, causes=causes),))


@contextmanager
def _located(folder: Path) -> Iterator[None]:
    """Prefix the file that an error names with its folder."""
    try:
        yield
    except DoctorError as error:
        whole = error.message if error.message.startswith(str(folder)) else f"{folder}/{error.message}"
        raise DoctorError(whole, hint=error.hint, code=error.code) from error


def _merged(packs: Sequence[Pack]) -> Pack:
    """Return several packs as one; the first is the built-in one."""
    merged = replace(
        packs[0],
        rules=tuple(rule for pack in packs for rule in pack.rules),
        causes=tuple(cause for pack in packs for cause in pack.causes),
        unjudged=tuple(unjudged for pack in packs for unjudged in pack.unjudged),
        chain=_joined_chains([pack.chain for pack in packs]),
        further=tuple(further for pack in packs for further in pack.further),
    )
    check_references(merged)  # tests do this for the built-in pack, so that a usual start does not have to
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


def _joined_chains(chains: Sequence[Mapping[str, Link]]) -> dict[str, Link]:
    """Return the links of several packs: for each link the checks of every pack, in order."""
    parts = [part for part in Link.__dataclass_fields__ if part != "name"]
    links = {name: [chain[name] for chain in chains if name in chain] for chain in chains for name in chain}
    return {
        name: _link(name, {part: [check for link in same for check in getattr(link, part)] for part in parts})
        for name, same in links.items()
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
    """Check that names are unique, that every reference exists, and that no weight is too large.

    Raises:
        DoctorError: a name is taken twice, a weight, twin, complaint, statistic or setting does not exist, or a weight
            is beyond its bound.
    """
    for names in ([(r.name, r.path) for r in pack.rules], [(r.code, r.path) for r in pack.rules]):
        unique(names)
    unique((cause.id, cause.path) for cause in pack.causes)
    rules = {rule.name: rule for rule in pack.rules}
    complaints = {complaint.id for complaint in pack.complaints}
    causes = {cause.id for cause in pack.causes}
    for rule in pack.rules:
        for quantity in rule.needs:
            _check_quantity(rule.path, quantity)
    for link in pack.chain.values():
        _check_link(link, sorted(rules))
    for cause in pack.causes:
        for complaint in cause.complaints:
            one_of(cause.path, "complaint", complaint, sorted(complaints))
        for other in (*cause.twins, *cause.root_of):
            one_of(cause.path, "cause", other, sorted(causes))
        for finding in (*cause.proof, *cause.needs):
            one_of(cause.path, "check", finding, sorted(rules))
        for setting in (remedy.setting for remedy in cause.remedies if remedy.setting is not None):
            one_of(cause.path, "setting", setting, _settings())
        for weight in cause.weights:
            one_of(cause.path, "finding", weight.finding, sorted(rules))
            _check_weight(cause.path, weight, rules[weight.finding])


def _check_link(link: Link, rules: Sequence[str]) -> None:
    for check in (*link.dead, *link.wrong, *link.weak, *link.alive, *link.alive_unless, *link.excused_by):
        one_of(f"chain.toml: {link.name}", "check", check, rules)
    for quantity in link.fed_by:
        if quantity != "always":
            _check_quantity(f"chain.toml: {link.name}: fed_by", quantity)


def _check_quantity(path: str, quantity: str) -> None:
    from ppo_doctor.checks import run_view  # noqa: F401 - it registers the statistics
    from ppo_doctor.checks.statistics import STATISTICS

    if quantity.startswith(SETTING):
        one_of(path, "setting", quantity.removeprefix(SETTING), _settings())
    elif quantity not in METRICS:
        one_of(path, "statistic", quantity, STATISTICS)


def _settings() -> Iterable[str]:
    from ppo_doctor.trainers.settings import SETTINGS

    return SETTINGS


def _check_weight(path: str, weight: Weight, rule: Rule) -> None:
    bound = LARGEST_OF_PROOF if rule.proof else LARGEST_WEIGHT
    from_word = weight.source in (*WORDS, "proof", "requires", "excludes")
    if not from_word and max(abs(weight.fired), abs(weight.clear)) > bound:
        raise fail(path, f"weight of {weight.finding} is beyond ±{bound}; only a proof may weigh more")


def file_of(path: str) -> Compiled:
    """Return the whole file of a rule or cause, with its prose and cases."""
    return parse_toml(Path(path))


#: "measured" is a bound that no sound run of the lab crosses: it opens a complaint, but establishes no cause.
PROOFS = ("identity", "counter", "tensor", "measured")
#: Answer that a case expects, as the file of a rule writes it → status of the finding.
ANSWERS: Mapping[str, Status] = {"fires": "fired", "clear": "clear", "skipped": "skipped"}
#: Headings of a rule's prose.
HEADINGS = ("what", "why", "look_alikes", "blind_spots", "next_steps", "references")
#: Fields of a condition that are a number, or `@name` of a parameter.
_NUMBERS = ("share", "least", "least_records")
_NAMES: Spec = [str]
_FACETS: dict[str, Spec] = {f"{facet}?": tuple(values) for facet, values in FACETS.items()}
_CONDITION: dict[str, Spec] = {
    **dict.fromkeys(("metric?", "statistic?", "setting?"), str),
    **dict.fromkeys((f"{test}?" for test in OPERATORS), object),
    "source?": str,
    "take?": TAKEN,
    "window?": WINDOWS,
    **dict.fromkeys((f"{name}?" for name in _NUMBERS), object),
}
#: The fields of a rule that evaluation takes as they are.
_PLAIN: dict[str, Spec] = {
    **dict.fromkeys(("code", "name", "title", "pass_title"), str),
    "link?": tuple(LINKS),
    "severity": tuple(Severity),
    "answers?": tuple(QUESTIONS),
    "answers_when?": str,
    "proof?": PROOFS,
    "min_points?": int,
    "min_points_tensor?": int,
    "not_when_single_update?": bool,
    **_FACETS,
}
_RULE: dict[str, Spec] = {
    **_PLAIN,
    "params?": {"*": {"value": float, "unit": str, "source": str}},
    "when": [_CONDITION],
    "doc": {f"{heading}?": str if heading in ("what", "why") else [str] for heading in HEADINGS},
    "cases": {f"{answer}?": {"*": dict} for answer in ANSWERS},
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
#: File that is neither a rule nor a cause → its key in the compiled form, its spec, and the table to keep (None: all).
_OTHERS: dict[str, tuple[str, Spec, str | None]] = {
    "complaints.toml": ("complaints", {"complaint": [{"id": str, "title": str}]}, "complaint"),
    "unjudged.toml": ("unjudged", {"cause": [{"id": str, "because": str, "a_fuller_log_could?": bool}]}, "cause"),
    "rates.toml": ("rates", {"rates": {"*": [int]}}, "rates"),
    "chain.toml": ("chain", _CHAIN, None),
}
#: File that older versions required in a folder of rules; it is ignored.
OLD_MARKER = "pack.toml"
#: File that a user's folder must not have → what is wrong and what to do.
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
    """Validate the files of a user's folder and return the part that evaluation needs.

    Raises:
        DoctorError: as `build`; also for a file that only the built-in folder may have.
    """
    for path, (problem, hint) in _NOT_IN_A_FOLDER.items():
        if path in parsed and (path != OLD_MARKER or "retire" in parsed[path]):
            raise fail(path, problem, hint)
    return build({path: raw for path, raw in parsed.items() if path != OLD_MARKER})


def build(parsed: Parsed) -> Compiled:
    """Validate the files of a folder and return the part that evaluation needs.

    Raises:
        DoctorError: a field is unknown, missing or has a value of the wrong type, or a name is used twice.
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
    _refuse_old_form(path, raw)
    validate(path, raw, _RULE)
    folder = path.partition("/")[0]
    if "link" not in raw and folder not in LINKS:
        raise fail(path, "missing link", f"set link, or move the file to a folder with the name of a link: {LINKS[0]}/")
    params = raw.get("params", {})
    return {name: raw[name] for name in (field.removesuffix("?") for field in _PLAIN) if name in raw} | {
        "path": path,
        "link": raw.get("link", folder),
        "next_step": next(iter(raw["doc"].get("next_steps", ())), ""),
        "params": params,
        "when": [_form_of_condition(path, condition, params) for condition in raw["when"]],
    }


def _refuse_old_form(path: str, raw: Compiled) -> None:
    """Refuse `[[case]]` and `quantity`, which earlier versions read, and say what to write."""
    if "case" in raw:
        hint = 'write "NAME" = { METRIC = "0.1x9" } under [cases.fires], [cases.clear] or [cases.skipped]'
        raise fail(path, "[[case]] is no longer read", hint)
    conditions = raw["when"] if isinstance(raw.get("when"), list) else []
    if any(isinstance(condition, dict) and "quantity" in condition for condition in conditions):
        hint = 'write when = [{ metric = "NAME", above = BOUND }]; instead of metric also statistic or setting'
        raise fail(path, "when: quantity is no longer read", hint)


def _form_of_condition(path: str, raw: Mapping[str, Any], params: Compiled) -> Compiled:
    """Return the fields of a `Clause`: numbers in place of `@name`, and the names of the parameters they came from."""
    what = _only(path, raw, ("metric", "statistic", "setting"))
    test = _only(path, raw, OPERATORS)
    if what == "metric":
        one_of(path, what, raw[what], METRICS)
    elif what == "statistic" and raw[what] in METRICS:
        raise fail(path, f"'{raw[what]}' is a metric", f'write metric = "{raw[what]}"')
    fields = {"bound": raw[test]} | {name: raw[name] for name in _NUMBERS if name in raw}
    named = {name: value.removeprefix("@") for name, value in fields.items() if isinstance(value, str)}
    for param in named.values():
        if param not in params:
            raise fail(path, f"no parameter '{param}'")
    numbers = fields | {name: params[param]["value"] for name, param in named.items()}
    validate(path, {test if name == "bound" else name: value for name, value in numbers.items()}, {"*": float})
    source = params[named["bound"]]["source"] if "bound" in named else raw.get("source", "")
    return {
        "quantity": f"{SETTING}{raw[what]}" if what == "setting" else raw[what],
        "test": test,
        "bound_source": source,
        **{name: raw[name] for name in ("take", "window") if name in raw},
        **{name: float(value) for name, value in numbers.items()},
        **({"params": named} if named else {}),
    }


def _only(path: str, raw: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the one of some fields that a condition has."""
    present = [name for name in names if name in raw]
    if len(present) != 1:
        raise fail(path, f"a condition in `when` needs exactly one of {', '.join(names)}")
    return present[0]


def _form_of_cause(path: str, raw: Compiled) -> Compiled:
    validate(path, raw, _CAUSE)
    for entry in raw["remedy"]:
        if "to" in entry and not ("setting" in entry and TARGET.fullmatch(entry["to"])):
            raise fail(path, f"to = '{entry['to']}' is not '= V', '>= V', '<= V', '* F' or '/ F' of a setting")
    return raw | {"path": path}
