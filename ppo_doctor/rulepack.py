"""Find, read, validate and compile rule packs; nothing here evaluates anything.

A pack is a folder with `pack.toml`, `complaints.toml`, `<family>/<rule>.toml` and `causes/<id>.toml`. Evaluation reads
its compiled form; prose and cases are parsed from the TOML when somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_doctor.compiled import Compiled, Parsed, load, parse_toml
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.model import (
    LINKS,
    QUESTIONS,
    Cause,
    Clause,
    Complaint,
    Measurement,
    Param,
    Remedy,
    Rule,
    Severity,
    Unjudged,
    Weight,
)

TESTS = ("equals", "differs", "below", "at most", "above", "at least")
WINDOWS = ("all", "tail", "middle", "early")
STATISTICS = ("each", "median", "mean", "min", "max", "p95", "first", "last")
_CLAUSE_FIELDS = ("quantity", "is", "bound", "bound_source", "statistic", "window", "share", "least", "least_records")
#: Fields of a clause that may refer to a parameter.
_NUMBERS = ("bound", "share", "least", "least_records")
_CAUSE_FIELDS = (
    *("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says", "remedy", "weight"),
    *("twins", "measure", "never_proven", "rarer_twin", "references", "leads_to"),
)
PRIORS: Mapping[str, int] = {"common": -10, "occasional": -15, "rare": -22}
#: "measured" is a bound that no sound run of the lab crosses: it opens a complaint alone, and establishes nothing.
PROOFS = ("identity", "counter", "tensor", "measured")
#: A single finding weighs at most this much; only an identity, a counter or a tensor may weigh more.
SOFT, HARD = 20, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Everything that rules and causes say, ready for evaluation."""

    rules: tuple[Rule, ...]
    causes: tuple[Cause, ...]
    complaints: tuple[Complaint, ...]
    unjudged: tuple[Unjudged, ...]

    def rule(self, name: str) -> Rule | None:
        """Return a rule by name or code."""
        return next((rule for rule in self.rules if name in (rule.name, rule.code)), None)

    def cause(self, name: str) -> Cause | None:
        """Return a cause by id."""
        return next((cause for cause in self.causes if cause.id == name), None)


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


def load_pack(extra: Iterable[Path] = ()) -> Pack:
    """Return the built-in pack, with the rules and causes of further folders added.

    Raises:
        DoctorError: a pack is missing or invalid; the message names the file.
    """
    packs = [_pack(load("rules", builtin_rules(), build), builtin_rules())]
    for folder in extra:
        if not (folder / "pack.toml").is_file():
            hint = "a rule pack is a folder with pack.toml"
            raise DoctorError(f"{folder}: no rule pack", hint=hint, code=ExitCode.USAGE)
        packs.append(_pack(load("rules", folder.resolve(), build), folder.resolve()))
    merged = Pack(
        rules=tuple(rule for pack in packs for rule in pack.rules),
        causes=tuple(cause for pack in packs for cause in pack.causes),
        complaints=tuple(complaint for pack in packs for complaint in pack.complaints),
        unjudged=tuple(unjudged for pack in packs for unjudged in pack.unjudged),
    )
    if len(packs) > 1:  # the built-in pack is held to this by its tests, not at every start
        check_references(merged)
    return merged


def build(parsed: Parsed) -> Compiled:
    """Validate a pack's files and return the part that evaluation needs.

    Raises:
        DoctorError: a file lacks a field, uses a word outside the vocabulary, or repeats a name.
    """
    compiled: Compiled = {"rules": [], "causes": [], "complaints": [], "unjudged": []}
    for path, raw in parsed.items():
        if path == "pack.toml":
            continue
        if path == "complaints.toml":
            compiled["complaints"] = raw["complaint"]
        elif path == "unjudged.toml":
            compiled["unjudged"] = raw["cause"]
        elif path.startswith("causes/"):
            compiled["causes"].append(_compiled_cause(path, raw))
        else:
            compiled["rules"].append(_compiled_rule(path, raw))
    for key in ("name", "code"):
        _unique((rule[key], rule["path"]) for rule in compiled["rules"])
    _unique((cause["id"], cause["path"]) for cause in compiled["causes"])
    return compiled


def _fail(path: str, text: str) -> DoctorError:
    return DoctorError(f"{path}: {text}", code=ExitCode.USAGE)


def _require(path: str, raw: Compiled, names: Iterable[str]) -> None:
    missing = [name for name in names if name not in raw]
    if missing:
        raise _fail(path, f"missing {', '.join(missing)}")


def _one_of(path: str, what: str, value: object, known: Iterable[str]) -> None:
    allowed = tuple(known)
    if value not in allowed:
        raise _fail(path, f"{what} '{value}' is none of {', '.join(allowed)}")


def _unique(entries: Iterable[tuple[str, str]]) -> None:
    """Refuse a name that two files take; entries are (name, path)."""
    seen: dict[str, str] = {}
    for name, path in entries:
        if name in seen:
            raise _fail(path, f"'{name}' is taken by {seen[name]}")
        seen[name] = path


def _only(path: str, raw: Compiled, known: Iterable[str]) -> None:
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise _fail(path, f"no such field: {', '.join(unknown)}")


_RULE_FIELDS = [
    "code",
    "name",
    "title",
    "pass_title",
    "link",
    "severity",
    "status",
    "opens",
    "opens_alone",
    "answers",
    "answers_when",
    "proof",
    "min_points",
    "not_when_single_update",
    "algorithms",
    "state_if_fired",
    "state_if_clear",
]


def _compiled_rule(path: str, raw: Compiled) -> Compiled:
    _require(path, raw, ("code", "name", "title", "pass_title", "link", "severity", "when", "doc", "case"))
    _only(path, raw, (*_RULE_FIELDS, "params", "when", "doc", "case"))
    _one_of(path, "link", raw["link"], LINKS)
    _one_of(path, "severity", raw["severity"], list(Severity))
    if "answers" in raw:
        _one_of(path, "answers", raw["answers"], QUESTIONS)
    if "proof" in raw:
        _one_of(path, "proof", raw["proof"], PROOFS)
    params = raw.get("params", {})
    for name, param in params.items():
        _require(f"{path} params.{name}", param, ("value", "unit", "source"))
    kept = {name: raw[name] for name in _RULE_FIELDS if name in raw}
    return kept | {"path": path, "params": params, "when": [_compiled_clause(path, c, params) for c in raw["when"]]}


def _compiled_clause(path: str, raw: Compiled, params: Compiled) -> Compiled:
    _require(path, raw, ("quantity", "is", "bound"))
    _only(path, raw, _CLAUSE_FIELDS)
    _one_of(path, "is", raw["is"], TESTS)
    _one_of(path, "window", raw.get("window", "all"), WINDOWS)
    _one_of(path, "statistic", raw.get("statistic", "each"), STATISTICS)
    clause = {"quantity": raw["quantity"], "test": raw["is"], "bound_source": raw.get("bound_source", "")}
    for name in ("statistic", "window"):
        if name in raw:
            clause[name] = raw[name]
    for name in _NUMBERS:
        if name in raw:
            clause[name] = _value(path, raw[name], params, clause if name == "bound" else None)
    named = {name: raw[name].removeprefix("@") for name in _NUMBERS if isinstance(raw.get(name), str)}
    return clause | ({"params": named} if named else {})


def _value(path: str, value: object, params: Compiled, clause: Compiled | None) -> float:
    """Return a number, or the parameter that `@name` refers to; a bound also notes its source."""
    if isinstance(value, str):
        name = value.removeprefix("@")
        if name not in params:
            raise _fail(path, f"no parameter '{name}'")
        if clause is not None:
            clause["bound_source"] = params[name]["source"]
        return float(params[name]["value"])
    return float(str(value))


def _compiled_cause(path: str, raw: Compiled) -> Compiled:
    _require(
        path, raw, ("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says", "remedy")
    )
    _only(path, raw, _CAUSE_FIELDS)
    _one_of(path, "severity", raw["severity"], list(Severity))
    _one_of(path, "prior", raw["prior"], PRIORS)
    _one_of(path, "link", raw["link"], LINKS)
    for weight in raw.get("weight", ()):
        _require(path, weight, ("finding", "source"))
    return raw | {"path": path}


def _pack(raw: Compiled, folder: Path) -> Pack:
    return Pack(
        rules=tuple(_rule(rule, folder) for rule in raw["rules"]),
        causes=tuple(_cause(cause, folder) for cause in raw["causes"]),
        complaints=tuple(Complaint(**complaint) for complaint in raw["complaints"]),
        unjudged=tuple(Unjudged(**unjudged) for unjudged in raw["unjudged"]),
    )


def _rule(raw: Mapping[str, Any], folder: Path) -> Rule:
    clauses = tuple(Clause(**clause) for clause in raw["when"])
    params = tuple(Param(name=name, **param) for name, param in raw["params"].items())
    return Rule(
        **{
            **raw,
            "severity": Severity(raw["severity"]),
            "when": clauses,
            "params": params,
            "needs": tuple(dict.fromkeys(clause.quantity for clause in clauses)),
            "algorithms": tuple(raw.get("algorithms", ())),
            "path": str(folder / raw["path"]),
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
        path=str(folder / raw["path"]),
    )


def check_references(pack: Pack) -> None:
    """Hold every name in a pack to something that exists once, and weights to their bounds.

    Raises:
        DoctorError: a name is taken twice, a weight, twin, complaint or quantity refers to nothing, or a soft finding
            weighs too much.
    """
    for names in ([(r.name, r.path) for r in pack.rules], [(r.code, r.path) for r in pack.rules]):
        _unique(names)
    _unique((cause.id, cause.path) for cause in pack.causes)
    rules = {rule.name: rule for rule in pack.rules}
    complaints = {complaint.id for complaint in pack.complaints}
    causes = {cause.id for cause in pack.causes}
    for rule in pack.rules:
        if rule.opens is not None:
            _one_of(rule.path, "opens", rule.opens, sorted(complaints))
        for need in rule.needs:
            _check_quantity(rule, need)
    for cause in pack.causes:
        for complaint in cause.complaints:
            _one_of(cause.path, "complaint", complaint, sorted(complaints))
        for twin in cause.twins:
            _one_of(cause.path, "twin", twin, sorted(causes))
        for finding in cause.leads_to:
            _one_of(cause.path, "leads_to", finding, sorted(rules))
        for weight in cause.weights:
            _one_of(cause.path, "finding", weight.finding, sorted(rules))
            _check_weight(cause, weight, rules[weight.finding])


def _check_quantity(rule: Rule, need: str) -> None:
    from ppo_doctor.derive import DERIVED
    from ppo_doctor.metrics import METRICS

    kind, _, name = need.partition(".")
    _one_of(rule.path, "kind of quantity", kind, ("series", "fact", "config"))
    if kind != "config" and name not in DERIVED and name not in METRICS:
        raise _fail(rule.path, f"no quantity '{need}'")


def _check_weight(cause: Cause, weight: Weight, rule: Rule) -> None:
    bound = HARD if rule.proof else SOFT
    if max(abs(weight.fired), abs(weight.clear)) > bound:
        raise _fail(cause.path, f"weight of {weight.finding} is beyond ±{bound}; only a proof may weigh more")


def prose(path: str) -> Compiled:
    """Return everything a rule or cause file says, prose and cases included."""
    return parse_toml(Path(path))
