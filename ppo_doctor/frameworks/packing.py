"""What a profile's TOML may say, and its compiled form: inherited, checked, every spelling of a key written out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ppo_doctor.compiled import Compiled, Parsed
from ppo_doctor.errors import DoctorError, ExitCode
from ppo_doctor.frameworks.matching import as_tag
from ppo_doctor.frameworks.overlay import LISTS, TABLES, overlaid
from ppo_doctor.frameworks.settings import SETTINGS
from ppo_doctor.frameworks.updates import FUNCTIONS
from ppo_doctor.metrics import METRICS

REQUIRED = frozenset({"name", "title", "algorithm", "fingerprint"})
#: What a version may change, and what a profile that extends another inherits.
SWITCHES = frozenset({"extends", "ppo_family", "prefixes", "sources", "tags"})
OPTIONAL = TABLES | LISTS | SWITCHES | {"algorithms", "partial_mean", "updates", "versions"}
#: Metrics of which a log holds one per part of the reward.
COMPONENTS = frozenset({"reward_component", "reward_component_std"})
VERSION = TABLES | LISTS | {"name", "any", "none", "algorithm", "updates"}
FINGERPRINT = frozenset({"any", "none", "priority"})
AXIS = frozenset({"step", "update", "epoch", "minibatch"})

METRIC = frozenset(
    {
        "keys",
        "scale",
        "root",
        "resolution",
        "decimals",
        "estimator",
        "estimator_if_negative",
        "aggregation",
        "reference",
        "diluted",
        "constant_when",
        "note",
    }
)
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
    raise DoctorError(f"frameworks/{path}: {what}", code=ExitCode.USAGE)


def _known(path: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(names) - set(known))
    if unknown:
        _fail(path, f"no {what} {', '.join(unknown)}")


def _check_profile(path: str, raw: Compiled) -> None:
    for required in sorted(REQUIRED - set(raw)):
        _fail(path, f"'{required}' is missing")
    _known(path, "field", raw, REQUIRED | OPTIONAL)
    _known(path, "field in [fingerprint]:", raw["fingerprint"], FINGERPRINT)
    if not raw["fingerprint"].get("any"):
        _fail(path, "[fingerprint] needs 'any'")
    _check_parts(path, raw)
    for version in raw.get("versions", ()):
        _known(path, "field in [[versions]]:", version, VERSION)
        _check_parts(path, version)


def _check_parts(path: str, raw: Mapping[str, Any]) -> None:
    for name in sorted(LISTS & set(raw)):
        if isinstance(raw[name], str) or not all(isinstance(item, str) for item in raw[name]):
            _fail(path, f"'{name}' must be a list of strings")
    _known(path, "axis", raw.get("axis", {}), AXIS)
    _known(path, "canonical metric", raw.get("metrics", {}), METRICS)
    _known(path, "canonical setting", _settings_of(raw), SETTINGS)
    for name, metric in raw.get("metrics", {}).items():
        _check_metric(path, name, metric)
    _known(path, "part", raw.get("components", {}), COMPONENTS)
    for name, patterns in raw.get("components", {}).items():
        if isinstance(patterns, str) or any(pattern.count("*") != 1 for pattern in patterns):
            _fail(path, f"[components] {name} must be a list of patterns with one * each")
    for formula in raw.get("updates", ()):
        _check_formula(path, formula)
    if "partial_mean" in raw:
        _check_formula(path, raw["partial_mean"])
        named = (*raw["partial_mean"].get("metrics", ()), *raw["partial_mean"].get("dropped", ()))
        _known(path, "canonical metric", named, METRICS)
        _known(path, "canonical setting", raw["partial_mean"].get("unless", ()), SETTINGS)
    _check_facts(path, raw.get("facts", {}))


def _settings_of(raw: Mapping[str, Any]) -> set[str]:
    constant = (metric.get("constant_when", {}) for metric in raw.get("metrics", {}).values())
    return {*raw.get("config", {}), *raw.get("defaults", {}), *raw.get("unset", ()), *(s for c in constant for s in c)}


def _check_metric(path: str, name: str, metric: Mapping[str, Any]) -> None:
    _known(path, f"field in [metrics.{name}]:", metric, METRIC)
    kinds = (("estimator", ESTIMATORS), ("estimator_if_negative", ESTIMATORS))
    for field, known in (*kinds, ("aggregation", AGGREGATIONS), ("reference", REFERENCES)):
        if field in metric and metric[field] not in known:
            _fail(path, f"[metrics.{name}] {field} = {metric[field]!r}: expected one of {', '.join(sorted(known))}")
    keys = metric.get("keys", ["inherited"])
    if not keys or isinstance(keys, str) or not all(isinstance(key, str) and key for key in keys):
        _fail(path, f"[metrics.{name}] 'keys' must be a list of names")
    if not metric.get("scale", 1.0):
        _fail(path, f"[metrics.{name}] a scale of 0 would erase the metric")


def _check_formula(path: str, formula: Mapping[str, Any]) -> None:
    function: Callable[..., float] | None = FUNCTIONS.get(formula.get("function", ""))
    if function is None:
        _fail(path, f"no K function {formula.get('function')}")
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
    if set(formula.get("arguments", {})) != set(wanted):
        _fail(path, f"K function {formula['function']} takes {', '.join(wanted)}")
    _known(path, "canonical setting", formula["arguments"].values(), SETTINGS)


def _check_facts(path: str, facts: Mapping[str, Any]) -> None:
    _known(path, "fact", facts, METRIC_FACTS | FLAGS)
    _known(path, "canonical metric", (str(facts[name]) for name in sorted(METRIC_FACTS & set(facts))), METRICS)


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
