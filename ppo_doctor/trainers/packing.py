"""Compile profiles of trainers: validate the TOML, inherit, and write out every spelling of a key.

`docs/trainers.md` explains the fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.toml_files import Compiled, Parsed
from ppo_doctor.model.toml_schema import Spec, fail, validate
from ppo_doctor.trainers.profiles import as_tag, overlaid
from ppo_doctor.trainers.settings import SETTINGS
from ppo_doctor.trainers.updates import FUNCTIONS

#: Metrics that a log contains once per part of the reward.
COMPONENTS = frozenset({"reward_component", "reward_component_std"})
AXIS = frozenset({"step", "update", "epoch", "minibatch"})
ESTIMATORS = frozenset({"k1", "k2", "k3", "exact", "both sides", "effective", "with bias"})
#: What a logged value was averaged over, or when it was computed.
AGGREGATIONS = frozenset(
    {
        "all minibatches",
        "all minibatches, padding included",
        "last minibatch",
        "moving average",
        "last epoch",
        "last optimizer step",
        "one random minibatch",
        "rollout",
        "before the update",
        "after the update",
        "sum over epochs",
        "sum over updates",
        "sum over tokens",
        "variance of minibatch means",
        "mean over groups",
        "after clipping",
        "absolute value",
    }
)
REFERENCES = frozenset({"old policy", "reference model", "rollout engine", "previous pass"})

#: Facts that name a canonical metric, whose records show the work that was done.
METRIC_FACTS = frozenset(
    {
        "generation_marker",  # logged only in records that contain a generation
        "single_update_marker",  # NaN if there was only one update
    }
)
#: Facts about the log, true for every configuration.
FLAGS = frozenset(
    {
        "steps_are_env_steps",  # the step of a record counts environment steps
        "steps_are_updates",  # the step of a record counts optimizer steps
        "epochs_repeat_batch",  # every epoch uses the same minibatches in the same order
        "versions_are_steps",  # a policy's version counts optimizer steps, several of them per batch
        "advantages_whitened",  # logged advantages have mean 0 and deviation 1, or are all 0
        "adaptive_learning_rate",  # the learning rate follows the KL by default
        "grad_norm_after_clipping",
        "no_ratio",  # the loss has no ratio of policies
        "epochs_are_a_cap",  # an early stop on KL decides how many of the configured epochs run
    }
)
#: Facts about the trainer, which are true whatever a log shows.
TRAITS: dict[str, Spec] = {
    "samples?": ("episodes", "completions", "either"),
    "rollout_engine?": bool,  # whether a separate engine generates; left out if that depends on the configuration
    "compares_groups?": bool,  # refuses a group of one completion, or makes its advantage 0
    "zero_grad_norm?": ("stops updates", "off"),  # what max_grad_norm = 0 does
    "refuses_zero_clip_range_vf?": bool,
    "negative_minibatch_size?": bool,  # a minibatch size below 0 has a meaning
    "leftover_minibatch?": (  # what happens to samples that do not fill a minibatch of the same unit
        "the last minibatch of each epoch holds the rest",
        "one minibatch more holds the rest",
        "the rest is dropped",
        "the trainer refuses to start",
    ),
    "whitens_single_samples?": bool,  # advantages are whitened even in a minibatch of one sample
    "clip_range_read?": (
        "if no side is set",
        "if switched off",
    ),  # when the single clip range counts, and not its two sides
}


_NAMES: Spec = [str]
_METRIC: Spec = {
    "keys?": _NAMES,
    "scale?": float,
    "root?": object,
    "resolution?": float,
    "decimals?": int,
    "estimator?": tuple(sorted(ESTIMATORS)),
    "estimator_if_negative?": tuple(sorted(ESTIMATORS)),
    "aggregation?": tuple(sorted(AGGREGATIONS)),
    "reference?": tuple(sorted(REFERENCES)),
    "diluted?": bool,
    "constant_when?": {f"{setting}?": object for setting in SETTINGS},
    "note?": str,
}
_FORMULA: dict[str, Spec] = {"function": tuple(FUNCTIONS), "arguments": {"*": tuple(SETTINGS)}}
#: The fields that a version of a profile may change.
_PARTS: dict[str, Spec] = {
    "axis?": {f"{clock}?": _NAMES for clock in sorted(AXIS)},
    "metrics?": {f"{metric}?": _METRIC for metric in METRICS},
    "config?": {f"{setting}?": _NAMES for setting in SETTINGS},
    "defaults?": {f"{setting}?": object for setting in SETTINGS},
    "template?": {f"{setting}?": object for setting in SETTINGS},
    "words?": {f"{setting}?": _NAMES for setting in SETTINGS},
    "unset?": [tuple(SETTINGS)],
    "facts?": {f"{fact}?": object for fact in FLAGS} | {f"{fact}?": tuple(METRICS) for fact in METRIC_FACTS},
    "components?": {f"{part}?": _NAMES for part in sorted(COMPONENTS)},
    "traps?": _NAMES,
    "ignore?": _NAMES,
    "updates?": [_FORMULA],
}
_PROFILE: Spec = _PARTS | {
    **dict.fromkeys(("name", "title", "algorithm", "extends?", "family?", "settings_of?"), str),
    **dict.fromkeys(("ppo_family?", "is_trainer?", "tags?"), bool),
    **dict.fromkeys(("prefixes?", "sources?", "import_names?"), _NAMES),
    "fingerprint": {"any": [_NAMES], "none?": _NAMES, "priority?": int},
    "traits?": TRAITS,
    "algorithms?": [dict],
    "partial_mean?": _FORMULA
    | {"metrics?": [tuple(METRICS)], "dropped?": [tuple(METRICS)], "unless?": [tuple(SETTINGS)], "why?": str},
    "versions?": [_PARTS | {"name?": str, "any?": [_NAMES], "none?": _NAMES, "algorithm?": str}],
}
#: Fields that a profile does not inherit from the one that it extends.
_OWN = ("versions", "import_names", "family", "settings_of")
_WITH_FILE = re.compile(r" \([\w./-]+\)$")


def build(parsed: Parsed) -> Compiled:
    """Validate every profile and return the compiled pack.

    Raises:
        DoctorError: a profile lacks a field, or has a field, metric, setting, fact or K function that does not exist.
    """
    by_name: dict[str, tuple[str, Compiled]] = {}
    for path, raw in parsed.items():
        _check_fields(f"trainers/{path}", raw)
        if raw["name"] in by_name:
            raise fail(f"trainers/{path}", f"the name '{raw['name']}' is taken by {by_name[raw['name']][0]}")
        by_name[raw["name"]] = (f"trainers/{path}", raw)
    profiles = [_inherited(name, by_name) for name in by_name]
    for raw in profiles:
        if raw.get("ppo_family", True):
            _check_meanings(by_name[raw["name"]][0], raw)
            _check_trainer(by_name[raw["name"]][0], raw)
    return {"profiles": [_spelled(raw) for raw in profiles]}


def _check_fields(path: str, raw: Compiled) -> None:
    """Refuse a file with fields that do not exist, are missing, or have values of another kind."""
    validate(path, raw, _PROFILE)
    if not raw["fingerprint"]["any"]:
        raise fail(
            path, "[fingerprint] needs 'any'", 'write the keys of a log that show the trainer: any = [["a", "b"]]'
        )
    for part in (raw, *raw.get("versions", ())):
        for name, metric in part.get("metrics", {}).items():
            if not metric.get("keys", ["inherited"]):
                raise fail(path, f"[metrics.{name}] 'keys' is empty")
            if not metric.get("scale", 1.0):
                raise fail(path, f"[metrics.{name}] a scale of 0 would erase the metric")
        for name, patterns in part.get("components", {}).items():
            if any(pattern.count("*") != 1 for pattern in patterns):
                raise fail(path, f"[components] {name} must be a list of patterns with one * each")
        for formula in (*part.get("updates", ()), *([part["partial_mean"]] if "partial_mean" in part else [])):
            function: Callable[..., float] = FUNCTIONS[formula["function"]]
            wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
            if set(formula["arguments"]) != set(wanted):
                raise fail(path, f"K function {formula['function']} takes {', '.join(wanted)}")


def _check_trainer(path: str, raw: Compiled) -> None:
    """Refuse a profile that does not say where it was read, what to beware of, what is sampled and how K follows."""
    if raw["name"] != "canonical":
        if not raw.get("sources"):
            raise fail(path, "missing sources", 'write the files that it was read in: sources = ["pkg/ppo.py"]')
        traps = [trap for part in (raw, *raw.get("versions", ())) for trap in part.get("traps", ())]
        if not raw.get("traps") or not all(map(_WITH_FILE.search, traps)):
            hint = 'write what is easily misread, and where that is seen: traps = ["kl is k1 (pkg/ppo.py)"]'
            raise fail(path, "'traps' needs at least one entry, and each ends in a file in parentheses", hint)
        if not raw.get("axis", {}).get("step"):
            raise fail(path, "[axis] needs 'step'", 'write the column that numbers the records: step = ["step"]')
    if not raw.get("is_trainer", True):
        return
    if "samples" not in raw.get("traits", {}):
        raise fail(path, "[traits] needs 'samples'", 'write samples = "episodes", or "completions" of a language model')
    if not raw.get("updates"):
        hint = "write [[updates]] with a function of trainers/updates.py and the settings that are its arguments"
        raise fail(path, "missing updates: how many optimizer steps a rollout batch has", hint)
    known = {*raw.get("config", {}), *raw.get("defaults", {})}
    for formula in raw["updates"]:
        for setting in set(formula["arguments"].values()) - known:
            raise fail(
                path, f"[[updates]] '{setting}' is not in [config] or [defaults]", f'write {setting} = ["its key"]'
            )


#: Metric → field → the values that say what a logged number is.
_MEANINGS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "approx_kl": {"estimator": ("k1", "k2", "k3", "exact"), "reference": ("old policy", "previous pass")},
    "approx_kl_k1": {"estimator": ("k1",), "reference": ("old policy", "previous pass")},
    "ref_kl": {"reference": ("reference model",)},
    "clip_fraction": {"estimator": ("both sides", "effective")},
}


def _check_meanings(path: str, raw: Compiled) -> None:
    """Refuse a KL or clip fraction that does not say what it is."""
    for metric in sorted(_MEANINGS.keys() & raw.get("metrics", {}).keys()):
        for field, words in _MEANINGS[metric].items():
            if raw["metrics"][metric].get(field) not in words:
                hint = f'write {field} = "{words[0]}"' + (f", or one of {', '.join(words[1:])}" if words[1:] else "")
                raise fail(path, f"[metrics] {metric} needs '{field}'", hint)


def _inherited(name: str, by_name: Mapping[str, tuple[str, Compiled]]) -> Compiled:
    path, raw = by_name[name]
    if "extends" not in raw:
        return raw
    if raw["extends"] not in by_name:
        raise fail(path, f"extends '{raw['extends']}', which does not exist")
    base = _inherited(raw["extends"], by_name)
    return overlaid({key: value for key, value in base.items() if key not in _OWN}, raw)


#: Groups of keys → every spelling of each group: behind each prefix, and as tensorboardX writes tags.
Spell = Callable[[Iterable[Sequence[str]]], list[list[str]]]


def _spelled(raw: Compiled) -> Compiled:
    """Return the profile with every spelling of its keys, so that lookups are exact."""
    prefixes, tags = raw.get("prefixes") or [""], raw.get("tags", False)

    def spell(groups: Iterable[Sequence[str]]) -> list[list[str]]:
        written = [tuple(prefix + name for name in group) for group in groups for prefix in prefixes]
        as_tags = [tuple(map(as_tag, group)) for group in written] if tags else []
        return [list(group) for group in dict.fromkeys([*written, *as_tags])]

    out = {key: value for key, value in raw.items() if key not in ("prefixes", "tags")}
    out["fingerprint"] = _fingerprint(raw["fingerprint"], spell)
    out["versions"] = [_parts(_fingerprint(version, spell), spell) for version in raw.get("versions", ())]
    out["algorithms"] = [_fingerprint(algorithm, spell) for algorithm in raw.get("algorithms", ())]
    return _parts(out, spell)


def _fingerprint(raw: Mapping[str, Any], spell: Spell) -> Compiled:
    return dict(raw) | {"any": spell(raw.get("any", ())), "none": _keys(raw.get("none", ()), spell)}


def _parts(raw: Mapping[str, Any], spell: Spell) -> Compiled:
    out = dict(raw)
    for table in ("axis", "components"):
        out[table] = {name: _keys(keys, spell) for name, keys in raw.get(table, {}).items()}
    out["ignore"] = _keys(raw.get("ignore", ()), spell)
    out["metrics"] = {
        name: dict(metric) | ({"keys": _keys(metric["keys"], spell)} if "keys" in metric else {})
        for name, metric in raw.get("metrics", {}).items()
    }
    return out


def _keys(names: Iterable[str], spell: Spell) -> list[str]:
    return [key for (key,) in spell([name] for name in names)]
