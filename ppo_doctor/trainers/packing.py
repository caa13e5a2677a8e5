"""Compile profiles from TOML: inherit, check, and write out every spelling of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ppo_doctor.model.metrics import METRICS
from ppo_doctor.model.toml_files import Compiled, Parsed
from ppo_doctor.model.toml_schema import Spec, fail, validate
from ppo_doctor.trainers.profiles import as_tag, overlaid
from ppo_doctor.trainers.settings import SETTINGS
from ppo_doctor.trainers.updates import FUNCTIONS

#: Metrics of which a log holds one per part of the reward.
COMPONENTS = frozenset({"reward_component", "reward_component_std"})
AXIS = frozenset({"step", "update", "epoch", "minibatch"})
ESTIMATORS = frozenset({"k1", "k2", "k3", "exact", "both sides", "effective", "with bias"})
#: Over what a logged value was averaged or taken.
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

#: Facts that name the canonical metric in which the log reveals executed work.
METRIC_FACTS = frozenset(
    {
        "generation_marker",  # present only in records that hold a generation
        "single_update_marker",  # NaN when there was one cell
    }
)
#: Facts that are true of a framework whatever its configuration.
FLAGS = frozenset(
    {
        "steps_are_env_steps",  # the step of a record counts environment steps
        "steps_are_updates",  # the step of a record counts optimizer steps
        "epochs_repeat_batch",  # every epoch walks the same minibatches in the same order
        "timing_ratio",  # time_update and time_old_log_prob come from the same engine
        "versions_are_steps",  # a policy's version counts optimizer steps, of which a batch takes several
        "old_policy_recomputed",  # the old log-probs are computed at the start of the update
        "normalizer_moves",  # inputs are normalised by statistics that change between acting and training
        "advantages_whitened",  # advantages always have mean 0 and deviation 1
        "adaptive_learning_rate",  # the learning rate follows the KL by default
        "grad_norm_after_clipping",
        "no_ratio",  # the loss has no ratio of policies
        "epochs_are_a_cap",  # an early stop on KL decides how many of the configured epochs run
    }
)


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
_UPDATES: Spec = {"function": tuple(FUNCTIONS), "arguments": {"*": tuple(SETTINGS)}}
#: What a profile says, and what a version of it may change.
_PARTS: dict[str, Spec] = {
    "axis?": {f"{clock}?": _NAMES for clock in sorted(AXIS)},
    "metrics?": {f"{metric}?": _METRIC for metric in METRICS},
    "config?": {f"{setting}?": _NAMES for setting in SETTINGS},
    "defaults?": {f"{setting}?": object for setting in SETTINGS},
    "unset?": [tuple(SETTINGS)],
    "facts?": {f"{fact}?": object for fact in FLAGS} | {f"{fact}?": tuple(METRICS) for fact in METRIC_FACTS},
    "components?": {f"{part}?": _NAMES for part in sorted(COMPONENTS)},
    "traps?": _NAMES,
    "ignore?": _NAMES,
    "updates?": [_UPDATES],
}
_PROFILE: Spec = _PARTS | {
    **dict.fromkeys(("name", "title", "algorithm", "extends?"), str),
    "fingerprint": {"any": [_NAMES], "none?": _NAMES, "priority?": int},
    "ppo_family?": bool,
    "prefixes?": _NAMES,
    "sources?": _NAMES,
    "tags?": bool,
    "algorithms?": [dict],
    "partial_mean?": {
        "function": tuple(FUNCTIONS),
        "arguments": {"*": tuple(SETTINGS)},
        "metrics?": [tuple(METRICS)],
        "dropped?": [tuple(METRICS)],
        "unless?": [tuple(SETTINGS)],
        "why?": str,
    },
    "versions?": [_PARTS | {"name?": str, "any?": [_NAMES], "none?": _NAMES, "algorithm?": str}],
}


def build(parsed: Parsed) -> Compiled:
    """Check every profile and return the compiled pack.

    Raises:
        DoctorError: a profile has a field, metric, setting, fact or K function that does not exist, or lacks one.
    """
    by_name: dict[str, tuple[str, Compiled]] = {}
    for path, raw in parsed.items():
        _check_profile(path, raw)
        if raw["name"] in by_name:
            _fail(path, f"the name '{raw['name']}' is taken by {by_name[raw['name']][0]}")
        by_name[raw["name"]] = (path, raw)
    return {"profiles": [_spelled(_inherited(name, by_name)) for name in by_name]}


def _fail(path: str, what: str) -> NoReturn:
    raise fail(f"trainers/{path}", what)


def _check_profile(path: str, raw: Compiled) -> None:
    validate(f"trainers/{path}", raw, _PROFILE)
    if not raw["fingerprint"]["any"]:
        _fail(path, "[fingerprint] needs 'any'")
    for part in (raw, *raw.get("versions", ())):
        for name, metric in part.get("metrics", {}).items():
            if not metric.get("keys", ["inherited"]):
                _fail(path, f"[metrics.{name}] 'keys' is empty")
            if not metric.get("scale", 1.0):
                _fail(path, f"[metrics.{name}] a scale of 0 would erase the metric")
        for name, patterns in part.get("components", {}).items():
            if any(pattern.count("*") != 1 for pattern in patterns):
                _fail(path, f"[components] {name} must be a list of patterns with one * each")
        for formula in (*part.get("updates", ()), *([part["partial_mean"]] if "partial_mean" in part else [])):
            _check_arguments(path, formula)


def _check_arguments(path: str, formula: Mapping[str, Any]) -> None:
    function: Callable[..., float] = FUNCTIONS[formula["function"]]
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
    if set(formula["arguments"]) != set(wanted):
        _fail(path, f"K function {formula['function']} takes {', '.join(wanted)}")


def _inherited(name: str, by_name: Mapping[str, tuple[str, Compiled]]) -> Compiled:
    path, raw = by_name[name]
    if "extends" not in raw:
        return raw
    if raw["extends"] not in by_name:
        _fail(path, f"extends '{raw['extends']}', which does not exist")
    base = _inherited(raw["extends"], by_name)
    return {"prefixes": base.get("prefixes", [])} | overlaid(base, raw) | {"versions": raw.get("versions", [])}


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a framework's keys may stand in a log: behind a prefix, and as tensorboardX writes tags."""

    prefixes: Sequence[str]
    tags: bool

    def keys(self, names: Iterable[str]) -> list[str]:
        """Return every spelling of these names."""
        written = [prefix + name for name in names for prefix in self.prefixes]
        return list(dict.fromkeys([*written, *(map(as_tag, written) if self.tags else ())]))

    def groups(self, groups: Iterable[Sequence[str]]) -> list[list[str]]:
        """Return every spelling of these groups; the keys of one group share their prefix."""
        written = [tuple(prefix + name for name in group) for group in groups for prefix in self.prefixes]
        tags = [tuple(map(as_tag, group)) for group in written] if self.tags else []
        return [list(group) for group in dict.fromkeys([*written, *tags])]


def _spelled(raw: Compiled) -> Compiled:
    """Return the profile with every spelling of its keys written out, so that lookups are exact."""
    spelling = _Spelling(raw.get("prefixes") or [""], raw.get("tags", False))
    out = {key: value for key, value in raw.items() if key not in ("prefixes", "tags")}
    out["fingerprint"] = _fingerprint(raw["fingerprint"], spelling)
    out["versions"] = [_parts(_fingerprint(v, spelling), spelling) for v in raw.get("versions", ())]
    out["algorithms"] = [_fingerprint(algorithm, spelling) for algorithm in raw.get("algorithms", ())]
    return _parts(out, spelling)


def _fingerprint(raw: Mapping[str, Any], spelling: _Spelling) -> Compiled:
    return dict(raw) | {"any": spelling.groups(raw.get("any", ())), "none": spelling.keys(raw.get("none", ()))}


def _parts(raw: Mapping[str, Any], spelling: _Spelling) -> Compiled:
    out = dict(raw)
    out["axis"] = {name: spelling.keys(keys) for name, keys in raw.get("axis", {}).items()}
    out["ignore"] = spelling.keys(raw.get("ignore", ()))
    out["components"] = {name: spelling.keys(patterns) for name, patterns in raw.get("components", {}).items()}
    out["metrics"] = {
        name: dict(metric) | ({"keys": spelling.keys(metric["keys"])} if "keys" in metric else {})
        for name, metric in raw.get("metrics", {}).items()
    }
    return out
