"""The files of a rule pack, each checked by itself and reduced to what evaluation needs.

The compiled form is JSON: rules and causes without prose, cases and references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppo_doctor.compiled import Compiled, Parsed
from ppo_doctor.forms import fail, fields, kinds, number, one_of, tables, texts, unique, whole
from ppo_doctor.model import LINKS, PRIORS, QUESTIONS, TARGET, Link, Severity
from ppo_doctor.model.kinds import FACETS

#: How often sound runs answer a check with yes, and what checks say of the links of the chain.
RATES, CHAIN_FILE = "rates.toml", "chain.toml"
#: What a pack says of a link: lists of checks, of settings or facets that feed it, of links that it kills.
_OF_A_LINK = tuple(name for name in Link.__dataclass_fields__ if name != "name")
TESTS = ("equals", "differs", "below", "at most", "above", "at least")
WINDOWS = ("all", "tail", "middle", "early")
STATISTICS = ("each", "median", "mean", "min", "max", "p95", "first", "last")
_CLAUSE_FIELDS = ("bound_source", "statistic", "window", "share", "least", "least_records")
#: Fields of a clause that may refer to a parameter.
_NUMBERS = ("bound", "share", "least", "least_records")
_CAUSE_NEEDS = ("id", "title", "family", "severity", "prior", "benign", "link", "complaints", "says", "remedy")
#: What the fields of rules, clauses, parameters, causes and their tables hold.
_RULE_KINDS: dict[str, type] = {
    **dict.fromkeys(("code", "name", "title", "pass_title", "status", "answers_when", "proof", "answers"), str),
    **dict.fromkeys(("min_points", "min_points_tensor"), int),
    **dict.fromkeys(("not_when_single_update", "before_training"), bool),
    **dict.fromkeys(("link", "severity", *FACETS), str),
    "algorithms": list,
}
_CLAUSE_KINDS: dict[str, type] = dict.fromkeys(("quantity", "is", "bound_source", "statistic", "window"), str)
_PARAM_KINDS: dict[str, type] = {"unit": str, "source": str}
_CAUSE_KINDS: dict[str, type] = {
    **dict.fromkeys(("id", "title", "family", "severity", "prior", "link", "says", "not", *FACETS), str),
    **dict.fromkeys(("benign", "never_proven"), bool),
    **dict.fromkeys(("complaints", "twins"), list),
}
_TABLE_KINDS: dict[str, dict[str, type]] = {
    "weight": {"finding": str, "source": str},
    "remedy": dict.fromkeys(("do", "framework", "samples", "key", "setting", "to"), str),
    "measure": {"log": str, "because": str},
}
_CAUSE_FIELDS = (
    *("weight", "twins", "measure", "never_proven", "references", "root_of", "not", *FACETS),
    *("proof", "requires", "excludes", "needs", "usual", "sometimes"),
)
#: "measured" is a bound that no sound run of the lab crosses: it opens a complaint alone, and establishes nothing.
PROOFS = ("identity", "counter", "tensor", "measured")


#: Names a folder of rules and is read no more.
OLD_MARKER = "pack.toml"
#: File that only the built-in rules may have, or that nobody may have any more → what is wrong and what to do.
_NOT_IN_A_FOLDER = {
    "complaints.toml": ("the list of complaints is closed", "causes name complaints of the built-in pack"),
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
    """Validate a pack's files and return the part that evaluation needs.

    Raises:
        DoctorError: a file lacks a field, uses a word outside the vocabulary, or repeats a name.
    """
    lists = ("rules", "causes", "complaints", "unjudged")
    compiled: Compiled = {"rates": {}, "chain": {}} | {name: [] for name in lists}
    for path, raw in parsed.items():
        try:
            _add(compiled, path, raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Somebody else's file may hold anything; which value it was, the checks of its form did not foresee.
            raise fail(path, f"not the form of a pack's file: {error}") from error
    for key in ("name", "code"):
        unique((rule[key], rule["path"]) for rule in compiled["rules"])
    unique((cause["id"], cause["path"]) for cause in compiled["causes"])
    return compiled


def _add(compiled: Compiled, path: str, raw: Compiled) -> None:
    if path == "complaints.toml":
        compiled["complaints"] = raw["complaint"]
    elif path == "unjudged.toml":
        compiled["unjudged"] = raw["cause"]
    elif path == CHAIN_FILE:
        compiled["chain"] = _compiled_chain(path, raw)
    elif path == RATES:
        compiled["rates"] = {name: [*pair] for name, pair in raw["rates"].items()}
    elif path.startswith("causes/"):
        compiled["causes"].append(_compiled_cause(path, raw))
    else:
        compiled["rules"].append(_compiled_rule(path, raw))


_RULE_NEEDS = ("code", "name", "title", "pass_title", "link", "severity", "when", "doc", "case")
#: What a rule's prose is under.
HEADINGS = ("what", "why", "look_alikes", "blind_spots", "next_steps", "references")
_RULE_FIELDS = [
    "code",
    "name",
    "title",
    "pass_title",
    "link",
    "severity",
    "status",
    "answers",
    "answers_when",
    "proof",
    "min_points",
    "min_points_tensor",
    "not_when_single_update",
    "algorithms",
    *FACETS,
    "before_training",
]


def _compiled_rule(path: str, raw: Compiled) -> Compiled:
    fields(path, raw, _RULE_NEEDS, (*_RULE_FIELDS, "params"))
    kinds(path, raw, _RULE_KINDS)
    fields(f"{path}: doc", raw["doc"], (), HEADINGS)
    one_of(path, "link", raw["link"], LINKS)
    one_of(path, "severity", raw["severity"], list(Severity))
    if "answers" in raw:
        one_of(path, "answers", raw["answers"], QUESTIONS)
    if "proof" in raw:
        one_of(path, "proof", raw["proof"], PROOFS)
    _of_kinds(path, raw)
    params = raw.get("params", {})
    for name, param in params.items():
        where = f"{path}: params.{name}"
        fields(where, param, ("value", "unit", "source"))
        kinds(where, param, _PARAM_KINDS)
        number(where, param, "value")
    kept = {name: raw[name] for name in _RULE_FIELDS if name in raw}
    return kept | {
        "path": path,
        "next_step": next(iter(raw["doc"].get("next_steps", ())), ""),
        "params": params,
        "when": [_compiled_clause(path, c, params) for c in tables(path, raw, "when")],
    }


def _compiled_chain(path: str, raw: Mapping[str, Any]) -> Compiled:
    for name, link in raw.items():
        one_of(path, "link", name, LINKS)
        fields(f"{path}: {name}", link, (), _OF_A_LINK)
        for killed in texts(f"{path}: {name}", link, "kills"):
            one_of(f"{path}: {name}", "link", killed, LINKS)
    return {name: {part: list(texts(path, link, part)) for part in link} for name, link in raw.items()}


def _of_kinds(path: str, raw: Mapping[str, Any]) -> None:
    for facet in FACETS.keys() & raw.keys():
        one_of(path, facet, raw[facet], FACETS[facet])


def _compiled_clause(path: str, raw: Mapping[str, Any], params: Compiled) -> Compiled:
    fields(path, raw, ("quantity", "is", "bound"), _CLAUSE_FIELDS)
    kinds(path, raw, _CLAUSE_KINDS)
    one_of(path, "is", raw["is"], TESTS)
    one_of(path, "window", raw.get("window", "all"), WINDOWS)
    one_of(path, "statistic", raw.get("statistic", "each"), STATISTICS)
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
            raise fail(path, f"no parameter '{name}'")
        if clause is not None:
            clause["bound_source"] = params[name]["source"]
        return float(params[name]["value"])
    return float(str(value))


def _compiled_cause(path: str, raw: Compiled) -> Compiled:
    fields(path, raw, _CAUSE_NEEDS, _CAUSE_FIELDS)
    kinds(path, raw, _CAUSE_KINDS)
    for name, expected in _TABLE_KINDS.items():
        for table in tables(path, raw, name):
            kinds(path, table, expected)
    one_of(path, "severity", raw["severity"], list(Severity))
    one_of(path, "prior", raw["prior"], PRIORS)
    one_of(path, "link", raw["link"], LINKS)
    _of_kinds(path, raw)
    for word in ("proof", "requires", "excludes", "needs", "usual", "sometimes", "root_of"):
        texts(path, raw, word)
    for weight in tables(path, raw, "weight"):
        fields(path, weight, ("finding", "source"), ("fired", "clear"))
        for name in ("fired", "clear"):
            whole(path, weight, name)
    for entry in tables(path, raw, "remedy"):
        fields(path, entry, ("do",), ("framework", "samples", "key", "setting", "to"))
        if "samples" in entry:
            one_of(path, "samples", entry["samples"], list(FACETS["samples"]))
        if "to" in entry and not ("setting" in entry and TARGET.fullmatch(entry["to"])):
            raise fail(path, f"to = '{entry['to']}' is not '= V', '>= V', '<= V', '* F' or '/ F' of a setting")
    for entry in tables(path, raw, "measure"):
        fields(path, entry, ("log", "because"))
    return raw | {"path": path}
