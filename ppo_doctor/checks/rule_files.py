"""Validate the TOML files of rules and causes, and compile them with the weight of each answer for each cause."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ppo_doctor.model.kinds import FACETS
from ppo_doctor.model.rules import TARGET, Link, Weight
from ppo_doctor.model.toml_files import Compiled, Parsed
from ppo_doctor.model.toml_schema import Spec, fail, unique, validate
from ppo_doctor.model.words import LINKS, PRIORS, PROOF_DB, QUESTIONS, RULED_OUT_DB, WORDS, Severity

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


TESTS = ("equals", "differs", "below", "at most", "above", "at least")
WINDOWS = ("all", "tail", "middle", "early")
STATISTICS = ("each", "median", "mean", "min", "max", "p95", "first", "last")
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
    "algorithms?": [str],
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
            made["causes"].append(_cause(path, raw))
        else:
            made["rules"].append(_rule(path, raw))
    for key in ("name", "code"):
        unique((rule[key], rule["path"]) for rule in made["rules"])
    unique((cause["id"], cause["path"]) for cause in made["causes"])
    return made


def _rule(path: str, raw: Compiled) -> Compiled:
    validate(path, raw, _RULE)
    params = raw.get("params", {})
    kept = {name: raw[name] for name in (field.removesuffix("?") for field in _PLAIN) if name in raw}
    return kept | {
        "path": path,
        "next_step": next(iter(raw["doc"].get("next_steps", ())), ""),
        "params": params,
        "when": [_clause(path, clause, params) for clause in raw["when"]],
    }


def _clause(path: str, raw: Mapping[str, Any], params: Compiled) -> Compiled:
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


def _cause(path: str, raw: Compiled) -> Compiled:
    validate(path, raw, _CAUSE)
    for entry in raw["remedy"]:
        if "to" in entry and not ("setting" in entry and TARGET.fullmatch(entry["to"])):
            raise fail(path, f"to = '{entry['to']}' is not '= V', '>= V', '<= V', '* F' or '/ F' of a setting")
    return raw | {"path": path}
